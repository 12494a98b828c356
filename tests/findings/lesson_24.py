"Figures for each sentence that lesson 24 may conclude with."
from mlinfra.lab.few_labels import Paired

UP, DOWN, LEVEL = Paired(8.2, 1.9, 20, 20), Paired(-4.5, 1.7, 2, 20), Paired(0.3, 1.0, 11, 20)
_LAST = dict(start="The 1,280 features are right for 64.4%. The difference is ")
_STAGE = dict(reached=89.8, rest="10 of 20 draws choose stage 6.", start="The place helps most.", end="Random: 61.7%.",
              PLACES=["stem", "stage 1", "stage 2"], tops={64: 1, 128: 2}, cells={64: 4, 128: 4})
_LABELS = dict(begin="With 20 it is right", rest="With 100 it reaches 95.6%.", mean=78.8, reached=88.5, worth=3.0)
_INSIDE = dict(named=lambda pairs: "LoRA with 20 of each", near=[])
_ANSWER = dict(ask="How much?", cost="the features of the 25 pictures", seconds_a_run=0.3)

CASES = {
    "c24a0012": [(_LAST | dict(behind=DOWN, behind_pixels=DOWN), "Even the raw pixels do better"),
                 (_LAST | dict(behind=DOWN, behind_pixels=UP), "against the raw pixels +8.2 ± 1.9."),
                 (_LAST | dict(behind=LEVEL, behind_pixels=UP), "not worse than training")],
    "pt240004": [(_STAGE | dict(gain=UP), "ahead in 20 of 20 draws"),
                 (_STAGE | dict(gain=UP), "where the map has 4 x 4 cells: after stage 1 at 64"),
                 (_STAGE | dict(gain=UP, cells={64: 4, 128: 8}), "the best place is stage 1 at 64 pixels and stage 2"),
                 (_STAGE | dict(gain=DOWN), "4.5 points below training from scratch"),
                 (_STAGE | dict(gain=LEVEL), "may be zero")],
    "pt240016": [(_LABELS | dict(alone_20=90.9), "with about 15: the features are worth about 3 times the labels"),
                 (_LABELS | dict(alone_20=88.0), "at least four times the labels"),
                 (_LABELS | dict(alone_20=90.9, reached=78.0), "no more than training from scratch with 5")],
    "c24a0011": [(_INSIDE | dict(helped=[("LoRA", 20)], harmed=[]), "learn: LoRA with 20 of each."),
                 (_INSIDE | dict(helped=[], harmed=[("LoRA", 20)]), "does harm on average over the draws: LoRA"),
                 (_INSIDE | dict(helped=[], harmed=[], near=[("LoRA", 20)]), "by chance in about one experiment of 5"),
                 (_INSIDE | dict(helped=[], harmed=[]), "All intervals contain zero")],
    "pt240012": [(_ANSWER | dict(reading=0.05), "You save labels, and a little time: the features"),
                 (_ANSWER | dict(reading=0.2), "You save labels, not time: the features")],
}
