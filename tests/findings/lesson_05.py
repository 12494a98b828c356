"Figures that choose each sentence of lesson 05 (tests/test_findings.py)."
import pandas as pd

SAID = dict(said="So it is. ")
WAITS = dict(SAID, same_ms=5.0, mean_ms=0.52, luck=" Luck.")
ANSWER = dict(SAID, p95_one=0.9, half_one=0.4, half_four=0.6, shared=5.0, most_rate=16_900)
CURVES = dict(told="So it is.")
LINE = dict(SAID, fixed_us=230.0, slope_us=57.5, worst=64, above="")
ENDS = dict(alone=0.28, mean_ms=0.7, job_gain=2.0)
WAYS = dict(fixed=pd.Series(dict(inference_mode=170.0, channels_last=160.0)), plain_us=33.0, cheapest="channels_last")
CASES = {
    "f5b00001": [
        (dict(WAITS, longest=12.0, slow_ms=9.0), "12 ms, because the machine"),
        (dict(WAITS, longest=0.6, slow_ms=9.0), "0.520 ms on average"),
        (dict(WAITS, longest=0.6, slow_ms=5.1), "all of the wait comes from the arrivals"),
    ],
    "f5b00003": [
        (dict(LINE, off=0.03), "with 4 images both parts are equal"),
        (dict(LINE, off=-0.2), "at batch 64 it is off by -20%"),
    ],
    "f5b00008": [
        (dict(ENDS, together=0.45), "Only the first one loses: it had its answer after 0.28"),
        (dict(ENDS, together=1.2), "gain nothing by it"),
    ],
    "f5b00017": [
        (dict(ANSWER, p95_four=0.8), "a median of 0.60 ms instead of 0.40"),
        (dict(ANSWER, p95_four=3.0), "95% take 3.00 ms"),
    ],
    "f5b00032": [
        (dict(CURVES, dots_off=1.1, dearer=0.0), "So it is."),
        (dict(CURVES, dots_off=2.2, dearer=0.07), "in the server took 7% longer than the line says"),
        (dict(CURVES, dots_off=2.2, dearer=0.0), "also spends time between its batches"),
    ],
    "f5b00040": [
        (dict(WAYS, slope=pd.Series(dict(inference_mode=33.0, channels_last=16.5))), "up to 2.0 times as many images"),
        (dict(WAYS, slope=pd.Series(dict(inference_mode=33.0, channels_last=31.0))), "lowers the slope by a fifth"),
    ],
    "f5b00041": [
        (dict(full=0.97, part=0.99, simulated_gain=4.0), "keeps the promise at the full rate"),
        (dict(full=0.8, part=0.99, simulated_gain=4.0), "is 3.2 times the rate simulated for one by one"),
        (dict(full=0.5, part=0.8, simulated_gain=4.0), "Even at 80% of the rate only 80%"),
    ],
}
