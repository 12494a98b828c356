"Figures for each sentence that lesson 21 may conclude with."

RESTORED = dict(words="", later="In step 145 ", last="The scheduler ", found=[0, 0, 1, 6, 53, 116])
ALL = dict(exact=True, different=set(), missing=set(), same_weights=True, words="All ", where="These came. ", late=0,
           inside=94, again=94, where_late="At one kill")
SAVES = dict(words="The copy takes 9 ms", waits=0.5, front=120.0, back=60.0, copy_ms=9.0, low=40.0)

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
        (dict(words="", hidden=7, count=10), "what equal bits are for"),
        (dict(words="", hidden=3, count=10), "a look at the held-out loss is enough"),
    ],
    "l21f0004": [
        (ALL | dict(exact=False, different={3}), "1 losses differ, 0 steps are missing"),
        (ALL | dict(late=2, again=134, where_late="At 2 kills"), "At 2 kills the thread had not yet written the newest "
         "save, so an older one counted: 94 + 40 = 134 steps."),
        (ALL, "These came. Each time the newest save had been written."),
    ],
    "l21f0005": [
        (SAVES | dict(waits=40.0), "The copy takes 9 ms, 40 ms more than in the foreground"),
        (SAVES | dict(back=100.0), "the thread gains little here"),
        (SAVES, "The copy takes 9 ms of these. The other 51 ms are the price of writing"),
        (SAVES | dict(low=8.0), "no cost of writing beside the training"),
    ],
}
