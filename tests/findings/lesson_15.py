"Figures for each sentence that lesson 15 may conclude with."

FIT = dict(right=15, bands="220 of 263 ran. ", ended=" Another took 1.7 times.", usual_factor=1.7)
GAP = dict(said="Two stages took longer. ", ended="The median error is 7%.", products=26.7)
FEW = dict(said="Stages are 22% slower. ")
ALL = dict(said="4 of 49 are alike. ", head_gb=75, best_seconds=26.5, near_count=12, llamas=[0] * 13, near_ran=4,
           near_best=4, short=True, ended="E is not listed.")
CHOICES = dict(said="Good in 8 of 25. ", ended="Ten hold one. ", llamas=[0] * 13, list_llama=9, rule_llama=8)
SHARES = dict(said="22% to 39%. ", ended=" Peak memory is above.", slower=2.2)

CASES = {
    "15n0f001": [
        (FIT | dict(low_fail=71.0, high_run=75.0, well_below=0.84, some_near=0.24, well_above=0.02),
         "although one in 6 of them fails"),
        (FIT | dict(low_fail=80.0, high_run=75.0, well_below=0.84, some_near=0.24, well_above=0.5),
         "does not part these runs"),
    ],
    "15n0f002": [
        (GAP | dict(gap=4.5, gap_ours=1.5, copies=26.5), "this run was faster. The median error is 7%"),
        (GAP | dict(gap=4.5, gap_ours=1.5, copies=28.5), "So stages look faster than they are. The median"),
        (GAP | dict(gap=2.0, gap_ours=1.8, copies=26.5), "longer. The median error is 7%"),
    ],
    "15n0f007": [
        (FEW | dict(swapped=True), "have changed places"),
        (FEW | dict(swapped=False), "or it is that of 2,048 sequences"),
    ],
    "15n0f003": [
        (ALL | dict(head_near=True, head_best=True), "in 8 it ran out of memory, in 4 it was the fastest run. E is"),
        (ALL | dict(head_near=True, head_best=True, short=False), "no other published run is as fast"),
        (ALL | dict(head_near=False, head_best=True), "A, took 26.5 s, and no other published run is as fast"),
        (ALL | dict(head_near=True, head_best=False), "is not the head of the list"),
    ],
    "15n0f005": [
        (CHOICES | dict(rule_three=13, list_three=11, list_ten=9, rule_ten=3), "the list must be long"),
        (CHOICES | dict(rule_three=13, list_three=11, list_ten=3, rule_ten=3), "does not gain on one side alone"),
    ],
    "15n0f006": [
        (SHARES | dict(small_says=48, small_share=22, large_says=52, large_share=39, wide_says=61, wide_share=59),
         "up to 2.2 times the formula's seconds"),
        (SHARES | dict(small_says=48, small_share=22, large_says=52, large_share=20, wide_says=61, wide_share=59),
         "does not fall with the width"),
    ],
}
