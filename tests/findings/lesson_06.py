"Figures that choose each sentence of lesson 06."
from types import SimpleNamespace


def photos(gain, formula, load2, hand2=1.0, idle2=0.2):
    "Two workers beside a device that computes for 14 ms, where one process loads for 28."
    return dict(gain=gain, by_formula=formula, step2=42 / gain, hand2=hand2, load2=load2, loading=28.0, computing=14.0,
                idle0=0.66, idle2=idle2)


def sweep(of_938, with_2):
    "An epoch's usual steps with 2 workers, 13 ms without."
    lengths = {12: {0: 156.0, 2: 12 * with_2 + 110}, 938: {0: 12200.0, 2: 938 * with_2 + 110}}
    return dict(of_12=0.6, of_938=of_938, start=110.0, without=13.0, with_2=with_2, by_formula=1.14, lengths=lengths,
                low=1.4, high=1.5, bench=0.87)


def ladder(again, net, swept=1.1):
    "Costs of two workers, 1.9 ms of loading saved."
    return dict(saved=1.9, least=0.5, alone_ms=13.0, handed=14.4, both=16.5, cost_1=net + 1.4, cost_3=0.5,
                net=net, again=again, swept=swept, in_loop=15.0, with_2=16.5, without=15.0,
                said="Two workers take 1.9 ms out. ", why="training alone keeps 2.0 of 2 cores busy.")


def handed(each, megabyte):
    return dict(one=1.1, many=1.1 + 63 * each, as_bytes=1.6, floats=1.6 + 7.2 * megabyte, each=each, megabyte=megabyte,
                said="The same digits take longer: ")



def waits(eight):
    return dict(eight=eight, eight_model=8.0, remote_ms={8: 49 / eight}, remote_model={8: 6.1}, said=WAITS)


def gpu(still, step_most):
    "16 workers beside a GPU whose step takes 30 ms with a batch at hand."
    return dict(still=still, step_most=step_most, own=(1 - still) * step_most, at_hand=29.5, launching=23.0, most=16,
                kept=SimpleNamespace(cpu_cores=16), said="Without workers the loop waits. ")


WAITS = "Eight workers are as fast as they are: all eight wait at the same time. "
TWO = "Two workers make a step faster. "
START = "Starting two workers costs 110 ms. "

CASES = {
    "w6000003": [
        (photos(2.9, 3.0, 28.0) | dict(said=TWO), "What is left are hand-overs"),
        (photos(2.5, 3.0, 34.0) | dict(said=TWO), "34 ms for a batch, which takes one process alone 28"),
        (photos(3.6, 3.0, 20.0) | dict(said=TWO), "and a worker, which does nothing else"),
        (photos(2.4, 3.0, 28.0, hand2=3.0) | dict(said=TWO), "leaves out 3.0 ms of a step"),
    ],
    "w6000004": [
        (waits(8.2), "The store sets the limit"),
        (waits(6.0), "they wake late"),
        (waits(10.0), "a single worker came late more often"),
    ],
    "w6000006": [
        (sweep(1.4, 9.0) | dict(said=START, high=2.9), "its factors prove nothing"),
        (sweep(0.85, 15.2) | dict(said=START), "So it is not the start"),
        (sweep(1.0, 13.0) | dict(said=START), "is eaten up by something it leaves out"),
        (sweep(1.1, 11.8) | dict(said=START), "Now see what the workers cost all the same"),
    ],
    "w6000008": [
        (ladder(1.1, 1.5) | dict(least=-3.0), "another program ran beside them"),
        (ladder(1.3, 4.5), "this machine did not run equally fast in both"),
        (ladder(1.1, 1.5), "a step becomes 1.5 ms longer, and the sweep said 1.5"),
        (ladder(1.0, 0.0), "nothing is gained and nothing lost"),
        (ladder(0.95, -0.8, 0.96), "a step still becomes 0.8 ms shorter"),
    ],
    "w600000a": [
        (handed(0.08, 0.2), "each tensor costs 80 µs"),
        (handed(0.08, 0.0), "Bytes are cheap here"),
        (handed(0.01, 0.0), "a tensor costs little here, and so do bytes"),
    ],
    "w600000b": [
        (dict(forked=55.0, kept=2.2, spawned=1928.0, start=110.0), "A spawned worker costs 1.9 s"),
        (dict(forked=55.0, kept=2.2, spawned=60.0, start=110.0), "starting one is no dearer than forking"),
    ],
    "w6000011": [
        (dict(from_stream=4000, divided=1000), "an epoch delivers 4,000 samples instead of 1,000"),
        (dict(from_stream=1000, divided=1000), "An epoch delivers 1,000 samples, and 1,000 when"),
    ],
    "w6000015": [
        (dict(own=1, numpys=4), "both workers draw the same number, and again in the next epoch"),
        (dict(own=1, numpys=2), "your PyTorch is older than 1.9"),
        (dict(own=4, numpys=4), "no generator repeats itself"),
    ],
    "w600001a": [
        (gpu(0.3, 50.0), "Even 16 cannot keep up, and the GPU waits for 30% of a step"),
        (gpu(0.01, 47.0), "a GPU does not compute by itself"),
        (gpu(0.01, 30.0), "as long as with a batch at hand"),
    ],
}
