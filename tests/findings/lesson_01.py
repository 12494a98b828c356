"Figures that choose each sentence of lesson 01, and words of it."
said = "Measured: "
spiral = dict(first=said, low_256=38, scaled_256=90, scaled_1024=45, low_1024=61, long_1024=91, with_16=97)
loop = dict(rates=[75, 400, 720, 1_500, 1_900, 3_300], rate_256=4_680, first_days=19.65, last_days=0.44)
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
        (spiral, "four times the work"),
        (dict(spiral, scaled_1024=89), "At 1,024 it reaches 89%"),
        (dict(spiral, low_256=88), "changes 88% to 90%"),
    ],
    "al370009": [
        (dict(said=said, worst=1.08, ready=0.4, late=0.1), "next() takes 0.4 ms to receive it"),
        (dict(said=said, worst=1.9, ready=3.0, late=4.1), "90% above the rule"),
    ],
    "al370015": [
        (dict(said=said, one=19, at_64=23), "as long as launching it, 19 ms"),
        (dict(said=said, one=4, at_64=23), "64 pictures already cost 19 ms more"),
    ],
    "l01looped": [
        (dict(loop, slow=["data", "data", "GPU", "workers", "disk", "workers"]), "4,680 images/s instead of 720"),
        (dict(loop, slow=["data", "data", "disk", "disk", "disk", "disk"]), "were, in turn, data"),
    ],
}
