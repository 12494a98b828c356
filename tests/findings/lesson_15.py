"Figures for each sentence that lesson 15 may conclude with."

FIT = dict(said="The count is right for 15 of 16 runs. ", ended=" The table has all 539 runs. ",
           elsewhere_gb="Another one needed 1.2 to 2.0 times our count.")
GAP = dict(said="Two stages took longer. ", ended="The median error is 7%.", gap_ours=1.5, handed=0.1)
FEW = dict(said="Two stages are now 28% slower. ", ended="The package says 56% and 17%.")
CHOICES = dict(said="Good in 8 of 25. ", ended="Expect fewer hits.", many_count=13, few_count=12)
THREE = dict(ended="All three are near. ", stages_best=31.1)

CASES = {
    "15n0f001": [
        (FIT | dict(low_fail=71.0, high_run=75.0, well_below=0.84, some_near=0.24, well_above=0.02),
         "one run failed at 71 GB by our count, and another ran at 75. The table has"),
        (FIT | dict(low_fail=80.0, high_run=75.0, well_below=0.84, some_near=0.24, well_above=0.5),
         "No limit parts"),
    ],
    "15n0f002": [
        (GAP | dict(gap=4.6), "the formula finds only 33% of what stages cost"),
        (GAP | dict(gap=2.0), "longer. The median error is 7%"),
    ],
    "15n0f007": [
        (FEW | dict(swapped=True), "have changed places"),
        (FEW | dict(swapped=False), "or it is that of 2,048 sequences"),
    ],
    "15n0f005": [
        (CHOICES | dict(rule_three=13, list_three=11, list_ten=9, rule_ten=3), "There you need no formula"),
        (CHOICES | dict(rule_three=13, list_three=11, list_ten=3, rule_ten=3), "does not gain on one side alone"),
    ],
    "15n0f008": [
        (THREE | dict(hits=3, tensor_best=29.7), "31.1 s; the best with matrices in two took 29.7 s"),
        (THREE | dict(hits=2, tensor_best=29.7), "fastest that was published in 2 of three sweeps. All three"),
        (THREE | dict(hits=3, tensor_best=32.0), "published in 3 of three sweeps. All three"),
    ],
}
