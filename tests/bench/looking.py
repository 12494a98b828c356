"""What tensor rules cost: two equal trainings take turns step by step, and one of them is looked at.

    python tests/bench/looking.py [STEPS] [MODULES ...]
"""
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mlinfra.engine.rules.inspection import Inspector
from mlinfra.engine.base.sample_statistics import median
from mlinfra.engine.record.run_folder import StepRecord
from mlinfra.engine.rules.default_rules import TENSOR_RULES

X, Y = torch.randn(8, 8), torch.randint(0, 8, (8,))


def training(layers: int) -> tuple[nn.Module, Any, Callable[[], float]]:
    "A model, its optimizer, and a function that makes a step and returns the loss."
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))
    with torch.no_grad():
        for layer in model: layer.weight.copy_(torch.eye(8)).add_(0.01 * torch.randn(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def step() -> float:
        loss = nn.functional.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())
    return model, optimizer, step


def in_turn(layers: int, steps: int, block: int = 500) -> dict[str, float]:
    "Microseconds of a step, what the rules add, and how many of the steps were looked at or checked."
    *_, bare = training(layers)
    model, optimizer, watched = training(layers)
    inspector = Inspector([rule() for rule in TENSOR_RULES])
    inspector.on_begin(model, [optimizer])
    probe = inspector._probe
    clock, pairs, sums, checks, zeros = time.perf_counter, [], [0.0, 0.0], 0, [0.0] * 9
    for n in range(steps):
        for which in ((0, 1), (1, 0))[n % 2]:
            begun = clock()
            loss = (bare, watched)[which]()
            if which: inspector.on_step(StepRecord(n, 0, 1, 8, loss, begun, *zeros))
            sums[which] += clock() - begun
        checks += probe.was_checked(n)
        if n % block == block - 1: pairs, sums = [*pairs, [1e6 * s / block for s in sums]], [0.0, 0.0]
    looks = probe.looks
    inspector.on_finish()
    assert not inspector.findings, inspector.findings
    added = sorted(b - a for a, b in pairs)
    reach = 1.96 * math.sqrt(len(added)) / 2  # of the order statistics around the median
    low, high = (added[min(max(round(len(added) / 2 + s * reach), 0), len(added) - 1)] for s in (-1, 1))
    return dict(bare=median(a for a, _ in pairs), added=median(added), low=low, high=high,
                share=100 * median(b / a - 1 for a, b in pairs), looks=looks, checked=100 * checks / steps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    steps, *modules = map(int, sys.argv[1:] or (20_000,))
    for layers in modules or (1, 101):
        found = in_turn(layers, steps if layers < 10 else steps // 10, 500 if layers < 10 else 100)
        print(f"{layers:4} modules:", *(f"{key} {value:.2f}," for key, value in found.items()), flush=True)
