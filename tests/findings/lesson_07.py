"Figures that choose each sentence of lesson 07's conclusions."
S = dict(said="")
CASES = {
    "st070001": [(dict(S, inside=101.5), "wake up late"), (dict(S, inside=131), "other programs used")],
    "st070005": [(dict(S, crowd_rate=1_010), "waits in line"), (dict(S, crowd_rate=600), "too late to ask")],
    "st070007": [
        (dict(dropped=0.9, times=1.0, half="4.00 KiB"), "does not forget"),
        (dict(dropped=0.0, times=20.0, half="64.00 KiB"), "at 64.00 KiB they reach half"),
        (dict(dropped=0.0, times=1.3, half="4.00 KiB"), "only 1.3 times as fast"),
    ],
    "st070009": [
        (dict(S, usual=0.0, told=0.0), "does not count"), (dict(S, usual=122.0, told=0.4), "it fetches 0.4"),
        (dict(S, usual=0.4, told=0.4), "hardly any read-ahead"),
    ],
    "st070014": [
        (dict(S, step_ms=30.0, sum_ms=18.0, overlap_ms=13.0), "the cores did other work, too"),
        (dict(S, step_ms=18.0, sum_ms=18.0, overlap_ms=13.0), "decode together, on the cores"),
        (dict(S, step_ms=14.0, sum_ms=18.0, overlap_ms=13.0), "Here some workers decoded"),
        (dict(S, step_ms=14.0, sum_ms=14.0, overlap_ms=13.5), "The rules agree"),
    ],
    "st070015": [
        (dict(S, copy_wait=0.3, copy_step=10.4), "waits 0.3"),
        (dict(S, copy_wait=4.0, copy_step=14.0), "what is left is decoding"),
    ],
    "st070016": [
        (dict(icon_times=9.7, photo_times=2.9, icon_ms=0.3, photo_ms=0.4), "9.7 times as fast for icons"),
        (dict(icon_times=1.1, photo_times=1.0, icon_ms=0.1, photo_ms=0.2), "costs little beside its bytes"),
    ],
    "st070020": [
        (dict(S, gb=2.4, reached=6.6, enough="The latter is enough.", cores_too=""), "eight of these GPUs want 2.4"),
        (dict(S, gb=1.0, reached=6.6, enough="The latter is enough.", cores_too=""), "even 10 Gbit/s carry"),
    ],
    "st070022": [
        (dict(S, there=8.0, there_pinned=50.0, home=7.0, home_pinned=50.0), "Both directions pay"),
        (dict(S, there=48.0, there_pinned=50.0, home=7.0, home_pinned=50.0), "costs little here"),
    ],
    "st070025": [(dict(S, node_count=2), "has 2 nodes"), (dict(S, node_count=1), "no far node")],
}
