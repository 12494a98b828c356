"Figures for each sentence that lesson 03 may conclude with."
CASES = {
    "ba000009": [
        (dict(numbers=16.02, said=""), "A token keeps 16 d numbers at any length"),
        (dict(numbers=80.0, said=""), "80.0 d numbers a token, not 16 d"),
    ],
    "ba000032": [
        (dict(kept_image=108_224, by_rule=108_224, said=""), "ReLU finds its zeros in its own output"),
        (dict(kept_image=150_000, by_rule=108_224, said=""), "saves other tensors"),
    ],
    "bc000008": [
        (dict(like_copy=1.15, gbytes=13.5, gflops=155, said=""), "reading and writing, 14 GB a second"),
        (dict(like_copy=2.4, gbytes=5.1, gflops=60, said=""), "a comparison costs more than moving its value"),
    ],
    "ba000022": [
        (dict(off=0.008, further=44.7, a_photo=44_359_680, last=0.4, others=0.1), "44.7 MB, 44.4 counted"),
        (dict(off=0.2, further=50, a_photo=44_359_680, last=0.4, others=0.1), "off by 20.0%"),
    ],
    "bc000016": [
        (dict(fits=True, needed_gb=16.862, too_much=16.949, by_arithmetic=646, by_both=431, whole=0.77, expected=330,
              said=""), "so expect about 330"),
        (dict(fits=False, needed_gb=17.1, too_much=17.2, by_arithmetic=646, by_both=431, whole=0.77, expected=330,
              said=""), "finds another largest batch"),
    ],
}
