"Figures that choose each sentence of lesson 05 (tests/test_findings.py)."

SAID = dict(said="So it is. ")
WAITS = dict(SAID, same_ms=5.0, mean_ms=0.52)
RATES = dict(SAID, slower=1.1, longest=31.0)
GPU = dict(SAID, two_ms=3.1, flat_ms=3.2)
LINE = dict(SAID, fixed_us=230.0, slope_us=57.5, worst=64)
ENDS = dict(one=0.3, four_alone=1.14, job=" The job.")
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
        (dict(ENDS, four=0.45, gained=2.5), "wait 0.45 ms instead of 1.14: nobody pays"),
        (dict(ENDS, four=1.2, gained=1.0), "gain nothing by it"),
    ],
    "f5b00017": [
        (dict(RATES, share_kept=0.85), "up to 1.10 times as long in the server"),
        (dict(RATES, share_kept=0.85, slower=1.01), "So it is. All three kept the promise."),
        (dict(RATES, share_kept=0.6), "With 60% of the highest rate all three kept it"),
        (dict(RATES, share_kept=0), "no answer for it"),
    ],
    "f5b00024": [
        (dict(GPU, flat=32), "one of 32 3.2"),
        (dict(GPU, flat=1), "a batch of 2 takes 3.1 ms."),
    ],
}
