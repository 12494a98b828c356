"Figures for each sentence that lesson 19 may conclude with."
from types import SimpleNamespace as Gain

_DIVIDED = dict(told="The phases miss 0.22 of 1.92 s, 11%. ", wall=1.92)
_PARTS = dict(told="The trainer waits 2.5 ms a step longer. ")
_THREADS = dict(told="Of 31 forward passes, 14 took more than 5 ms with 2 threads. ", threads=2, cores=2, others=0.1)
_WAITING = dict(told="A batch comes every 8.9 ms. ", pace_ms=8.9, computing=6.0, alone=41.1, shared=53.6, cores=2,
                slower_ms=2.9)
_WALL = dict(told="A step is 4.1 times as fast. ", step_gain=4.12)
_SIGN = dict(told="The run took 1.92 s. ", long_many=14, long_few=0)

CASES = {
    "rp19f001": [(_DIVIDED | dict(left_s=0.001), "1 ms come after the last step"),
                 (_DIVIDED | dict(left_s=0.1), "0.10 s come after the last step and have no name")],
    "rp19f002": [(_PARTS | dict(wait_gap=2.5, compute_gap=-3.0, together=-0.5), "the loader sets the pace"),
                 (_PARTS | dict(wait_gap=9.6, compute_gap=13.4, together=23.0), "do not cancel here"),
                 (_PARTS | dict(wait_gap=9.6, compute_gap=-2.0, together=7.6), "cancel in part"),
                 (_PARTS | dict(wait_gap=0.2, compute_gap=0.3, together=0.5), "Neither waiting nor computing")],
    "rp19f003": [(_THREADS | dict(long_many=14, long_few=0), "needs both cores at the same moment"),
                 (_THREADS | dict(long_many=14, long_few=8), "Long ones are there with one thread, too"),
                 (_THREADS | dict(long_many=1, long_few=0), "makes no difference")],
    "rp19f004": [(_WAITING | dict(unexplained=0.1), "one error and not two"),
                 (_WAITING | dict(unexplained=0.1, computing=30.0), "So the waiting is explained"),
                 (_WAITING | dict(unexplained=3.0), "took 41.1 ms in the loop and 53.6 ms in a worker"),
                 (_WAITING | dict(unexplained=3.0, slower_ms=0), "+3.0 ms are left"),
                 (_WAITING | dict(unexplained=-3.0), "-3.0 ms are left")],
    "rp19f005": [(_WALL | dict(wall_gain=2.77, hundred=3.17), "that run would be 3.2 times as fast"),
                 (_WALL | dict(wall_gain=2.77, hundred=4.5), "The change does not shorten these."),
                 (_WALL | dict(wall_gain=4.2, hundred=4.3), "they do not hold the run back")],
    "rp19f008": [(_SIGN | dict(gain=Gain(low=4.11)), "Do not sign what the page calls computing"),
                 (_SIGN | dict(gain=Gain(low=4.11), long_few=8), "Sign the measured gains."),
                 (_SIGN | dict(gain=Gain(low=0.9)), "The interval holds 1")],
}
