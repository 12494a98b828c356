"Figures for each sentence that lesson 04 may conclude with."

LAYERS = dict(without_pools=62.0, pool_b=0.6, said="", layout=" With channels last")
BARS = dict(device="the same loader", rest=11.7, first_rest=12.0, load_ms=11.0, whole=22.7, said="the wait. ")
SIZES = dict(said="", unsteady=1.1, most=1.16, above_ms=21.0, here_ms=21.0)
LEARNT = dict(said="By speed. ", unsteady=1.1, errors={16: 11.3, 256: 22.1}, learnt=dict(updates={256: 24}), small=16)
SHARES = dict(said="", rest_said="")

CASES = {
    "f4b00003": [
        (LAYERS | dict(pool_f=0.5, left_over=3.0), "pooling does not explain the miss"),
        (LAYERS | dict(pool_f=2.9, left_over=3.0), "is mostly pooling"),
        (LAYERS | dict(pool_f=2.9, left_over=-6.0), "explains the miss and more"),
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
        (SIZES | dict(rising=True, four=1.07, unsteady=2.0), "took 2.0 times as long as others"),
        (SIZES | dict(rising=True, four=1.8), "the images themselves take less time"),
        (SIZES | dict(rising=True, four=1.07), "With 256 it is 1.07 times as fast."),
    ],
    "b4000003": [
        (LEARNT | dict(too_large=[64, 256], worse=9.0, noise=2.0, unsteady=2.0), "is not to be trusted"),
        (LEARNT | dict(too_large=[], worse=9.0, noise=2.0), "does not stop before 256"),
        (LEARNT | dict(too_large=[64, 256], worse=9.0, noise=2.0), "rise from 11.3% to 22.1%"),
        (LEARNT | dict(too_large=[64, 256], worse=1.0, noise=2.0), "they do not decide"),
    ],
    "f4b00012": [
        (SHARES | dict(memory_data=1.0, fed_data=49.0), "begin with the data: 49%"),
        (SHARES | dict(memory_data=1.0, fed_data=2.0), "the data are 2% of the step"),
    ],
}
