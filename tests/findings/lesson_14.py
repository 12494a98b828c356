"Figures for each sentence that lesson 14 may conclude with."

COUNT = dict(shares="The same results", backward=3)
HELD = dict(holds="32 blocks", counted_whole=21_248, counted_cut=19_000)
BEST = dict(said_best="At best 5.2", second="16 GPUs in two servers", wide="At width 16,384 more", eight_4k=5.2,
            source=" (An H200.)")
LAYOUTS = dict(said_layouts="Four GPUs", cut_4=6.2, cut_8=5.2, whole=4.0, gb_2=0.55, gb_8=0.65)
MEGATRON = dict(said_v100="Eight V100s", eight_v100=2.98, in_bytes=0.04, s=0.22)

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
        (BEST | dict(sixteen_4k=5.2), "gains nothing. At width 16,384 more; two copies of the eight"),
        (BEST | dict(sixteen_4k=7.8), "the second server gains 1.5 times. At width 16,384 more."),
    ],
    "tp14f008": [
        (LAYOUTS | dict(cut_2=7.2, hiding=1_183), "more than the 1,200 from which on the shards' messages are hidden"),
        (LAYOUTS | dict(cut_2=7.2, hiding=3_000), "here fewer ranks are not better"),
        (LAYOUTS | dict(cut_2=5.0, hiding=1_183), "here fewer ranks are not better"),
    ],
    "tp14f004": [
        (MEGATRON | dict(forecast=3.15, limit=6.1), "more than 1/s = 4.5 times as fast as one"),
        (MEGATRON | dict(forecast=3.15, limit=3.5), "both agree here"),
        (MEGATRON | dict(forecast=4.0, limit=6.1), "two do not tell"),
    ],
    "tp14f006": [
        (dict(same_messages=True, drift=6e-8, mesh_off=4e-16), "by at most 4e-16 of the largest"),
        (dict(same_messages=False, drift=6e-8, mesh_off=4e-16), "differ in messages"),
        (dict(same_messages=True, drift=0.1, mesh_off=4e-16), "or by 1e-01 in weights"),
        (dict(same_messages=True, drift=6e-8, mesh_off=0.5), "differ from one process by 5e-01"),
    ],
}
