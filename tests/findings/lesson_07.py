"Figures that choose each sentence of lesson 07's conclusions."
S = dict(said="")
_DISK = dict(forgot=True, icon_wait=127.0, photo_wait=157.0, icon_times=10.7, photo_times=3.0, larger=5.6)
_HOP = dict(S, batch_mb=38.5, pinned=52.0, step_ms=54.7)
CASES = {
    "st070001": [(dict(S, lost=0.1), "nothing is lost"), (dict(S, lost=1.3), "costs 1%"),
                 (dict(S, lost=9.0), "The other 9%")],
    "st070005": [(dict(S, crowd_rate=980, crowd_ms=48.4), "waits in line"),
                 (dict(S, crowd_rate=600, crowd_ms=83), "too late")],
    "st070016": [
        (dict(_DISK, forgot=False), "does not forget"),
        (_DISK, "That makes icons 10.7 times as fast"),
        (dict(_DISK, photo_wait=700.0), "belongs to the bytes, or is short"),
    ],
    "st070014": [(dict(S, worst=4.0, name_="shards", side="too long"), "more than 4%"),
                 (dict(S, worst=38.0, name_="shards", side="too short"), '"shards" is 38% too short')],
    "st070020": [
        (dict(S, gb=4.3, epoch_gb=141.0), "1.25 of the 4.3 GB/s"), (dict(S, gb=1.0, epoch_gb=141.0), "enough for 1.0"),
    ],
    "st070025": [(dict(_HOP, pageable=13.0), "this hop is not the limit"), (dict(_HOP, pageable=2.0), "pin it")],
}
