"Figures for each sentence that lesson 19 may conclude with."
from types import SimpleNamespace as Gain

_DIVIDED = dict(told="The phases miss 0.22 of 1.92 s, 11%. ", wall=1.92)
_PARTS = dict(told="The predicted gain is 5% too high. ", largest=3.0)
_THREADS = dict(told="Without workers, 13 of 31 forward passes took more than 5 ms. ", ending="With 5 workers, 20 ms.")
_TEST = dict(told="The model says that loading would set the pace here. ", scatter=1.1)
_WALL = dict(told="A step is 3.1 times as fast. ", step_gain=3.12, hundred=2.98,
             long_run="With 98 more epochs like the second, this run would be 3.0 times as fast")
_SIGN = dict(told="The run took 1.92 s. ", long_many=14, long_few=0)

CASES = {
    "rp19f001": [(_DIVIDED | dict(left_s=0.001), "1 ms come after the last step"),
                 (_DIVIDED | dict(left_s=0.1), "0.10 s come after the last step and have no name")],
    "rp19f002": [(_PARTS | dict(opposite=True), "the total is better than its parts"),
                 (_PARTS | dict(opposite=False), "No errors cancel here"),
                 (_PARTS | dict(opposite=False, largest=0.3), "No part is off by more than 0.5 ms")],
    "rp19f003": [(_THREADS | dict(long_many=14, long_few=0), "So the long ones come with the threads"),
                 (_THREADS | dict(long_many=14, long_few=8), "Long ones are there with one thread, too"),
                 (_THREADS | dict(long_many=1, long_few=0), "makes no difference")],
    "rp19f004": [(_TEST | dict(miss=-0.3, scatter=4.0), "one run tests nothing"),
                 (_TEST | dict(miss=-0.07), "It passes."),
                 (_TEST | dict(miss=-0.3), "a step takes longer than the model's longest part"),
                 (_TEST | dict(miss=0.3), "one of its inputs was too large")],
    "rp19f005": [(_WALL | dict(wall_gain=2.52), "3.0 times as fast, close to the gain of a step"),
                 (_WALL | dict(wall_gain=2.52, hundred=2.6), "this run would be 3.0 times as fast."),
                 (_WALL | dict(wall_gain=3.2), "the start does not hold the run back")],
    "rp19f008": [(_SIGN | dict(gain=Gain(low=4.11)), "Do not sign what the page calls computing"),
                 (_SIGN | dict(gain=Gain(low=4.11), long_few=8), "Sign the measured gains."),
                 (_SIGN | dict(gain=Gain(low=0.9)), "The interval holds 1")],
}
