"""Does a rerun bring what the report has predicted? Costs that are slept, so that they are known, and real ones."""
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from mlinfra import report
from mlinfra.doctor import Pictures
from mlinfra.engine.report.compare import MeasuredGain
from mlinfra.engine.record.run_folder import Run, StepRecord
from mlinfra.engine.record.run_writer import RunWriter
from mlinfra.monitor import Monitor
from mlinfra.training import fit

BATCHES = 10  # in an epoch, of the smallest batch
EPOCHS = 4    # of a training of known costs
PAGE_STEPS = (1_000, 10_000, 100_000)


@dataclass(frozen=True)
class Case:
    "A training of known costs, in milliseconds, and a change of it; None: the report's first advice."
    name: str
    change: dict[str, Any] | None
    sample: float = 0.0      # to load one
    forward: float = 0.0     # for each sample
    update: float = 0.0      # of a step
    validation: float = 0.0  # after an epoch
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str: return self.name


CASES = [
    Case("more workers", None, sample=2.0, forward=0.5),
    Case("workers that stay", dict(persistent_workers=True), sample=2.0, forward=1.0, settings=dict(num_workers=2)),
    Case("a faster transform", dict(loading=0.5), sample=2.0, forward=1.5),
    Case("a larger batch", dict(batch_size=32), sample=0.5, forward=0.5, update=20.0),
    Case("less validation", dict(validation=0.5), sample=1.0, forward=1.0, validation=600.0),
]


class Sleeping(Dataset):
    "Samples that take their time."
    def __init__(self, count: int, milliseconds: float): self.count, self.seconds = count, milliseconds / 1e3
    def __len__(self) -> int: return self.count

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.seconds)
        return torch.zeros(8), i % 2


class Slow(nn.Module):
    "A model that takes so long for each sample."
    def __init__(self, milliseconds: float):
        super().__init__()
        self.layer, self.seconds = nn.Linear(8, 2), milliseconds / 1e3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training: time.sleep(self.seconds * len(x))
        return self.layer(x)


class SlowSGD(torch.optim.SGD):
    "An optimizer that takes so long for a step, whatever the batch."
    def __init__(self, parameters: Any, milliseconds: float):
        super().__init__(parameters, 0.1)
        self.seconds = milliseconds / 1e3

    def step(self, closure: Any = None) -> None:
        time.sleep(self.seconds)
        super().step(closure)


def trainer(case: Case, epochs: int) -> Any:
    "The user's function: it trains, and records the run."
    def train(folder: Path, batch_size: int = 16, loading: float = 1.0, validation: float = 1.0, **loader: Any) -> None:
        model, data = Slow(case.forward), Sleeping(16 * BATCHES, loading * case.sample)
        batches = DataLoader(data, batch_size, **(case.settings | loader))
        valid = Sleeping(8, validation * case.validation / 8) if case.validation else None
        fit(model, batches, epochs=epochs, optimizer=SlowSGD(model.parameters(), case.update), valid=valid,
            device="cpu", progress=False, observers=[Monitor(folder, every_seconds=0.1)])
    return train


def rerun(case: Case, home: Path, epochs: int, repeats: int = 2) -> tuple[MeasuredGain, float]:
    "A run, its change verified, and the cores that other programs kept busy meanwhile."
    train = trainer(case, epochs)
    train(home / "first")
    found = report.verify(home / "first", train, case.change, repeats=repeats, folder=home / "runs")
    runs = [Run(path.parent) for path in sorted(home.rglob("events-0.jsonl"))]
    return found, max(map(others, runs))


def others(run: Run) -> float:
    "Cores that other programs kept busy, on average."
    columns = ["machine_cores", "process_cores", "workers_cores"]
    known = run.samples.reindex(columns=columns).astype(float).dropna(subset=columns[:2])
    if not len(known): return 0.0
    return float((known.machine_cores - known.process_cores - known.workers_cores.fillna(0)).mean())


def real(folder: Path, **loader: Any) -> None:
    "The training of lesson 19: pictures that are read and blurred."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 24 * 24, 10))
    fit(model, DataLoader(Pictures(), batch_size=32, shuffle=True, **loader), epochs=2, device="cpu", progress=False,
        observers=[Monitor(folder, every_seconds=0.1)])


def gains(rounds: int, iterations: int) -> dict[str, dict[str, float]]:
    "The predicted and the measured speed-up of each case."
    found = {}
    with tempfile.TemporaryDirectory() as home:
        for number, case in enumerate(CASES):
            found[case.name] = row_of(*rerun(case, Path(home, f"{number}"), EPOCHS, max(rounds, 2)))
        real(Path(home, "warm-up"))
        real(Path(home, "real"))
        for change in (None, dict(num_workers=2, persistent_workers=True), dict(num_workers=2)):
            verified = report.verify(Path(home, "real"), real, change, repeats=max(rounds, 2))
            words = ", ".join(f"{name}={value}" for name, value in verified.change.items())
            found[f"pictures, {words}"] = row_of(verified, others(Run(Path(home, "real"))))
    return found


def row_of(found: MeasuredGain, busy: float) -> dict[str, float]:
    e = found.measured
    return dict(predicted=found.predicted, measured=e.value, low=e.low, high=e.high, error=found.error,
                other_cores=busy)


def page(rounds: int, iterations: int) -> dict[str, dict[str, float]]:
    "Seconds to write a page, and its bytes, by steps of the run."
    found = {}
    with tempfile.TemporaryDirectory() as home:
        for steps in PAGE_STEPS:
            folder = Path(home, f"{steps}")
            with RunWriter(folder, rank=0, world_size=1) as writer:
                for n in range(steps):
                    times = dict.fromkeys(StepRecord._fields[6:], 0.001)
                    writer.step(StepRecord(n, 0, 1, 32, 1.0, 0.007 * n, *times.values()))
                    if n % 50 == 0: writer.sample(dict(process_cores=1.0, memory_bytes=1 << 30), at=0.007 * n)
            seconds = []
            for _ in range(max(rounds, 1)):
                start = time.perf_counter()
                report.write(folder)
                seconds.append(time.perf_counter() - start)
            found[f"{steps} steps"] = dict(seconds=min(seconds), bytes=(folder / "report.html").stat().st_size)
    return found
