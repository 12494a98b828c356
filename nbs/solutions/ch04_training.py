import time


def wait_share(steps): return sum(s.wait for s in steps) / sum(s.seconds for s in steps)


def device_seconds(forward, backward, synchronize):
    synchronize()
    readings = [time.perf_counter()]
    for launch in (forward, backward):
        launch()
        synchronize()
        readings.append(time.perf_counter())
    return readings[1] - readings[0], readings[2] - readings[1]


def accumulate(model, micro_batches, loss_fn):
    samples = sum(len(x) for x, _ in micro_batches)
    for x, y in micro_batches: (loss_fn(model(x), y) * len(x) / samples).backward()
