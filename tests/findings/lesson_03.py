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
    "ba000032": [
        (dict(kept_first=6.93, kept_last=6.93, said=""), "The order changes the outputs and not what is kept"),
        (dict(kept_first=6.93, kept_last=5.0, said=""), "With the pool first 5.00 MB are kept"),
    ],
    "ba000037": [
        (dict(of_sheet=0.9), "The memory sets their pace"),
        (dict(of_sheet=1.3), "they do not move the bytes that we counted"),
    ],
    "ba000015": [
        (dict(off=0.002, said="", by_rule=2013.3, by_autocast=1610.6, copies=402.7), "bf16 does not halve this"),
        (dict(off=0.5, said="", by_rule=2013.3, by_autocast=1610.6, copies=402.7), "is off by 50%"),
    ],
}
