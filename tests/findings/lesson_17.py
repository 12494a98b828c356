"Figures for each sentence that lesson 17 may conclude with."

from types import SimpleNamespace

LEVELS = dict(inside=0.02, mean=1.2, others=0.1, share=0.4, mixture=1.21, cores=2, told="")
PAUSE = dict(crowd=0.0, cores=2)
CASES_SEEN = dict(neighbour=0.9, busy={})
RECORDED = dict(waited=0.8, whole=2.0)
FORECAST = dict(spread=1.2, said=7.9, told="measured 8.8 h. ")
CURE = dict(RECORDED, loses="The worker pays.", answer="A thread gives back.")

CASES = {
    "l17f0001": [
        (LEVELS | dict(mixes=False, outside=1.0), "the samples that lie partly in a pause"),
        (LEVELS | dict(mixes=True, outside=1.95), "a mixture of all cores and none"),
        (LEVELS | dict(mixes=True, outside=1.3, others=0.7), "because other programs use 0.70"),
        (LEVELS | dict(mixes=True, outside=1.3, others=0.0), "the picture shows when it was less than all"),
    ],
    "l17f0002": [
        (dict(least=0.94, cores=2), "shows 0.94 of 2 cores: no sample shows that all cores were idle"),
        (dict(least=0.1, cores=2), "other programs took the cores then"),
    ],
    "l17f0003": [
        (RECORDED, "0.80 s of 2.00 s. Of ten hours that is 4.0."),
        (RECORDED | dict(whole=8.0), "other programs made the steps long. Of ten hours it is 1.0."),
    ],
    "l17f0004": [
        (PAUSE | dict(own=1.02), "fills one core (1.02)"),
        (PAUSE | dict(own=0.6, crowd=1.3), "other programs use 1.30 at the time"),
        (PAUSE | dict(own=0.8), "may be off by some tenths"),
    ],
    "l17f0005": [
        (CASES_SEEN | dict(odd=[]), "Each verdict names what we put in"),
        (CASES_SEEN | dict(odd=["healthy"]), "a program that we did not start uses 0.9"),
        (CASES_SEEN | dict(odd=["sleeps", "healthy"]), "Not as we put in: sleeps, healthy"),
    ],
    "l17f0011": [
        (dict(named="the loader, which computes", unseen=SimpleNamespace(own_cores=1.0, machine_cores=1.0)),
         "its worker uses 1.0 cores. Without the workers' cores"),
        (dict(named="the loader, which is blocked", unseen=SimpleNamespace(own_cores=0.2, machine_cores=2.0)),
         "The worker got 0.2 cores beside other programs, which use 1.8."),
    ],
    "l17f0006": [
        (dict(late=400, longer=405, told=""), "would make you blame the network"),
        (dict(late=400, longer=300, told=""), "other programs slowed one of the ranks"),
    ],
    "l17f0007": [
        (FORECAST | dict(off=-0.3, low=7.5, high=7.7), "within half an hour of the forecast"),
        (FORECAST | dict(off=0.9, low=7.7, high=9.0), "7.7 to 9.0 h: too few to say"),
        (FORECAST | dict(off=0.9, low=8.7, high=9.0), "measured 8.8 h. Its three runs take 8.7 to 9.0 h."),
    ],
    "l17f0009": [
        (CURE | dict(given=3.9, kept=2.0, price=2.4), "The worker pays."),
        (CURE | dict(given=3.9, kept=3.9, price=0.0), "A worker gives back 3.9 h."),
        (CURE | dict(given=0.2, kept=0.1, price=2.4), "the median of the thread's runs is still 9.8 h"),
    ],
}
