"Figures for each sentence that lesson 03 may conclude with."
CASES = {
    "ba000009": [
        (dict(numbers=16.02, n=128, d=512), "Attention takes 5% of 6 N D here"),
        (dict(numbers=24.0, n=128, d=512), "24.0 d numbers a token, not 16 d"),
    ],
    "ba000012": [
        (dict(free=0.35, convs=0.55), "take 35% of the time. They read each value"),
        (dict(free=0.05, convs=0.85), "take only 5% of the time here"),
    ],
    "bb000004": [
        (dict(more_ms=1.02, more_flops=2.05, full_rate=124, slow_rate=61, block_rate=129, said=""),
         "20 cost as much as 32"),
        (dict(more_ms=1.5, more_flops=2.05, full_rate=110, slow_rate=80, block_rate=129, said=""),
         "110 GFLOP/s instead of 80"),
        (dict(more_ms=2.1, more_flops=2.05, full_rate=80, slow_rate=82, block_rate=129, said=""), "does not matter"),
    ],
    "ba000032": [
        (dict(kept_image=108_224, by_rule=108_224, said=""), "ReLU finds its zeros in its own output"),
        (dict(kept_image=150_000, by_rule=108_224, said=""), "saves other tensors"),
    ],
    "ba000022": [
        (dict(off=0.004, said=""), "within 0.4% of the peak"),
        (dict(off=0.2, said=""), "off by 20.0%"),
    ],
}
