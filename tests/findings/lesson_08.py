"Figures on each side of the conditions of lesson 08's conclusions."
_STAGES = dict(told="", reading=37.0)
_INTERVALS = dict(told="", first="reading", next_high=19.0)
_STORE = dict(told="", gain=1.8, reading=37.0, all_reading=2.0, around=5.0, around_fast=3.1)
_HIDDEN = dict(told="", measured="Off by 9%", adds_0=37.0, unread=8.0, cores=2)
_DIAGNOSED = dict(whole=54.0, left_out=37.0)
_VERIFIED = dict(told="", verification=0, gained=5.0)
_FED = dict(told="", cores=2, verdict_12="preprocessing")
_GPU = dict(told="", loading=443.0, computing=31.0, step_8=73.0)
_WAITS = dict(told="", copies="", cure=" The step without a wait is launch-bound",
              free=29.0, free_launch=12.0, each_layer=60.0)

CASES = {
    "d0800001": [(_STAGES | dict(reading=20.0), "is impossible"), (_STAGES, "5 ms more than the 32"),
                 (_STAGES | dict(reading=90.0), "far more than the 32 ms")],
    "d0800002": [(dict(told="", quiet_1="reading", late_1="transform"), "from reading to transform"),
                 (dict(told="", quiet_1="reading", late_1="reading"), "still the reading")],
    "d0800003": [(_INTERVALS | dict(low=36.0), "do not meet, so reading"), (_INTERVALS | dict(low=18.0), "overlap")],
    "d0800004": [(_STORE | dict(predicted=1.82), "ask which part"),
                 (_STORE | dict(predicted=2.0), "and 3.1 around the fast")],
    "d0800005": [(_HIDDEN | dict(adds_12=-9.0, over_12=0.2), "Less than nothing"),
                 (_HIDDEN | dict(adds_12=0.5, over_12=0.2), "and not the 2 cores"),
                 (_HIDDEN | dict(adds_12=0.5, over_12=0.01), "the others work. Off by 9%."),
                 (_HIDDEN | dict(adds_12=12.0, over_12=0.2), "Even twelve do not hide it")],
    "d0800007": [(_DIAGNOSED | dict(verdict="storage", storage=33.0), "is preprocessing, although"),
                 (_DIAGNOSED | dict(verdict="storage", storage=38.0), "reading out said 37."),
                 (_DIAGNOSED | dict(verdict="inconclusive", storage=33.0), "other programs were busy")],
    "d0800008": [(_VERIFIED | dict(verification=None, said=5.2), "nothing to verify"),
                 (_VERIFIED | dict(said=5.2), "off by +4%"), (_VERIFIED | dict(said=6.5), "30% too high"),
                 (_VERIFIED | dict(said=4.0), "20% too low")],
    "d0800009": [(_FED | dict(pace_12=4.3, cores_12=9.0), "no longer pays"),
                 (_FED | dict(pace_12=4.3, cores_12=2.0), "still set the pace")],
    "d0800013": [(_GPU | dict(each_8=582.0, grown=43.0), "each needs 582 ms"),
                 (_GPU | dict(each_8=450.0, grown=43.0), "8 workers need 450 ms")],
    "d0800016": [(_WAITS | dict(each_step=35.0), "already costs 21%"),
                 (_WAITS | dict(each_step=29.3, free_launch=27.0), "launch-bound"),
                 (_WAITS | dict(each_step=29.3), "launches the next step quickly")],
    "d0800017": [(dict(told="Preprocessing", verdict_12="preprocessing"), "so fix that next"),
                 (dict(told="Mixed", verdict_12="mixed"), "Mixed.")],
}
