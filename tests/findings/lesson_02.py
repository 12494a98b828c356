"Figures that choose each sentence of lesson 02, and words of it."
said = "Measured: "
ladder = dict(said=said, first="1. ", third="3.", usual_ms=3.1, bytes_ms=2.6, crop_ms=2.5,
              copy_ms=0.3, pillow_ms=1.6, left_ms=1.2)
line = dict(said=said, for_mp=2.7, for_mb=8.3, pillow_mp=4.2, pillow_mb=8.2, camera="A camera's take 65 ms.")
bill = dict(cores_3=5.1, cores_4a=3.1, gbs_3=0.24, gbs_4b=1.55, larger=1.8)
end = dict(said=said, digits_cost="Digits: ", learn_us=186)
CASES = {
    "dl370001": [
        (dict(said=said, ratio=2.9), "waits for most of the time"),
        (dict(said=said, ratio=0.4), "a part of every step"),
    ],
    "dl370002": [
        (dict(said=said, batch_us=36, learn_us=250), "loading costs less than learning"),
        (dict(said=said, batch_us=360, learn_us=250), "the model still waits"),
    ],
    "dl370003": [
        (dict(said=said, often=4, times=1834), "answers 1,834 of 2,000 times with 4"),
        (dict(said=said, often=4, times=600), "its most frequent answer is 4"),
    ],
    "dl020003": [
        (dict(said=said, stage_us=400, calls_us=380, call_us=21), "nearly all of its time was overhead"),
        (dict(said=said, stage_us=400, calls_us=200, call_us=21), "The stage above took 400"),
    ],
    "dl370005": [
        (dict(said=said, each_us=900, rows_us=80, ready_us=40, own_us=30), "40 are its own work"),
        (dict(said=said, each_us=900, rows_us=600, ready_us=40, own_us=30), "makes one in 30"),
    ],
    "dl370009": [
        (dict(ladder, in_order=True, resize_saves=0.25), "alone it is hardly worth it"),
        (dict(ladder, in_order=True, resize_saves=0.8), "saves 0.50 ms more than the"),
        (dict(ladder, in_order=False, resize_saves=0.25), "After 1 it is 2.60 ms"),
    ],
    "dl020006": [
        (dict(line, same_codes=True), "both read the codes with the same library"),
        (dict(line, same_codes=False), "For Pillow it is 4.2 and 8.2. A camera's"),
    ],
    "dl020011": [
        (dict(by_line=0.48, small_ms=0.49), "for these of 87,296 it is 2% off"),
        (dict(by_line=0.3, small_ms=0.49), "off by -39%"),
    ],
    "dl380014": [
        (dict(bill, cores_usual=8.7, cores_4b=1.3), "save 3.6 of 8.7 cores"),
        (dict(bill, cores_usual=4.7, cores_4b=1.3), "The usual way needs 4.7 cores"),
    ],
    "dl370018": [
        (dict(end, batch_us=31), "one core is enough"),
        (dict(end, batch_us=310), "one core is not enough"),
    ],
}
