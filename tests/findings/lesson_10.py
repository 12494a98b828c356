"Figures for each sentence that lesson 10 may conclude with."
_PLAN = dict(miss=[0.0] * 9, scores_gib=18.0, more=18.01)
_BLOCKS = dict(xl_peak=48.23, extra=0.54)
_PARTS = dict(whole=129.9, need=136.9, h100=79.2, missing=57.7)
_PRICE = dict(said="", medium_more=66.6, large_more=59.2, larger=2.18)
_DECISION = dict(told="They do not fit. ", xl_ms=219.9, again_ms=298.1)
_TWO = ["32 at once, each block recomputed", "4 micro-batches of 8"]

CASES = {
    "m1000005": [(_PLAN | dict(most=1.5, least=0.0), "at most 1.5% too low and never too high"),
                 (_PLAN | dict(most=4.0, least=0.0), "0.0% to 4.0% below"),
                 (_PLAN | dict(most=1.5, least=-2.0), "-2.0% to 1.5% below")],
    "m1000007": [(_BLOCKS | dict(blocks_gib=48.23), "what the allocator's blocks have beyond"),
                 (_BLOCKS | dict(blocks_gib=47.9), "not all of it")],
    "m1000028": [(_PARTS | dict(grown=94.2, others=35.7), "it is the activations that must shrink"),
                 (_PARTS | dict(grown=50.0, others=35.7), "and an H100 has 79.2"),
                 (_PARTS | dict(grown=94.2, others=60.0), "and an H100 has 79.2")],
    "m1000008": [(_PRICE | dict(worst=2.8), "2.2 times the parameters of GPT-2 medium and pays 59 ms, medium 67"),
                 (_PRICE | dict(worst=2.8, large_more=80.0), "No network pays more than 2.8 times"),
                 (_PRICE | dict(worst=1.2), "No network pays more than 1.2 times the third.")],
    "m1000012": [(_DECISION | dict(fits=_TWO), "4 × 220 = 880 ms for an update, and recomputed 4 × 298 = 1,192"),
                 (_DECISION | dict(fits=_TWO[1:]), "These ways fit: 4 micro-batches of 8."),
                 (_DECISION | dict(fits=[]), "These ways fit: none.")],
}
