"Figures that choose each sentence of lesson 01, and words of it."
said = "Measured: "
line = dict(said=said, worst=0.03, percent=3, fixed_ms=0.44, slope_us=6.5, each_us=[2.0, 8.0])
rates = dict(first=said, with_256=38, scaled_256=94, scaled_1024=48, best_1024=58, long_1024=91, with_16=97,
             best_rate=0.8)
workers = dict(said=said, last="", worst=0.01, percent=1, waits=[49.7])
curve = dict(tail="", small=19, at_64=23, launch=20)
lines = dict(rate_16=720, rate_64=2_764, rate_128=4_337, disk_rate=1_139, core_rate=2_778, gpu_days=[2.1, 1.3, 0.53])
CASES = {
    "al370001": [
        (line, "within 3% of the three between: an iteration costs 0.44 ms whatever its batch, and 6.5 µs"),
        (dict(line, worst=0.35, percent=35), "up to 35% off between its ends: a sample costs 2.0 µs between 1 and 16"),
    ],
    "al370002": [
        (dict(told=said, with_256=38, short_16=39, with_16=97), "So what is missing is updates"),
        (dict(told=said, with_256=60, short_16=90, with_16=97), "explains only a part"),
    ],
    "al370003": [
        (rates, "58%: 80 updates are too few at any rate that we tried"),
        (dict(rates, best_1024=92), "the best of the other rates 92%, and 91% with four times the epochs"),
        (dict(rates, with_256=88), "changes 88% to 94%"),
    ],
    "al370009": [
        (workers, "are within 1% of that"),
        (dict(workers, worst=0.9, percent=90), "up to 90% off"),
    ],
    "al370015": [
        (curve, "the CPU needs about 20 ms to launch"),
        (dict(curve, at_64=60), "60 ms with 64"),
    ],
    "l01lines": [
        (lines, "a larger batch is the right change"),
        (dict(lines, rate_64=1_000), "1.30 from the disk"),
    ],
}
