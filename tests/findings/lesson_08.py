"Figures on each side of the conditions of lesson 08's conclusions."
_STAGES = dict(told="", reading=37.0)
_JOB = dict(told="", why="", late_reading=12.0)
_INTERVALS = dict(told="", beside_transform=27.0, high=28.0)
_STORE = dict(told="", gain=1.79, whole_stage=2.01)
_HIDDEN = dict(told="", more="", cores=2, workers=7, adds_0=37.0)
_DIAGNOSED = dict(whole=54.0, reading=37.0, slow=34.6, storage=34.0)
_VERIFIED = dict(told="", spread="", verification=0)
_FED = dict(told="", adds=1.5, transform_saves=4.5, storage_12=2.0, preprocessing_12=5.0,
            both_save=7.0)
_ANSWER = dict(told="It", reading=37.0, now=49.0, gain=1.8, verification=0)

CASES = {
    "d0800001": [(_STAGES | dict(reading=20.0), "is impossible"), (_STAGES, "5 ms more than the 32"),
                 (_STAGES | dict(reading=90.0), "far more than the 32 ms")],
    "d0800002": [(_JOB | dict(quiet_1="reading", late_1="transform", late_reading=-9.0), "impossible, and you would"),
                 (_JOB | dict(quiet_1="reading", late_1="transform"), "You would spend your afternoon"),
                 (_JOB | dict(quiet_1="reading", late_1="reading"), "still the reading")],
    "d0800003": [(_INTERVALS | dict(low=25.0), "reading is the stage to fix"),
                 (_INTERVALS | dict(low=-3.0), "do not tell which")],
    "d0800033": [(_STORE | dict(reading=37.0), "Why less?"),
                 (_STORE | dict(reading=37.0, whole_stage=1.8), "Is all of the reading")],
    "d0800004": [(_STORE | dict(by_reads=1.78), "Time one read"), (_STORE | dict(by_reads=1.5), "run the cells again"),
                 (_STORE | dict(by_reads=1.83, whole_stage=1.8), "run the cells again")],
    "d0800007": [(_DIAGNOSED | dict(verdict="storage"), "The verdict is ours"),
                 (_DIAGNOSED | dict(verdict="inconclusive"), "other programs were busy")],
    "d0800008": [(_VERIFIED | dict(verification=None, off=0), "nothing to verify"),
                 (_VERIFIED | dict(off=4), "off by +4%"), (_VERIFIED | dict(off=30), "30% too high"),
                 (_VERIFIED | dict(off=-20), "20% too low")],
    "d0800005": [(_HIDDEN | dict(adds=0.6, lead=1.0), "**the verdict has flipped.**"),
                 (_HIDDEN | dict(adds=5.0, lead=-1.0), "so the wait is **hidden**."),
                 (_HIDDEN | dict(adds=12.0, lead=-1.0), "Even 7 workers do not hide it")],
    "d0800009": [(_FED | dict(verdict_12="preprocessing"), "as by leaving out"),
                 (_FED | dict(verdict_12="preprocessing", adds=6.0), "did not decide"),
                 (_FED | dict(verdict_12="mixed"), "verdict is mixed")],
    "d0800017": [(_ANSWER | dict(verification=None, verdict_12="mixed"), "no cure that is worth"),
                 (_ANSWER | dict(verdict_12="preprocessing"), "so that is next"),
                 (_ANSWER | dict(verdict_12="mixed"), "It.")],
}
