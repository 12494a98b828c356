"Figures for each sentence that lesson 22 may conclude with."
from mlinfra.engine.export.int8_kernels import Int8Kernel

_SMALL = dict(told="int8.onnx has 5.1 MB. ", right8=92.0, right32=92.0)
_KERNEL = dict(most="AVX-512")
_VNNI = dict(int8_kernel=lambda: Int8Kernel("AVX-512 VNNI", (), False), whole=96, whole7=95)
_KINDS = ("1 × 1 convolutions", "depthwise convolutions", "first convolution")
_LAYERS = dict(KINDS=_KINDS, kinds=[_KINDS[1]] * 16, few=45.0, fewer=85.0, at_first=113.0, left=15.0,
               off_one=1.5, off_each=0.3)
_PARTS = dict(few=9.0, depth8=34.0, rest_share=19.0, fast=4.2, if_fast=2.1, calls="")
_SEND = dict(small=5.1, large=18.8, kernel="AVX-512 VNNI", whole=96)

CASES = {
    "c22p0007": [(dict(as_trained=92.0, wrong=71.0), "right for 92% of the pictures as they are, and for 71%"),
                 (dict(as_trained=92.0, wrong=90.0), "from 92% to 90%")],
    "c22p0015": [(_LAYERS | dict(off_depth=0.9, off_others=1.6), "from 85 levels to 45 (medians of 16 layers)"),
                 (_LAYERS | dict(off_depth=1.4, off_others=0.8), "for all the others by 0.8, with both by 0.3")],
    "c22q0008": [(_SMALL | dict(lost=0.0), "It is right for 92, the floats for 92: no large loss."),
                 (_SMALL | dict(lost=12.0), "12 points of accuracy are gone")],
    "c22p0020": [(_KERNEL | dict(kernel="AVX-512 VNNI", fast=4.2, slow=1.5), "The count said 4, and 1.3 or 2."),
                 (_KERNEL | dict(kernel="AMX", fast=20.0, slow=1.5), "20.0 times as fast as floats, and 1.5"),
                 (_KERNEL | dict(kernel="AVX-512", fast=1.5, slow=1.5), "changes little")],
    "c22q0011": [(_VNNI | dict(moved=0.4, moved7=0.9), "only to x86 processors without VNNI"),
                 (_VNNI | dict(moved=0.9, moved7=0.9), "these weights to x86 processors without VNNI"),
                 (_VNNI | dict(int8_kernel=lambda: Int8Kernel("AVX2", (), True), moved=1.5, moved7=0.9),
                  "off by 1.5, and with")],
    "c22p0024": [(_PARTS | dict(point=3.1, depth=1.2), "but take 34% of the time in 8 bits, and the rest takes 19%"),
                 (_PARTS | dict(point=1.3, depth=1.3), "and the depthwise ones 1.3")],
    "c22q0017": [(dict(rounding=0.29, filtered=0.95), "between the 0.29 of other rounding and the 0.95 of OpenCV's"),
                 (dict(rounding=0.6, filtered=0.95), "set the limit between the two")],
    "c22p0026": [(_SEND | dict(gain=1.9, lost=0.0), "1.9 times as fast here"),
                 (_SEND | dict(gain=1.0, lost=0.0), "if bytes matter"),
                 (_SEND | dict(gain=1.9, lost=12.0), "8 bits lose 12 points")],
}
