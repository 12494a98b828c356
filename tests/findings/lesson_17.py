"Figures for each sentence that lesson 17 may conclude with."
import pandas as pd

LEVELS = dict(inside=0.02, mean=1.2, others=0.1, share=0.4, mixture=1.21, cores=2, told="")
SLOW = dict(modelled=1.0, told="")
PAUSE = dict(crowd=0.0, cores=2)
CASES_SEEN = dict(neighbour=0.9, busy={})
CURE = dict(none=pd.Series(dict(whole=4.0)), base=2.4, saved=1.6, gain=1.5, others=[0.1, 0.6, 0.2], waits="")

CASES = {
    "l17f0001": [
        (LEVELS | dict(mixes=False, outside=1.0), "the samples across a border"),
        (LEVELS | dict(mixes=True, outside=1.95), "All 2 cores or none is nearly true here"),
        (LEVELS | dict(mixes=True, outside=1.3, others=0.7), "because other programs use 0.70"),
        (LEVELS | dict(mixes=True, outside=1.3, others=0.0), "parts of a step run on one thread"),
    ],
    "l17f0002": [
        (SLOW | dict(missed=0.05), "With the two levels above that makes 1.00."),
        (SLOW | dict(missed=0.3), "used fewer cores than outside on average"),
        (SLOW | dict(missed=-0.3), "used more cores than outside on average"),
    ],
    "l17f0003": [
        (dict(waiting=0.4, between=0.01), "recording cannot have cost more"),
        (dict(waiting=0.1, between=0.01), "other programs made the steps long"),
    ],
    "l17f0004": [
        (PAUSE | dict(own=1.02), "fills one core (1.02)"),
        (PAUSE | dict(own=0.6, crowd=1.3), "other programs use 1.30 at the time"),
        (PAUSE | dict(own=0.8), "good to about 0.1 cores"),
    ],
    "l17f0005": [
        (CASES_SEEN | dict(odd=[]), "All five say what we put into them"),
        (CASES_SEEN | dict(odd=["healthy"]), "a program that we did not start uses 0.9"),
        (CASES_SEEN | dict(odd=["sleeps", "healthy"]), "Not as we put in: sleeps, healthy"),
    ],
    "l17f0006": [
        (dict(late=400, longer=405, told=""), "would make you blame the network"),
        (dict(late=400, longer=300, told=""), "other programs slowed one of the ranks"),
    ],
    "l17f0007": [
        (CURE | dict(unequal=True, dearer=0.9, moved=0.1), "of a night of 10 hours that is 4.0 hours"),
        (CURE | dict(unequal=False, dearer=0.9, moved=0.1), "needs a core of the training"),
        (CURE | dict(unequal=False, dearer=0.1, moved=0.1), "found a core that the training does not need"),
    ],
}
