"Figures on each side of the conditions of lesson 08's conclusions."
_STAGES = dict(told="", reading=37.0)
_RUNS = dict(told="", most=19.0, least=10.0)
_INTERVALS = dict(told="", first="reading", next_high=19.0)
_STORE = dict(told="", gain=1.8, reading=37.0, fixed=5.0, expected=15.7)
_HIDDEN = dict(told="", measured="Off by 9%", adds_0=37.0, unread_6=8.0, cores=2)
_PROFILED = dict(told="")
_DIAGNOSED = dict(whole=54.0, left_out=37.0)
_VERIFIED = dict(told="", verification=0, gained=5.0)
_FED = dict(told="", cores=2)
_GPU = dict(told="", loading=443.0, computing=31.0, step_8=73.0, rest=0.06, from_8=13.0)
_WAITS = dict(told="", copies="", free=29.0, free_launch=12.0, each_layer=60.0)

CASES = {
    "d0800001": [(_STAGES | dict(reading=20.0), "is impossible"), (_STAGES, "5 ms more than the 32"),
                 (_STAGES | dict(reading=90.0), "far more than the 32 ms")],
    "d0800002": [(_RUNS | dict(named=2), "do not even agree"), (_RUNS | dict(named=1), "looks slow"),
                 (_RUNS | dict(named=1, most=10.5), "met all four variants alike")],
    "d0800003": [(_INTERVALS | dict(low=36.0), "do not meet, so reading"), (_INTERVALS | dict(low=18.0), "overlap")],
    "d0800004": [(_STORE | dict(predicted=1.82, left=12.3), "a third of the reading"),
                 (_STORE | dict(predicted=2.0, left=15.4), "The law is right"),
                 (_STORE | dict(predicted=2.0, left=22.0), "did not look into the rest")],
    "d0800005": [(_HIDDEN | dict(adds_6=-9.0, off_6=-0.2), "Less than nothing"),
                 (_HIDDEN | dict(adds_6=0.5, off_6=-0.2), "counts workers, and not the 2 cores"),
                 (_HIDDEN | dict(adds_6=0.5, off_6=-0.01), "the others work. Off by 9%."),
                 (_HIDDEN | dict(adds_6=12.0, off_6=-0.2), "Even six do not hide it")],
    "d0800006": [(_PROFILED | dict(row_0=38.0, blur_0=17.0), "finds the stage"),
                 (_PROFILED | dict(row_0=38.0, blur_0=50.0), "look larger than the reading")],
    "d0800007": [(_DIAGNOSED | dict(verdict="storage", storage=33.0), "counts as preprocessing"),
                 (_DIAGNOSED | dict(verdict="storage", storage=38.0), "reading out said 37."),
                 (_DIAGNOSED | dict(verdict="inconclusive", storage=33.0), "other programs were busy")],
    "d0800008": [(_VERIFIED | dict(verification=None, said=5.2), "nothing to verify"),
                 (_VERIFIED | dict(said=5.2), "off by +4%"), (_VERIFIED | dict(said=6.5), "30% too high"),
                 (_VERIFIED | dict(said=4.0), "20% too low")],
    "d0800009": [(_FED | dict(verdict_6="preprocessing"), "no longer pays"),
                 (_FED | dict(verdict_6="storage"), "take more workers"),
                 (_FED | dict(verdict_6="mixed"), "no stage leads"),
                 (_FED | dict(verdict_6="compute"), "no longer holds")],
    "d0800013": [(_GPU | dict(each_8=582.0, grown=43.0), "rounded up 14 workers"),
                 (_GPU | dict(each_8=450.0, grown=43.0), "Neither the workers nor")],
    "d0800016": [(_WAITS | dict(each_step=35.0), "already costs 21%"),
                 (_WAITS | dict(each_step=29.3, free_launch=27.0), "costs only 1%"),
                 (_WAITS | dict(each_step=29.3), "launches the next step quickly")],
    "d0800017": [(dict(told="Preprocessing", verdict_6="preprocessing"), "so fix that next"),
                 (dict(told="Mixed", verdict_6="mixed"), "Mixed.")],
}
