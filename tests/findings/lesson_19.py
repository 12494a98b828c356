"Figures for each sentence that lesson 19 may conclude with."
from types import SimpleNamespace as Gain

import pandas as pd

_DIVIDED = dict(told="Of the 186 ms outside the phases, 175 are the validation. ", waited=1.34, alone=1.32)
_INTERVAL = dict(found=Gain(low=2.81, high=3.15), off=0.08)
_STORE = dict(told="The page predicts 3.2. ", refuted=Gain(predicted=3.2), reading_ms=33.0, queued_gain=1.3)
_EPOCHS = dict(told="For six epochs the arithmetic gives 2.9. ", expected=2.9, long_gain=3.2)
_SIGN = dict(told="81% of it in waiting for the loader. ", verified=Gain(predicted=3.2), long_gain=3.2,
             refuted=Gain(predicted=3.2), really=Gain(value=1.3))


def _parts(waiting, computing, once):
    gaps = pd.Series(dict(waiting=waiting, once=once, computing=computing))
    return dict(told="The step takes more than predicted. ", hoped_ms=15.0, workers=7, cores=2, more=str,
                off_most=gaps.abs().idxmax(), gaps=pd.concat([gaps, pd.Series(dict(step=gaps.sum()))]))


CASES = {
    "rp19f001": [(_DIVIDED | dict(miss=0.01), "The first claim holds"),
                 (_DIVIDED | dict(miss=0.3), "is 30% longer than"), (_DIVIDED | dict(miss=-0.3), "30% shorter than")],
    "rp19f009": [(_INTERVAL | dict(inside=False), "outside the interval: it is 8% too high"),
                 (_INTERVAL | dict(inside=True), "any other from 2.8 to 3.1"),
                 (_INTERVAL | dict(found=Gain(low=0.9, high=4.0), inside=True), "have not shown any gain")],
    "rp19f002": [(_parts(0.3, -0.1, 0.2), "No part is off by more than 5% of the step"),
                 (_parts(-1.0, 0.9, 0.0), "the model takes computing as it was. The waiting makes up"),
                 (_parts(0.1, 2.0, 0.0), "Waiting takes 0.1"),
                 (_parts(2.0, 0.3, 0.0), "Most of the error is in waiting"),
                 (_parts(0.2, 0.1, 2.0), "Most of the error is in once")],
    "rp19f010": [(_STORE | dict(really=Gain(value=1.3, low=1.2, high=1.4)), "They share only the blur"),
                 (_STORE | dict(really=Gain(value=3.0, low=2.6, high=3.4)), "the queue for the store does not show")],
    "rp19f005": [(_EPOCHS | dict(got=2.8), "comes close to the gain of a step"),
                 (_EPOCHS | dict(got=2.0), "differ by more than 10%")],
    "rp19f008": [(_SIGN | dict(inside=False, off=0.2, found=Gain(low=2.5, high=2.9, value=2.7)),
                  "not 3.2 as predicted"),
                 (_SIGN | dict(inside=False, off=0.03, found=Gain(low=2.8, high=3.1, value=3.0)), "you measured it"),
                 (_SIGN | dict(inside=False, off=0.2, found=Gain(low=0.9, high=4.0, value=2.0)), "sign no gain")],
}
