"Figures for each sentence that lesson 14 may conclude with."

COUNT = dict(shares="The same results", backward=3)
HELD = dict(holds="32 blocks", counted_whole=21_248, counted_cut=19_000)
BEST = dict(said_best="At best 5.2", second="With a second server", eight_4k=5.2, eight_2k=3.5, eight_16k=7.1,
            sixteen_16k=12.0, source=" (An H200.)")
MEGATRON = dict(said_v100="Eight V100s", eight_v100=2.98)

CASES = {
    "tp14f001": [
        (COUNT | dict(worst=4e-16, counted=4), "one all-reduce forward and one backward, 4 together"),
        (COUNT | dict(worst=4e-16, counted=6), "with 6 all-reduces, where 4 and rounding were expected"),
        (COUNT | dict(worst=0.3, counted=4), "with 4 all-reduces, where 4 and rounding were expected"),
    ],
    "tp14f007": [
        (HELD | dict(exact=True), "19,000 with tokens cut: what kept_values says, to the byte"),
        (HELD | dict(exact=False), "which is not what kept_values says"),
    ],
    "tp14f002": [
        (BEST | dict(sixteen_4k=5.2), "it makes them 1.7 times as fast. At width 2,048 eight are 3.5"),
        (BEST | dict(sixteen_4k=7.8), "the second server gains 1.5 times."),
    ],
    "tp14f004": [
        (MEGATRON | dict(forecast=3.15, limit=6.1), "a measured s holds what the best case leaves out"),
        (MEGATRON | dict(forecast=3.15, limit=3.5), "both agree here"),
        (MEGATRON | dict(forecast=4.0, limit=6.1), "two do not tell"),
    ],
    "tp14f006": [
        (dict(same_messages=True, drift=6e-8), "up to 6e-08: cutting is no approximation"),
        (dict(same_messages=False, drift=6e-8), "differ in messages"),
        (dict(same_messages=True, drift=0.1), "or by 1e-01 in weights"),
    ],
}
