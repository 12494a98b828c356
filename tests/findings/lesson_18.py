"Figures for each sentence that lesson 18 may conclude with."

BUGS = "no zero_grad()", "no train() after eval()", "softmax twice", "labels shuffled"
ENDS = {"healthy": 0.44, BUGS[0]: 3.0, BUGS[1]: 0.26, BUGS[2]: 2.0, BUGS[3]: 2.3}
CURVES = dict(ends=ENDS, bug=BUGS[1], early=(1.5, 1.9), late=(3.0, 0.44), bug_right=0.866, healthy_right=0.864)
SEEN = dict(named=dict(zip(BUGS, (3, 53, 0, 99))), unnamed=[], quick=3, slow=99, loud=0)
TABLE = dict(latest=BUGS[3], caught={BUGS[3]: 99}, open_faults=[], wrong=[], first=10, judge="34 rules could judge.")
BOTH = [f"`{bug}`" for bug in BUGS[:2]]
RULES = dict(before=7, after=0, often_before=7, often_after=0, counted="", found=BOTH, missed=BOTH, shuffled=0.107,
             unprepared=0.866, well_trained=0.864)

CASES = {
    "dbg18008": [
        (CURVES | dict(ratio=0.59), "gets 86.6% of the held-out pictures right, the healthy one 86.4%"),
        (CURVES | dict(ratio=0.59, bug=BUGS[2]), "The height of a loss does not tell"),
        (CURVES | dict(ratio=1.1), "The healthy run has the lowest loss here, 0.44"),
    ],
    "dbg18016": [
        (RULES, "shows `labels shuffled` earlier: 10.7% are right"),
        (RULES | dict(after=1), "misses `no zero_grad()` and `no train() after eval()`, because"),
        (RULES | dict(shuffled=0.3), "misses `no zero_grad()` and `no train() after eval()`, because"),
        (RULES | dict(missed=[]), "finds all four bugs here"),
    ],
    "dbg18024": [
        (SEEN | dict(BUGS=BUGS), "Three are named at most 3 steps"),
        (SEEN | dict(BUGS=BUGS, unnamed=[BUGS[3]]), "Not named here: labels shuffled"),
        (SEEN | dict(BUGS=BUGS, loud=1), "Findings in the healthy run, which are false alarms: 1"),
    ],
    "dbg18030": [
        (TABLE, "names the cause, the slowest for labels shuffled, at step 99"),
        (TABLE | dict(wrong=["LossSpike (twenty layers)"]), "Such a rule must not stop a run"),
        (TABLE | dict(open_faults=["bias of -10"], first=9), "not named are: bias of -10"),
        (TABLE | dict(first=8), "2 of them only after another rule had spoken"),
    ],
    "dbg18051": [
        (SEEN | dict(BUGS=BUGS, missed=BOTH, by_loss={BUGS[0]: 99}), "finds one of the three, at step 99"),
        (SEEN | dict(BUGS=BUGS, missed=BOTH, by_loss={BUGS[0]: 99}, unnamed=[BUGS[3]]), "3 of the four bugs"),
    ],
}
