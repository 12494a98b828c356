"Figures that choose each sentence of lesson 02, and words of it."
said = "Measured: "
ladder = dict(said=said, usual_ms=3.1, crop_ms=2.5, tensor_ms=1.8, pillow_1=0.8, pillow_2=0.5, tensor_2=0.3)
CASES = {
    "dl370001": [
        (dict(said=said, ratio=2.9), "waits for most of the time"),
        (dict(said=said, ratio=0.4), "Measured: ."),
    ],
    "dl370002": [
        (dict(said=said, batch_us=36, learn_us=250), "less than the 250"),
        (dict(said=said, batch_us=360, learn_us=250), "it still waits"),
    ],
    "dl020003": [
        (dict(said=said, calls_us=380, call_us=21), "most of the time of the 64 calls is overhead"),
        (dict(said=said, calls_us=40, call_us=21), "Measured: ."),
    ],
    "dl370005": [
        (dict(said=said, own="It takes 30.", each_us=900, rows_us=80, ready_us=40), "40 µs of the 80"),
        (dict(said=said, own="It takes 30.", each_us=900, rows_us=600, ready_us=40), "Measured: It takes 30."),
    ],
    "dl370009": [
        (dict(ladder, bytes_ms=2.6), "crops in 0.50 ms instead of 0.80"),
        (dict(ladder, bytes_ms=3.2), "After 1 it is 3.20 ms, after 2 2.50"),
    ],
    "dl020013": [
        (dict(said=said, tensor_ms=1.8, quarter_ms=13, whole_ms=18), "shrink large files"),
        (dict(said=said, tensor_ms=1.8, quarter_ms=19, whole_ms=18), "Measured: ."),
    ],
    "dl370018": [
        (dict(said=said, digits_cost="Digits", learn_us=186, batch_us=31), "one core is enough"),
        (dict(said=said, digits_cost="Digits", learn_us=186, batch_us=310), "one core is not enough"),
    ],
}
