"""Stage memory: a training step's bytes as estimated, as counted, as the operating system saw them, and by rules of
thumb.

Each step runs in a process of its own, whose peak of resident memory is read from /proc: a witness that knows
nothing of the books. Large blocks go back to the system at once there, so that what an earlier step left behind
hides nothing. And once more in a process as users have it, where the C library keeps freed blocks: what it takes
beyond the estimate is the margin.
"""
import functools
import json
import os
import subprocess
import sys
from typing import Any

from peers import BENCH, ROOT
from stages import FULL

CNNS, OTHERS = (
    {"GluonCNN, 28 px": (256, 1024), "ResNet-18, 224 px": (8, 32), "ResNet-50, 224 px": (4, 16)},
    {"ViT-B/16, 224 px": (4, 16), "Transformer, 12 x 768, 512 tokens": (2, 8)},
)
STEPS = [(name, batch, "fp32") for name, batches in (CNNS | OTHERS).items() for batch in batches]
STEPS += [
    (name, small, "bf16") for name, (small, _) in CNNS.items()
]  # attention in bf16 takes minutes on processors that lack it
BLOCKS_OF_THEIR_OWN = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}  # bytes; glibc then returns what is freed


def memory(rounds: int, iterations: int) -> dict[str, Any]:
    "Model, batch and precision -> bytes of a step with Adam by every account."
    rows = {}
    for name, batch, precision in STEPS if iterations == FULL else STEPS[:1]:
        own, kept = (alone(name, str(batch), precision, env=env) for env in (BLOCKS_OF_THEIR_OWN, {}))
        kept_bytes = dict(default_resident_bytes=kept["resident_bytes"])
        rows[f"{name}, batch {batch}, {precision}"] = own | kept_bytes | thumb(name, precision)
        print(f"  {name}, batch {batch}, {precision}", flush=True)
    return rows


def alone(*args: str, env: dict[str, str]) -> dict[str, int]:
    "One step in a process of its own."
    done = subprocess.run(
        [sys.executable, __file__, *args], env=os.environ | env, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


@functools.cache  # it knows no batch
def thumb(name: str, precision: str) -> dict[str, int]:
    "What accelerate's estimator says of the same model; nothing where it is not installed."
    if not BENCH.make(): return {}
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return json.loads(
        subprocess.run(
            [BENCH.python, __file__, "accelerate", name, precision], env=env, check=True, capture_output=True, text=True
        ).stdout
    )


# ---- in the process

def step(name: str, batch: int, precision: str) -> dict[str, int]:
    "The bytes of the step by estimate, by the books of a real step, and by the operating system."
    import torch
    from mlinfra import memory, models
    from mlinfra.engine.memory.process_memory import train_step_memory
    from mlinfra.views.memory import PANEL_MODELS
    make, shape = PANEL_MODELS[name]
    sample = torch.rand(1, *shape)
    train_step_memory(
        make, sample, 1, precision=precision
    )  # what libraries keep for ever is there before the counting begins
    found, model = train_step_memory(make, sample, batch, precision=precision), make()
    guess = memory.estimate(model, batch, shape, precision=precision)
    books = memory.measure(model, batch, shape, precision=precision, device="cpu")
    outputs = (
        0 if name.startswith("Transformer") else int(models.layer_table(model, shape, batch).activation_bytes.sum())
    )
    return dict(total_bytes=guess.total, activation_bytes=guess.activations, counted_bytes=books.total,
                counted_activation_bytes=books.activations, handed_out_bytes=found.handed_out_bytes,
                resident_bytes=found.resident_bytes, twice_the_outputs_bytes=2 * outputs)


def by_accelerate(name: str, precision: str) -> dict[str, int]:
    "The peak for training with Adam that its command prints."
    import torch
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes
    from mlinfra.views.memory import PANEL_MODELS
    with torch.device("meta"): model = PANEL_MODELS[name][0]()
    total, _ = calculate_maximum_sizes(model)
    return dict(
        accelerate_bytes=max(
            estimate_training_usage(total, {"fp32": "float32", "bf16": "bfloat16"}[precision]).values()
        )
    )


if __name__ == "__main__":
    if sys.argv[1] == "accelerate": print(json.dumps(by_accelerate(*sys.argv[2:])))
    else: print(json.dumps(step(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
