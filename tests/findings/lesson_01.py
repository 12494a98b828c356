"Figures that choose each sentence of lesson 01, and words of it."
said = "Measured: "
spiral = dict(first=said, with_256=37, scaled_256=94, scaled_1024=48, warm_1024=40, long_1024=93, with_16=97)
workers = dict(said=said, last="", worst=0.01)
curve = dict(tail="", small=19, at_64=23, launch=20)
lines = dict(rate_16=720, rate_64=2_764, rate_128=4_337, shard_rate=1_889, core_rate=3_413, took_days=[2.1, 0.78, 0.43])
CASES = {
    "al370001": [
        (dict(said=said, off=0.04, each_us=[2.0, 1.9]), "at 16 samples it is 4% above"),
        (dict(said=said, off=-0.35, each_us=[2.0, 8.0]), "2.0 µs between 1 and 16, and 8.0 µs"),
    ],
    "al370002": [
        (dict(told=said, with_256=37, short_16=39, with_16=97), "needs more updates, or larger ones"),
        (dict(told=said, with_256=60, short_16=90, with_16=97), "explains only a part"),
    ],
    "al370003": [
        (spiral, "four times as many epochs"),
        (dict(spiral, scaled_1024=89), "At 1,024 it reaches 89%"),
        (dict(spiral, with_256=88), "changes 88% to 94%"),
    ],
    "al370009": [
        (workers, "within 1% of the rule"),
        (dict(workers, worst=0.9), "up to 90% off"),
    ],
    "al370015": [
        (curve, "needs to launch its operations (20 ms"),
        (dict(curve, at_64=60), "60 ms with 64"),
    ],
    "l01lines": [
        (lines, "a larger batch is the right change"),
        (dict(lines, rate_64=1_500), "0.78 from the shards"),
    ],
}
