"Figures for each sentence that lesson 19 may conclude with."
from types import SimpleNamespace as Gain

_DIVIDED = dict(told="The phases miss 0.22 of 1.92 s, 11%. ", wall=1.92)
_PARTS = dict(told="The predicted gain is 5% too high. ", largest=3.0)
_TEST = dict(told="The predicted step is 7% too short", scatter=1.1, part_ms=3.2)
_WALL = dict(told="A step of this pair is 3.1 times as fast. ", step_gain=3.12, mean_gain=3.0, long_gain=2.8,
             later_first=0.009, later_second=0.012, long_run="The start comes once.",
             first_epoch=" The mean step holds.")
_SIGN = dict(told="The run took 1.92 s. ", largest=4.4)

CASES = {
    "rp19f001": [(_DIVIDED | dict(left_s=0.001), "Less than 1% of the run is left over"),
                 (_DIVIDED | dict(left_s=0.1), "0.10 s come after the last step and have no name")],
    "rp19f002": [(_PARTS | dict(opposite=True), "the total is better than its parts"),
                 (_PARTS | dict(opposite=False), "No errors cancel here"),
                 (_PARTS | dict(opposite=False, largest=0.3), "No part is off by more than 0.5 ms")],
    "rp19f004": [(_TEST | dict(miss=-0.3, scatter=4.0), "one run tests nothing"),
                 (_TEST | dict(miss=-0.07), "it passes. Its parts are off by up to 3.2 ms"),
                 (_TEST | dict(miss=-0.3), "A step takes longer than the model's longest part"),
                 (_TEST | dict(miss=0.3), "one of its inputs was too large")],
    "rp19f005": [(_WALL | dict(wall_gain=2.52), "The start comes once. The mean step holds."),
                 (_WALL | dict(wall_gain=2.52, long_gain=3.0), "The start comes once."),
                 (_WALL | dict(wall_gain=2.52, later_first=0.013), "The start comes once."),
                 (_WALL | dict(wall_gain=3.2), "the start does not hold the run back")],
    "rp19f008": [(_SIGN | dict(gain=Gain(low=4.11)), "they are off by up to 4.4 ms"),
                 (_SIGN | dict(gain=Gain(low=4.11), largest=0.4), "Sign these."),
                 (_SIGN | dict(gain=Gain(low=0.9)), "The interval holds 1")],
}
