"Figures for each sentence that lesson 12 may conclude with."

SENT = dict(said="Stage 3 sends 2.26 MiB")
PEAK = dict(said="The rest is blocks")
TOKENS = dict(said="Bounds. ", LINK_SHARE=0.75, cable=11_132.0, ethernet=445_275.0)
MANY = dict(said="Left: 91%. ", source="H100; a table")

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
        (PEAK | dict(blocks=3.02), "Three things of one block are whole"),
        (PEAK | dict(blocks=4.0), "where weights, gradients and the vector that is sent make 3"),
    ],
    "sh12f03": [
        (TOKENS | dict(rails=1_391.0), "2,048 tokens is enough. Over a single cable it takes 11,132, and"),
        (TOKENS | dict(rails=1_900.0), "is not enough for both; over a single cable it takes 11,132."),
    ],
    "sh12g04": [
        (dict(said="Kept: 99.5%", low_13=99.5, if_13=94.1), "94% would be left. Here the rule holds."),
        (dict(said="Kept: 95.0%", low_13=95.0, if_13=94.1), "94% would be left, so this run does not tell"),
    ],
    "sh12g06": [
        (MANY | dict(at_512=90.9, if_512=97.5), "exposed it would be 98% on both. What grows with the ranks"),
        (MANY | dict(at_512=97.0, if_512=97.5), "Bytes that are not hidden explain as much: 98%"),
    ],
    "sh12f05": [
        (dict(said="Llama", slow=5_762.0, fast=6_667.0, origin="torchtitan"),
         "1.16 times as many"),
        (dict(said="Llama", slow=5_762.0, fast=5_800.0, origin="torchtitan"), "That is no gain"),
    ],
}
