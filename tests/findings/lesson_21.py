"Figures for each sentence that lesson 21 may conclude with."

RESTORED = dict(words="", later="In step 145 ", last="The scheduler ", found=[0, 0, 1, 6, 53, 116])
ALL = dict(exact=True, different=set(), missing=set(), same_weights=True, words="All ", where="These came ", late=0)
SAVES = dict(words="", busy="", waits=0.5, back=60.0, copy_ms=9.0, beside=38.0, plain_ms=22.0, cores=2)

CASES = {
    "l21f0001": [
        (dict(equal=0, words="0 of the 116 losses are equal. "), "has begun another one"),
        (dict(equal=2, words="2 of the 116 losses are equal. "), "So few are left by chance"),
    ],
    "l21f0002": [
        (RESTORED | dict(right_start=True, momentum=6, overflow=6, rate=53), "In step 145 The scheduler"),
        (RESTORED | dict(right_start=True, momentum=6, overflow=9, rate=53), "With the optimizer 6 losses are equal"),
        (RESTORED | dict(right_start=False, momentum=6, overflow=6, rate=53), "rows are [0, 0, 1, 6, 53, 116]"),
    ],
    "l21f0003": [
        (dict(words="", hidden=7, count=10), "it looks like an ordinary run"),
        (dict(words="", hidden=3, count=10), "a look at the held-out loss is enough"),
    ],
    "l21f0004": [
        (ALL | dict(exact=False, different={3}), "1 losses differ, 0 steps are missing"),
        (ALL | dict(late=2), "2 of them before the thread had written"),
        (ALL, "These came ."),
    ],
    "l21f0005": [
        (SAVES | dict(waits=40.0), "The copy is 40 ms longer"),
        (SAVES, "The other 51 ms are slower steps"),
        (SAVES | dict(back=10.0, beside=22.5), "hardly slows training down"),
    ],
}
