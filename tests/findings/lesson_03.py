"Figures for each sentence that lesson 03 may conclude with."
CASES = {
    "ba000009": [
        (dict(numbers=16.02, said="", layers=""), "16.0 d numbers a token, as the rule says"),
        (dict(numbers=24.0, said="", layers=""), "24.0 d numbers a token, not 16 d"),
    ],
    "ba000012": [
        (dict(slow=True, free=0.45, with_flops=57, block_rate=100, said=""), "others that reach only 57% of the"),
        (dict(slow=True, free=0.45, with_flops=95, block_rate=100, said=""), "because of the layers"),
        (dict(slow=True, free=0.1, with_flops=57, block_rate=100, said=""), "because its layers reach only 57%"),
        (dict(slow=False, free=0.4, with_flops=95, block_rate=100, said=""), "both lose about equally much"),
    ],
    "ba000013": [
        (dict(left=2.0, product_share=0.7, said=""), "70% of it on our GPU, and at that rate the last run would still"),
        (dict(left=1.1, product_share=0.5, said=""), "the last run takes 1.1 times the estimate"),
    ],
    "ba000015": [
        (dict(off=0.002, said=""), "what we counted by hand"),
        (dict(off=0.5, said=""), "is off by 50%"),
    ],
    "ba000019": [
        (dict(relu_rate=12.0, copy_rate=12.5, said=""), "The memory sets its pace, not the arithmetic"),
        (dict(relu_rate=5.0, copy_rate=12.5, said=""), "only in part"),
    ],
}
