"Figures that choose each sentence of lesson 05 (tests/test_findings.py)."

SAID = dict(said="So it is. ")
WAITS = dict(SAID, same_ms=5.0, mean_ms=0.52, luck=" Luck.")
RUNS = dict(SAID, slower=1.1, longest=31.0, names=(1, 16))
GPU = dict(SAID, two_ms=3.1, flat_ms=3.2, first_ms=6.0)
LINE = dict(SAID, fixed_us=230.0, slope_us=57.5, worst=64)
ENDS = dict(alone=0.28, mean_ms=0.7, job_gain=2.0)
KEPT = {(most, kind): 1.0 for most in (1, 16) for kind in ("strict", "generous")}
CASES = {
    "f5b00001": [
        (dict(WAITS, longest=12.0, slow_ms=9.0), "12 ms: the machine"),
        (dict(WAITS, longest=0.6, slow_ms=9.0), "0.520 ms on average"),
        (dict(WAITS, longest=0.6, slow_ms=5.1), "wait comes from the arrivals"),
    ],
    "f5b00003": [
        (dict(LINE, off=0.03), "with 4 images both parts are equal"),
        (dict(LINE, off=-0.2), "at batch 64 it is off by -20%"),
    ],
    "f5b00008": [
        (dict(ENDS, together=0.45), "Only the first one loses: it had its answer after 0.28"),
        (dict(ENDS, together=1.2), "gain nothing by it"),
    ],
    "f5b00017": [
        (dict(RUNS, kept=KEPT), "All servers kept their promise, with batches that took up to 1.10"),
        (dict(RUNS, kept=KEPT | {(1, "strict"): 0.97}), "The strict promise was not kept everywhere"),
        (dict(RUNS, kept=KEPT | {(16, "generous"): 0.9}), "Not all servers kept the promise"),
    ],
    "f5b00021": [
        (dict(least=1.0, worst_p99=1.1), "lie near the curves"),
        (dict(least=1.0, worst_p99=1.7), "1.0 to 1.7 times that of the same arrivals"),
    ],
    "f5b00024": [
        (dict(GPU, flat=32), "one of 32 3.2"),
        (dict(GPU, flat=1), "a batch of 2 takes 3.1 ms."),
    ],
}
