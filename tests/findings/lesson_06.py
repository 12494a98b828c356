"Figures that choose each sentence of lesson 06."
import math
from types import SimpleNamespace


def loop(step, both=49.4):
    "Loading for 28 ms and computing for 21.4."
    return dict(alone=SimpleNamespace(step_ms=step), both=both, said="One process does both. ", stalled="A data stall.")


def loaders(own, every4, cores=2):
    "A worker's own loading, and a batch of four workers; the loop loads for 28 ms, two workers every 15."
    return dict(loop=28.0, own=own, own4=4 * every4, every2=15.0, every4=every4, cores=cores, said="It needs it. ",
                pair="Two need more. ")


def photos(step2, wait2=0.4, hand2=3.1, load_0=28.0, cores=2):
    "Two workers beside a device that computes for 21.4 ms, where one worker loads for 28."
    return dict(step2=step2, compute2=21.4, hand2=hand2, wait2=wait2, load_0=load_0, loading=28.0, cores=cores,
                said="Two workers make a step faster. ", one="With one, loading is the slower side. ")


def sweep(with_2, wait_2=1.8, busy_2=10.1, high=1.1):
    "A step with 2 workers, 9.2 ms without."
    return dict(with_2=with_2, without=9.2, wait_0=1.2, wait_2=wait_2, busy_0=7.9, busy_2=busy_2, start_0=16.0,
                start_2=88.0, noisy=high > 1.25, why="If all of it were hidden, a step would be faster. ", low=1.0,
                high=high)


def crossing(crossed, pays=6.8, cores=2, disturbed=False):
    "Lines of a step without a worker and with one that has a core of its own."
    return dict(cores=cores, disturbed=disturbed, crossed=crossed, pays=pays, load_0=1.1, heavy=14.9, usual_0=20.0,
                digits_0=8.7, heavy_0=23.5, heavy_few=16.0, by_rule="By the formula it pays. ",
                lies=f"Measured, the two lines cross at {crossed:.1f}. ", shifts="The computings are not fixed. ",
                threads="With all threads the step grows. ", math=math)


def waits(gain_r, cores=2):
    return dict(gain_r=gain_r, gain_p=1.9, cores=cores, said="The remote samples only wait. ")


def gpu(with_12, with_16, step_16=47.8):
    return dict(rule=15, waits={12: with_12, 16: with_16}, step_16=step_16, least=31.2, own_4=620, loop_4=443,
                slower="A step is longer. ", ends="The loop takes longer. ")


CASES = {
    "w6000001": [
        (loop(80.0), "Measured are 80.0: other programs ran"),
        (loop(49.7), "One process does both. A data stall."),
    ],
    "w6n00002": [
        (loaders(28.0, 28.0, cores=1), "the workers take turns on it"),
        (loaders(14.0, 14.0), "hold up a loop with several threads"),
        (loaders(28.7, 15.0), "Four deliver no more, because they share 2 cores: each needs 60.0 ms"),
        (loaders(28.7, 7.5, cores=8), "Four deliver one every 7.5 ms"),
    ],
    "w6000003": [
        (photos(30.0, cores=1), "This machine has one core"),
        (photos(24.9, load_0=60.0), "other programs ran beside one of the two"),
        (photos(30.0, wait2=5.5), "still waits 5.5 ms of a step for loading"),
        (photos(21.9, wait2=0.1, hand2=0.4), "nothing is left to gain"),
        (photos(24.9), "21.4 + 3.1 ms, and 0.4 ms for batches that came late, are 24.9"),
    ],
    "w6000004": [
        (waits(5.0), "it wakes late"),
        (waits(8.0), "The photographs work, so eight workers are only 1.9 times as fast as one"),
        (waits(8.0, cores=16), "here too each worker has a core"),
    ],
    "w6000006": [
        (sweep(11.9, high=2.9), "its bars prove nothing"),
        (sweep(11.9), "computing takes 10.1 ms a step instead of 7.9, waiting 1.8 ms instead of 1.2"),
        (sweep(9.2), "Two workers change nothing"),
        (sweep(8.0, 0.1, 7.9), "Of this two workers get 1.15"),
    ],
    "w6000022": [
        (crossing(6.5, cores=1), "none to give to a worker"),
        (crossing(6.5, disturbed=True), "took 20.0 ms in the sweep and 8.7 here: other programs"),
        (crossing(math.inf), "the lines do not cross up to 14.9 ms"),
        (crossing(1.1, pays=0.5), "So here it pays even for digits"),
        (crossing(6.5), "digits are best without a worker (8.7 ms)"),
        (crossing(9.5), "the worker's own core saves 7.5 ms of 23.5"),
    ],
    "w6000011": [
        (dict(from_stream=4000, divided=1000, batches_0=10, batches_4=12), "12 batches and not 10"),
        (dict(from_stream=1000, divided=1000, batches_0=10, batches_4=10), "An epoch delivers 1,000 samples"),
    ],
    "w600001a": [
        (gpu(0.5, 0.3), "even 16 do not end the waiting: the loop waits for 30% of a step"),
        (gpu(0.06, 0.01), "the loop waits for 6% of a step with 12 and for 1% with 16"),
        (gpu(0.01, 0.01, 31.5), "With 12 the loop waits for 1% of a step, and with 16 for 1%"),
    ],
}
