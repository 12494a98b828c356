def divide_wall(steps, wall):
    if not steps: return dict(before=wall, steps=0, between=0, after=0)
    inside = sum(end - start for start, end in steps)
    gaps = sum(after[0] - before[1] for before, after in zip(steps, steps[1:]))
    return dict(before=steps[0][0], steps=inside, between=gaps, after=wall - steps[-1][1])


def fewest_workers(load, compute, work, cores):
    steps = {n: max(load / n, compute, work / cores) for n in range(1, 17)}
    return next(n for n, seconds in steps.items() if seconds <= 1.1 * min(steps.values()))


def epochs_for(before, after, steps, start, share):
    epochs = 1
    while epochs * steps * before / (start + epochs * steps * after) < share * before / after: epochs += 1
    return epochs
