"""Training steps in each precision, in turn, and what was predicted of them: four networks on a CPU, ResNet-50 on a
GPU."""
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from stages import FULL, spread

BATCH, STEPS, WARM_UP = 256, 20, 5  # of ResNet-50
STEP_BATCHES, JUDGED = (64, 4), 500     # of the first two networks; test digits that judge the accuracy
COMPILED = {
    "GluonCNN": ("fp32", "bf16", "fp16"),
    "ResNet-18 small": ("fp32", "bf16"),
}  # on a CPU; each takes up to a minute to compile


def precision(rounds: int, iterations: int) -> dict[str, Any]:
    "Training steps by precision, predictions of their seconds beside the measurement, and accuracy over seeds."
    short = iterations < FULL
    return dict(predictions=predictions(rounds, short), steps=steps(rounds, iterations), accuracy=accuracy(short))


def predictions(rounds: int, short: bool) -> dict[str, dict]:
    "A row for each network, precision and batch: the seconds of a step, measured, and by a line through two batches."
    import torch
    torch.manual_seed(0)
    rows = {}
    for kind in ("fp32", "bf16"):
        for (name, make, shape), batches in predicted(kind):
            rows |= beside_the_line(f"{name}, {kind}", make(), shape, kind, batches[:2] if short else batches, rounds)
    return rows


def networks() -> list[tuple[str, Callable, tuple[int, ...]]]:
    "Name, how to make one, and the shape of an image."
    from mlinfra import models
    small, photo = (1, 28, 28), (3, 224, 224)
    return [
        ("GluonCNN", models.GluonCNN, small),
        ("ResNet-18 small", lambda: models.resnet18(10, "small"), small),
        ("ResNet-18", models.resnet18, photo),
        ("ResNet-50", models.resnet50, photo),
    ]


def predicted(kind: str) -> list[tuple[tuple, tuple[int, ...]]]:
    "Networks and batch sizes; a processor without bf16 takes minutes for photographs."
    sizes = ((8, 16, 64, 128), (2, 4, 8, 16), (1, 2, 4), (1, 2, 4)) if kind == "fp32" else ((8, 16, 64), (1, 2, 4))
    return list(zip(networks(), sizes))


def beside_the_line(
    name: str, model: Any, shape: tuple[int, ...], kind: str, batches: tuple[int, ...], rounds: int
) -> dict[str, dict]:
    "A row for each batch; the line goes through the smallest and the last but one."
    from mlinfra.engine.base.sample_statistics import fit_prices
    times = [{size: step_seconds(model, examples_of(shape, size), kind, 4) for size in batches} for _ in range(rounds)]
    measured = {size: median(seconds[size] for seconds in times) for size in batches}
    known = batches[0], batches[-2] if len(batches) > 2 else batches[-1]
    fixed, each = fit_prices([(1, size) for size in known], [measured[size] for size in known])
    rows = {}
    for size in batches:
        seconds = [row[size] for row in times]
        rows[size] = dict(measured=measured[size], low=min(seconds), high=max(seconds))
    for size in set(batches) - set(known):
        rows[size] |= dict(run_twice=fixed + each * size, run_twice_error=(fixed + each * size) / measured[size] - 1)
    return {f"{name}, batch {size}": row for size, row in rows.items()}


def examples_of(shape: tuple[int, ...], batch: int) -> tuple:
    "Random images and labels."
    import torch
    return torch.rand(batch, *shape), torch.randint(0, 10, (batch,))


def steps(rounds: int, iterations: int) -> dict[str, dict]:
    """Seconds of a step, its ratio to fp32 without channels_last in the same round, the roofline's prediction for
    forward, and the bytes that autograd keeps."""
    import torch
    from mlinfra.engine.precision.layer_costs import forward_seconds, layer_traffic, measure_roofline
    from mlinfra.engine.train.autocast import autocast
    from mlinfra.engine.train.saved_tensors import saved_bytes
    torch.manual_seed(0)
    roof, rows = measure_roofline("cpu"), {}
    for (name, make, shape), batch, count in zip(networks(), STEP_BATCHES, (8, 4)):
        examples, count = examples_of(shape, batch), min(count, iterations)
        ways = {kind: (make(), kind, False) for kind in roof.flops_per_s}
        ways |= {f"{kind}, channels_last": (make(), kind, True) for kind in roof.flops_per_s}
        compiled = torch.compile(make())
        ways |= {f"{kind}, channels_last, compiled": (compiled, kind, True) for kind in COMPILED[name]}
        for kind in COMPILED[name]: step_seconds(compiled, examples, kind, 2, True)  # compiles
        table = [
            {what: step_seconds(model, examples, kind, count, last) for what, (model, kind, last) in ways.items()}
            for _ in range(rounds)
        ]
        forward = {
            kind: forward_seconds(roof, layer_traffic(make(), shape, batch, kind), kind) for kind in roof.flops_per_s
        }
        for what, (model, kind, _) in ways.items():
            row = dict(step_seconds=median(seconds[what] for seconds in table))
            row |= spread([seconds[what] / seconds["fp32"] for seconds in table])
            row |= dict(predicted_ratio=forward[kind] / forward["fp32"])
            if model is not compiled:
                with autocast(kind, torch.device("cpu")): row |= {"bytes": saved_bytes(model, examples[0])}
            rows[f"{name}, batch {batch}, {what}"] = row
    return rows


