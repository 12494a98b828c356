"Figures for each sentence that lesson 09 may conclude with."

DYNAMIC = dict(accepted=35.0, high=35, wasted=18, steps=100, dynamic_end=0.0589, fp32_end=0.0542, agree=100,
               torch_end=0.0545, said="")
WEIGHTS = dict(begun=0.0418, full=0.03967, mixed=0.03967, said="", stuck_full=30.0, stuck_short=92.0, gained=0.00213)
FP8 = dict(full=0.060, scaled=0.060, largest_gradient=5.5e-6, least=2.0**-17, said="")
BLOCKS = dict(fp4_plain=11.0, nv_plain=10.2, mx_far=2.8, said="")

CASES = {
    "pr090001": [
        (dict(half_broke=True, half_steps=2), "no number after 2 steps"),
        (dict(half_broke=False, half_steps=100), "stays finite here"),
    ],
    "pr090002": [
        (dict(apart=0.004, mixed_end=0.0544, fp32_end=0.0542), "do not matter here"),
        (dict(apart=0.2, mixed_end=0.0650, fp32_end=0.0542), "20% apart"),
    ],
    "pr090003": [
        (dict(learnt=-0.004, first_loss=0.232, last_loss=0.233), "has learnt nothing: 0.232 before, 0.233 after"),
        (dict(learnt=0.5, first_loss=0.232, last_loss=0.116), "still fell, from 0.232 to 0.116"),
    ],
    "pr090004": [
        (dict(scaled_end=0.0543, fp32_end=0.0542), "learns as in fp32"),
        (dict(scaled_end=0.0700, fp32_end=0.0542), "range was not all"),
    ],
    "4f984f69": [
        (DYNAMIC | dict(torch_skips=0), "it skips none and ends at 0.0545"),
        (DYNAMIC | dict(torch_skips=3), "it skips 3 and ends at 0.0545"),
    ],
    "pr090005": [
        (WEIGHTS | dict(all_short=0.04142, gained_short=0.00038), "falls by 18% as much: updates smaller"),
        (WEIGHTS | dict(all_short=0.0398, gained_short=0.0020), "falls by 94% as much: enough updates"),
    ],
    "pr090006": [
        (FP8 | dict(bare=0.202), "backward starts with zeros"),
        (FP8 | dict(bare=0.202, largest_gradient=2e-5), "many gradients become 0"),
        (FP8 | dict(bare=0.061), "survive in e5m2"),
    ],
    "pr09000a": [
        (BLOCKS | dict(fp4_out=100.0, nv_out=10.2, e4m3_far=20.9), "makes all others 0"),
        (BLOCKS | dict(fp4_out=50.0, nv_out=10.2, e4m3_far=3.0), "e4m3 is off by 3.0%, MXFP8 by 2.8%"),
    ],
}
