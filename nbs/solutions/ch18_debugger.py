import math
from statistics import median


def dead(output): return float((output == 0).all(0).float().mean())


def every(step_ms, look_ms, share): return max(1, math.ceil(look_ms / (share * step_ms)))


def spikes(losses, times):
    return [step for step in range(20, len(losses)) if losses[step] > times * median(losses[step - 20:step])]
