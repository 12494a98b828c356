"""Forms of one model in turn: images per second, size, accuracy and difference of eager and compiled PyTorch, of
onnxruntime, and of whole numbers."""
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages import FULL, first

BATCHES = 1, 64
TRAINED = {"GluonCNN": FULL, "ResNet-18, small stem": 100}  # iterations of batch 64 before the comparison
SAMPLES = {"GluonCNN": 10_000, "ResNet-18, small stem": 2_000}  # test images that the accuracy is of


def exporting(rounds: int, iterations: int) -> dict[str, Any]:
    "Model and form -> the row of `compare_variants`, and its speeds relative to eager PyTorch's."
    from mlinfra.data import mnist
    from mlinfra.engine.export.variants import compare_variants
    digits, test, found = mnist(), mnist(train=False), {}
    for name, model in trained(digits, iterations).items():
        with tempfile.TemporaryDirectory() as folder:
            forms = forms_of(model, digits.images[:512], Path(folder))
            samples = SAMPLES[name] if iterations == FULL else 500
            frame = compare_variants(forms, test, BATCHES, rounds=5 * rounds, samples=samples)
        rows = frame.set_index("variant")
        for form, row in rows.iterrows():
            ratios = {f"ratio_{b}": row[f"images_per_s_{b}"] / rows.loc["eager", f"images_per_s_{b}"] for b in BATCHES}
            found[f"{name}, {form}"] = row.to_dict() | ratios
        print(f"  {name}: {len(forms)} forms, {5 * rounds} rounds", flush=True)
    return found


def trained(digits: Any, iterations: int) -> dict[str, Any]:
    "The models after a short training, so that their accuracy means something."
    import torch
    from mlinfra.data import BatchLoader
    from mlinfra.models import GluonCNN, resnet18
    from mlinfra.training import fit, sgd
    makers = {"GluonCNN": GluonCNN, "ResNet-18, small stem": lambda: resnet18(10, "small")}
    models = {}
    for name in TRAINED:
        torch.manual_seed(0)
        models[name] = model = makers[name]()
        loader = BatchLoader(first(digits, min(TRAINED[name], iterations)), 64, shuffle=True, seed=0)
        fit(model, loader, epochs=1, optimizer=sgd(model, 0.1), device="cpu", progress=False)
    return {name: model.to(memory_format=torch.contiguous_format).eval() for name, model in models.items()}


def forms_of(model: Any, images: Any, folder: Path) -> dict[str, Callable]:
    "Name -> what answers; all with as many threads as PyTorch."
    from mlinfra.engine.export.onnx_files import export_onnx
    from mlinfra.engine.export.quantize import quantize_dynamic, quantize_static, quantize_weights
    from mlinfra.inference import Predictor
    file = export_onnx(model, images[:2] / 255, folder / "floats.onnx")
    return {"eager": model,
            "compiled": Predictor(model, "compiled", "cpu"),
            "8-bit weights": quantize_weights(model),
            "onnxruntime": file.load(),
            "int8, ranges of examples": quantize_static(file, folder / "static.onnx", images),
            "int8, ranges of each batch": quantize_dynamic(file, folder / "dynamic.onnx")}
