"""What watching a run costs: steps with and without it, in turn, in this process.

    python tests/bench/watching.py [ROUNDS] [STEPS]
    python tests/bench/watching.py rules
"""
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mlinfra.debugger import Debugger
from mlinfra.engine.base.sample_statistics import median
from mlinfra.engine.rules.default_rules import SPEED_RULES
from mlinfra.engine.record.recorder import Monitor
from mlinfra.engine.record.watch import watch
from mlinfra.training import fit


def model_of(layers: int) -> nn.Module:
    "A tiny model, or the same with many modules."
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))


class Batches:
    "The same batch again and again."
    def __init__(self, count: int): self.count, self.batch = count, (torch.randn(8, 8), torch.randint(0, 8, (8,)))
    def __len__(self) -> int: return self.count
    def __iter__(self) -> Iterator[Any]: return iter([self.batch] * self.count)


def by_fit(layers: int, steps: int, *observers: Any) -> list[float]:
    "Seconds from the start of one step to the start of the next."
    history = fit(model_of(layers), Batches(steps), observers=observers, progress=False, device="cpu")
    starts = [step.start for step in history.steps]
    return [after - before for before, after in zip(starts, starts[1:])]


def by_hand(layers: int, steps: int, folder: Path | None) -> list[float]:
    "The same of a loop that is not ours; without a folder nobody watches it."
    model, starts = model_of(layers), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loop(wrap: Callable) -> None:
        for x, y in wrap(Batches(steps)):
            starts.append(time.perf_counter())
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    if folder is None: loop(lambda batches: batches)
    else:
        with watch(folder, model, optimizer) as watched: loop(watched)
    return [after - before for before, after in zip(starts, starts[1:])]


def watching(rounds: int = 7, steps: int = 1_000) -> dict[str, dict[str, float]]:
    "Microseconds a step, bare and watched, and the median of the differences of each round."
    found = {}
    with tempfile.TemporaryDirectory() as home:
        fresh = lambda: Path(tempfile.mkdtemp(dir=home))
        kinds = {f"{how}, {layers} modules": (how, layers) for how in ("fit", "own loop") for layers in (1, 101)}
        for name, (how, layers) in kinds.items():
            pairs = []
            count = steps if layers == 1 else steps // 10
            for _ in range(rounds):
                bare = by_fit(layers, count) if how == "fit" else by_hand(layers, count, None)
                seen = (by_fit(layers, count, Monitor(fresh())) if how == "fit" else by_hand(layers, count, fresh()))
                pairs.append((1e6 * median(bare), 1e6 * median(seen)))
            added = [after - before for before, after in pairs]
            found[name] = dict(bare=median(a for a, _ in pairs), watched=median(b for _, b in pairs),
                               added=median(added), low=min(added), high=max(added))
    return found


def debugging(rounds: int = 5, seconds: float = 4.0) -> dict[str, dict[str, float]]:
    "Microseconds a step that rules add: medians for those on speed, means over a long run for those on tensors."
    found = {}
    with tempfile.TemporaryDirectory() as home:
        fresh = lambda: Path(tempfile.mkdtemp(dir=home))
        speed = lambda: [Monitor(fresh(), rules=[Debugger([rule() for rule in SPEED_RULES])])]
        for layers in (1, 101):
            pace = median(by_fit(layers, 200))
            for name, observers in dict(speed=speed, all=lambda: [Debugger()]).items():
                count, figure = (500, median) if name == "speed" else (max(200, int(seconds / pace)), mean)
                pairs = [(1e6 * figure(by_fit(layers, count)), 1e6 * figure(by_fit(layers, count, *observers())))
                         for _ in range(rounds)]
                added = [after - before for before, after in pairs]
                found[f"{name} rules, {layers} modules"] = dict(
                    bare=median(a for a, _ in pairs), watched=median(b for _, b in pairs), added=median(added),
                    low=min(added), high=max(added))
    return found


def mean(values: list[float]) -> float: return sum(values) / len(values)


if __name__ == "__main__":
    torch.set_num_threads(1)
    only_rules = "rules" in sys.argv
    rows = debugging() if only_rules else watching(*map(int, sys.argv[1:3]))
    for name, row in rows.items():
        print(f"{name:24}", *(f"{key} {value:8.1f} us" for key, value in row.items()), flush=True)
