"Figures for each sentence that lesson 04 may conclude with."

LAYERS = dict(without_pools=62.0, pool_b=0.6, said="", layout=" With channels last")
BARS = dict(device="the same loader", rest=11.7, first_rest=12.0, load_ms=11.0, whole=22.7, said="the wait. ")
SIZES = dict(said="", fixed=2.3, worst=8, above_ms=21.0, here_ms=21.0)
LEARNT = dict(said="")
SHARES = dict(said="", rest_said="")

CASES = {
    "f4b00003": [
        (LAYERS | dict(pool_f=0.5, left_over=3.0), "pooling does not explain the miss"),
        (LAYERS | dict(pool_f=2.9, left_over=3.0), "is mostly pooling"),
        (LAYERS | dict(pool_f=2.9, left_over=8.0), "The rest is in other layers"),
    ],
    "f4b00005": [
        (BARS | dict(gain=1.8, apart=1.5), "In the first bar they take 12.0"),
        (BARS | dict(gain=1.8, apart=1.1), "the wait. the same loader"),
        (BARS | dict(gain=1.04, apart=1.1, load_ms=0.5, whole=12.2), "waits for only 0.5 ms of 12.2 here"),
    ],
    "f4b00009": [
        (SIZES | dict(rising=False, four=1.1), "the answer above is wrong"),
        (SIZES | dict(rising=True, four=1.1, here_ms=37.3), "took 21.0 ms above and takes 37.3 here"),
        (SIZES | dict(rising=True, four=1.3, worst=20), "No line fits these five points"),
        (SIZES | dict(rising=True, four=1.3, fixed=-0.4), "No line fits these five points"),
        (SIZES | dict(rising=True, four=1.07), "little to gain: 256 train 1.07 times"),
        (SIZES | dict(rising=True, four=1.8), "256 train 1.80 times as many images a second"),
    ],
    "b4000003": [
        (LEARNT | dict(small_step=0.7, large_step=9.0, four=1.07, up_to_16=2.0), "the second does not"),
        (LEARNT | dict(small_step=0.7, large_step=9.0, four=1.6, up_to_16=2.0), "Weigh the one"),
        (LEARNT | dict(small_step=0.7, large_step=2.0, four=1.07, up_to_16=2.0), "Weigh the one"),
    ],
    "f4b00012": [
        (SHARES | dict(memory_data=1.0, fed_data=49.0), "begin with the data: 49%"),
        (SHARES | dict(memory_data=1.0, fed_data=2.0), "the data are 2% of the step"),
    ],
}
