"Figures that choose each sentence of lesson 07's conclusions."
S = dict(said="")
_DISK = dict(S, forgot=True, far="At the store", file_us=192.0, shard_us=125.0, saved_us=67.0)
_NODE = dict(S, train=39_216.0, wanted=16_668.0, nfs_most=4_559.0, prefixes=4, hours=0.72, slow_hours=2.65)
CASES = {
    "st070001": [(dict(S, lost=0.1), "nothing is lost"), (dict(S, lost=1.3), "costs 1%"),
                 (dict(S, lost=9.0), "The other 9%")],
    "st070005": [(dict(S, crowd_rate=991, crowd_ms=50.0), "waits in line"),
                 (dict(S, crowd_rate=600, crowd_ms=83), "got only 600")],
    "st070053": [
        (dict(_DISK, forgot=False), "does not forget"),
        (dict(_DISK, saved_us=-4.0), "shards save nothing"),
        (_DISK, "0.067 ms here. Decoding"),
        (dict(_DISK, saved_us=9_000.0), "9 ms here. That is as long"),
    ],
    "st070020": [(_NODE, "Single images take 4 prefixes"), (dict(_NODE, nfs_most=20_000.0), "delivers 20,000")],
}