def step_seconds(model: Any, examples: tuple, kind: str, count: int, channels_last: bool = False) -> float:
    "Median seconds of a step; the first is left out."
    from mlinfra.training import fit, sgd

    run = fit(
        model,
        [examples] * count,
        optimizer=sgd(model, 1e-3),
        precision=kind,
        channels_last=channels_last,
        device="cpu",
        progress=False,
    )
    return median(step.seconds for step in run.steps[1:] or run.steps)


def accuracy(short: bool) -> dict[str, dict]:
    "Test accuracy after an epoch of a few digits, three seeds in fp32 and in bf16."
    from mlinfra import data
    digits, test, rows = data.mnist(), data.mnist(train=False), {}
    judges = data.Images(test.images[:JUDGED], test.labels[:JUDGED])
    for (name, make, _), samples, batch in zip(networks(), (3_840, 256), (32, 8)):
        part = data.Images(digits.images[:32 if short else samples], digits.labels[:32 if short else samples])
        for kind in ("fp32", "bf16"):
            rows[f"{name}, {len(part):,} digits, {kind}"] = {
                f"seed {seed}": accuracy_of(make, part, batch, judges, kind, seed) for seed in range(3)
            }
    return rows


def accuracy_of(make: Callable, digits: Any, batch: int, test: Any, kind: str, seed: int) -> float:
    "Test accuracy after an epoch with this seed for weights and order."
    import torch
    from mlinfra.data import BatchLoader
    from mlinfra.training import evaluate, fit
    torch.manual_seed(seed)
    model = make()
    fit(model, BatchLoader(digits, batch, shuffle=True, seed=seed), precision=kind, device="cpu", progress=False)
    return evaluate(model, test)


def resnet50(rounds: int, iterations: int) -> dict[str, Any]:
    """Images a second of ResNet-50 at batch 256, compiled, channels_last: `fit` in each precision beside a bare loop
    on torchvision's in bf16."""
    import torch
    from mlinfra import models
    from mlinfra.engine.precision.layer_costs import forward_seconds, layer_traffic, measure_roofline
    if not torch.cuda.is_available():
        print("  no CUDA device: nothing is measured")
        return {}
    torch.backends.cudnn.benchmark = True
    batch = (
        torch.rand(BATCH, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last),
        torch.randint(0, 1000, (BATCH,), device="cuda"),
    )
    contenders = {"torchvision, bf16": bare(batch)} | {
        f"fit, {kind}": fitted(batch, kind) for kind in ("bf16", "tf32", "fp32")
    }
    steps = min(STEPS, iterations)
    table = [{name: timed(train, steps) for name, train in contenders.items()} for _ in range(rounds)]
    roof = measure_roofline("cuda")
    with torch.device("meta"): model = models.resnet50()
    rows = {
        name: dict(images_per_s=BATCH * steps / median(t[name] for t in table))
        | spread([t["torchvision, bf16"] / t[name] for t in table], "torchvision_")
        for name in contenders
    }
    for name, row in rows.items():
        kind = name.split()[-1]
        row["roofline_images_per_s"] = BATCH / (
            3 * forward_seconds(roof, layer_traffic(model, (3, 224, 224), BATCH, kind), kind)
        )
    return rows


def timed(train: Callable[[int], None], steps: int) -> float:
    import torch
    torch.cuda.synchronize()
    start = time.perf_counter()
    train(steps)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def bare(batch: tuple) -> Callable[[int], None]:
    "torchvision's network in the loop that a careful reader would write."
    import torch
    import torchvision
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer, compiled = torch.optim.SGD(model.parameters(), 0.01, fused=True), torch.compile(model)

    def train(steps: int) -> None:
        for _ in range(steps):
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(compiled(batch[0]), batch[1])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    train(WARM_UP)
    return train


def fitted(batch: tuple, kind: str) -> Callable[[int], None]:
    "Our network in `fit`."
    import torch
    from mlinfra import models
    from mlinfra.training import fit, sgd
    model = models.resnet50().cuda()
    optimizer, compiled = sgd(model, 0.01), torch.compile(model)

    def train(steps: int) -> None:
        fit(
            compiled,
            [batch] * steps,
            optimizer=optimizer,
            precision=kind,
            device="cuda",
            channels_last=True,
            progress=False,
        )

    train(WARM_UP)
    return train
