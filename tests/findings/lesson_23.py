"Figures for each sentence that lesson 23 may conclude with."
import math

RESNET = dict(sheet=28.5, by_sheet=1.4, v100_epochs=37, a100_epochs=41)
PAIR = dict(aws_times=2.07, peak_times=2.27)
STEPS = dict(provider=2.13, aws_first=0.5, small_first=1.41, small=[0.83, 0.66, 0.79],
             panel_said=" (By the data sheets.)")
COUNTED = dict(inside=40, later=range(44), worst=3.3, llama=1.9, low_price="$7,800", high_price="$28,600",
               slow_h100=18, h100s=28, slow_a100=2, a100s=16, median_h100=1.09)
PROGRAMS = dict(programs=2.5, spans=3.7, parts_said=" On the same GPUs ...")
TRIAL = dict(took="The five runs took 0.98 to 1.02 times the predicted 4.4 s. ", worst_off=0.02, side="", math=math)
BILL = dict(price_said="$7,070", days=5.5, all_hours=132.0, an_hour=53.52, best=14451, short=8532)
ANSWER = dict(low_price="$7,800", count_said="$13,500", high_price="$28,600", price_said="$7,070", price=7070.0,
              fp8_gain=1.28, low_fp8="$3,900", high_fp8="$14,300", an_hour=53.52, runpod_said="$5,880", low=0.58,
              high=2.1, by_count=13_500.0, rented=7070.0, all_on_h100=273.0)

CASES = {
    "c2300015": [
        (RESNET | dict(faster=1.79, epoch_faster=1.99), "took 1.40 times as long"),
        (RESNET | dict(faster=2.6, epoch_faster=2.7), "The run was 2.6 times as fast, and an epoch 2.7"),
    ],
    "c23g0005": [
        (PAIR | dict(b200_times=2.12), "per token the two cost about the same"),
        (PAIR | dict(b200_times=2.6), "cheaper per token"),
        (PAIR | dict(b200_times=1.5), "more expensive per token"),
    ],
    "c23g0008": [
        (STEPS | dict(aws_most=0.073), "each later step changes it by at most 7%"),
        (STEPS | dict(aws_most=0.3), "at AWS the steps since the A100 change it by up to 30%"),
    ],
    "c23m0004": [
        (COUNTED | dict(low=0.58, high=2.1), "40 of 44 runs took 0.58 to 2.1 times"),
        (COUNTED | dict(low=1.2, high=2.1), "off to one side"),
    ],
    "c23p0002": [
        (PROGRAMS | dict(b200_times=2.1), "more than the 2.1 times of a B200; the range above spans 3.7"),
        (PROGRAMS | dict(b200_times=3.0), "less than the 3.0 times of a B200"),
    ],
    "c2300036": [
        (TRIAL | dict(in_steps=0, in_evaluation=2, side="slower"), "all five were slower than every one"),
        (TRIAL | dict(in_steps=2, in_evaluation=3), "In the steps 2 of 5 lie within the range"),
        (TRIAL | dict(in_steps=0, in_evaluation=0, worst_off=0.3), "speed changed after the trials"),
    ],
    "c23b0003": [
        (BILL | dict(guessed=0.14), "86% of the hours are steps at a published rate; 14% rest"),
        (BILL | dict(guessed=0.4), "40% of the hours rest on an assumption"),
    ],
    "c23b0006": [
        (dict(full=3448.0, at_512=1.5), "At about 3,400 devices they alone use up"),
        (dict(full=300.0, at_512=17.0), "failures take 17% of the time, more than a reserve"),
    ],
    "c23e0004": [
        (ANSWER | dict(bills=dict(a=7070.0, b=8700.0)), "Rent eight B200s at Lambda"),
        (ANSWER | dict(bills=dict(a=7070.0, b=6000.0)), "do not have the cheapest bill"),
    ],
}
