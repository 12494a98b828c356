"Figures for each sentence that lesson 18 may conclude with."

BUGS = "forgotten zero_grad()", "missing train()", "double softmax", "shifted labels"
ENDS = {"healthy": 0.44, BUGS[0]: 3.0, BUGS[1]: 0.26, BUGS[2]: 2.0, BUGS[3]: 2.3}
CURVES = dict(ends=ENDS, bug=BUGS[1], early=(1.5, 1.9), late=(3.0, 0.44), bug_right=0.866, healthy_right=0.864)
SEEN = dict(named=dict(zip(BUGS, (3, 53, 0, 99))), unnamed=[], quick=3, slow=99, loud=0, close="It was close.")
TABLE = dict(wrong=[], first=14, other=2, usual=0.22, slow="0.41 and 0.33", safe="No rule speaks.",
             judge="40 are not tested.", quiet={"learning rate 0.5": 0.41, "bias of -1": 0.33})
BOTH = [f"the {bug}" for bug in BUGS[:2]]
SPOKE = {BUGS[0]: 99, BUGS[1]: "silent", BUGS[2]: "silent", BUGS[3]: 99}
RULES = dict(before=7, after=0, often_before=7, often_after=0, counted="", close="", found=BOTH, missed=BOTH,
             shuffled=0.107, unprepared=0.866, well_trained=0.864)

CASES = {
    "dbg18008": [
        (CURVES | dict(ratio=0.59), "86.6% of the held-out pictures are right, and 86.4% in the healthy run"),
        (CURVES | dict(ratio=0.59, bug=BUGS[2]), "The height of a loss does not tell"),
        (CURVES | dict(ratio=1.1), "The healthy run has the lowest loss here, 0.44"),
    ],
    "dbg18016": [
        (RULES, "earlier: after 50 steps 10.7% of the pictures are right"),
        (RULES | dict(after=1), "misses the forgotten zero_grad() and the missing train(): there"),
        (RULES | dict(shuffled=0.3), "misses the forgotten zero_grad() and the missing train(): there"),
        (RULES | dict(missed=[]), "finds all four bugs here"),
    ],
    "dbg18024": [
        (SEEN | dict(BUGS=BUGS), "three are named at most 3 steps"),
        (SEEN | dict(BUGS=BUGS, unnamed=[BUGS[3]]), "Not named here: shifted labels"),
        (SEEN | dict(BUGS=BUGS, loud=1), "Findings in the healthy run, which are false alarms: 1"),
    ],
    "dbg18030": [
        (TABLE | dict(wrong=["LossSpike"]), "Such a rule must not stop a run"),
        (TABLE, "none (learning rate 0.5 and bias of -1). These learn, but more slowly"),
        (TABLE | dict(quiet={}), "and in 0 none. No rule"),
        (TABLE | dict(quiet={"bias of -1": 2.3}), "and in 1 none. No rule"),
    ],
    "dbg18051": [
        (SEEN | dict(BUGS=BUGS, missed=BOTH, by_loss=SPOKE),
         "at step 99, and says to look at the labels. Our rule speaks at step 99, and"),
        (SEEN | dict(BUGS=BUGS, missed=BOTH, by_loss=SPOKE | {BUGS[3]: "silent"}), "4 of the four bugs"),
        (SEEN | dict(BUGS=BUGS, missed=BOTH, by_loss=SPOKE, unnamed=[BUGS[3]]), "3 of the four bugs"),
    ],
}
