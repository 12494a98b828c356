"Figures that choose each sentence of lesson 02, and words of it."
said = "Measured: "
more = dict(said=said, slow="Each number by itself. ", pays="One core is enough.", selected=4)
ladder = dict(said=said, simple=2.1, simple_ms=1.4, smaller=1.2)
CASES = {
    "dl370001": [
        (dict(ratio=2.9), "waits for most of the time"),
        (dict(ratio=0.4), "a part of every step"),
    ],
    "dl370002": [
        (dict(said=said, gains=dict(fetch=2.9, convert=19), fetch_us=50, whole_us=70), "fetching gains only 2.9"),
        (dict(said=said, gains=dict(fetch=15, convert=19), fetch_us=5, whole_us=70), "Fetching gains 15.0"),
    ],
    "dl380004": [
        (dict(more, indexed=37, eighth=6), "Each number by itself."),
        (dict(more, indexed=37, eighth=36), "`images[rows]` takes 37. One core"),
        (dict(more, indexed=5, eighth=1), "`images[rows]` takes 5. One core"),
    ],
    "dl370003": [
        (dict(said=said, often=4, times=1834), "answers 1,834 of 2,000 times with 4"),
        (dict(said=said, often=4, times=600), "its most frequent answer is 4"),
    ],
    "dl370005": [
        (dict(said=said, each_us=14, rows_us=2, own_us=1), "share out the rest"),
        (dict(said=said, each_us=14, rows_us=9, own_us=1), "no more than twice as much"),
    ],
    "dl380007": [
        (dict(said=said, own_ns=6.2, own_bytes=0.2, made_ns=9.5, cut_ns=9.1), "compare yours"),
        (dict(said=said, own_ns=9.4, own_bytes=0.2, made_ns=9.5, cut_ns=9.1), "with 0.20 bytes a pixel, takes 9.4"),
    ],
    "dl370009": [
        (dict(ladder, pixels_ms=0.6), "decoding is 67% of what is left"),
        (dict(ladder, pixels_ms=1.9), "Kept pixels take 1.9 ms"),
    ],
    "dl380014": [
        (dict(said=said, cores_least=17, cores_most=22, cores_there=16), "cannot feed it"),
        (dict(said=said, cores_least=13, cores_most=17, cores_there=16), "but not the noise"),
        (dict(said=said, cores_least=9, cores_most=12, cores_there=16), "have little left"),
    ],
    "dl370015": [
        (dict(said=said, beside_it="", pinned=50, pageable=10), "pinned memory is 5.0 times as fast"),
        (dict(said=said, beside_it="", pinned=50, pageable=49), "hardly faster"),
    ],
}
