"Figures for each sentence that lesson 13 may conclude with."

PIECES = dict(slower=2.9, more=3.1, alike=" (16 within 5%)")
CUT = dict(late=4, tried=816, left=0.004)
WHOLE = dict(share=1.06, idle=0.54, seen={32: 4.77})

CASES = {
    "pl13f002": [
        (PIECES | dict(best_m=1), "shortest with the whole batch: here 64 pieces take 3.1 times as long as one"),
        (PIECES | dict(best_m=8), "8 micro-batches (16 within 5%). In 64 pieces the work of a stage takes 2.9 times"),
        (PIECES | dict(best_m=64), "still gets shorter with 64 micro-batches: 64 pieces take only 3.10 times"),
    ],
    "pl13f003": [
        (CUT | dict(saved=0.18), "makes the step 18% shorter. It was chosen by its slowest stage; the shortest step"),
        (CUT | dict(saved=0.18, left=0.0), "and has the shortest step of all 816"),
        (CUT | dict(saved=0.0), "Balancing gains nothing here: with equal counts the slowest stage is as fast"),
    ],
    "pl13f004": [
        (WHOLE | dict(low=0.42, whole=[4.8, 4.6]), "one stage has two layers, and the logits alone take as long."),
        (WHOLE | dict(low=0.42, whole=[3.3, 4.7]), "off by -42%, and the cuts into whole pieces give 3.30 to 4.70 s"),
    ],
}
