"Figures for each sentence that lesson 20 may conclude with."
from types import SimpleNamespace

TWO = dict(told="You have errors of 19.5%", alone="only the seed differs")
FIVE = dict(mean_a=15.5, mean_b=16.2, b_of_20=11)
CHOICES = dict(gap=-0.7, found="The means differ by 0.7")
LAST = dict(told="At a constant rate, A goes up.")
MOMENTS = dict(at_last=3.1, averaged=1.0)
REMEDIES = dict(told="The same 40 errors.", first_winner="A")
POWER = dict(six=6.0, more_find=0.8)
NEEDED = dict(s_pairs=2.3, pairs=45, of_means=9)
RIGHT = dict(people={"A": "your colleague is right", "B": "you are right", None: "nobody is known to be right"},
             from_batch=" But the batch.", one_run=" From one run of each.", act=" So take B.", parted=True)
A, B, NEITHER = (SimpleNamespace(better=better) for better in ("A", "B", None))
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
        (LAST | dict(together=0.86), "and their errors rise and fall together."),
        (LAST | dict(together=0.2), "do not rise and fall together"),
    ],
    "l2000010": [
        (MOMENTS | dict(earlier=1.7), "scatter by 3.1 points, and a step earlier by 1.7. Their mean over the last ten "
         "steps scatters by 1.0."),
        (MOMENTS | dict(earlier=3.0), "by 3.0 a step earlier, their mean over the last ten steps by 1.0"),
    ],
    "l2000005": [
        (REMEDIES | dict(decay_winner="B"), "the winner changes: A at a constant rate, B with decay. But these"),
        (REMEDIES | dict(decay_winner="not known"), "Better at a constant rate: A. With decay: not known."),
    ],
    "l20power": [
        (POWER | dict(six_find=0.43, worst_found=0.79), "6 pairs find the difference in only 43% of the experiments"),
        (POWER | dict(six_find=0.75, worst_found=0.79), "in 75% of these experiments, two more in 80%."),
    ],
    "l2000006": [
        (NEEDED | dict(few=7), "8 (2.30 / 1)² + 2 = 45 pairs, or 9 with the mean over ten steps. With decay it takes"),
        (NEEDED | dict(few=50), "takes 45 pairs at a constant rate, 9 with the mean over ten steps, and 50 with decay"),
    ],
    "5d1e70a7": [
        (RIGHT | dict(calm=A, decay_full=B), "you are right with decay, and your colleague is right at a constant"),
        (RIGHT | dict(calm=NEITHER, decay_full=B), "a winner at a constant rate would be the short batch's. From one"),
        (RIGHT | dict(calm=B, decay_full=B), "you are right at a constant rate, and you are right with decay."),
        (RIGHT | dict(calm=NEITHER, decay_full=B, parted=False), "nobody is known to be right at a constant rate"),
    ],
    "l2000008": [
        (SEARCHED | dict(better="winner"), "better, by much less than the search promised. This p covers"),
        (SEARCHED | dict(better="winner", win=2.0), "the lead is 2.00 points with p = 0.005: the winner is better."),
        (SEARCHED | dict(better="none"), "keep START"),
    ],
}
