"Figures that choose each sentence of lesson 06."


def photos(step2, load2, hand2=3.0, said="Two workers make a step faster. "):
    "Two workers beside a device that computes for 20 ms, where one process loads for 27."
    return dict(step1=30.3, step2=step2, step4=22.6, load1=29.9, load2=load2, hand2=hand2, hand4=2.5, loading=27.0,
                computing=20.0, side2=max(load2 / 2, 20.0), cores=2, said=said,
                one="With one worker loading is the slower side. ")


def sweep(with_2, wait_2=1.8, busy_2=10.1, high=1.1):
    "A usual step with 2 workers, 9.2 ms without."
    return dict(with_2=with_2, without=9.2, wait_0=1.2, wait_2=wait_2, busy_0=7.9, busy_2=busy_2, start_0=16.0,
                start_2=88.0, noisy=high > 1.25, why="If all of it were hidden, a step would be faster. ", low=1.0,
                high=high)


def bend(few_0, all_0, few_8, all_8, pays=5.0, cores=2, usual_0=9.2):
    "Steps with a worker beside training; without one, digits take 9 ms, and 23 if they are blurred."
    return dict(cores=cores, pays=pays, usual_0=usual_0, disturbed=usual_0 > 1.4 * 9, none_0=9.0, load_0=1.2,
                load_8=15.0, none_8=23.0, all_0=all_0, few_0=few_0, all_8=all_8, few_8=few_8,
                best_8=min(all_8, few_8), said="Digits: computing takes longer. ")


def waits(eight):
    return dict(eight=eight, eight_model=8.0, remote_ms={8: 49 / eight}, remote_model={8: 6.1}, said=WAITS)


def gpu(rule, with_12, with_16): return dict(rule=rule, waits={12: with_12, 16: with_16}, rest=31.0, rest_12=43.0)


WAITS = "Eight workers are as fast as they are: all eight wait at the same time. "

CASES = {
    "w6000003": [
        (photos(30.0, 30.0) | dict(cores=1), "This machine has one core"),
        (photos(23.0, 31.0) | dict(load1=15.0), "other programs ran beside the first measurement"),
        (photos(23.0, 44.0), "each needs 44.0 ms for a batch"),
        (photos(20.5, 30.0), "nothing is left to gain"),
        (photos(23.2, 31.0), "20.0 + 3.0 = 23.0 ms for two workers"),
        (photos(27.0, 31.0), "in the rest a batch came late"),
    ],
    "w6000004": [
        (waits(8.2), "The store sets the limit"),
        (waits(6.0), "it wakes late"),
        (waits(10.0), "the single worker was disturbed"),
    ],
    "w6000006": [
        (sweep(11.9, high=2.9), "its bars prove nothing"),
        (sweep(11.9), "computing takes 10.1 ms a step instead of 7.9, waiting 1.8 ms instead of 1.2"),
        (sweep(9.2), "Two workers change nothing"),
        (sweep(8.0, 0.1, 7.9), "Of this two workers get 1.15"),
    ],
    "w6000022": [
        (bend(14.0, 10.0, 16.0, 20.0, cores=1), "none to give to a worker"),
        (bend(14.0, 10.0, 16.0, 20.0, usual_0=20.0), "took 20.0 ms in the sweep and 9.0 here: other programs"),
        (bend(14.0, 10.0, 46.0, 40.0), "Here no worker pays, even where loading is heavy"),
        (bend(14.0, 10.0, 16.0, 20.0, pays=1.0), "Here that holds even for digits"),
        (bend(14.0, 10.0, 16.0, 20.0), "a core of its own is better (16.0 against 20.0)"),
        (bend(9.0, 10.0, 16.0, 20.0), "For both a thread fewer is better: 9.0 against 10.0 ms"),
        (bend(14.0, 10.0, 18.0, 16.0), "Giving up a thread does not help with heavy loading (18.0 ms against 16.0)"),
    ],
    "w6000011": [
        (dict(from_stream=4000, divided=1000, batches_0=10, batches_4=12), "12 batches and not 10"),
        (dict(from_stream=1000, divided=1000, batches_0=10, batches_4=10), "An epoch delivers 1,000 samples"),
    ],
    "w600001a": [
        (gpu(15, 0.5, 0.3), "even 16 do not end the waiting: the GPU waits for 30% of a step"),
        (gpu(15, 0.06, 0.01), "With 12 the loop still waits for 6% of a step, and with 16 for 1%"),
        (gpu(8, 0.01, 0.01), "The rule says 8 workers. With 12 the loop waits for 1%"),
    ],
}
