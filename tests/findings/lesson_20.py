"Figures for each sentence that lesson 20 may conclude with."
TWO = dict(told="You have errors of 19.5%", alone="only the seed differs")
FIVE = dict(mean_a=15.5, mean_b=16.2, b_of_20=11)
CHOICES = dict(gap=-0.7, found="The means differ by 0.7")
LAST = dict(told="At a constant rate, A goes up.")
SOURCES = dict(by_both=3.1, by_order=3.3, full=1.6)
REMEDIES = dict(told="At a constant rate.", first_winner="A", calm_winner="B", p_pairs=0.031)
POWER = dict(six=6.0, more_find=0.8)
NEEDED = dict(in_pairs=2.3, pairs=45, rough=" A plan is as rough as its s.", verdict="A is better at a constant rate")
RIGHT = dict(people=dict(A="your colleague is", B="you are", none="neither is"), pairs=45,
             against=13, sure="p = 0.0007", act=" So take B.", new_winner="A", calm_winner="B")
SEARCHED = dict(told="In the search.", p_win=0.005, win=0.3, promised=2.6, covers=" This p covers the seeds.")

CASES = {
    "l2000001": [
        (TWO | dict(you_a=19.5, you_b=18.0, they_a=14.8, they_b=17.9), "you prefer 0.2, your colleague 0.1"),
        (TWO | dict(you_a=19.5, you_b=18.0, they_a=14.8, they_b=13.9), "19.5%. The second table"),
    ],
    "l2000002": [
        (FIVE | dict(b_lower=2), "2 report B and 3 report A"),
        (FIVE | dict(b_lower=5), "These five seeds agree. Of all twenty, 11"),
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
    "l2000022": [
        (LAST | dict(together=0.86), "rise and fall together (the correlation of their changes is 0.86)"),
        (LAST | dict(together=0.2), "do not rise and fall together"),
    ],
    "l2000010": [
        (SOURCES | dict(by_weights=1.4, without_last=1.7), "a step before it the scatter is 1.7 points, with "
         "full batches alone 1.6, and here 3.1."),
        (SOURCES | dict(by_weights=3.0, without_last=1.7), "the first weights alone by 3.0"),
    ],
    "l2000005": [
        (REMEDIES | dict(flips=True), "A is better at a constant rate, and B with decay. But p = 0.031 is weak "
         "evidence: where there is no difference, one comparison in 32"),
        (REMEDIES | dict(flips=False, first_winner="none"), "With decay B is better. At a constant rate the winner is "
         "none"),
        (REMEDIES | dict(flips=False, calm_winner="none"), "With decay the test names no winner"),
    ],
    "l20power": [
        (POWER | dict(six_find=0.43, worst_found=0.79), "6 pairs find the difference in only 43% of the experiments"),
        (POWER | dict(six_find=0.75, worst_found=0.79), "in 75% of these experiments, two more in 80%."),
    ],
    "l2000006": [
        (NEEDED | dict(few=7), "takes 8 (2.30 / 1)² + 2 = 45 pairs at a constant rate, and 7 pairs with decay. The 45"),
        (NEEDED | dict(few=50), "takes 45 pairs at a constant rate and 50 with decay"),
    ],
    "5d1e70a7": [
        (RIGHT | dict(flips=True, agree=False), "your colleague is right (p = 0.0007), and with decay you are. From"),
        (RIGHT | dict(flips=False, agree=True, new_winner="B"), "and with decay: you are right"),
        (RIGHT | dict(flips=False, agree=False, new_winner="none"), "45 new pairs name no winner (p = 0.0007)"),
        (RIGHT | dict(flips=False, agree=False, calm_winner="none"), "the winner of 45 new pairs is A"),
    ],
    "l2000008": [
        (SEARCHED | dict(better="winner"), "better, by much less than the search promised. This p covers"),
        (SEARCHED | dict(better="winner", win=2.0), "the lead is 2.00 points with p = 0.005: the winner is better."),
        (SEARCHED | dict(better="none"), "keep START"),
    ],
}
