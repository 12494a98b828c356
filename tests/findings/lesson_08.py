"Figures on each side of the conditions of lesson 08's conclusions."
_STAGES = dict(told="", reading=37.0)
_INTERVALS = dict(told="", first="reading", next_high=19.0)
_HIDDEN = dict(told="", adds_0=37.0, model_2=26.0, step_2=27.0, model_6=8.7, unread_6=9.5, cores=2)
_PROFILED = dict(adds_0=37.0, row_2=22.0, blur_2=0.1)
_DIAGNOSED = dict(storage=33.0, whole=54.0, left_out=37.0)
_VERIFIED = dict(told="", verification=0, gained=5.0)
_FED = dict(told="", cores=2)
_GPU = dict(told="", enough=12, left=0.44, rest=0.06)
_WAITS = dict(told="", free=29.0, free_launch=12.0, each_layer=60.0)

CASES = {
    "d0800001": [(_STAGES | dict(reading=20.0), "is impossible"), (_STAGES, "5 ms more than we put in"),
                 (_STAGES | dict(reading=90.0), "far more than the 32 ms")],
    "d0800002": [(dict(told="", negative=2, most=60.0, least=38.0), "2 are below zero"),
                 (dict(told="", negative=1, most=60.0, least=38.0), "1 is below zero"),
                 (dict(told="", negative=0, most=60.0, least=38.0), "looks slow"),
                 (dict(told="", negative=0, most=40.0, least=38.0), "met all four variants alike")],
    "d0800003": [(_INTERVALS | dict(low=36.0), "do not meet, so reading"), (_INTERVALS | dict(low=18.0), "overlap")],
    "d0800004": [(dict(told="", extra_low=-0.2, extra_high=0.3), "differ by -0.2 to 0.3 ms"),
                 (dict(told="", extra_low=0.4, extra_high=0.9), "costs 0.4 to 0.9 ms itself"),
                 (dict(told="", extra_low=-0.9, extra_high=-0.4), "0.4 to 0.9 ms faster")],
    "d0800005": [(_HIDDEN | dict(adds_6=-9.0, step_6=11.0), "Less than nothing"),
                 (_HIDDEN | dict(adds_6=0.5, step_6=11.0), "share 2 cores"),
                 (_HIDDEN | dict(adds_6=0.5, step_6=8.8), "measured are 27 and 8.8"),
                 (_HIDDEN | dict(adds_6=12.0, step_6=20.0), "Even six do not hide it")],
    "d0800006": [(_PROFILED | dict(row_0=38.0, blur_0=17.0), "finds the stage: 38 ms"),
                 (_PROFILED | dict(row_0=38.0, blur_0=50.0), "look larger than the reading")],
    "d0800007": [(_DIAGNOSED | dict(verdict="storage"), "The verdict is ours"),
                 (_DIAGNOSED | dict(verdict="inconclusive"), "the draws disagree")],
    "d0800008": [(_VERIFIED | dict(verification=None, said=5.2), "nothing to verify"),
                 (_VERIFIED | dict(said=5.2), "off by +4%"), (_VERIFIED | dict(said=6.5), "30% too high"),
                 (_VERIFIED | dict(said=4.0), "20% too low")],
    "d0800009": [(_FED | dict(verdict_6="preprocessing"), "a faster disk would gain nothing"),
                 (_FED | dict(verdict_6="storage"), "still storage"),
                 (_FED | dict(verdict_6="mixed"), "no stage leads"),
                 (_FED | dict(verdict_6="compute"), "no longer holds")],
    "d0800013": [(_GPU | dict(too_few=8, needed=10), "lies between them"),
                 (_GPU | dict(too_few=8, needed=7), "it takes 12"),
                 (_GPU | dict(too_few=8, needed=14), "12 are enough")],
    "d0800016": [(_WAITS | dict(each_step=35.0), "already costs 21%"),
                 (_WAITS | dict(each_step=29.3, free_launch=27.0), "nearly the whole step"),
                 (_WAITS | dict(each_step=29.3), "launches the next step quickly")],
}
