"Figures for each sentence that lesson 15 may conclude with."

FIT = dict(said="The count is right for 15 of 16 runs. ", ended=" The table has all 539 runs. ",
           elsewhere_gb="Another one needed 1.2 to 2.0 times our count.")
GAP = dict(said="Two stages took longer. ", ended="The median error is 7%.", gap_ours=1.8, copies_off=0.07,
           stages_off=-0.03)
FEW = dict(said="Two stages are now 56% slower. ", ended="Nobody has published such runs.", took=None)
CHOICES = dict(said="Good in 8 of 25. ", ended="Expect fewer hits.", many_count=13, few_count=12)

CASES = {
    "15n0f001": [
        (FIT | dict(low_fail=71.0, high_run=75.0, well_below=0.84, some_near=0.24, well_above=0.02),
         "one run failed at 71 GB by our count, and another ran at 75. The table has"),
        (FIT | dict(low_fail=80.0, high_run=75.0, well_below=0.84, some_near=0.24, well_above=0.5),
         "No limit parts"),
    ],
    "15n0f002": [
        (GAP | dict(gap=4.6, tie=True), "copies take 7% longer than they did and stages 3% less"),
        (GAP | dict(gap=2.0, tie=True), "longer. The median error is 7%"),
        (GAP | dict(gap=4.6, tie=False), "longer. The median error is 7%"),
    ],
    "15n0f007": [
        (FEW | dict(stages=56.0, matrices=17.0, slower=lambda seconds: [16.0, 6.0]), "The idle turn does not"),
        (FEW | dict(stages=10.0, matrices=17.0, slower=lambda seconds: [16.0, 6.0]), "slower. Nobody has published"),
    ],
    "15n0f005": [
        (CHOICES | dict(rule_three=13, list_three=11, list_ten=9, rule_ten=3), "On these H100s you then need no"),
        (CHOICES | dict(rule_three=13, list_three=11, list_ten=3, rule_ten=3), "does not gain on one side alone"),
    ],
}
