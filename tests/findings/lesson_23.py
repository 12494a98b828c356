"Figures for each sentence that lesson 23 may conclude with."
LISTS = dict(said="At most 13% more. ", costly_hour=dict(AWS="B200", Lambda="B200"),
             cheap_work=dict(AWS="A100 40 GB", Lambda="B200"))
PROGRAMS = dict(programs=2.5, plain=1.0, compiled=1.16, short=1.48, best=2.5)
TRIAL = dict(took="It took 5% longer. ", told="It took 5% longer, most in the steps", trials=0.02, run_off=0.05)
ANSWER = dict(programs=2.5, best=14_451, short=8532, low_said="$6,830", high_said="$11,600",
              cheap_work=dict(AWS="B200", Lambda="B200"))

CASES = {
    "c2300015": [
        (dict(faster=1.79, epoch_faster=1.99), "between memory and arithmetic"),
        (dict(faster=2.6, epoch_faster=2.7), "The run was 2.6 times as fast, and an epoch 2.7"),
    ],
    "c23g0005": [
        (dict(b200_times=2.12, aws_times=2.07), "per token the two cost about the same"),
        (dict(b200_times=2.6, aws_times=2.07), "cheaper per token"),
        (dict(b200_times=1.5, aws_times=2.07), "more expensive per token"),
    ],
    "c23g0008": [
        (LISTS | dict(spread=dict(AWS=1.13, Lambda=1.9)), "the B200's, does the cheapest work"),
        (LISTS | dict(spread=dict(AWS=1.5, Lambda=1.9)), "The cheapest work is done by A100 40 GBs at AWS and B200s"),
    ],
    "c23p0002": [
        (PROGRAMS | dict(b200_times=2.1), "more than the 2.1 times of a B200. Compiling brings 1.16"),
        (PROGRAMS | dict(b200_times=3.0), "less than the 3.0 times of a B200"),
    ],
    "c2300036": [
        (TRIAL | dict(most="evaluation", run_off=-0.01), "no more than the 2% by which the slowest trial"),
        (TRIAL | dict(most="the other 240 steps"), "ran at another speed than in the trials, which differed by 2%"),
        (TRIAL | dict(most="outside of the steps"), "paid once, however long the run is"),
        (TRIAL | dict(most="evaluation"), "slow one evaluation down and not the next"),
        (TRIAL | dict(most="first ten steps"), "which the trials left out"),
    ],
    "c23b0003": [
        (dict(price=6830.0, days=5.3, guessed=0.11), "89% of the hours are steps"),
        (dict(price=6830.0, days=5.3, guessed=0.4), "of which 40% rest on an assumption"),
    ],
    "c23b0006": [
        (dict(full=3448.0, at_512=1.5), "At 3,448 devices they alone use up"),
        (dict(full=300.0, at_512=17.0), "failures take 17% of the time, more than a reserve"),
    ],
    "c23o0003": [
        (dict(week=0.24, shares=dict(AWS=0.24, Lambda=0.43), power=dict(AWS=0.02, Lambda=0.035)), "2.0% to 3.5%"),
        (dict(week=0.24, shares=dict(AWS=0.5, Lambda=1.2), power=dict(AWS=0.02, Lambda=0.035)), "120% against Lambda"),
    ],
    "c23y0002": [
        (dict(growth=4.6, fall=0.18, multiple=3.8, h100s=14_773.0, saved=2598.0), "still multiplies by 3.8"),
        (dict(growth=1.1, fall=0.18, multiple=0.9, h100s=14_773.0, saved=2598.0), "and their price falls"),
    ],
    "c23e0002": [
        (ANSWER | dict(spread=dict(AWS=1.1)), "Rent eight B200s at Lambda"),
        (ANSWER | dict(spread=dict(AWS=3.1)), "quote $6,830 to $11,600 until you have a trial"),
    ],
}
