"Figures that choose each sentence of lesson 05 (tests/test_findings.py)."

SAID = dict(said="So it is. ")
WAITS = dict(SAID, same_ms=5.0, mean_ms=0.52, many_ms=6.0, count=7_200)
GPU = dict(SAID, two_ms=3.1, flat_ms=3.2)
TOKENS = dict(SAID, first=" And the first.", one_ms=1.61, slope_us=24.0, floor_ms=0.57, most=256, far=0.06)
RATES = dict(SAID, missing=[], worst="up to 16", slower=1.1, slowest=2.4, headroom=0.15, longest=31.0)
BATCHES = dict(SAID, longest=2.0, slower=1.0, corrected=3.1)
HELD = dict(SAID, once_low=0.3, once_high=0.6, held_low=5.3, small=2.0, large_batch=7.0, busy_once=0.9, busy_held=0.6,
            slower=1.0, off_said=" The dots lie near.")
LINE = dict(SAID, slope_us=56.0, real_us=60.0, worst=64)
CASES = {
    "f5b00001": [
        (dict(WAITS, longest=12.0, slow_ms=9.0), "12 ms: the machine"),
        (dict(WAITS, longest=0.6, slow_ms=9.0), "0.520 ms on average"),
        (dict(WAITS, longest=0.6, slow_ms=5.1), "wait comes from the arrivals"),
    ],
    "f5b00003": [
        (dict(LINE, off=0.03), "nowhere off by more than 3%"),
        (dict(LINE, off=-0.2), "off by -20% at batch 64"),
    ],
    "f5b00008": [
        (dict(SAID, four=0.44, four_alone=1.14, gained=2.5, job=" The job."), "batching what is there costs"),
        (dict(SAID, four=1.2, four_alone=1.14, gained=1.0, job=" The job."), "gain nothing by it"),
    ],
    "f5b00010": [
        (dict(BATCHES, longest=30.0), "One batch took 30 ms"),
        (dict(BATCHES, slower=1.2), "the formula says 3.1"),
        (dict(BATCHES), "as large as it must be"),
    ],
    "f5b00011": [
        (dict(HELD, held_high=1.4), "holding back made neither half faster"),
        (dict(HELD, held_high=190.0, slower=2.3), "took 2.3 times as long as in the rehearsal"),
    ],
    "f5b00017": [
        (dict(RATES, lower=0.35, missing=[1, 16]), "2 of the three servers"),
        (dict(RATES, lower=0.0), "15% below the prediction"),
        (dict(RATES, lower=0.1), "with another 10% less"),
    ],
    "f5b00024": [
        (dict(GPU, flat=32), "one of 32 3.2"),
        (dict(GPU, flat=1), "a batch of 2 takes 3.1 ms."),
    ],
    "f5b00028": [
        (dict(TOKENS, off=0.004), "all of it is shared"),
        (dict(TOKENS, off=-0.2), "off by -20% at 64 streams"),
    ],
}
