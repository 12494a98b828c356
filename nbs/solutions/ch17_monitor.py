"""Worked solutions of lesson 17."""
import numpy as np


def mean_between(samples, start, stop):
    total = weights = 0.0
    for end, seconds, value in samples:
        overlap = max(min(end, stop) - max(end - seconds, start), 0.0)
        total += overlap * value
        weights += overlap
    return total / weights if weights else None


def rhythm(waits):
    waits = np.asarray(waits)
    pauses = np.flatnonzero(waits > max(10 * np.median(waits), np.median(waits) + 0.01))
    if len(pauses) < 3: return None
    return int(np.median(np.diff(pauses))), float(np.median(waits[pauses]))


def cure(part, own, workers, everybody, cores):
    free = cores - everybody > 0.5
    if part == "wait" and own + workers >= 0.3: return "more workers" if free else "cheaper transform"
    if everybody - own - workers > 0.5 and not free: return "free a core"
    return "faster storage" if part == "wait" else "leave it"
