"Figures for each sentence that lesson 04 may conclude with."
import pandas as pd

LAYERS = dict(conv_count=1.85, both=1.88, both_count=1.87, said="", pooled="", whole="")
BARS = dict(device="", rest=11.7, said="", first_ms=10.0)
BUDGETS = dict(errors=pd.Series({4: 0.10, 1024: 0.42}), by_steps="256 (10.9%) and 1,024 (10.5%) tie", said="Bars. ",
               timed="At equal seconds 64 makes the fewest errors, 13.1%.")

CASES = {
    "f4b00021": [
        (dict(others=1.4, turned=1.1, said="", first_ms=9.0, second_ms=9.5), "Other programs keep 1.4 cores busy"),
        (dict(others=0.1, turned=2.0, said="", first_ms=9.0, second_ms=18.0), "two speeds of the machine"),
        (dict(others=0.1, turned=1.1, said="", first_ms=9.0, second_ms=9.5), "nearly the same median, 9.0 and 9.5"),
    ],
    "f4b00003": [
        (LAYERS | dict(conv=1.5, linear=2.7), "opposite signs and partly cancel"),
        (LAYERS | dict(conv=1.5, linear=1.8), "Both errors have the same sign"),
    ],
    "f4b00005": [
        (BARS | dict(gain=1.8, next_ms=9.0), "The first bar is not the shortest, 10.0 ms against 9.0"),
        (BARS | dict(gain=1.8, next_ms=11.0), "the other phases still take 11.7 ms"),
        (BARS | dict(gain=1.04, next_ms=11.0), "only 1.04 times as fast here"),
    ],
    "f4b00009": [
        (dict(rising=False, most=1.1, best=256, said=""), "the answer above is wrong"),
        (dict(rising=True, most=1.1, best=256, said=""), "little left to gain: no size trains more than 1.10"),
        (dict(rising=True, most=1.8, best=256, said=""), "trains 1.8 times as many images a second as 64"),
    ],
    "f4b0000d": [
        (BUDGETS | dict(fixed=pd.Series({4: 0.3, 1024: 0.1})), "the order turns: 256 (10.9%) and 1,024 (10.5%) tie"),
        (BUDGETS | dict(fixed=pd.Series({4: 0.1, 1024: 0.1})), "small batches are no worse"),
    ],
    "gpu04002": [
        (dict(one_ms=19.0, most_ms=23.2, clock_sum=19.7, event_sum=19.6, said=""), "single picture takes 19 ms"),
        (dict(one_ms=5.0, most_ms=23.2, clock_sum=10.0, event_sum=24.0, said=""), "10.0 ms by the clock and 24.0 by"),
    ],
    "gpu04005": [
        (dict(once_ms=0.5, spread=3.6, copies="", said=""), "adds 0.5 ms, nothing that we can measure"),
        (dict(once_ms=4.2, spread=3.6, copies="", said=""), "adds 4.2 ms, because the GPU has nothing to do"),
    ],
    "f4b00012": [
        (dict(memory_parts=[1.0, 96.0, 3.0], fed_parts=[49.0, 49.0, 2.0], said="", batch=""), "most 49% in the second"),
        (dict(memory_parts=[1.0, 96.0, 3.0], fed_parts=[2.0, 95.0, 3.0], said="", batch=""), "can gain most in both"),
    ],
}
