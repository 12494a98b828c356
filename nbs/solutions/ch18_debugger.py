import math

import numpy as np


def dead(output): return float((output == 0).all(0).float().mean())


def every(step_ms, look_ms, share): return max(1, math.ceil(look_ms / (share * step_ms)))


def period(milliseconds):
    late = np.flatnonzero(np.array(milliseconds) > 2 * np.median(milliseconds))
    distances = set(np.diff(late).tolist())
    return distances.pop() if len(late) >= 3 and len(distances) == 1 else None


def order(findings):
    return [f["rule"] for f in sorted(findings, key=lambda f: (not f["ruined"], -f["share_lost"]))]
