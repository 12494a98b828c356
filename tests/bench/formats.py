"""Training steps in each precision, in turn, and what the roofline predicts: small networks on a CPU, ResNet-50 on a GPU."""
import time
from collections.abc import Callable
from typing import Any

from stages import spread

BATCH, STEPS, WARM_UP = 256, 20, 5  # of ResNet-50


def precision(rounds: int, iterations: int) -> dict[str, Any]:
    "Ratios of a step to fp32 without channels_last, their spread over the rounds, the prediction for forward, and the bytes that autograd keeps."
    import torch
    from mlinfra import models
    from mlinfra.precision import compare_precisions, forward_seconds, layer_traffic, measure_roofline
    torch.manual_seed(0)
    roof, rows = measure_roofline("cpu"), {}
    for name, make, batch in (("GluonCNN", models.GluonCNN, 64), ("ResNet-18 small", lambda: models.resnet18(10, "small"), 16)):
        examples = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
        table = compare_precisions(make, examples, steps=min(8, iterations), rounds=rounds, device="cpu")
        predicted = {kind: forward_seconds(roof, layer_traffic(make(), tuple(examples[0].shape), kind), kind) for kind in roof.flops_per_s}
        for (kind, last), row in table.iterrows():
            rows[f"{name}, batch {batch}, {kind}{', channels_last' if last else ''}"] = row.to_dict() | dict(predicted_ratio=predicted[kind] / predicted["fp32"])
    return rows


def resnet50(rounds: int, iterations: int) -> dict[str, Any]:
    "Images a second of ResNet-50 at batch 256, compiled, channels_last: `fit` in each precision beside a bare loop on torchvision's in bf16."
    import torch
    from mlinfra import models
    from mlinfra.precision import forward_seconds, layer_traffic, measure_roofline
    from mlinfra.ui import median
    if not torch.cuda.is_available():
        print("  no CUDA device: nothing is measured")
        return {}
    torch.backends.cudnn.benchmark = True
    batch = torch.rand(BATCH, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last), torch.randint(0, 1000, (BATCH,), device="cuda")
    contenders = {"torchvision, bf16": bare(batch)} | {f"fit, {kind}": fitted(batch, kind) for kind in ("bf16", "tf32", "fp32")}
    steps = min(STEPS, iterations)
    table = [{name: timed(train, steps) for name, train in contenders.items()} for _ in range(rounds)]
    roof = measure_roofline("cuda")
    with torch.device("meta"): model = models.resnet50()
    rows = {name: dict(images_per_s=BATCH * steps / median(t[name] for t in table)) | spread([t["torchvision, bf16"] / t[name] for t in table], "torchvision_") for name in contenders}
    for name, row in rows.items():
        kind = name.split()[-1]
        row["roofline_images_per_s"] = BATCH / (3 * forward_seconds(roof, layer_traffic(model, (BATCH, 3, 224, 224), kind), kind))
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
            with torch.autocast("cuda", torch.bfloat16): loss = torch.nn.functional.cross_entropy(compiled(batch[0]), batch[1])
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

    def train(steps: int) -> None: fit(compiled, [batch] * steps, optimizer=optimizer, precision=kind, device="cuda", channels_last=True, progress=False)

    train(WARM_UP)
    return train
