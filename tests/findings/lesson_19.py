"Figures for each sentence that lesson 19 may conclude with."
from types import SimpleNamespace as Gain

import pandas as pd

_DIVIDED = dict(told="The phases miss 0.22 of 1.92 s. ", checked="By our own clock it took 1.93 s. ", wall=1.92,
                outside=1.93, parts=dict(wait=1.5), pauses_s=1.024)
_INTERVAL = dict(told="The page predicts 3.21. The interval reaches from 2.81 to 3.15", width=0.11, off=0.08)
_TEST = dict(told="The predicted step is 7% too short", gained="Twice as many gain little or nothing.", scatter=1.1,
             many=14, cores=2)
_EPOCHS = dict(told="The first epoch is 2.1 times as fast. ", first_gain=2.1)
_SIGN = dict(told="The run took 1.92 s. ", verified=Gain(predicted=3.214))


def _parts(waiting, computing, once, limited="loading", again_ms=50.0):
    gaps = pd.Series(dict(waiting=waiting, once=once, computing=computing))
    return dict(told="A step takes more than predicted. ", parted="Waiting takes so much. ", hoped_ms=15.0, workers=7,
                again_ms=again_ms, step=0.050, cores=2, off_most=gaps.abs().idxmax(), limit=lambda n: limited,
                gaps=pd.concat([gaps, pd.Series(dict(step=gaps.sum()))]))


CASES = {
    "rp19f001": [(_DIVIDED | dict(left_s=0.001), "Less than 1% of the run has no name"),
                 (_DIVIDED | dict(left_s=0.1), "0.10 s come after the last step and have no name"),
                 (_DIVIDED | dict(left_s=0.001, outside=2.4), "The two clocks differ by more than 5%"),
                 (_DIVIDED | dict(left_s=0.001, parts=dict(wait=0.9)), "it has too little waiting")],
    "rp19f009": [(_INTERVAL | dict(found=Gain(low=2.81), inside=False), "outside: it is 8% too high"),
                 (_INTERVAL | dict(found=Gain(low=2.81), inside=False, off=-0.08), "outside: it is 8% too low"),
                 (_INTERVAL | dict(found=Gain(low=2.81), inside=True), "11% of the gain. The prediction lies within"),
                 (_INTERVAL | dict(found=Gain(low=2.81), inside=True, width=0.6), "that confirms little"),
                 (_INTERVAL | dict(found=Gain(low=0.9), inside=True), "have not shown any gain")],
    "rp19f002": [(_parts(0.3, -0.1, 0.2), "No part is off by more than 5% of the step"),
                 (_parts(2.0, 1.5, 0.0, again_ms=60.0), "takes 60.0 ms now, and it took 50.0 in the first run"),
                 (_parts(-2.0, 1.5, 0.0), "That is no luck"),
                 (_parts(2.0, 0.3, 0.0), "7 workers on 2 cores load more slowly"),
                 (_parts(-2.0, -0.3, 0.0), "load faster than the model thinks"),
                 (_parts(0.2, 2.0, 0.0, "computing"), "Most of the error is in computing"),
                 (_parts(0.2, 0.1, 2.0), "what comes once an epoch")],
    "rp19f004": [(_TEST | dict(miss=-0.3, scatter=4.0), "one run tests nothing"),
                 (_TEST | dict(miss=0.001), "right within 1%"),
                 (_TEST | dict(miss=-0.07), "it passes. Twice as many"),
                 (_TEST | dict(miss=-0.3), "14 workers and the trainer share 2 cores"),
                 (_TEST | dict(miss=0.3), "shorter than the model's longest part")],
    "rp19f005": [(_EPOCHS | dict(long_gain=3.0), "the start of the workers, which comes once"),
                 (_EPOCHS | dict(long_gain=2.0), "does not hold the run back")],
    "rp19f008": [(_SIGN | dict(inside=False, found=Gain(low=2.81, value=2.98)), "the measurement excludes it"),
                 (_SIGN | dict(inside=True, found=Gain(low=2.81, value=2.98)), "sign it, too"),
                 (_SIGN | dict(inside=False, found=Gain(low=0.9, value=2.98)), "holds 1")],
}
