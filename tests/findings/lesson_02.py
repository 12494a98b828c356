"Figures that choose each sentence of lesson 02, and words of it."
said = "Measured: "
CASES = {
    "dl370001": [
        (dict(ratio=2.9), "waits for most of the time"),
        (dict(ratio=0.4), "a part of every step"),
    ],
    "dl370002": [
        (dict(said=said, gain=9, modelled=17, fetch_gain=2.9, fetch_us=50, whole_us=70), "gains only a factor of 2.9"),
        (dict(said=said, gain=16, modelled=17, fetch_gain=9, fetch_us=5, whole_us=70), "stands for the whole loop"),
    ],
    "dl370003": [
        (dict(said=said, often=4, times=1834), "answers 1,834 of 2,000 times with 4"),
        (dict(said=said, often=4, times=600), "its most frequent answer is 4"),
    ],
    "dl370005": [
        (dict(said=said, each_us=14, rows_us=3, own_us=1), "`DataLoader` itself is not slow"),
        (dict(said=said, each_us=14, rows_us=13, own_us=12), "not most of the cost"),
    ],
    "9dc595c4": [
        (dict(said=said, mini_s=0.2, online_s=1.1, mini_samples=20_000, full_s=0.3, full_loss=0.46), "20,000 samples"),
        (dict(said=said, mini_s=float("nan"), online_s=1.1, mini_samples=float("nan"), full_s=0.3, full_loss=0.46),
         "does not come there sooner"),
    ],
    "dl370008": [
        (dict(said=said, at_last=dict(full=60, online=82, frozen=14)), "a world that is gone"),
        (dict(said=said, at_last=dict(full=80, online=82, frozen=14)), "and online learning at 82%"),
    ],
    "dl370009": [
        (dict(said=said, pixels_ms=0.6, simple=2.1, smaller=1.2), "mostly decoding"),
        (dict(said=said, pixels_ms=1.9, simple=2.1, smaller=2.0), "Keeping pixels brings 1.9 ms"),
    ],
    "dl370015": [
        (dict(said=said, pinned=50, pageable=10), "pinned memory is 5.0 times as fast"),
        (dict(said=said, pinned=50, pageable=49), "hardly faster"),
    ],
}
