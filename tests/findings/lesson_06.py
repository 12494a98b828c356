"Figures that choose each sentence of lesson 06."


def photos(step2, load2, hand2=3.0, said="Two workers make a step faster. "):
    "Two workers beside a device that computes for 20 ms, where one process loads for 27."
    return dict(step1=30.3, step2=step2, step4=22.6, load1=29.9, load2=load2, hand2=hand2, hand4=2.5, loading=27.0,
                computing=20.0, side2=max(load2 / 2, 20.0), cores=2, said=said,
                one="With one worker loading is the slower side. ")


def sweep(with_2, wait_2=1.8, busy_2=10.1, high=1.1):
    "A usual step with 2 workers, 9.2 ms without."
    return dict(with_2=with_2, without=9.2, wait_0=1.2, wait_2=wait_2, busy_0=7.9, busy_2=busy_2, low=1.0, high=high,
                noisy=high > 1.25,
                why="In 2018 there was much to hide. ")


def handed(each, megabyte):
    return dict(one=1.1, many=1.1 + 63 * each, as_bytes=1.6, floats=1.6 + 7.2 * megabyte, each=each, megabyte=megabyte,
                said="The same digits take longer: ", busy=" Here both cores were idle.")


def bend(one_ms, pays=5.0, cores=2):
    "A step with a worker and a thread fewer, where loading takes 20 ms."
    return dict(cores=cores, pays=pays, loads=[1.3, 5.0, 20.0], gain=29 / one_ms, off=20 / one_ms - 1, said_ms=20.0,
                fewest=20.0, said="C is 9.0 ms and D is 14.0. ")


def waits(eight):
    return dict(eight=eight, eight_model=8.0, remote_ms={8: 49 / eight}, remote_model={8: 6.1}, said=WAITS)


def gpu(still, rest_most):
    "16 workers beside a GPU whose step takes 30 ms with a batch at hand."
    return dict(still=still, rest_most=rest_most, rest_ms=31.2, at_hand=29.5, most=16,
                said="fitted curve bends at 13. ")


WAITS = "Eight workers are as fast as they are: all eight wait at the same time. "

CASES = {
    "w6000003": [
        (photos(30.0, 30.0) | dict(cores=1), "This machine has one core"),
        (photos(23.0, 44.0), "each needs 44.0 ms for a batch"),
        (photos(20.5, 30.0), "nothing is left to gain"),
        (photos(23.2, 31.0), "20.0 ms and 3.0 make the step with two"),
        (photos(27.0, 31.0), "in the rest a batch came late"),
    ],
    "w6000004": [
        (waits(8.2), "The store sets the limit"),
        (waits(6.0), "it wakes late"),
        (waits(10.0), "the single worker was disturbed"),
    ],
    "w6000006": [
        (sweep(11.9, high=2.9), "its bars prove nothing"),
        (sweep(11.9), "is worse than nothing: waiting goes from 1.2 to 1.8 ms"),
        (sweep(9.2), "Two workers change nothing"),
        (sweep(8.0, 0.1, 7.9), "Of this two workers get 1.15"),
    ],
    "w600000a": [
        (handed(0.08, 0.2), "each tensor costs 80 µs"),
        (handed(0.08, 0.0), "Bytes are cheap here"),
        (handed(0.01, 0.0), "a tensor costs little here, and so do bytes"),
    ],
    "w600000b": [
        (dict(forked=55.0, kept=2.2, spawned=1928.0), "Two spawned ones cost 1.9 s"),
        (dict(forked=55.0, kept=2.2, spawned=60.0), "starting them is no dearer than forking"),
    ],
    "w6000022": [
        (bend(20.0, cores=1), "none to give to a worker"),
        (bend(20.0, pays=1.0), "a worker pays even for digits"),
        (bend(31.0), "other programs ran beside these runs"),
        (bend(21.0), "The formula said 20.0."),
        (bend(26.0), "was timed without a worker"),
    ],
    "w6000011": [
        (dict(from_stream=4000, divided=1000, batches_0=10, batches_4=12, lost=200), "12 and not 10, and"),
        (dict(from_stream=1000, divided=1000, batches_0=10, batches_4=10, lost=0), "An epoch delivers 1,000 samples"),
    ],
    "w6000015": [
        (dict(own=1, numpys=4), "both workers draw the same number, and again in the next epoch"),
        (dict(own=1, numpys=2), "your PyTorch is older than 1.9"),
        (dict(own=4, numpys=4), "no generator repeats itself"),
    ],
    "w600001a": [
        (gpu(0.3, 50.0), "even 16 cannot keep up: the GPU waits for 30% of a step"),
        (gpu(0.01, 47.0), "nothing more comes, because the loop is slower"),
        (gpu(0.01, 31.0), "the step stays at 31 ms"),
    ],
}
