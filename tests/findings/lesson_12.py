"Figures for each sentence that lesson 12 may conclude with."

SENT = dict(said="Stage 3 sends 2.26 MiB")
PEAK = dict(said="Blocks more: ", x0=1.0, x1=1.25, x2=2.0)
TOKENS = dict(said="Bounds. ", cable=24_861.0)
ROOM = dict(room=85, one_32=45.7, fsdp_gb=10.0)
MANY = dict(said="Steps get longer", source="H100; a table", for_each=[10.0, 15.0], small=[45.0, 21.0])

CASES = {
    "sh12f01": [
        (SENT | dict(plain_mib=1.51, third_mib=2.26), "3/2 as much. The other stages have two rounds"),
        (SENT | dict(plain_mib=1.51, third_mib=2.40), "which three rounds in place of two do not explain"),
    ],
    "sh12f06": [
        (dict(largest=0.0), "equal to the bit"),
        (dict(largest=3e-8), "differ by at most 3e-08, because sums in another order"),
        (dict(largest=0.2), "differ by 0.2: this is another training"),
    ],
    "sh12f02": [
        (PEAK | dict(x3=3.02), "and in stage 3 its gathered weights a third"),
        (PEAK | dict(x3=4.0), "where 1, 1.25, 2 and 3 were expected"),
    ],
    "sh12f07": [
        (ROOM | dict(one_mixed=27.9), "Stage 1 is enough: 45.7 GB in float32 and 27.9 in mixed"),
        (ROOM | dict(one_mixed=90.0), "Stage 1 takes 45.7 GB in float32 and 90.0 in mixed precision, of 85."),
    ],
    "sh12f08": [
        (dict(said="A quarter: 24%. ", off=3.0, off_at_rule=4.0), "more than the first gather is waited for."),
        (dict(said="A quarter: 24%. ", off=3.0, off_at_rule=14.6), "At the threshold itself the rule misses by 15"),
        (dict(said="A quarter: 40%. ", off=16.0, off_at_rule=4.0), "It misses by up to 16 points: it counts bytes"),
    ],
    "sh12f03": [
        (TOKENS | dict(rails=3_108.0), "2,048 tokens are enough. Over a single cable it takes 24,861."),
        (TOKENS | dict(rails=4_900.0), "are not enough for both; over a single cable it takes 24,861."),
    ],
    "sh12g04": [
        (dict(said="Kept: 99.5%", low_few=99.5, if_64=92.3), "So it is hidden, as the rule says."),
        (dict(said="Kept: 93.0%", low_few=93.0, if_64=92.3), "so this run does not tell"),
    ],
    "sh12g06": [
        (MANY | dict(ratio=1.5), "10 to 15 ms for each billion. (Models of 1 and 3 billion, at stage 2, lose 45"),
        (MANY | dict(ratio=3.0), "Steps get longer. (H100; a table)"),
    ],
}
