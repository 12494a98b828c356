import math
from statistics import mean, median, stdev


def divide_wall(steps, wall):
    if not steps: return dict(before=wall, steps=0, between=0, after=0)
    inside = sum(end - start for start, end in steps)
    gaps = sum(after[0] - before[1] for before, after in zip(steps, steps[1:]))
    return dict(before=steps[0][0], steps=inside, between=gaps, after=wall - steps[-1][1])


def fewest_workers(load, compute, work, cores):
    steps = {n: max(load / n, compute, work / cores) for n in range(1, 17)}
    return next(n for n, seconds in steps.items() if seconds <= 1.1 * min(steps.values()))


def verdict(before, after, limit):
    logs = [math.log(b / a) for a, b in zip(before, after)]
    reach = 4.303 * stdev(logs) / math.sqrt(3)
    if math.exp(mean(logs) - reach) > 1 + limit: return "slower"
    return "not slower" if math.exp(mean(logs) + reach) <= 1 + limit else "cannot tell"


def slow_rank(ranks):
    waits = [median(wait) for _, wait in ranks]
    slow = min(range(len(ranks)), key=lambda rank: waits[rank])
    step = median(work + wait for work, wait in zip(*ranks[slow]))
    others = median(wait for rank, wait in enumerate(waits) if rank != slow)
    return slow if others - waits[slow] >= 0.1 * step else None
