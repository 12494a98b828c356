"Figures that choose each sentence of lesson 07's conclusions."
S = dict(said="")
_ROW = dict(S, below="", told="", estimate=[10.7], row=0, base=10.7, itself=0.3, waits=0.9, name_="a copy", cores=2)
CASES = {
    "st070001": [(dict(S, rest=0.6), "threads share 0.6"), (dict(S, rest=9.0), "In the other 9.0")],
    "st070005": [(dict(S, crowd_rate=980, crowd_ms=48.4), "48.4 ms = 47.4"),
                 (dict(S, crowd_rate=600, crowd_ms=83), "too late")],
    "st070007": [
        (dict(dropped=0.9, times=1.0, half="4.00 KiB"), "does not forget"),
        (dict(dropped=0.0, times=20.0, half="64.00 KiB"), "at 64.00 KiB they reach more than half"),
        (dict(dropped=0.0, times=1.3, half="4.00 KiB"), "only 1.3 times as fast"),
    ],
    "st070014": [
        (_ROW | dict(above=0.1), "No remedy lies"), (_ROW | dict(above=1.2), "leaves out that the training"),
        (_ROW | dict(above=1.2, itself=-0.3), "only the waiting is longer"),
    ],
    "st070015": [
        (dict(S, cores=2, most=13.0, base=10.7, waits=1.2, slowest="shards"), "choose by what they cost"),
        (dict(S, cores=2, most=22.0, base=10.7, waits=11.0, slowest="shards"), "cores share, and no storage"),
    ],
    "st070016": [
        (dict(icon_times=9.7, photo_times=2.9, icon_ms=0.3, photo_ms=0.4), "9.7 times as fast for icons"),
        (dict(icon_times=1.1, photo_times=1.0, icon_ms=0.1, photo_ms=0.2), "costs little beside its bytes"),
    ],
    "st070020": [
        (dict(S, gb=2.4), "1.25 of the 2.4 GB/s"), (dict(S, gb=1.0), "that is enough for 1.0"),
    ],
    "st070022": [
        (dict(saved=80.0, copying=113.0, epochs=1.41), "pays after 1.4 epochs"),
        (dict(saved=0.0, copying=113.0, epochs=0.0), "a copy saves no time, only the money"),
    ],
    "st070025": [
        (dict(S, slow_ms=5.8, step_ms=54.7), "a small part of this step"),
        (dict(S, slow_ms=20.0, step_ms=54.7), "pin it"),
    ],
}
