"Figures that choose each sentence of lesson 01, and words of it."
said = "Measured: "
line = dict(said=said, worst=0.03, percent=3, fixed_ms=0.44, slope_us=6.5)
rates = dict(told=said, with_16=98, with_256=38, short_16=39, scaled_256=94, scaled_16=68)
workers = dict(said=said, last="", worst=0.01, percent=1, waits=[49.7])
curve = dict(step_1=19, step_16=22, launch_16=19, more=0.05, needed=50, rate_16=720, rate_64=2_764, worker_rate=788,
             disk_rate=1_139)
CASES = {
    "al370001": [
        (line, "within 3% of the batches between: an iteration costs 0.44 ms whatever its batch, and 6.5 µs"),
        (dict(line, worst=0.35, percent=35), "up to 35% off between them"),
    ],
    "al370003": [
        (rates, "batches of 16 that stop after 320 reach 39%"),
        (dict(rates, short_16=90), "Batches of 16 that stop after 320 updates reach 90%"),
        (dict(rates, scaled_256=40), "320 updates reach 40% with batches of 256, and 68% with batches of 16"),
    ],
    "al370009": [
        (workers, "are within 1% of that"),
        (dict(workers, worst=0.9, percent=90), "up to 90% off"),
    ],
    "al370015": [
        (curve, "A larger batch is the right change"),
        (dict(curve, launch_16=5), "22 ms with 16"),
        (dict(curve, worker_rate=500), "it would need 50 of our workers"),
    ],
}
