"""Trainings with a known fault each, and healthy ones, in plain PyTorch: the same for our rules and for other tools.

A fault sleeps or computes where it is said to be, and its ledger notes by its own clock how long that took. With two
ranks, each is a process: `python tests/speed_cases.py CASE FOLDER` runs one rank under our watch.
"""
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Ledger:
    "What was injected, by place: seconds of each time."
    def __init__(self): self.spent: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def note(self, place: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.spent.setdefault(place, []).append(time.perf_counter() - start)

    def sleep(self, place: str, seconds: float) -> None:
        with self.note(place): time.sleep(seconds)

    def burn(self, place: str, seconds: float) -> None:
        with self.note(place):
            end = time.thread_time() + seconds
            while time.thread_time() < end: sum(range(200))


def nothing(*_: Any) -> None: ...


def class_step(model: nn.Module, batch: Any) -> torch.Tensor: return F.cross_entropy(model(batch[0]), batch[1])


def token_step(model: nn.Module, batch: Any) -> torch.Tensor:
    (words,) = batch
    return F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


@dataclass
class Parts:
    "A training, before it runs."
    model: nn.Module
    loader: Any
    ledger: Ledger = field(default_factory=Ledger)
    after: Callable[[int], Any] = nothing     # after each step
    inside: Callable[[int], Any] = nothing    # in each step, before the forward pass
    validate: Callable[[], Any] | None = None
    epochs: int = 1
    step: Callable = class_step
    optimizer: Callable = lambda parameters: torch.optim.SGD(parameters, 0.01)


class Watcher:
    "Nobody watches. Tools say in a subclass what to do before, in and after the loop."
    def batches(self, loader: Any) -> Any: return loader
    def step(self, model: nn.Module) -> Any: return contextlib.nullcontext()
    def stepped(self) -> None: ...


def train(parts: Parts, watcher: Watcher, optimizer: Any) -> list[float]:
    "A loop as anyone writes it; the seconds at which steps began."
    model, starts = parts.model, []
    for _ in range(parts.epochs):
        for n, batch in enumerate(watcher.batches(parts.loader)):
            starts.append(time.perf_counter())
            with watcher.step(model):
                parts.inside(n)
                loss = parts.step(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            watcher.stepped()
            parts.after(n)
        if parts.validate:
            model.eval()
            with torch.no_grad(): parts.validate()
            model.train()
    return starts


# ---- the parts

class Rows(Dataset):
    "Samples in memory; something happens before each batch."
    def __init__(self, count: int, before: Callable[[int], Any] = nothing, features: int = 64):
        self.x, self.y = torch.randn(count, features), torch.randint(0, 4, (count,))
        self.before, self.calls = before, 0

    def __len__(self) -> int: return len(self.x)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.read(self.calls)
        self.calls += 1
        return [(self.x[i], self.y[i]) for i in indices]

    def read(self, call: int) -> None: self.before(call)


def mlp(*sizes: int) -> nn.Sequential:
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Pausing(nn.Sequential):
    "A model; something happens in each forward pass."
    before: Callable[[int], Any] = staticmethod(nothing)
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.before(self.calls)
            self.calls += 1
        return super().forward(x)


def pausing(before: Callable[[int], Any]) -> nn.Module:
    model = Pausing(*mlp(64, 256, 256, 4))
    model.before = before
    return model


def memory(steps: int, size: int = 32, features: int = 64) -> list[Any]:
    "Batches that lie ready."
    return [(torch.randn(size, features), torch.randint(0, 4, (size,))) for _ in range(steps)]


def every(period: int, act: Callable[[], Any]) -> Callable[[int], None]:
    def perhaps(n: int) -> None:
        if n % period == period - 1: act()
    return perhaps


def collating(ledger: Ledger, seconds: float) -> Callable:
    def slow_collate(samples: list[Any]) -> Any:
        ledger.burn("collate", seconds)
        return torch.utils.data.default_collate(samples)
    return slow_collate


# ---- faults

STEPS, PERIOD, LEAK_BYTES = 120, 10, 1_000_000


def slow_read() -> Parts:
    book = Ledger()
    return Parts(mlp(64, 256, 256, 4), DataLoader(Rows(STEPS * 16, lambda n: book.sleep("read", 0.010)), 16), book)


def busy_transform() -> Parts:
    book = Ledger()
    return Parts(mlp(64, 256, 256, 4), DataLoader(Rows(STEPS * 16, lambda n: book.burn("transform", 0.010)), 16), book)


def slow_collate() -> Parts:
    book = Ledger()
    return Parts(mlp(64, 256, 256, 4), DataLoader(Rows(STEPS * 16), 16, collate_fn=collating(book, 0.010)), book)


def heavy_model() -> Parts: return Parts(mlp(512, 1024, 1024, 1024, 4), memory(STEPS, 128, 512))


def hidden_read() -> Parts:
    "A worker reads 4 ms for each batch while the model computes for longer."
    book = Ledger()
    loader = DataLoader(Rows(STEPS * 16, lambda n: time.sleep(0.004)), 16, num_workers=1)
    return Parts(pausing(lambda n: book.burn("forward", 0.015)), loader, book)


def tiny_model() -> Parts:
    return Parts(nn.Linear(8, 4), memory(20 * STEPS, 8, 8))


def stall_in_step() -> Parts:
    book = Ledger()
    return Parts(pausing(every(PERIOD, lambda: book.sleep("step", 0.08))), memory(STEPS), book)


def stall_between() -> Parts:
    book = Ledger()
    return Parts(pausing(nothing), memory(STEPS), book, after=every(PERIOD, lambda: book.sleep("between", 0.08)))


def stall_in_dataset() -> Parts:
    book = Ledger()
    rows = Rows(STEPS * 16, every(PERIOD, lambda: book.sleep("dataset", 0.08)))
    return Parts(pausing(nothing), DataLoader(rows, 16), book)


def leak() -> Parts:
    kept: list[Any] = []
    return Parts(mlp(512, 1024, 1024, 4), memory(STEPS, 64, 512),
                 after=lambda n: kept.append(torch.ones(LEAK_BYTES // 4)))


def slow_validation() -> Parts:
    book, model, held_back = Ledger(), pausing(nothing), memory(20)

    def validate() -> None:
        with book.note("validation"):
            for x, _ in held_back:
                model(x)
                time.sleep(0.015)

    return Parts(model, memory(20), book, validate=validate, epochs=6)


def two_faults() -> Parts:
    book = Ledger()
    rows = Rows(STEPS * 16, lambda n: book.sleep("read", 0.010))
    return Parts(pausing(nothing), DataLoader(rows, 16), book, after=every(PERIOD, lambda: book.sleep("between", 0.15)))


# ---- two ranks; the second is slower

def slow_rank() -> bool: return dist.get_rank() == 1


def rank_data() -> Parts:
    book = Ledger()
    rows = Rows(STEPS * 16, lambda n: book.sleep("data", 0.015) if slow_rank() else None)
    return Parts(mlp(64, 256, 256, 4), DataLoader(rows, 16), book)


def rank_body() -> Parts:
    book = Ledger()
    return Parts(mlp(64, 256, 256, 4), memory(STEPS), book,
                 inside=lambda n: book.sleep("body", 0.015) if slow_rank() else None)


def rank_forward() -> Parts:
    book = Ledger()
    return Parts(pausing(lambda n: book.sleep("forward", 0.015) if slow_rank() else None), memory(STEPS), book)


def two_ranks() -> Parts: return Parts(mlp(512, 1024, 1024, 4), memory(STEPS, 64, 512))


@dataclass(frozen=True)
class Fault:
    "What must be said of a training."
    make: Callable[[], Parts]
    place: str = ""                  # in its ledger; none: the training computes, and nothing else is to be blamed
    rules: tuple[str, ...] = ()      # of ours, all of them
    words: str = ""                  # that one of our messages must hold
    number: str = ""                 # of the finding: the seconds
    by: int = STEPS                  # the step by which it must be said
    ranks: int = 1


FAULTS = {
    "slow read": Fault(slow_read, "read", ("InputBound",), "reads or waits", "wait_seconds", 20),
    "busy transform": Fault(busy_transform, "transform", ("InputBound",), "computes", "wait_seconds", 20),
    "slow collate": Fault(slow_collate, "collate", ("InputBound",), "collate function", "wait_seconds", 20),
    "heavy model": Fault(heavy_model),
    "hidden read": Fault(hidden_read),
    "tiny model": Fault(tiny_model, "", ("BatchTooSmall",), "calling the operations", "", 20),
    "stall in step": Fault(stall_in_step, "step", ("PeriodicStall",), "forward of the step", "stall_seconds",
                           4 * PERIOD + 2),
    "stall between steps": Fault(stall_between, "between", ("PeriodicStall",), "between two steps", "stall_seconds",
                                 4 * PERIOD + 2),
    "stall in dataset": Fault(stall_in_dataset, "dataset", ("PeriodicStall",), "in the loader", "stall_seconds",
                              4 * PERIOD + 2),
    "leak": Fault(leak, "", ("MemoryLeak",), "host memory", "", 60),
    "slow validation": Fault(slow_validation, "validation", ("SlowValidation",), "validation", "seconds"),
    "two faults at once": Fault(two_faults, "read", ("InputBound", "PeriodicStall"), "reads or waits", "wait_seconds"),
    "straggler in data": Fault(rank_data, "data", ("Straggler",), "its loader", "extra_seconds", ranks=2),
    "straggler in body": Fault(rank_body, "body", ("Straggler",), "between batch and forward", "extra_seconds",
                               ranks=2),
    "straggler in forward": Fault(rank_forward, "forward", ("Straggler",), "its forward", "extra_seconds", ranks=2),
}


# ---- healthy trainings

def images(count: int, size: int = 16, side: int = 28) -> list[Any]:
    return [(torch.rand(size, 1, side, side), torch.randint(0, 4, (size,))) for _ in range(count)]


def mnist_cnn(optimizer: Callable) -> Parts:
    from mlinfra.data import mnist
    from mlinfra.models import GluonCNN
    pictures, labels = mnist().tensors
    batches = [(pictures[i:i + 64].float() / 255, labels[i:i + 64].long()) for i in range(0, 100 * 64, 64)]
    return Parts(GluonCNN(), batches, optimizer=optimizer)


def batch_norm() -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2),
                          nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 144, 4))
    return Parts(model, images(100, 32))


def resnet() -> Parts:
    from mlinfra.models import resnet18
    return Parts(resnet18(num_classes=4, stem="small"),
                 [(torch.rand(8, 1, 28, 28), torch.randint(0, 4, (8,))) for _ in range(40)])


def transformer() -> Parts:
    from mlinfra.engine.train.transformer import Transformer
    return Parts(Transformer(64, 64, 4, 2, 32), [(torch.randint(0, 64, (16, 32)),) for _ in range(100)],
                 step=token_step, optimizer=torch.optim.AdamW)


def frozen_backbone() -> Parts:
    model = mlp(64, 512, 512, 512, 4)
    model[:4].requires_grad_(False)
    return Parts(model, memory(100), optimizer=lambda p: torch.optim.SGD([one for one in p if one.requires_grad], 0.01))


def slow_first_step() -> Parts:
    return Parts(pausing(lambda n: time.sleep(0.5) if n == 0 else None), memory(100))


class OnceAtATime:
    "A loader without a length or settings."
    def __init__(self, batches: list[Any]): self._batches = batches
    def __iter__(self) -> Iterator[Any]: yield from self._batches


def generator_loader() -> Parts: return Parts(mlp(64, 256, 256, 4), OnceAtATime(memory(100)))


def healthy_validation() -> Parts:
    "It takes its time, a fifth of the run's or so, and that is no fault."
    model, held_back = mlp(64, 512, 512, 4), memory(20)
    return Parts(model, memory(40), validate=lambda: [model(x) for x, _ in held_back], epochs=3)


def relu_20() -> Parts:
    model = mlp(64, *[64] * 20, 4)
    for layer in model[::2]: nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return Parts(model, memory(100))


HEALTHY = {
    "MNIST CNN, SGD": Fault(lambda: mnist_cnn(lambda p: torch.optim.SGD(p, 0.05))),
    "MNIST CNN, Adam": Fault(lambda: mnist_cnn(torch.optim.Adam)),
    "BatchNorm": Fault(batch_norm),
    "ResNet-18": Fault(resnet),
    "transformer": Fault(transformer),
    "frozen backbone": Fault(frozen_backbone),
    "slow first step": Fault(slow_first_step),
    "generator loader": Fault(generator_loader),
    "validation of a fifth": Fault(healthy_validation),
    "two healthy ranks": Fault(two_ranks, ranks=2),
    "ReLU-20": Fault(relu_20),
}
CASES = FAULTS | HEALTHY


# ---- under our watch

class Watched(Watcher):
    "Ours: two lines."
    def __init__(self, watch: Any): self.batches = watch


def join_world(folder: str | os.PathLike) -> None:
    "By the launcher's address, or by a file."
    where = "env://" if "MASTER_ADDR" in os.environ else f"file://{Path(folder).resolve()}/meet"
    dist.init_process_group("gloo", where, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


def prepared(case: Fault, folder: str | os.PathLike) -> tuple[Parts, Any]:
    "The training and its optimizer; of several ranks, joined and wrapped."
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if case.ranks > 1: join_world(folder)
    parts = case.make()
    if case.ranks > 1: parts.model = nn.parallel.DistributedDataParallel(parts.model)
    return parts, parts.optimizer(parts.model.parameters())


def run_ours(case: Fault, folder: str | os.PathLike, rules: Any = None) -> tuple[list[Any], Ledger, list[float]]:
    "Train under watch; findings while it ran, what was injected, and when steps began."
    from mlinfra.debugger import Debugger
    from mlinfra.engine.record.watch import watch
    parts, optimizer = prepared(case, folder)
    with watch(Path(folder) / "run", parts.model, optimizer, rules=[Debugger(rules)]) as w:
        starts = train(parts, Watched(w), optimizer)
    if case.ranks > 1: dist.destroy_process_group()
    return w.findings, parts.ledger, starts


def main() -> None:
    from mlinfra.engine.rules.default_rules import SPEED_RULES
    name, folder = sys.argv[1:]
    _, ledger, _ = run_ours(CASES[name], folder, [rule() for rule in SPEED_RULES])
    Path(folder, f"ledger-{os.environ.get('RANK', 0)}.json").write_text(json.dumps(ledger.spent))


if __name__ == "__main__": main()
