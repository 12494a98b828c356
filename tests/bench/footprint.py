"""Stage memory: a training step's bytes as estimated, as counted, as the operating system saw them, and by rules of thumb.

Each step runs in a process of its own, whose peak of resident memory is read from /proc: a witness that knows nothing of
the books. Large blocks go back to the system at once there, so that what an earlier step left behind hides nothing.
"""
import ctypes
import functools
import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from peers import BENCH, ROOT
from stages import FULL
from mlinfra.views import memory as memory_views

CNNS, OTHERS = {"GluonCNN, 28 px": (256, 1024), "ResNet-18, 224 px": (8, 32), "ResNet-50, 224 px": (4, 16)}, {"ViT-B/16, 224 px": (4, 16), "Transformer, 12 x 768, 512 tokens": (2, 8)}
STEPS = [(name, batch, "fp32") for name, batches in (CNNS | OTHERS).items() for batch in batches]
STEPS += [(name, small, "bf16") for name, (small, _) in CNNS.items()]  # attention in bf16 takes minutes on processors that lack it
BLOCKS_OF_THEIR_OWN = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # bytes; glibc then returns what is freed


def memory(rounds: int, iterations: int) -> dict[str, Any]:
    "Model, batch and precision -> bytes of a step with Adam by every account."
    rows = {}
    for name, batch, precision in STEPS if iterations == FULL else STEPS[:1]:
        rows[f"{name}, batch {batch}, {precision}"] = alone(name, str(batch), precision) | thumb(name, precision)
        print(f"  {name}, batch {batch}, {precision}", flush=True)
    return rows


def alone(*args: str) -> dict[str, int]:
    "One step in a process of its own."
    return json.loads(subprocess.run([sys.executable, __file__, *args], env=os.environ | BLOCKS_OF_THEIR_OWN, check=True, capture_output=True, text=True).stdout)


@functools.cache  # it knows no batch
def thumb(name: str, precision: str) -> dict[str, int]:
    "What accelerate's estimator says of the same model; nothing where it is not installed."
    if not BENCH.make(): return {}
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return json.loads(subprocess.run([BENCH.python, __file__, "accelerate", name, precision], env=env, check=True, capture_output=True, text=True).stdout)


# ---- in the process

def step(name: str, batch: int, precision: str) -> dict[str, int]:
    "The bytes of the step by estimate, by the books of a real step, and by the operating system."
    from mlinfra import memory, models
    make, shape = memory_views.PANEL_MODELS[name]
    real = lambda samples: train(make(), shape, samples, precision)
    real(1)  # what libraries keep for ever is there before the counting begins
    resident = rise(lambda: real(batch))
    model = make()
    guess, books = memory.estimate(model, batch, shape, precision=precision), memory.measure(model, batch, shape, precision=precision, device="cpu")
    outputs = 0 if name.startswith("Transformer") else int(models.layer_table(model, shape, batch).activation_bytes.sum())
    return dict(total_bytes=guess.total, activation_bytes=guess.activations, counted_bytes=books.total, counted_activation_bytes=books.activations,
                resident_bytes=resident, twice_the_outputs_bytes=2 * outputs)


def train(model: Any, shape: tuple[int, ...], batch: int, precision: str) -> None:
    "Two steps with Adam: in the second its state is there during backward."
    import torch
    from mlinfra.engine.optimizers import OPTIMIZERS
    from mlinfra.engine.autocast import autocast
    optimizer, x = OPTIMIZERS["adam"](model.parameters()), torch.rand(batch, *shape)
    for _ in range(2):
        with autocast(precision, torch.device("cpu")): outputs = model(x)
        outputs.backward(torch.ones_like(outputs))
        del outputs
        optimizer.step()
        optimizer.zero_grad()


def rise(action: Any) -> int:
    "How far the resident memory rises above where it began, in bytes; Linux only."
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    action()
    return resident("VmHWM") - before


def resident(what: str) -> int:
    return 1024 * int(re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def by_accelerate(name: str, precision: str) -> dict[str, int]:
    "The peak for training with Adam that its command prints."
    import torch
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes
    from mlinfra.views.memory import PANEL_MODELS
    with torch.device("meta"): model = PANEL_MODELS[name][0]()
    total, _ = calculate_maximum_sizes(model)
    return dict(accelerate_bytes=max(estimate_training_usage(total, {"fp32": "float32", "bf16": "bfloat16"}[precision]).values()))


if __name__ == "__main__":
    if sys.argv[1] == "accelerate": print(json.dumps(by_accelerate(*sys.argv[2:])))
    else: print(json.dumps(step(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
