def stages(full, handed, batch, device):
    return tuple(max(0, more - less) for more, less in ((full, handed), (handed, batch), (batch, device))) + (device,)


def best_speedup(share): return 1 / (1 - share)


def step_with_workers(sleep, compute, workers, cores, train):
    return max((sleep + compute) / workers, (compute + train) / cores, train)
