"Figures for each sentence that lesson 22 may conclude with."
_SMALL = dict(told="A scale for each filter keeps 97. ", small=5.1, large=18.8, change="as many pictures")
_KERNEL = dict(most="AVX-512")
_PARTS = dict(told="The products. ", rest=0.8, total=2.1)
_SEND = dict(small=5.1, large=18.8, kernel="AVX-512 VNNI", together="One by one.")

CASES = {
    "c22p0007": [(dict(as_trained=92.0, swapped=71.0, on_side=70.0), "cost 21 points and a picture on its side 22"),
                 (dict(as_trained=92.0, swapped=90.0, on_side=70.0), "from 92% to 90%")],
    "c22p0013": [(dict(levels=15, largest=21.2, middle=1.2, np=__import__("numpy")), "rounded to 4 bits"),
                 (dict(levels=101, largest=2.5, middle=1.0, np=__import__("numpy")), "use 101 or more")],
    "c22p0015": [(_SMALL | dict(each=97, one=88, lost=0.0), "Against the floats it is right for as many pictures"),
                 (_SMALL | dict(each=97, one=97, lost=0.0), "int8.onnx has 5.1 MB instead of 18.8."),
                 (_SMALL | dict(each=97, one=88, lost=9.0), "9 points of accuracy are gone")],
    "c22p0020": [(_KERNEL | dict(kernel="AVX-512 VNNI", fast=4.2, slow=1.5), "(counted: 4 and 1.3)"),
                 (_KERNEL | dict(kernel="AMX", fast=20.0, slow=1.5), "20.0 times as fast as floats, and 1.5"),
                 (_KERNEL | dict(kernel="AVX-512", fast=1.5, slow=1.5), "changes little")],
    "c22p0024": [(_PARTS | dict(point=3.5, depth=1.3, few=9.0, long=26.0), "wait for something else"),
                 (_PARTS | dict(point=1.3, depth=1.3, few=9.0, long=26.0), "The depthwise ones become 1.3")],
    "c22p0026": [(_SEND | dict(gain=2.1, lost=0.0), "2.1 times as fast on this processor"),
                 (_SEND | dict(gain=1.0, lost=0.0), "if bytes matter"),
                 (_SEND | dict(gain=2.1, lost=9.0), "Send photos.onnx")],
}
