"Figures for each sentence that lesson 22 may conclude with."
_SMALL = dict(told="int8.onnx has 5.1 MB. ", right8=92.0, right32=92.0)
_KERNEL = dict(most="AVX-512")
_KINDS = ("1 × 1 convolutions", "depthwise convolutions", "first convolution")
_LAYERS = dict(KINDS=_KINDS, kinds=[_KINDS[1]] * 16, few=45.0, fewer=85.0, one=88, each=97)
_PARTS = dict(few=9.0, long8=57.0, fast=4.2, if_fast=2.1)
_SEND = dict(small=5.1, large=18.8, kernel="AVX-512 VNNI", whole=96)

CASES = {
    "c22p0007": [(dict(as_trained=92.0, wrong=71.0), "92% are right, with swapped colours 71%"),
                 (dict(as_trained=92.0, wrong=90.0), "from 92% to 90%")],
    "c22p0015": [(_LAYERS | dict(depthwise=95, others=90), "from 85 levels to 45 (medians of 16 layers)"),
                 (_LAYERS | dict(depthwise=90, others=95), "for all the others 95, with both 97")],
    "c22q0008": [(_SMALL | dict(lost=0.0), "It is right for 92, the floats for 92: no large loss."),
                 (_SMALL | dict(lost=12.0), "12 points of accuracy are gone")],
    "c22p0020": [(_KERNEL | dict(kernel="AVX-512 VNNI", fast=4.2, slow=1.5), "The count said 4, and 1.3 or 2."),
                 (_KERNEL | dict(kernel="AMX", fast=20.0, slow=1.5), "20.0 times as fast as floats, and 1.5"),
                 (_KERNEL | dict(kernel="AVX-512", fast=1.5, slow=1.5), "changes little")],
    "c22q0011": [(dict(moved=0.4, moved7=0.9, whole=96, whole7=95), "only to x86 processors without VNNI"),
                 (dict(moved=0.9, moved7=0.9, whole=95, whole7=95), "these weights to x86 processors without VNNI")],
    "c22p0024": [(_PARTS | dict(point=3.1, depth=1.2), "have 9% of the products"),
                 (_PARTS | dict(point=1.3, depth=1.3), "and the depthwise ones 1.3")],
    "c22q0017": [(dict(rounding=0.29, filtered=0.95), "the 0.29 of other rounding and the 0.95 of OpenCV's"),
                 (dict(rounding=0.6, filtered=0.95), "set the limit between the two")],
    "c22p0026": [(_SEND | dict(gain=1.9, lost=0.0), "1.9 times as fast here"),
                 (_SEND | dict(gain=1.0, lost=0.0), "if bytes matter"),
                 (_SEND | dict(gain=1.9, lost=12.0), "8 bits lose 12 points")],
}
