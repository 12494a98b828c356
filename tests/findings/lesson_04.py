"Figures for each sentence that lesson 04 may conclude with."


class Phases(dict):
    "A step's median phases, as far as a sentence reads them."
    def sum(self): return 12.2


LAYERS = dict(modelled=65.2, of_layers=49.0, without_pools=62.0, pool_b=0.6, conv_ratio=1.5, said="")
BARS = dict(device="the same loader", rest=11.7, first_rest=12.0, waits=Phases(wait=11.0), said="")
SIZES = dict(said="", calls=2.7)

CASES = {
    "f4b00003": [
        (LAYERS | dict(pool_f=0.5, left_over=3.0), "pooling does not explain the miss"),
        (LAYERS | dict(pool_f=2.9, left_over=3.0), "is mostly pooling"),
        (LAYERS | dict(pool_f=2.9, left_over=8.0), "here it takes 1.50 times"),
    ],
    "f4b00005": [
        (BARS | dict(gain=1.8, apart=1.5), "In the first bar they take 12.0"),
        (BARS | dict(gain=1.8, apart=1.1), "the same loader"),
        (BARS | dict(gain=1.04, apart=1.1, waits=Phases(wait=0.5)), "waits for only 0.5 ms of 12.2 here"),
    ],
    "f4b00009": [
        (SIZES | dict(rising=False, four=1.1, step_ms={64: 21.0}), "the answer above is wrong"),
        (SIZES | dict(rising=True, four=1.07, step_ms={64: 20.0}), "trains only 1.07 times as many images a second"),
        (SIZES | dict(rising=True, four=1.8, step_ms={64: 20.0}), "still trains 1.8 times as many images a second"),
    ],
    "gpu04005": [
        (dict(once=0.5, free_ms=20.7, said=""), "it does, 0.5 ms"),
        (dict(once=4.2, free_ms=20.7, said=""), "One wait at the end costs 4.2 ms"),
    ],
    "f4b00012": [
        (dict(memory_parts=[1.0, 96.0, 3.0], fed_parts=[49.0, 49.0, 2.0], said="", batch=""), "begin with the data"),
        (dict(memory_parts=[1.0, 96.0, 3.0], fed_parts=[2.0, 95.0, 3.0], said="", batch=""), "in both cases"),
    ],
}
