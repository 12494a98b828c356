"""One epoch on a GPU: the loop of the tutorials, `fit` on data on the device, `fit` with CUDA graphs, and two floors.

They run in turn in one process; each warms up first, and is timed until the device has finished. All compute in float32
without TF32 and let cuDNN choose its fastest kernels, as `fit` does.
"""
import time
from collections.abc import Callable
from typing import Any

from contenders import BATCH, RATE, Work, source_model, torch_loader
from stages import first, raw_files, spread

WARM_UP = 30


def gpu(rounds: int, iterations: int) -> dict[str, Any]:
    "Seconds of an epoch and how many times the naive loop is slower; nothing where there is no CUDA device."
    import tempfile
    from pathlib import Path
    import torch
    from mlinfra.engine.base.sample_statistics import median
    if not torch.cuda.is_available():
        print("  no CUDA device: nothing is measured")
        return {}
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = False, True
    with tempfile.TemporaryDirectory() as folder:
        work = Work(raw_files(Path(folder)), iterations, 1)
        epochs = dict(
            naive=naive(work),
            fit=fitted(iterations, False),
            fit_cuda_graph=fitted(iterations, True),
            launch_floor=launch_floor(iterations),
        )
        table = [{name: timed(epoch) for name, epoch in epochs.items()} for _ in range(rounds)]
    rows = {
        name: dict(seconds=median(t[name] for t in table)) | spread([t["naive"] / t[name] for t in table], "naive_")
        for name in epochs
    }
    return rows | {"arithmetic_floor": dict(seconds=arithmetic_floor(iterations))}


def timed(epoch: Callable[[], None]) -> float:
    import torch
    torch.cuda.synchronize()
    start = time.perf_counter()
    epoch()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def naive(work: Work) -> Callable[[], None]:
    "torchvision's data set, PyTorch's loader, one copy for each batch, and a look at each loss."
    import torch
    model, loader, losses = source_model().cuda(), torch_loader(work), []
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def epoch() -> None:
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    epoch()
    return epoch


def fitted(iterations: int, cuda_graph: bool) -> Callable[[], None]:
    "`fit` with the whole data set on the device."
    from mlinfra.data import BatchLoader, mnist
    from mlinfra.models import GluonCNN
    from mlinfra.training import fit, sgd
    model, loader = GluonCNN().cuda(), BatchLoader(first(mnist(), iterations), BATCH, shuffle=True, device="cuda")
    optimizer = sgd(model, RATE)
    epoch = lambda: fit(model, loader, optimizer=optimizer, device="cuda", cuda_graph=cuda_graph, progress=False)
    epoch()
    return epoch


def launch_floor(iterations: int) -> Callable[[], None]:
    "A whole step as one graph over one batch, replayed: no data, no clock, no record."
    import torch
    from mlinfra.models import GluonCNN
    from mlinfra.training import sgd
    model = GluonCNN().cuda().to(memory_format=torch.channels_last)
    optimizer, x, y = (
        sgd(model, RATE),
        torch.rand(BATCH, 1, 28, 28, device="cuda"),
        torch.randint(10, (BATCH,), device="cuda"),
    )

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP): step()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream): step()

    def epoch() -> None:
        for _ in range(iterations): graph.replay()

    epoch.recorded = (model, optimizer, x, y)  # a graph knows addresses only: what lies there must live as long
    return epoch


def arithmetic_floor(iterations: int) -> float:
    "Seconds that the operations of an epoch take at the rate of a large float32 matrix product, measured here."
    import torch
    from mlinfra.models import GluonCNN, layer_table
    side, times = 8192, 10
    a = torch.rand(side, side, device="cuda")
    product = lambda: [a @ a for _ in range(times)]
    timed(product)
    rate = 2 * side**3 * times / timed(product)
    table = layer_table(GluonCNN(), (1, 28, 28), BATCH)
    backward = 2 * table.flops.sum() - table.flops.iloc[0]  # the first layer needs no gradient for its input
    return float(iterations * (table.flops.sum() + backward) / rate)
