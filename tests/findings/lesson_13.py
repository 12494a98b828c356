"Figures for each sentence that lesson 13 may conclude with."

PIECES = dict(each=4.1, more=3.1)
CUT = dict(late=4, tried=816, above=0.16)
HEAD = dict(share=1.06, logits=2.06, waits=0.54)
PAIRS = dict(all_pairs=93, fit=18, fit_again=74, both=[(1, 1.3)] * 18, one=1.27, eight=1.47)

CASES = {
    "pl13f001": [
        (dict(idle=0.751), "idle for 75.1% of their time. Three of four always wait: that is 75%"),
        (dict(idle=0.84), "which is 75%. In the rest no rank works"),
    ],
    "pl13f002": [
        (PIECES | dict(best_m=1), "shortest with the whole batch: here a further piece costs 4.10 ms"),
        (PIECES | dict(best_m=8), "shortest with 8 micro-batches. A further piece costs 4.10 ms beside its samples"),
        (PIECES | dict(best_m=64), "still gets shorter with 64 micro-batches"),
    ],
    "pl13f003": [
        (CUT | dict(saved=0.18), "stage 4 of 4 is the slowest, and the others wait for it"),
        (CUT | dict(saved=0.0), "gains nothing here: with equal counts the slowest stage is as fast"),
    ],
    "pl13f004": [
        (HEAD | dict(equal_off=-0.42, cut_off=0.01), "the logits take 2.06 and cannot be cut, so the others wait"),
        (HEAD | dict(equal_off=-0.42, cut_off=-0.30), "something else than the stages decides"),
    ],
    "pl13f005": [
        (dict(few=0.05, some=0.09, many=0.17), "a fixed time in the step with 2 stages, which we took for work"),
        (dict(few=0.09, some=0.09, many=0.09), "which is no fixed time in the step from which we scale"),
    ],
    "pl13f006": [
        (PAIRS | dict(typical=1.34), "a step 1.34 times as long (median of 18), and we counted 1.33"),
        (PAIRS | dict(typical=1.6), "which made a step 1.60 times as long, where we counted 1.33"),
    ],
}
