"Figures that choose each sentence of lesson 07's conclusions."
S = dict(said="")
_DISK = dict(S, forgot=True, apart="From the store", file_us=192.0, shard_us=125.0, saved_us=67.0)
_NODE = dict(S, train=39_216.0, wanted=16_668.0, nfs_most=4_559.0, elastic_most=13_677.0, prefixes=4, flying=34,
             hours=0.72, slow_hours=2.65, elastic_hours=0.88)
CASES = {
    "st070001": [(dict(S, lost=0.1), "nothing is lost"), (dict(S, lost=1.3), "1% less"),
                 (dict(S, lost=9.0), "The other 9%")],
    "st070005": [(dict(S, crowd_rate=991, crowd_ms=50.0), "waits in line"),
                 (dict(S, crowd_rate=600, crowd_ms=83), "got only 600")],
    "st070062": [(dict(S, larger_rate=5_400.0, law=5_554.0, as_many=547), "would need 547"),
                 (dict(S, larger_rate=3_000.0, law=5_554.0, as_many=304), "takes the rest")],
    "st070068": [(dict(S, ahead_times=13.0, ahead_s=0.46), "the run's 0.46 s"),
                 (dict(S, ahead_times=2.0, ahead_s=3.0), "no longer what takes")],
    "st070053": [
        (dict(_DISK, forgot=False), "does not forget"),
        (dict(_DISK, saved_us=-4.0), "shards save nothing"),
        (_DISK, "0.067 ms here. Decoding"),
        (dict(_DISK, saved_us=9_000.0), "9 ms here. That is as long"),
    ],
    "st070020": [(_NODE, "single images need 4 prefixes"), (dict(_NODE, nfs_most=20_000.0), "delivers 20,000")],
}
