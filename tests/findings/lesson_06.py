"Figures that choose each sentence of lesson 06."
from types import SimpleNamespace


def loop(step):
    "Loading for 28 ms and computing for 21.4."
    return dict(alone=SimpleNamespace(step_ms=step), in_the_loop=28.0, computing=21.4, said="One process does both. ",
                stalled="A data stall.")


def loaders(own, every4, cores=2):
    "A worker's own loading, and a batch of four workers; the loop loads for 28 ms, two workers every 15."
    return dict(loop=28.0, own=own, every2=15.0, every4=every4, cores=cores, said="It needs it. ",
                pair="Two need more. ")


def photos(step2, wait2=0.4, hand2=3.1, load_0=28.0, cores=2):
    "Two workers beside a device that computes for 21.4 ms, where one worker loads for 28."
    return dict(step2=step2, formula2=23.4, hand1=2.0, hand2=hand2, wait2=wait2, load_0=load_0, loading=28.0, loop=28.2,
                cores=cores, said="Two workers make a step faster. ", one="With one worker, loading is the slower side",
                computing=21.4)


def sweep(with_2, wait_2=1.8, busy_2=10.1, high=1.1):
    "A step with 2 workers, 9.2 ms without."
    return dict(with_2=with_2, without=9.2, wait_0=1.2, wait_2=wait_2, busy_0=7.9, busy_2=busy_2, noisy=high > 1.25,
                why="This is all that workers can save. ", low=1.0, high=high)


def gpu(wait_12, wait_16, step_16=47.8, beside_16=47.3):
    "An H200 that computes for 31.2 ms, beside a worker that loads for 433."
    return dict(wait_12=wait_12, wait_16=wait_16, step_12=46.1, step_16=step_16, alone_ms=31.2, beside_16=beside_16,
                beside_8=40.7, loads=433.0, load_4=618.0, load_8=582.0, longer=[1.43, 1.34, 1.28, 1.53], rule=14.0,
                rule_4=18.0, rule_8=15.0)


CASES = {
    "w6000001": [
        (loop(80.0), "Other programs ran beside one of the measurements"),
        (loop(49.7), "One process does both. A data stall."),
    ],
    "w6n00002": [
        (loaders(28.0, 28.0, cores=1), "the workers take turns on it"),
        (loaders(14.0, 14.0), "hold up a loop with several threads"),
        (loaders(28.7, 15.0), "Four take turns on 2 cores, and together they deliver one every 15.0 ms"),
        (loaders(28.7, 7.5, cores=8), "Four deliver one every 7.5 ms"),
    ],
    "w6000003": [
        (photos(30.0, cores=1), "This machine has one core"),
        (photos(24.9, load_0=60.0), "60.0 when it was watched and 28.0 in a worker"),
        (photos(30.0, wait2=5.5), "still waits 5.5 ms of a step for loading"),
        (photos(23.6, wait2=0.1, hand2=2.1), "with two it is the device: computing takes 21.4 ms of a step of 23.6."),
        (photos(24.9), "took 24.9 ms, not the 23.4 of the formula. The hand-over took 3.1 ms beside two workers"),
    ],
    "w6000006": [
        (sweep(11.9, high=2.9), "it proves nothing"),
        (sweep(11.9), "computing takes 10.1 ms instead of 7.9, and waiting, now with a hand-over, 1.8 instead of 1.2"),
        (sweep(9.2), "Two workers change nothing"),
        (sweep(8.0, 0.1, 7.9), "Two make a step 1.15 times as fast"),
    ],
    "w6000011": [
        (dict(from_stream=4000, divided=1000, batches_0=10, batches_4=12), "12 batches and not 10"),
        (dict(from_stream=1000, divided=1000, batches_0=10, batches_4=10), "An epoch delivers 1,000 samples"),
    ],
    "w600001a": [
        (gpu(0.5, 0.3), "Even with 16 workers the loop waits for 30% of a step"),
        (gpu(0.06, 0.01), "With 12 workers the loop waits for 6% of a step of 46 ms, with 16 for 1% of one of 48"),
        (gpu(0.06, 0.01, 31.5, 31.3), "a step falls from 46 to 32 ms"),
    ],
}
