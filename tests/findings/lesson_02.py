"Figures that choose each sentence of lesson 02, and words of it."
said = "Measured: "
ladder = dict(said=said, each="Each saves", same="Noise 0.10.", floats=0.4, crops=0.2, copies=0.3, bytes_ms=2.6,
              crop_ms=2.5)
sheets = dict(said=said, shrink=", so shrink. Else ", tensor_ms=1.8)
answer = dict(said=said, digits_cost="Digits", enough=": enough. ", big="Large ones", have=16)
CASES = {
    "dl370001": [
        (dict(said=said, ratio=2.9), "waits for most of the time"),
        (dict(said=said, ratio=0.4), "Measured: ."),
    ],
    "dl370002": [
        (dict(said=said, batch_us=36, learn_us=250), "less than the 250"),
        (dict(said=said, batch_us=360, learn_us=250), "the model still waits"),
    ],
    "dl020003": [
        (dict(said=said, calls_us=380, call_us=21), "most of the time of the 64 calls is overhead"),
        (dict(said=said, calls_us=40, call_us=21), "Measured: ."),
    ],
    "dl370005": [
        (dict(said=said, own="It takes 30.", each_us=900, rows_us=80, ready_us=40, own_us=30, learn_us=200),
         "40 µs of its 80 are the loader's own"),
        (dict(said=said, own="It takes 30.", each_us=900, rows_us=600, ready_us=40, own_us=30, learn_us=700),
         "Measured: It takes 30."),
        (dict(said=said, own="It takes 30.", each_us=900, rows_us=80, ready_us=40, own_us=30, learn_us=60),
         "Measured: It takes 30."),
    ],
    "dl370009": [
        (dict(ladder, decoder=0.3, noise=0.1), "Each saves, and 0.30 in decoding. Noise 0.10."),
        (dict(ladder, decoder=0.05, noise=0.1), "no difference beyond the noise. Noise 0.10."),
        (dict(ladder, decoder=0.3, noise=0.25), "After 1 it is 2.60 ms, after 2 2.50. Noise 0.10."),
    ],
    "dl020013": [
        (dict(sheets, quarter_ms=13, whole_ms=18), "so shrink. Else use `draft`"),
        (dict(sheets, quarter_ms=19, whole_ms=18), "so shrink. Else way 3"),
        (dict(sheets, quarter_ms=1.5, whole_ms=1.6), "Measured: ."),
    ],
    "dl020022": [
        (dict(here=0.6, above=0.3), "takes 0.60 ms here and 0.30 above, with the same boxes"),
        (dict(here=0.3, above=0.3), "takes 0.30 ms here and 0.30 above."),
    ],
    "dl370019": [
        (dict(said=said, best=2_800, images_per_s=4_300, part=0.74), "take more cores than the bill: 1.4 times"),
        (dict(said=said, best=4_200, images_per_s=4_300, part=0.97), "about right"),
    ],
    "dl370018": [
        (dict(answer, learn_us=186, batch_us=31, whole_cores=94), "Large ones, so shrink them first"),
        (dict(answer, learn_us=186, batch_us=31, whole_cores=9), "Digits: enough. Measured: Large ones."),
        (dict(answer, learn_us=186, batch_us=310, whole_cores=94), "is not enough"),
    ],
}
