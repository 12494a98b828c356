"Figures on each side of the conditions of lesson 08's conclusions."
_STAGES = dict(told="", reading=37.0)
_JOB = dict(told="", why="", late_reading=12.0)
_INTERVALS = dict(told="", loose_low=14.0, loose_high=43.0)
_STORE = dict(told="", gain=1.85, whole_reading=2.06, most_gain=1.9)
_DIAGNOSED = dict(told="", whole=48.0, storage=35.0, by_hand=11.0, by_tool=15.0, least=13.0, most=19.0)
_VERIFIED = dict(told="", verification=0, least=5.7, most=6.1)
_HIDDEN = dict(told="", hides="", workers=7, cores=2, share_0=77.0, transform_saves=38.0, fastest=1.4)
_ANSWER = dict(told="It", with_workers="", gain=1.85, verification=0, gained=6.3, transform_saves=38.0)

CASES = {
    "d0800001": [(_STAGES | dict(reading=20.0), "is impossible"), (_STAGES, "one run of each variant"),
                 (_STAGES | dict(reading=90.0), "far more than the 32 ms")],
    "d0800002": [(_JOB | dict(quiet_1="reading", late_1="transform", late_reading=-9.0), "impossible, and you would"),
                 (_JOB | dict(quiet_1="reading", late_1="transform"), "You would spend your afternoon"),
                 (_JOB | dict(quiet_1="reading", late_1="reading"), "still the reading")],
    "d0800003": [(_INTERVALS | dict(low=25.0, high=28.0, tight=3.0), "make the interval narrower"),
                 (_INTERVALS | dict(low=25.0, high=49.0, tight=24.0), "the median that outvoted the job"),
                 (_INTERVALS | dict(low=3.0, high=28.0, tight=25.0), "may hold 0")],
    "d0800033": [(_STORE | dict(only_wait=1.81), "only what the cure shortens"),
                 (_STORE | dict(only_wait=1.5), "do not decide between the two"),
                 (_STORE | dict(only_wait=1.81, whole_reading=1.84), "do not decide between the two")],
    "d0800007": [(_DIAGNOSED | dict(verdict="storage"), "because a faster store would not remove it"),
                 (_DIAGNOSED | dict(verdict="storage", by_hand=14.0), "13.0 to 19.0 ms, and we found 14.0"),
                 (_DIAGNOSED | dict(verdict="inconclusive"), "other programs were busy")],
    "d0800008": [(_VERIFIED | dict(verification=None, off=0, low=1, high=1), "nothing to verify"),
                 (_VERIFIED | dict(off=-6, low=6.0, high=6.6), "intervals overlap"),
                 (_VERIFIED | dict(off=-6, low=6.2, high=6.4), "do not overlap"),
                 (_VERIFIED | dict(off=60, low=3.6, high=3.8), "Verify again, alone")],
    "d0800005": [(_HIDDEN | dict(reading_saves=-9.0, lead=0.0), "cannot make a step longer"),
                 (_HIDDEN | dict(reading_saves=19.0, lead=10.0), "the next cure is a cheaper transform"),
                 (_HIDDEN | dict(reading_saves=19.0, lead=-1.0), "do not tell which"),
                 (_HIDDEN | dict(reading_saves=60.0, lead=-9.0), "Even 7 workers do not hide it")],
    "d0800017": [(_ANSWER | dict(verification=None, lead=0), "no other cure gained more"),
                 (_ANSWER | dict(gained=1.2, lead=0), "no other cure gained more"),
                 (_ANSWER | dict(lead=10.0), "the transform is next"),
                 (_ANSWER | dict(lead=-1.0), "and diagnose again")],
}
