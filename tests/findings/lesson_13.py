"Figures for each sentence that lesson 13 may conclude with."

PIECES = dict(slower=2.9, more=3.1)
CUT = dict(late=4, tried=816, left=0.004)
WHOLE = dict(share=1.06)

CASES = {
    "pl13f002": [
        (PIECES | dict(best_m=1), "shortest with the whole batch: here 64 pieces take 3.1 times as long as one"),
        (PIECES | dict(best_m=8), "In 64 pieces the work of a stage takes 2.9 times as long as in 8: small pieces"),
        (PIECES | dict(best_m=64), "still gets shorter with 64 micro-batches: 64 pieces take only 3.10 times"),
    ],
    "pl13f003": [
        (CUT | dict(saved=0.18), "makes the step 18% shorter. It was chosen by its slowest stage; the shortest step"),
        (CUT | dict(saved=0.18, left=0.0), "and has the shortest step of all 816"),
        (CUT | dict(saved=0.0), "Balancing gains nothing here: with equal counts the slowest stage is as fast"),
    ],
    "pl13f004": [
        (WHOLE | dict(low=0.42, off=0.01), "33 pieces do not divide into 32 stages: one gets two layers, and the"),
        (WHOLE | dict(low=0.42, off=-0.30), "off by -42%, and whole pieces by -30%: something else"),
    ],
}
