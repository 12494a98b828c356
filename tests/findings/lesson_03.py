"Figures for each sentence that lesson 03 may conclude with."
CASES = {
    "ba000032": [
        (dict(kept_image=108_224, by_rule=108_224, said=""), "ReLU finds its zeros in its own output"),
        (dict(kept_image=150_000, by_rule=108_224, said=""), "saves other tensors"),
    ],
    "a156c0df": [
        (dict(off=0.016, above=0.22, said=""), "0.2 GB above the count at most, 2% or less"),
        (dict(off=0.2, above=4.6, said=""), "20% off the count"),
    ],
}
