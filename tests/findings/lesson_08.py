"Figures on each side of the conditions of lesson 08's conclusions."
_STAGES = dict(told="", reading=37.0)
_BACKUP = dict(told="", why="")
_INTERVALS = dict(told="", next_high=30.0, beside_reading=40.0, beside_transform=27.0)
_STORE = dict(told="", rest="", gain=1.8, reading=37.0, around=5.0, around_fast=3.1)
_HIDDEN = dict(told="", cores=2, transform_12=4.0)
_DIAGNOSED = dict(whole=54.0, left_out=37.0)
_VERIFIED = dict(told="", spread="", verification=0, gained=5.0)
_FED = dict(told="", storage_12=0.0, preprocessing_12=6.9, adds_0=37.0)

CASES = {
    "d0800001": [(_STAGES | dict(reading=20.0), "is impossible"), (_STAGES, "5 ms more than the 32"),
                 (_STAGES | dict(reading=90.0), "far more than the 32 ms")],
    "d0800002": [(_BACKUP | dict(quiet_1="reading", late_1="transform", late_reading=-14.0), "is impossible"),
                 (_BACKUP | dict(quiet_1="reading", late_1="transform", late_reading=4.0), "not the reading any more"),
                 (_BACKUP | dict(quiet_1="reading", late_1="reading", late_reading=23.0), "still the reading")],
    "d0800003": [(_INTERVALS | dict(low=36.0), "do not meet, so the reading"),
                 (_INTERVALS | dict(low=28.0), "the intervals meet beside"),
                 (_INTERVALS | dict(low=28.0, beside_transform=50.0), "and turns show both")],
    "d0800004": [(_STORE | dict(predicted=1.81, all_reading=2.0), "ask which part"),
                 (_STORE | dict(predicted=1.75, all_reading=2.0), "it would promise 2.00. Before"),
                 (_STORE | dict(predicted=1.6, all_reading=1.85), "which is nearer"),
                 (_STORE | dict(predicted=1.6, all_reading=1.65, around_fast=5.2), "run the cell again")],
    "d0800005": [(_HIDDEN | dict(adds_0=37.0, adds_12=0.6), "has flipped"),
                 (_HIDDEN | dict(adds_0=37.0, adds_12=5.0), "so the wait is **hidden**."),
                 (_HIDDEN | dict(adds_0=37.0, adds_12=12.0), "Even twelve do not hide it")],
    "d0800007": [(_DIAGNOSED | dict(verdict="storage", storage=33.0), "counts as preprocessing"),
                 (_DIAGNOSED | dict(verdict="storage", storage=38.0), "reading out said 37."),
                 (_DIAGNOSED | dict(verdict="inconclusive", storage=33.0), "other programs were busy")],
    "d0800008": [(_VERIFIED | dict(verification=None, said=5.2), "nothing to verify"),
                 (_VERIFIED | dict(said=5.2), "off by +4%"), (_VERIFIED | dict(said=6.5), "30% too high"),
                 (_VERIFIED | dict(said=4.0), "20% too low")],
    "d0800009": [(_FED | dict(verdict_12="preprocessing", transform_12=4.5), "37 / 12 = 3.1 ms"),
                 (_FED | dict(verdict_12="preprocessing", transform_12=8.0), "transform out saved 8.0."),
                 (_FED | dict(verdict_12="mixed", transform_12=4.5), "the verdict is mixed")],
    "d0800017": [(dict(told="Preprocessing", verdict_12="preprocessing"), "so that is next"),
                 (dict(told="Mixed", verdict_12="mixed"), "Mixed.")],
}
