"""torch.onnx builds its table of translations anew for each export, which takes half a second and gives the same.

`keep` builds it once for this process and its forks; nobody here brings translations of their own to it."""
import functools
from importlib.util import find_spec


def keep():
    if not (find_spec("onnxscript") and find_spec("onnxruntime")): return
    import onnxruntime  # noqa: F401
    from torch.onnx._internal.exporter import _constants, _registration
    table = _registration.ONNXRegistry
    if isinstance(vars(table)["from_torchlib"], staticmethod): return
    made = functools.cache(table.from_torchlib)
    table.from_torchlib = staticmethod(made)
    made(opset_version=_constants.TORCHLIB_OPSET)
