"Figures for each sentence that lesson 12 may conclude with."

SENT = dict(said="Stage 3 sends 2.26 MiB")
TOKENS = dict(said="Bounds. ", cable=24_900.0, over_512=3_308.0)
ROOM = dict(room=85, one_32=63.9)

CASES = {
    "sh12f01": [
        (SENT | dict(plain_mib=1.51, third_mib=2.26), "3/2 as much. The other stages have two rounds"),
        (SENT | dict(plain_mib=1.51, third_mib=2.40), "which three rounds in place of two do not explain"),
    ],
    "sh12f06": [
        (dict(largest=0.0, differing=0.0), "equal to the bit"),
        (dict(largest=1e-4, differing=0.023), "differ by at most 0.0001, and 0.023% by more than 1e-05."),
        (dict(largest=0.2, differing=40.0), "40% of the weights differ, by up to 0.2: this is another training"),
    ],
    "sh12f09": [
        (dict(off=0.02), "What is whole for a moment accounts for every peak"),
        (dict(off=1.0), "accounts for the peaks up to 1.0 blocks"),
    ],
    "sh12f07": [
        (ROOM | dict(one_mixed=39.0), "it holds 63.9 GB in float32 and 39.0 with bf16"),
        (ROOM | dict(one_mixed=90.0), "Stage 1 takes 63.9 GB in float32 and 90.0 with bf16 weights, of 85."),
    ],
    "sh12f03": [
        (TOKENS | dict(rails=3_108.0), "512 GPUs with 3,308 make a batch of 1.7 million."),
        (TOKENS | dict(rails=4_900.0), "are not enough for both; over a single cable it takes 24,900."),
    ],
    "sh12g04": [
        (dict(said="Kept: 99.5%", low_few=99.5, if_64=92.3, reached=0.374, asked=1_850.0), "where it asks for 1,800."),
        (dict(said="Kept: 93.0%", low_few=93.0, if_64=92.3, reached=0.374, asked=1_850.0), "so this run does not tell"),
    ],
    "sh12g06": [
        (dict(source="H100; a table", lost={"7": 7.7, "70": 4.9}), "every model gets slower, by 4.9 to 7.7%, though"),
        (dict(source="H100; a table", lost={"7": -0.1, "70": 4.9}), "not every model gets slower. (H100; a table)"),
    ],
}
