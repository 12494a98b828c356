"Figures for each sentence that lesson 03 may conclude with."
CASES = {
    "ba000009": [
        (dict(numbers=16.02, said=""), "16.0 numbers for each token and unit of width, as counted"),
        (dict(numbers=24.0, said=""), "24.0 numbers for each token and unit of width, not 16"),
    ],
    "ba000012": [
        (dict(cnn_rate=60, block_rate=100, free=0.45, said=""), "for two reasons: layers that it does not hold"),
        (dict(cnn_rate=60, block_rate=100, free=0.1, said=""), "mostly because its convolutions are too small"),
        (dict(cnn_rate=95, block_rate=100, free=0.4, said=""), "both lose about equally much"),
    ],
    "ba000013": [
        (dict(eager=3.2, compiled=2.1, said=""), "3.2 times the estimate, and 2.1 after"),
        (dict(eager=3.2, compiled=3.1, said=""), "changes little in bf16 (3.2 times the estimate before, 3.1"),
    ],
    "ba000015": [
        (dict(off=0.002, said=""), "within 1% of what the GPU says"),
        (dict(off=0.5, said=""), "off by up to 50%"),
    ],
}
