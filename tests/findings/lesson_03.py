"Figures for each sentence that lesson 03 may conclude with."
CASES = {
    "ba000032": [
        (dict(kept_image=108_224, by_rule=108_224, said=""), "ReLU finds its zeros in its own output"),
        (dict(kept_image=150_000, by_rule=108_224, said=""), "saves other tensors"),
    ],
    "ba000022": [
        (dict(off=0.008, further=44.7, a_photo=44.4, said=""), "grows by 44.7 MB a photo."),
        (dict(off=0.2, further=53.3, a_photo=44.4, said=""), "20% off"),
    ],
}
