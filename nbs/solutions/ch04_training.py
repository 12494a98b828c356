import math


def wait_share(steps): return sum(s.wait for s in steps) / sum(s.seconds for s in steps)


class StopWhenSick:
    def on_step(self, run, step):
        if not math.isfinite(step.loss): run.stop()


def accumulate(model, micro_batches, loss_fn):
    samples = sum(len(x) for x, _ in micro_batches)
    for x, y in micro_batches: (loss_fn(model(x), y) * len(x) / samples).backward()


def launched_ms(launches, launch_us, kernel_us):
    return (launches * max(launch_us, kernel_us) + min(launch_us, kernel_us) - launch_us) / 1000
