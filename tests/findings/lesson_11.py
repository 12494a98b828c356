"Figures on each side of the conditions of lesson 11's conclusions."
_PAIR = dict(said="A step takes 11.1 ms alone and 11.1 beside the other run", low=11.0, high=12.0, cores=2)
_SPEED = dict(said="Two ranks average. ")
_BUCKETS = dict(said="Averaging alone takes 53 ms. ", megabytes=8.3, s64=55.0, alpha_us=258.0)

CASES = {
    "c1100006": [(_PAIR | dict(cores=1, side=1.0), "this machine has one core"),
                 (_PAIR | dict(side=2.4), "something slowed the single run"),
                 (_PAIR | dict(side=2.01), "train 2.01 times as many images a second"),
                 (_PAIR | dict(side=1.2), "train only 1.20 times")],
    "c1100008": [(_SPEED | dict(gain=0.34), "makes this training slower"),
                 (_SPEED | dict(gain=1.4), "70% of two devices")],
    "c110000d": [(_BUCKETS | dict(s8=50.0), "here it was not the messages"),
                 (_BUCKETS | dict(s8=18.0), "so it was the messages, with 258 µs")],
}
