"Figures for each sentence that lesson 03 may conclude with."
CASES = {
    "ba000009": [
        (dict(numbers=16.02, said=""), "16.0 numbers for each token and unit of width, as counted"),
        (dict(numbers=24.0, said=""), "24.0 numbers for each token and unit of width, not 16"),
    ],
    "ba000012": [
        (dict(slow=True, free=0.45, with_flops=57, block_rate=100, said=""), "convolutions too small for full speed"),
        (dict(slow=True, free=0.45, with_flops=95, block_rate=100, said=""), "because of the layers"),
        (dict(slow=True, free=0.1, with_flops=57, block_rate=100, said=""), "because its convolutions are too small"),
        (dict(slow=False, free=0.4, with_flops=95, block_rate=100, said=""), "both lose about equally much"),
    ],
    "ba000013": [
        (dict(left=2.0, product_share=0.7, said=""), "70% of it on our GPU, and at that rate the last run would still"),
        (dict(left=1.1, product_share=0.5, said=""), "the last run takes 1.1 times the estimate"),
    ],
    "ba000015": [
        (dict(off=0.002, said=""), "within 1% of what the GPU says"),
        (dict(off=0.5, said=""), "is off by 50%"),
    ],
}
