"Figures for each sentence that lesson 04 may conclude with."
import pandas as pd

SPEED = {1: 600.0, 64: 5000.0, 256: 5200.0, 1024: 4100.0}  # images a second
ERRORS = pd.Series({4: 0.10, 16: 0.11, 1024: 0.42})
UPDATES = {4: 450, 16: 240, 1024: 5}
SMALL_BEST = dict(errors=ERRORS, timed_out=pd.Series({4: 0.14, 16: 0.12, 1024: 0.45}), in_time=UPDATES, said="")

CASES = {
    "f4b00003": [
        (dict(pools=pd.Series([2.9, 0.5]), counted=pd.Series([2.5, 5.0]), all_f=5.7, all_b=6.3, said="",
              middle=dict(backward=6.0, forward=5.0)), "2.9 ms forward and 0.5 backward"),
        (dict(pools=pd.Series([0.2, 0.1]), counted=pd.Series([2.5, 5.0]), all_f=3.0, all_b=5.5, said="",
              middle=dict(backward=6.0, forward=3.0)), "take 0.5 ms forward and 0.5 backward"),
    ],
    "f4b00005": [
        (dict(gain=1.8, on_a_gpu=0.89, said=""), "1.8 times as fast, and not more"),
        (dict(gain=1.04, on_a_gpu=0.3, said=""), "only 1.04 times as fast here"),
    ],
    "f4b00009": [
        (dict(per_second=pd.Series(SPEED), best=256, last=1024, said=""), "little left to gain: the best size, 256"),
        (dict(per_second=pd.Series(SPEED | {1024: 9000.0}), best=1024, last=1024, said=""), "1.8 times as many"),
    ],
    "f4b0000d": [
        (SMALL_BEST | dict(fixed=pd.Series({4: 0.3, 1024: 0.1})), "the order turns"),
        (SMALL_BEST | dict(fixed=pd.Series({4: 0.1, 1024: 0.1})), "small batches are no worse"),
    ],
    "gpu04002": [
        (dict(launch_share=0.96, clock_sum=19.7, event_sum=19.6, said=""), "with 96% of the step the CPU is launching"),
        (dict(launch_share=0.4, clock_sum=10.0, event_sum=24.0, said=""), "10.0 ms by the clock and 24.0 by"),
    ],
    "gpu04005": [
        (dict(lead=0.9, once_ms=0.5, free_ms=20.7, said=""), "just 0.9 ms ahead of the GPU"),
        (dict(lead=14.0, once_ms=2.0, free_ms=24.0, said=""), "costs 2.0 ms, because the GPU has nothing to do"),
        (dict(lead=14.0, once_ms=-0.1, free_ms=24.0, said=""), "costs 0.0 ms: the CPU makes up its lead of 14 ms"),
    ],
    "gpu04008": [
        (dict(slower=0.62, memory_more=1.2, last=dict(batch_size=65_536), before=dict(batch_size=16_384), said=""),
         "65,536 digits are slower again, 0.6 times as many a second as 16,384"),
        (dict(slower=1.1, memory_more=4.0, last=dict(batch_size=65_536), before=dict(batch_size=16_384), said=""),
         "The largest batches are no slower"),
    ],
}
