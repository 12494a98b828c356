"Figures for each sentence that lesson 04 may conclude with."

LAYERS = dict(without_pools=62.0, pool_b=0.6, conv_ratio=1.5, said="", layout=" With channels last")
BARS = dict(device="the same loader", rest=11.7, first_rest=12.0, load_ms=11.0, whole=22.7, said="")
SIZES = dict(said="", fixed=2.3, worst=0.05, an_image_mb=0.11, by_line=1.09, above_ms=21.0, here_ms=21.0)
BUDGETS = dict(said="", small=32.0)
SHARES = dict(said="", network="", batch="")

CASES = {
    "f4b00003": [
        (LAYERS | dict(pool_f=0.5, left_over=3.0), "pooling does not explain the miss"),
        (LAYERS | dict(pool_f=2.9, left_over=3.0), "is mostly pooling"),
        (LAYERS | dict(pool_f=2.9, left_over=8.0), "here it takes 1.50 times"),
    ],
    "f4b00005": [
        (BARS | dict(gain=1.8, apart=1.5), "In the first bar they take 12.0"),
        (BARS | dict(gain=1.8, apart=1.1), "11.0 ms fit into 11.7"),
        (BARS | dict(gain=2.8, apart=1.1, load_ms=21.0, whole=32.7), "could not hide all of it"),
        (BARS | dict(gain=1.04, apart=1.1, load_ms=0.5, whole=12.2), "waits for only 0.5 ms of 12.2 here"),
    ],
    "f4b00009": [
        (SIZES | dict(rising=False, four=1.1), "the answer above is wrong"),
        (SIZES | dict(rising=True, four=1.1, here_ms=37.3), "took 21.0 ms above and takes 37.3 here"),
        (SIZES | dict(rising=True, four=1.3, worst=0.2), "No line fits these five points"),
        (SIZES | dict(rising=True, four=1.3, fixed=-0.4), "No line fits these five points"),
        (SIZES | dict(rising=True, four=1.07), "1.09 times as many images a second by the line, and 1.07"),
        (SIZES | dict(rising=True, four=1.8), "still trains 1.8 times as many images a second"),
    ],
    "b4000003": [
        (BUDGETS | dict(large=11.0), "the order turns: 32% and 11%"),
        (BUDGETS | dict(large=33.0), "they make 32% and 33%"),
    ],
    "gpu04005": [
        (dict(once=0.5, each_ms=26.7, said=""), "the GPU has little left to do"),
        (dict(once=4.2, each_ms=26.7, said=""), "One wait at the end adds 4.2 ms"),
    ],
    "f4b00012": [
        (SHARES | dict(memory_data=1.0, fed_data=49.0), "begin with the data, 49%"),
        (SHARES | dict(memory_data=1.0, fed_data=2.0), "in both cases"),
    ],
}
