"Figures for each sentence that lesson 21 may conclude with."

ALL = dict(exact=True, different=set(), missing=set(), same_weights=True, words="All match. ", cost="It cost 70 steps.",
           epochs={1, 2, 3, 4}, turns=3, resumes=[32, 64, 128, 192])

CASES = {
    "l21f0001": [
        (dict(right=True, equal=0), "has begun another one"),
        (dict(right=True, equal=2), "2 losses are equal. So few are left by chance"),
    ],
    "l21f0002": [
        (dict(words="Words. ", found=[0, 0, 1, 53, 116], rate=53, complete=116), "Words. With the optimizer 53 losses"),
        (dict(words="Words. ", found=[0, 0, 1, 60, 116], rate=60, complete=115), "rows are [0, 0, 1, 60, 116]"),
    ],
    "l21f0003": [
        (dict(words="", hidden=7, count=10), "what equal bits are for"),
        (dict(words="", hidden=3, count=10), "a look at the held-out loss is enough"),
    ],
    "l21f0004": [
        (ALL | dict(exact=False, different={3}), "1 losses differ, 0 steps are missing"),
        (ALL, "All match. The resumes began in all four epochs, and 3 of the eight exactly where an epoch begins. It "),
        (ALL | dict(turns=0), "All match. The resumes began at the steps [32, 64, 128, 192]. It cost 70 steps."),
    ],
    "l21f0006": [
        (dict(hours_between="", often=8.4, right_high=2.6, seldom=1.3, right_low=0.4), "rather save too seldom"),
        (dict(hours_between="", often=2.8, right_high=2.6, seldom=1.9, right_low=0.4), "saving too seldom costs more"),
    ],
}
