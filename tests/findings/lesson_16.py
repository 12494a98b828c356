"Figures for each sentence that lesson 16 may conclude with."

BILL = dict(largest="imports", largest_s=1.5, total_s=5.0, making_s=1.2, modules=907)

CASES = {
    "la16f001": [
        (dict(gap=2e-7, by_hand_gap=0.0127), "2e-07 apart, which sums in another order explain. "
         "By hand the last loss is 1.3% off"),
        (dict(gap=0.0, by_hand_gap=0.0127), "the last losses are equal in all six decimals"),
        (dict(gap=2e-7, by_hand_gap=1e-6), "By hand they come as close here (1e-06)"),
        (dict(gap=0.02, by_hand_gap=0.0127), "differ by 2.0e-02 of their size"),
    ],
    "la16f002": [
        (dict(started_ranks=4), "Four and not three"),
        (dict(started_ranks=3), "rank 1 failed before rank 0 had come so far"),
        (dict(started_ranks=2), "2 were started"),
    ],
    "la16f003": [
        (BILL | dict(importing_s=4.2), "The largest part is `imports`, 1.5 of 5.0 s. Imports are 84% of the bill"),
        (BILL | dict(importing_s=2.0), "The three imports are 40% of the bill: here waiting costs more"),
    ],
}
