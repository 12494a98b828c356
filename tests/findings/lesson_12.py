"Figures for each sentence that lesson 12 may conclude with."
import pandas as pd

SENT = dict(said="Stage 3 sends 2.26 MiB")
TOKENS = dict(said="Over two servers 3,100 tokens hide the sending, ", over_512=3_308.0)
ROOM = dict(said="An H100 has 85 GB", room=85.0, staying=87.7,
            peaks=pd.Series([112.9, 64.0, 59.7, 21.7]), sequence=10.7)
KEPT = dict(said="Kept: 99.5%. ", reached=0.374, source="H100; a table")

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
        (dict(off=0.02, share=0.36), "Stage 3 needs 36% of stage 0's memory, not 25%"),
        (dict(off=1.0, share=0.36), "the sum and the count are 1.0 blocks apart"),
    ],
    "sh12f07": [
        (ROOM | dict(fits=[1, 2, 3]), "64 GB, when backward ends. (If its gradients stay, backward begins with 88 GB"),
        (ROOM | dict(fits=[2, 3]), "85 GB; stage 2 is the lowest that fits."),
        (ROOM | dict(fits=[]), "85 GB; no stage fits."),
    ],
    "sh12f03": [
        (TOKENS | dict(rails=3_108.0), "512 GPUs make a batch of 1.7 million tokens."),
        (TOKENS | dict(rails=4_900.0), "more than two sequences of 2,048."),
    ],
    "sh12g04": [
        (KEPT | dict(low_few=99.5, if_64=92.3), "the whole step reaches 37% of the peak, not the rule's 67%"),
        (KEPT | dict(low_few=93.0, if_64=92.3), "So this run does not tell. (H100; a table)"),
    ],
}
