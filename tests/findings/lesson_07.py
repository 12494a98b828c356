"Figures that choose each sentence of lesson 07's conclusions."
S = dict(said="")
_DISK = dict(forgot=True, said="16 threads are no faster", brings="A shard needs one open", many_us=60.0, many_cpu=55.0,
             shard_times=3.4)
_FOUR = dict(S, files=" Sixteen files", share=0.77, busy_ms=104.0, cores=2)
_NODE = dict(S, network=86_957.0, train=39_216.0, decode=16_668.0, nfs=4_559.0, epoch=1_281_167)
_HOP = dict(S, batch_mb=77.1, pinned=52.0, step_ms=104.4)
CASES = {
    "st070001": [(dict(S, lost=0.1), "nothing is lost"), (dict(S, lost=1.3), "costs 1%"),
                 (dict(S, lost=9.0), "The other 9%")],
    "st070005": [(dict(S, crowd_rate=991, crowd_ms=50.0), "waits in line"),
                 (dict(S, crowd_rate=600, crowd_ms=83), "got only 600")],
    "st070016": [
        (dict(_DISK, forgot=False), "does not forget"),
        (dict(_DISK, shard_times=1.2), "shards gain little more"),
        (_DISK, "now 55 of 60 µs are processor time"),
        (dict(_DISK, many_cpu=20.0), "at its limit of reads"),
    ],
    "st070014": [(dict(_FOUR, four_workers=3.0), "Four workers keep 3.0 in flight, and 4 × 0.77 = 3.1"),
                 (dict(_FOUR, four_workers=2.1), "each now takes 104 ms to decode a shard")],
    "st070020": [(_NODE, "Then the cores are the limit: they decode 43%"),
                 (dict(_NODE, network=10_000.0), "if that is the network")],
    "st070025": [(dict(_HOP, pageable=13.0), "this hop is not the limit"), (dict(_HOP, pageable=2.0), "pin it")],
}
