"""Our reader of a profiler's traces beside HolisticTraceAnalysis and torch-tb-profiler, on the same files.

$MLINFRA_TRACES names a folder of traces; without it, one is recorded here on the CPU. Every reading is a fresh process,
and each round asks all readers about a file in turn, so that a slow minute slows all of them.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from peers import ROOT, TRACERS

SCRIPT = ROOT / "tests" / "bench" / "trace_readers.py"
READERS = ("mlinfra", "HolisticTraceAnalysis", "torch-tb-profiler")


def recorded(folder: Path) -> Path:
    "A trace of three steps on the CPU."
    import torch
    from torch import nn

    from mlinfra.engine.trace.profile_steps import TraceSteps
    model, steps = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)), TraceSteps(folder, first=1, count=3)
    steps.on_start()
    for _ in range(5):
        model(torch.randn(64, 64)).mean().backward()
        steps.step()
    return steps.path


def reading(reader: str, path: Path) -> dict[str, Any]:
    "What a reader says in a process of its own; `error` where it fails."
    python = sys.executable if reader == "mlinfra" else TRACERS.python
    done = subprocess.run([python, str(SCRIPT), reader, str(path)], capture_output=True, text=True, timeout=600,
                          env=os.environ | dict(PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1"))
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else dict(error=done.stderr.strip()[-200:])


def readers(rounds: int, iterations: int) -> dict[str, Any]:
    "Seconds, peak of memory, busy share and overlap of each reader on each file, and what it says."
    asked = [reader for reader in READERS if reader == "mlinfra" or TRACERS.make()]
    with tempfile.TemporaryDirectory() as own:
        named = os.environ.get("MLINFRA_TRACES")
        files = sorted(Path(named).glob("*.json.gz")) if named else [recorded(Path(own))]
        seen: dict[tuple[Path, str], list[dict[str, Any]]] = {(path, reader): [] for path in files for reader in asked}
        for _ in range(rounds):
            for path, reader in seen: seen[path, reader].append(reading(reader, path))
    return {f"{path.name.removesuffix('.json.gz')}, {reader}": summed(found) for (path, reader), found in seen.items()}


def summed(found: list[dict[str, Any]]) -> dict[str, Any]:
    "Medians of the rounds, and the range of the seconds."
    if any("error" in one for one in found): return next(one for one in found if "error" in one)
    seconds = [one["seconds"] for one in found]
    return dict(seconds=median(seconds), least_seconds=min(seconds), most_seconds=max(seconds),
                peak_mib=median(one["peak_mib"] for one in found), busy=found[0]["busy"], overlap=found[0]["overlap"],
                says=found[0]["says"])


def table(figures: dict[str, Any]) -> str:
    "A reading in each line."
    def share(value: float | None) -> str: return "      " if value is None else f"{value:6.1%}"
    lines = [f"{'':58}  seconds (range)        MiB   busy overlap"]
    for name, row in figures.items():
        if "error" in row: lines.append(f"{name:58}  failed: {row['error'].splitlines()[-1][-60:]}")
        else:
            span = f"{row['seconds']:.3g} ({row['least_seconds']:.3g} to {row['most_seconds']:.3g})"
            lines.append(f"{name:58}  {span:22} {row['peak_mib']:5.0f} {share(row['busy'])} {share(row['overlap'])}  "
                         f"{row['says'][:90]}")
    return "\n".join(lines)


def pairs(figures: dict[str, Any], figure: str, peers: tuple[str, ...] = READERS[1:]) -> list[tuple[float, float]]:
    "Our figure and each of these peers' on the same file, where both have one."
    own = {name.partition(", ")[0]: row for name, row in figures.items() if name.endswith(", mlinfra")}
    return [(own[file][figure], row[figure]) for name, row in figures.items()
            for file, _, reader in [name.partition(", ")]
            if reader in peers and None not in (own[file].get(figure), row.get(figure))]
