"Figures for each sentence that lesson 10 may conclude with."
_PLAN = dict(miss=[0.0] * 9, small=0.001, xl_miss=0.54)
_BLOCKS = dict(xl_peak=48.23, extra=0.54, left=63.0)
_PRICE = dict(said="", work=2.8, small_ms=5.0)
_DECISION = dict(need=137.0, told="It does not fit. ", plain_ms=880.0, again_ms=1192.0)
_TWO = ["each block recomputed", "4 micro-batches of 8"]

CASES = {
    "m1000005": [(_PLAN | dict(most=1.5, least=0.0), "right within 1.5%, and it is never too high"),
                 (_PLAN | dict(most=4.0, least=0.0), "0.0% to 4.0% below"),
                 (_PLAN | dict(most=1.5, least=-2.0), "-2.0% to 1.5% below")],
    "m1000007": [(_BLOCKS | dict(blocks_gib=48.23), "what blocks have beyond"),
                 (_BLOCKS | dict(blocks_gib=47.9), "not all of it")],
    "m1000008": [(_PRICE | dict(worst=1.92, large_ms=5.0), "bound by its launches"),
                 (_PRICE | dict(worst=1.92, large_ms=14.0), "The largest factor is 1.92."),
                 (_PRICE | dict(worst=1.4, large_ms=5.0), "The largest factor is 1.40.")],
    "m1000012": [(_DECISION | dict(fits=_TWO), "plain steps of 8 sequences take 0.88 s, four recomputed ones 1.19"),
                 (_DECISION | dict(fits=_TWO[1:]), "These ways fit: 4 micro-batches of 8."),
                 (_DECISION | dict(fits=[]), "These ways fit: none.")],
}
