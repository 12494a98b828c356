"Figures that choose each sentence of lesson 02, and words of it."
said = "Measured: "
ladder = dict(said=said, simple=2.1, simple_ms=1.4, smaller=1.2)
disk = dict(said=said, cores_there=16)
CASES = {
    "dl370001": [
        (dict(ratio=2.9), "waits for most of the time"),
        (dict(ratio=0.4), "a part of every step"),
    ],
    "dl370002": [
        (dict(said=said, batch_us=36, learn_us=250), "could feed 7 such models"),
        (dict(said=said, batch_us=360, learn_us=250), "the model still waits"),
    ],
    "dl370003": [
        (dict(said=said, often=4, times=1834), "answers 1,834 of 2,000 times with 4"),
        (dict(said=said, often=4, times=600), "its most frequent answer is 4"),
    ],
    "dl370005": [
        (dict(said=said, each_us=900, rows_us=80, own_us=30), "share out the rest"),
        (dict(said=said, each_us=900, rows_us=600, own_us=30), "570 µs a batch below"),
    ],
    "dl380007": [
        (dict(said=said, own_ns=4.2, own_bytes=0.2, cut_ns=7.1), "compare your files"),
        (dict(said=said, own_ns=7.0, own_bytes=0.2, cut_ns=7.1), "with 0.20 bytes a pixel, takes 7.0"),
    ],
    "dl370009": [
        (dict(ladder, pixels_ms=0.6), "Decoding is 67% of what is left"),
        (dict(ladder, pixels_ms=1.9), "kept pixels 1.9"),
    ],
    "dl380014": [
        (dict(disk, cores_512=18), "cannot feed it"),
        (dict(disk, cores_512=12), "can feed it"),
    ],
}
