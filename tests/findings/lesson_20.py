"Figures for each sentence that lesson 20 may conclude with."
import numpy as np

FIVE = dict(five=dict(A=np.array([15.5]), B=np.array([16.2])), b_of_20=11)
RULES = dict(promise="the test names a winner in 5.1%")
PAIRS = dict(told="Errors scatter. ", p_groups=0.36)
CALM = dict(told="Decay. ", first_gap=-1.1)
ALIKE = dict(told="The correlation", short_alike=0.83, long_gap=0.4, long_need=25)
WON = dict(edge="", share=-0.7, point="a rate of 0.34 with 128 units")

CASES = {
    "l2000001": [
        (dict(lowest=11.5, highest=19.5), "their errors go from 11.5 to 19.5%"),
        (dict(lowest=11.5, highest=12.0), "nearly the same error, 11.5 to 12.0%"),
    ],
    "l2000002": [
        (FIVE | dict(b_lower=2), "2 report B and 3 report A"),
        (FIVE | dict(b_lower=5), "These five seeds agree. Of all twenty, 11"),
    ],
    "l2000003": [
        (dict(p=0.65, gap=-0.7, found="The means differ by 0.7"), "these ten errors name no winner"),
        (dict(p=0.01, gap=-0.7, found="The means differ by 0.7"), "these ten errors name A the winner"),
        (dict(p=0.01, gap=0.7, found="The means differ by 0.7"), "these ten errors name B the winner"),
    ],
    "l2000004": [
        (RULES | dict(by_points=0.65), "names a winner in 65% of the comparisons in which there is none"),
        (RULES | dict(by_points=0.05), "is wrong in 5% of the comparisons"),
    ],
    "l2000005": [
        (PAIRS | dict(p_pairs=0.031, p_less=0.062), "one seed of twenty decides"),
        (PAIRS | dict(p_pairs=0.031, p_less=0.04), "still 0.04 without the pair that differs most"),
        (PAIRS | dict(p_pairs=0.2, p_less=0.3), "That is not enough"),
    ],
    "l2000006": [
        (CALM | dict(calm_gap=1.1), "And the winner changes: A has the lower mean at a constant rate"),
        (CALM | dict(calm_gap=-1.1), "The winner stays the same"),
        (CALM | dict(first_gap=1.1, calm_gap=-1.1), "from B at a constant rate to A with decay"),
    ],
    "l2000007": [
        (ALIKE | dict(long_alike=0.06), "drifted apart"),
        (ALIKE | dict(long_alike=0.7), "still go together"),
    ],
    "l2000008": [
        (WON | dict(p_win=0.031, win=-1.2, units=128), "The number of units alone makes 0.7 of them"),
        (WON | dict(p_win=0.031, win=-1.2, units=32), "with as many units"),
        (WON | dict(p_win=0.4, win=-0.2, units=128), "keep START"),
    ],
}
