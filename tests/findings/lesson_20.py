"Figures for each sentence that lesson 20 may conclude with."

CHOICES = dict(gap=-0.7, found="The means differ by 0.7", humps=" Two humps.")
MOMENTS = dict(at_last=3.1, calmed=0.4)
JUDGED = dict(told="The same forty errors.", calm_gap="-0.5")
NEEDED = dict(s_any=5.14, any_two=214, few=7)
RIGHT = dict(lead=0.4, by_decay=1.1, one_run="One run of each.", cost="It takes 214.", settled=True)
EQUAL = "equal for our purposes"

CASES = {
    "l2000002": [
        (dict(b_lower=2, b_of_20=9), "2 of the five would report B and 3 would report A"),
        (dict(b_lower=5, b_of_20=11), "These five seeds agree. Of all twenty, 11"),
    ],
    "l2000004": [
        (dict(by_points=0.7), "does not know how far A's errors lie apart"),
        (dict(by_points=0.1), "in 10% of the comparisons in which there is none."),
    ],
    "l2000003": [
        (CHOICES | dict(p=0.65), "These ten errors name no winner"),
        (CHOICES | dict(p=0.01), "these ten errors name A the winner"),
        (CHOICES | dict(p=0.01, gap=0.7), "these ten errors name B the winner"),
    ],
    "l2000010": [
        (MOMENTS | dict(at_full=1.4), "Without the short batch it falls from 3.1 points to 1.4. With decay it is 0.4"),
        (MOMENTS | dict(at_full=3.0), "by 3.1 points as we measured them first, and by 3.0 without the short batch"),
    ],
    "l2000005": [
        (JUDGED | dict(decay_gap="+1.0"), "A - B is -0.5 at a constant rate and +1.0 with decay. But"),
        (JUDGED | dict(decay_gap="-0.2"),
         "errors. With full batches, A - B is -0.5 at a constant rate and -0.2 with decay."),
    ],
    "l2000006": [
        (NEEDED | dict(pairs=45, of_means=9), "8 (5.14 / 1)² + 2 = 214 runs of each. Pairs bring that to 45"),
        (NEEDED | dict(pairs=300, of_means=9), "takes 214 runs of each with any two seeds, and 300 pairs"),
    ],
    "l20power": [
        (dict(six_find=0.43, eight_find=0.79), "only if all six have the same sign"),
        (dict(six_find=0.75, eight_find=0.79), "in 75% of the experiments, and eight in 79%."),
    ],
    "5d1e70a7": [
        (RIGHT | dict(at_constant=EQUAL, with_decay="B"), "the means differ by 0.4 points, less than we care about"),
        (RIGHT | dict(at_constant="A", with_decay="B"), "Your colleague is right at a constant rate, by 0.4"),
        (RIGHT | dict(at_constant="not known", with_decay="B"), "the verdict is: not known. With decay it is: B."),
    ],
}
