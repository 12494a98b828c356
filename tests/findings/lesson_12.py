"Figures for each sentence that lesson 12 may conclude with."

SENT = dict(said="Stage 3 sends 2.26 MiB")
PEAK = dict(said="Blocks more: ", x0=1.0, x1=1.25, x2=2.0)
TOKENS = dict(said="Bounds. ", cable=24_861.0)
ROOM = dict(room=85, one_32=45.7)
MANY = dict(source="H100; a table", lost_1=9.7, lost_3=7.5)

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
    "sh12f02": [
        (PEAK | dict(x3=3.02), "and in stage 3 its gathered weights a third"),
        (PEAK | dict(x3=4.0), "where 1, 1.25, 2 and 3 were expected"),
    ],
    "sh12f07": [
        (ROOM | dict(one_mixed=27.9), "Stage 1 fits: it leaves 39 GB in float32 and 57 in mixed"),
        (ROOM | dict(one_mixed=90.0), "Stage 1 takes 45.7 GB in float32 and 90.0 in mixed precision, of 85."),
    ],
    "sh12f03": [
        (TOKENS | dict(rails=3_108.0), "512 GPUs make a batch of 1.6 million."),
        (TOKENS | dict(rails=4_900.0), "are not enough for both; over a single cable it takes 24,861."),
    ],
    "sh12g04": [
        (dict(said="Kept: 99.5%", low_few=99.5, if_64=92.3), "So this sending is hidden, as it should be"),
        (dict(said="Kept: 93.0%", low_few=93.0, if_64=92.3), "so this run does not tell"),
    ],
    "sh12g06": [
        (MANY | dict(lost_7=7.7), "in the same table 3 and 1 billion at stage 2 by 7.5%"),
        (MANY | dict(lost_7=-0.2), "not all get slower. (H100; a table)"),
    ],
}
