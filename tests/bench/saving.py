"""What saving costs: a training that saves beside its steps against one that does not, and one save against others.

One save means the same model and optimizer, about 200 MB: ours, torch.save, DCP, Lightning and the disk itself, which
gets the same bytes by a plain write and an fsync. Only ours and the disk's wait until the bytes are on the disk.
"""
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from stages import FULL, first, spread
from torch import nn

WIDTH = 1448             # of a layer of the large model
EVERY, AROUND = 100, 50  # steps between saves; steps before the first and after the last that are left out


# ---- beside the steps

def cnn_training(steps: int) -> tuple[nn.Module, Any, Any]:
    "The source's training."
    from mlinfra.data import BatchLoader, mnist
    from mlinfra.models import GluonCNN
    from mlinfra.training import sgd
    model = GluonCNN()
    return model, BatchLoader(first(mnist(train=True), steps), 64, shuffle=True, seed=0), sgd(model, momentum=0.9)


def wide_training(steps: int) -> tuple[nn.Module, Any, Any]:
    "A large state for its steps: 70 MB, and few computations."
    from torch.utils.data import TensorDataset

    from mlinfra.data import BatchLoader
    model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    data = TensorDataset(torch.rand(64 * steps, 784), torch.randint(10, (64 * steps,)))
    return model, BatchLoader(data, 64, shuffle=True, seed=0), torch.optim.Adam(model.parameters(), fused=True)


TRAININGS = {"CNN, batch 64": cnn_training, "wide MLP, Adam, batch 64": wide_training}


def step_seconds(make: Callable, folder: Path | None, steps: int) -> tuple[float, float]:
    "Mean seconds of a step over whole intervals of saving, and those in which saving made training wait, of a save."
    from mlinfra.engine.checkpoint.checkpointer import Checkpointer
    from mlinfra.training import fit
    torch.manual_seed(0)
    model, loader, optimizer = make(steps + 2 * AROUND)
    own = [] if folder is None else [Checkpointer(folder, EVERY)]
    history = fit(model, loader, optimizer=optimizer, observers=own, device="cpu", progress=False)
    waited = median(save.copy_seconds for save in own[0].saves) if own else 0.0
    return (history.steps[AROUND + steps].start - history.steps[AROUND].start) / steps, waited


def beside(rounds: int, iterations: int) -> dict[str, Any]:
    "With and without saving in turn; ratios of neighbours."
    steps = max(EVERY, round(4 * iterations / FULL) * EVERY)
    return {name: saved_row(make, 3 * rounds, steps) for name, make in TRAININGS.items()}


def saved_row(make: Callable, rounds: int, steps: int) -> dict[str, float]:
    "Median step with and without saving, and its ratio round by round."
    plain, saved, waits = [], [], []
    for n in range(-1, rounds):
        for which in ((0, 1), (1, 0))[n % 2]:
            with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DISK")) as home:
                seconds, waited = step_seconds(make, Path(home, "run") if which else None, steps)
            if n < 0: continue
            (saved if which else plain).append(seconds)
            if which: waits.append(waited)
    ratios = [a / b for a, b in zip(saved, plain)]
    return dict(step_ms=1e3 * median(plain), saving_step_ms=1e3 * median(saved), **spread(ratios),
                waits_ms=1e3 * median(waits))


# ---- one save

class Plain:
    "The same bytes, written by the system's own calls."
    def __init__(self, size: int): self.raw = torch.randint(256, (size,), dtype=torch.uint8).numpy().data

    def __call__(self, folder: Path) -> None:
        folder.mkdir()
        handle = os.open(folder / "bytes", os.O_WRONLY | os.O_CREAT)
        try:
            view = self.raw
            while view: view = view[os.write(handle, view[:4 << 20]):]
            os.fsync(handle)
        finally: os.close(handle)


def large_model() -> tuple[nn.Module, Any]:
    "16.8 million parameters in 8 layers, and Adam: 201 MB."
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(8)))
    return model, torch.optim.Adam(model.parameters(), 1e-4)


class Ours:
    "An observer that hands the run to the comparison when it is whole."
    guard = True

    def __init__(self, compare: Callable): self.compare = compare

    def on_boundary(self, run: Any) -> None:
        if run.iteration == 1 and not run.stopping: self.compare(run)
        run.stop()


def savers(run: Any) -> dict[str, Callable[[Path], None]]:
    "Contender -> what saves into a folder that is not there yet."
    from mlinfra.engine.checkpoint.checkpoint_files import write_state
    from mlinfra.engine.checkpoint.state_trees import HostCopies
    from mlinfra.engine.checkpoint.training_state import capture
    copies = HostCopies()
    held = lambda: dict(model=run.model.state_dict(), optimizer=run.optimizer.state_dict())
    size = sum(p.nbytes for p in run.model.parameters()) * 3

    def with_torch(folder: Path) -> None:
        folder.mkdir()
        torch.save(held(), folder / "checkpoint.pt")

    def to_the_disk(folder: Path) -> None:
        with_torch(folder)
        handle = os.open(folder / "checkpoint.pt", os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def with_dcp(folder: Path) -> None:
        import torch.distributed.checkpoint as dcp
        dcp.save(held(), checkpoint_id=folder, no_dist=True)

    found = {"plain write, fsync": Plain(size), "mlinfra": lambda folder: write_state(folder, capture(run, copies)),
             "torch.save": with_torch, "torch.save, fsync": to_the_disk, "DCP": with_dcp}
    return found | ({"Lightning": lightning_saver()} if find_spec("lightning") else {})


def lightning_saver() -> Callable[[Path], None]:
    "A trainer that has made one step with the same model."
    import lightning as pl
    from torch.utils.data import DataLoader
    model, optimizer = large_model()

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model

        def training_step(self, batch: Any, _i: int) -> torch.Tensor: return self.net(batch).square().mean()
        def configure_optimizers(self) -> Any: return optimizer

    trainer = pl.Trainer(max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(), DataLoader(torch.rand(8, WIDTH), 8))

    def save(folder: Path) -> None:
        folder.mkdir()
        trainer.save_checkpoint(folder / "checkpoint.ckpt")

    return save


def one_save(rounds: int, iterations: int) -> dict[str, Any]:
    "All in turn, another first in each round; the disk is at rest before each."
    from torch.utils.data import TensorDataset

    from mlinfra.training import fit
    found: dict[str, Any] = {}

    def compare(run: Any) -> None:
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DISK")) as home:
            found.update(save_rows(savers(run), Path(home), max(3, 5 * rounds * iterations // FULL)))

    model, optimizer = large_model()
    data = TensorDataset(torch.rand(16, WIDTH), torch.randint(WIDTH, (16,)))
    fit(model, data, optimizer=optimizer, batch_size=8, observers=[Ours(compare)], device="cpu", progress=False)
    return found


def save_rows(found: dict[str, Callable[[Path], None]], home: Path, rounds: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in found}
    sizes, names = {}, list(found)
    for n in range(-1, rounds):
        for name in names[n % len(names):] + names[:n % len(names)]:
            folder = home / "checkpoint"
            os.sync()
            start = time.perf_counter()
            found[name](folder)
            if n >= 0: seconds[name].append(time.perf_counter() - start)
            sizes[name] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            shutil.rmtree(folder)
    disk = seconds["plain write, fsync"]
    return {name: dict(seconds=median(times), MB=sizes[name] / 1e6, **spread([a / b for a, b in zip(times, disk)]))
            for name, times in seconds.items()}
