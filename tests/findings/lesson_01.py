"Figures that choose each sentence of lesson 01, and words of it."
said = "Measured: "
run = dict(said=said, unseen=(0, 0), first_check=20, later_check=38, began=1.75, over_all=6.91)
CASES = {
    "al370001": [
        (dict(said=said, off=0.04, each_us=[2.0, 1.9]), "misses 16 by +4% only"),
        (dict(said=said, off=-0.35, each_us=[2.0, 8.0]), "2.0 µs between 1 and 16, 8.0 µs"),
    ],
    "al370002": [
        (dict(told=said, with_256=37, short_16=39, with_16=97), "the updates are what is missing"),
        (dict(told=said, with_256=60, short_16=90, with_16=97), "explains only a part"),
    ],
    "al370003": [
        (dict(scaled_few=46, scaled_many=49, low_few=61, low_many=94, with_16=97), "change 46% to 49%"),
        (dict(scaled_few=95, scaled_many=97, low_few=80, low_many=96, with_16=97), "Here the rule holds"),
        (dict(scaled_few=60, scaled_many=80, low_few=62, low_many=84, with_16=97), "after 320 they reach 80% and 84%"),
    ],
    "al370006": [
        (dict(run, off={0.1: 0.02}), "a tenth of this run tells the rest"),
        (dict(run, off={0.1: -0.09}, unseen=(10, 90)), "it took 20 ms before the training, and 38 ms"),
        (dict(run, off={0.1: -0.7}, unseen=(900, 90)), "1.75 ms in the first tenth"),
    ],
    "al370009": [
        (dict(said=said, extra=0.4), "spent in waking threads"),
        (dict(said=said, extra=20), "Each batch takes 20 ms longer"),
    ],
    "al370015": [
        (dict(said=said, launched=16, needed=19, enough=256, rate=4_900, disk=170), "compute for 3% of the time"),
        (dict(said=said, launched=6, needed=19, enough=256, rate=4_900, disk=170), "Our spinning disk delivers 170."),
    ],
}
