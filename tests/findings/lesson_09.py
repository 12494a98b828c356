"Figures for each sentence that lesson 09 may conclude with."

ADAM = dict(fp32_end=0.0542, mixed_end=0.0544, short_end=0.0543)
DYNAMIC = dict(wasted=18, steps=100, dynamic_end=0.0589, fp32_end=0.0542, left_out_end=0.0591,
               torch_end=0.0545, said="")
SWEEP = dict(low=13, high=35, said="", bottom="")
WEIGHTS = dict(mixed=0.03967, said="", stuck_short=92.0, gained=0.00213, gained_random=0.0021,
               random=0.0397)
FP8 = dict(full=0.0542, loss_scaled=0.055, scaled=0.055, changed=["6.bias"], said="", far=0.02)

CASES = {
    "pr090001": [
        (dict(half_broke=True, half_steps=2), "the loss of step 2 is NaN"),
        (dict(half_broke=False, half_steps=100), "stays finite here"),
    ],
    "pr090002": [
        (ADAM | dict(apart=0.004, eps_end=0.0688), "`model.half()` trains, but only to 0.0688"),
        (ADAM | dict(apart=0.004, eps_end=0.0545), "so fp16 in Adam broke the run"),
        (ADAM | dict(apart=0.2, eps_end=0.0688, mixed_end=0.0650), "0.0650 and 0.0543, up to 20% from fp32"),
    ],
    "pr090003": [
        (dict(learnt=-0.004, first_loss=0.232, last_loss=0.233), "nothing: 0.232 at first, 0.233 at the end"),
        (dict(learnt=0.5, first_loss=0.232, last_loss=0.116), "still fell, from 0.232 to 0.116"),
    ],
    "pr090004": [
        (SWEEP | dict(least=6, most=32, breaks=34), "a later one overflows"),
        (SWEEP | dict(least=6, most=34, breaks=36), "At the top training agrees"),
        (SWEEP | dict(least=14, most=32, breaks=34), "At the bottom training agrees"),
    ],
    "4f984f69": [
        (DYNAMIC | dict(torch_skips=0, agree=100), "fp32 without the same 18 ends at 0.0591"),
        (DYNAMIC | dict(torch_skips=3, agree=100), "it skips 3 and ends at 0.0545"),
        (DYNAMIC | dict(torch_skips=0, agree=100, left_out_end=0.0542), "our scale in 100 of 100 steps"),
    ],
    "p0900027": [
        (dict(bf16_end=0.0542, fp32_end=0.0542), "The scaler can go"),
        (dict(bf16_end=0.07, fp32_end=0.0542), "its digits are too few"),
    ],
    "pr090005": [
        (WEIGHTS | dict(gained_short=0.00038), "the last comes to 0.0397: updates that were rounded away"),
        (WEIGHTS | dict(gained_short=0.00038, gained_random=0.001), "With stochastic rounding it falls to 0.0397"),
        (WEIGHTS | dict(gained_short=0.0020), "Many updates exceed half of the spacing"),
    ],
    "pr090006": [
        (FP8 | dict(bare=0.202), "only the last bias learns"),
        (FP8 | dict(bare=0.060), "Without a scale the loss ends at 0.060"),
        (FP8 | dict(bare=0.202, changed=["4.bias", "6.bias"]), "Without a scale the loss ends at 0.202"),
    ],
    "e1bcba19": [
        (dict(said="", large=4.3), "It pays for a model"),
        (dict(said="", large=0.8), "stay in fp32 here"),
    ],
}
