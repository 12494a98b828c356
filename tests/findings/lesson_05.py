"Figures that choose each sentence of lesson 05 (tests/test_findings.py)."

SAID = dict(said="So it is. ")
WAITS = dict(SAID, same_ms=5.0, mean_ms=0.52, many_ms=6.0, count=7_200)
GPU = dict(SAID, two_ms=3.1, flat_ms=3.2)
TOKENS = dict(SAID, first_said="And the first.", streams=256)
RATES = dict(SAID, missing=[], worst="up to 16", slower=1.1, slowest=2.4, why="as much")
FAULTS = dict(SAID, fault_us=0.8, longer_us=30.0)
BATCHES = dict(SAID, longest=2.0, slower=1.0, corrected=3.1)
HELD = dict(SAID, once_low=0.3, once_high=0.6, held_low=5.3, small=2.0, large_batch=7.0, busy_once=0.9, busy_held=0.6,
            slower=1.0, off_said=" The dots lie near.")
LINE = dict(SAID, slope_us=56.0, real_us=60.0, worst=64)
CASES = {
    "f5b00001": [
        (dict(WAITS, longest=12.0, slow_ms=9.0), "12 ms: the machine"),
        (dict(WAITS, longest=0.6, slow_ms=9.0), "0.520 ms on average"),
        (dict(WAITS, longest=0.6, slow_ms=5.1), "from the arrivals alone"),
    ],
    "f5b00003": [
        (dict(LINE, off=0.03), "nowhere off by more than 3%"),
        (dict(LINE, off=-0.2), "off by -20% at batch 64"),
    ],
    "f5b00008": [
        (dict(FAULTS, large=17e3, huge=10e3, faults=14.6, few_faults=0.0), "about 12 of the 30 µs"),
        (dict(FAULTS, large=17e3, huge=10e3, faults=0.1, few_faults=0.0), "no more page faults"),
        (dict(FAULTS, large=17e3, huge=17e3, faults=0.1, few_faults=0.0), "gain nothing more: 1.00 times"),
    ],
    "f5b00010": [
        (dict(BATCHES, longest=30.0), "One batch took 30 ms"),
        (dict(BATCHES, slower=1.2), "the formula says 3.1"),
        (dict(BATCHES), "as large as it must be"),
    ],
    "f5b00011": [
        (dict(HELD, held_high=1.4), "holding back made nobody faster"),
        (dict(HELD, held_high=190.0, slower=2.3), "took 2.3 times as long as when we timed them"),
    ],
    "f5b00017": [
        (dict(RATES, miss=0.9, missing=[1, 16]), "2 of the four servers"),
        (dict(RATES, miss=0.02), "within 2.0%"),
        (dict(RATES, miss=0.12), "12% too high"),
    ],
    "f5b00038": [
        (dict(brief=3_503.0, limit_one=3_481.0, waiting_room=52.0, longer=3_320.0), "before the line is that long"),
        (dict(brief=3_400.0, limit_one=3_481.0, waiting_room=52.0, longer=3_320.0), "longer than a second to grow"),
    ],
    "f5b00020": [
        (dict(SAID, each=5.0, batched=1.6, load=0.7), "batch first"),
        (dict(SAID, each=5.0, batched=9.0, load=0.99), "a batch gains too little here"),
    ],
    "f5b00021": [
        (dict(SAID, half=1.4, processor="Some CPU"), "The processor is Some CPU"),
        (dict(SAID, half=0.8, processor="Some CPU"), "bf16 0.80 times"),
    ],
    "f5b00024": [
        (dict(GPU, flat=32), "one of 32 3.2"),
        (dict(GPU, flat=1), "a batch of 2 takes 3.1 ms."),
    ],
    "f5b00028": [
        (dict(TOKENS, least=1.0, most=1.1), "a fixed part, which 64 streams share"),
        (dict(TOKENS, least=0.2, most=1.1), "between 0.2 and 1.1 ms more"),
    ],
}
