"Figures for each sentence that lesson 24 may conclude with."
import numpy as np

from mlinfra.lab.few_labels import Paired

UP, DOWN, LEVEL = Paired(8.2, 1.9, 20, 20), Paired(-4.5, 1.7, 2, 20), Paired(0.3, 1.0, 11, 20)
_SCRATCH = dict(mean=78.8, lowest=68.2, highest=84.0, test_noise=1.7)
_LAST = dict(last=np.array([0.66, 0.67]), behind_pixels=DOWN)
_STAGE = dict(reached=87.0, name="stage 5", control=UP)
_MORE = dict(linear_words="The linear layer adds 3. ", costs="A step takes longer.")

CASES = {
    "pt240001": [(_SCRATCH | dict(spread=4.5), "which 25 pictures you happened to label"),
                 (_SCRATCH | dict(spread=2.0), "hardly more than the 1.7")],
    "c24a0012": [(_LAST | dict(behind=DOWN), "4 points below training from scratch"),
                 (_LAST | dict(behind=UP), "8 points above training from scratch"),
                 (_LAST | dict(behind=LEVEL), "+0.3 ± 1.0 points, may be zero")],
    "pt240004": [(_STAGE | dict(gain=UP), "ahead in 20 of 20 draws"),
                 (_STAGE | dict(gain=DOWN), "4.5 points below training from scratch"),
                 (_STAGE | dict(gain=LEVEL), "may be zero")],
    "c24a0011": [(_MORE | dict(lora_gain=UP, fine_gain=LEVEL), "Beyond it LoRA adds +8.2 ± 1.9"),
                 (_MORE | dict(lora_gain=LEVEL, fine_gain=DOWN), "one of them loses accuracy"),
                 (_MORE | dict(lora_gain=LEVEL, fine_gain=LEVEL), "both intervals hold zero")],
}
