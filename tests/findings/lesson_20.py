"Figures for each sentence that lesson 20 may conclude with."
TWO = dict(told="You have errors of 19.5%", alone="only the seed differs")
FIVE = dict(mean_a=15.5, mean_b=16.2, b_of_20=11)
CHOICES = dict(gap=-0.7, found="The means differ by 0.7")
LAST = dict(told="At a constant rate, A goes up.")
SOURCES = dict(by_both=3.1, by_order=3.3)
REMEDIES = dict(told="At a constant rate.", first_winner="A", calm_winner="B", p_pairs=0.031)
NEEDED = dict(in_pairs=2.3, pairs=43, least=", the least that can tell", verdict="A is better at a constant rate")
RIGHT = dict(people=dict(A="your colleague is", B="you are", none="neither is"), new_gap=1.6, calm_gap=1.1, pairs=43,
             against=13, sure="p = 0.0007", act=" So take B.", new_winner="A", calm_winner="B")
SEARCHED = dict(told="In the search.", p_win=0.005, win=0.3, promised=2.6)

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
        (SOURCES | dict(by_weights=1.4, without_last=1.7), "takes it from 1.7 to 3.1 points"),
        (SOURCES | dict(by_weights=3.0, without_last=1.7), "the first weights alone by 3.0"),
    ],
    "l2000005": [
        (REMEDIES | dict(flips=True), "A is better at a constant rate, and B with decay. But p = 0.031 is weak "
         "evidence: without any difference, chance gives so small a p in 1 of 32"),
        (REMEDIES | dict(flips=False, first_winner="none"), "With decay B is better. At a constant rate the winner is "
         "none"),
        (REMEDIES | dict(flips=False, calm_winner="none"), "With decay the test names no winner"),
    ],
    "l2000006": [
        (NEEDED | dict(few=6), "takes 8 (2.30 / 1)² = 43 pairs at a constant rate, and 6 pairs with decay, the least"),
        (NEEDED | dict(few=50), "takes 43 pairs at a constant rate and 50 with decay"),
    ],
    "5d1e70a7": [
        (RIGHT | dict(flips=True, agree=False), "your colleague is right: A has the lower error by 1.6 points"),
        (RIGHT | dict(flips=False, agree=True, new_winner="B"), "with decay, by 1.1 points: you are right"),
        (RIGHT | dict(flips=False, agree=False, new_winner="none"), "43 new pairs name no winner (p = 0.0007)"),
        (RIGHT | dict(flips=False, agree=False, calm_winner="none"), "the winner of 43 new pairs is A"),
    ],
    "l2000008": [
        (SEARCHED | dict(better="winner"), "better, by much less than the search promised"),
        (SEARCHED | dict(better="winner", win=2.0), "the lead is 2.00 points with p = 0.005: the winner is better."),
        (SEARCHED | dict(better="none"), "keep START"),
    ],
}
