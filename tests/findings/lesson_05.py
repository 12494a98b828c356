"Figures that choose each sentence of lesson 05 (tests/test_findings.py)."

SAID = dict(said="So it is. ")
WAITS = dict(SAID, same_ms=5.0, mean_ms=0.52, many_ms=6.0, count=7_200)
GPU = dict(SAID, flat_said="Flat. ", first_ms=3.1, launch_ms=3.0)
TOKENS = dict(SAID, first_said="And the first.", streams=256)
RATES = dict(SAID, missing=[], worst="up to 16", idle=0.03, slower=1.0, typical=1.0)
BATCHES = dict(SAID, longest=2.0, slower=1.0, steady=2.6, repeated=2.8)
HELD = dict(SAID, once_low=0.3, once_high=0.6, held_low=5.3, small=2.0, large_batch=7.0, busy_once=0.9, busy_held=0.6,
            slower=1.0)
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
        (dict(SAID, large=17e3, huge=10e3, faults=14.6, few_faults=0.0), "15 page faults an image"),
        (dict(SAID, large=17e3, huge=10e3, faults=0.1, few_faults=0.0), "no more page faults"),
        (dict(SAID, large=17e3, huge=17e3, faults=0.1, few_faults=0.0), "gain nothing more: 1.00 times"),
    ],
    "f5b00010": [
        (dict(BATCHES, longest=30.0), "One batch took 30 ms"),
        (dict(BATCHES, slower=1.2), "1.20 times as long as the line says"),
        (dict(BATCHES), "as large as it must be"),
    ],
    "f5b00011": [
        (dict(HELD, held_high=1.4), "holding back made nobody faster"),
        (dict(HELD, held_high=190.0, slower=2.3), "took 2.3 times as long"),
    ],
    "f5b00017": [
        (dict(RATES, miss=0.9, missing=[1, 16], slower=2.4), "2 of the three servers"),
        (dict(RATES, miss=0.02), "within 2.0%"),
        (dict(RATES, miss=0.12, slower=1.1, typical=1.08), "1.08 times as long as when we drew the line"),
        (dict(RATES, miss=0.12, slower=1.1), "medians, which leave that out"),
        (dict(RATES, miss=0.12), "the server made and noted them"),
        (dict(RATES, miss=-0.12, slower=0.9), "12% too low"),
    ],
    "f5b00020": [
        (dict(SAID, each=5.0, batched=1.6, load=0.7), "batch first"),
        (dict(SAID, each=5.0, batched=9.0, load=0.99), "a batch gains too little here"),
    ],
    "f5b00021": [
        (dict(SAID, half=1.4), "bf16 1.4 times: this processor"),
        (dict(SAID, half=0.8), "bf16 0.80 times"),
    ],
    "f5b00024": [
        (dict(GPU, flat=32, first_ms=6.0), "Only single images took 6.0 ms"),
        (dict(GPU, flat=32), "costs no latency at all"),
        (dict(GPU, flat=1), "one image takes 3.1 ms"),
    ],
    "f5b00028": [
        (dict(TOKENS, least=1.0, most=1.1), "a fixed part, as in our own line"),
        (dict(TOKENS, least=0.2, most=1.1), "between 0.2 and 1.1 ms more"),
    ],
}
