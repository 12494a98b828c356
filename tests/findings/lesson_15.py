"Figures for each sentence that lesson 15 may conclude with."

FIT = dict(right=15, bands="220 of 263 ran. ")
GAP = dict(said="Two stages took longer. ", usual=0.07, tenth=0.16)
ALL = dict(said="473 fit. ", usual=0.07)
KINDS = dict(said="1.31 times as long. ")
CHOICES = dict(said="Right in 7 of 25. ", rule_many=11, listed_many=11, rule_few=2, listed_few=7)
SHARES = dict(said="22% to 39%. ", ended=" The memory factor falls.")

CASES = {
    "15n0f001": [
        (FIT | dict(low_fail=71.0, high_run=75.0, well_below=0.84, well_above=0.02), "So 80% is our limit"),
        (FIT | dict(low_fail=80.0, high_run=75.0, well_below=0.84, well_above=0.5), "does not part these runs"),
    ],
    "15n0f002": [
        (GAP | dict(gap=4.5, gap_ours=1.8), "so it sees them too fast. Over the 90 fitted runs its median error is 7%"),
        (GAP | dict(gap=2.0, gap_ours=1.8), "longer. Over the 90 fitted runs the median error is 7%"),
    ],
    "15n0f003": [
        (ALL | dict(alike=7), "7 of them are within 7% of the fastest"),
        (ALL | dict(alike=2), "Only 2 are within 7%"),
    ],
    "15n0f004": [
        (KINDS | dict(long_all=15.4, long_less=20.1, again=True), "so that nothing is computed twice"),
        (KINDS | dict(long_all=15.4, long_less=15.5, again=False), "as long. (Computed: no sweep"),
    ],
    "15n0f005": [
        (CHOICES | dict(alone=7, rule=13, listed=18, wait_few=0.4, wait_many=0.1),
         "40% of the predicted step are not products or filling (in the other sweeps 10%)"),
        (CHOICES | dict(alone=7, rule=19, listed=18, wait_few=0.4, wait_many=0.1), "finds more than trusting"),
        (CHOICES | dict(alone=18, rule=19, listed=18, wait_few=0.4, wait_many=0.1), "the list gains nothing"),
    ],
    "15n0f006": [
        (SHARES | dict(least=0.96, most=1.46), "short by 1.0 to 1.5 ms for each layer, nearly the same"),
        (SHARES | dict(least=0.2, most=2.0), "off by 0.2 to 2.0 ms for each layer"),
    ],
}
