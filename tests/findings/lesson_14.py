"Figures for each sentence that lesson 14 may conclude with."

COUNT = dict(shares="The same results", backward=3)
EIGHT = dict(limits="By a ring 5.2", link_share=39.0, call_ms=0.23, one_ms=18.4, device="an H200", across_run=1.9)
WIDTH = dict(said_width="From widths", four_run=3_132.0)
MEGATRON = dict(said_v100="Eight V100s", eight=2.98)
ASYNC = dict(said_async="Llama 3 70B", slow_rate=597.3, origin="torchtitan")

CASES = {
    "tp14f001": [
        (COUNT | dict(worst=4e-16, counted=4), "one all-reduce forward and one backward, 4 together"),
        (COUNT | dict(worst=4e-16, counted=6), "with 6 all-reduces, where 4 and rounding were expected"),
        (COUNT | dict(worst=0.3, counted=4), "with 4 all-reduces, where 4 and rounding were expected"),
    ],
    "tp14f002": [
        (EIGHT | dict(fast_run=3.0, slow_run=0.8), "as in published runs, they are 3.0, 1.9 and 0.8 times as fast"),
        (EIGHT | dict(fast_run=1.9, slow_run=1.9), "here the links do not decide"),
    ],
    "tp14f003": [
        (WIDTH | dict(eight_run=6_226.0, far_run=12_052.0), "suits four GPUs and not eight"),
        (WIDTH | dict(eight_run=3_900.0, far_run=12_052.0), "over two servers the width is 12,052."),
    ],
    "tp14f004": [
        (MEGATRON | dict(forecast=3.15, limit=6.1), "+6%. The bound is 6.1, twice as much"),
        (MEGATRON | dict(forecast=3.15, limit=3.5), "and the bound is 3.5: both agree here"),
        (MEGATRON | dict(forecast=4.0, limit=6.1), "two do not tell"),
    ],
    "tp14f005": [
        (ASYNC | dict(fast_rate=652.4), "1.09 times as many. The run recomputes"),
        (ASYNC | dict(fast_rate=600.0), "no gain"),
    ],
    "tp14f006": [
        (dict(same_messages=True, drift=6e-8), "up to 6e-08: cutting is no approximation"),
        (dict(same_messages=False, drift=6e-8), "differ in messages"),
        (dict(same_messages=True, drift=0.1), "or by 1e-01 in weights"),
    ],
}
