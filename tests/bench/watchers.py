"""Tools that watch a training, one process each: what they cost a step, and what they say of trainings with a fault.

    python watchers.py case TOOL CASE FOLDER      one training of tests/speed_cases.py; what the tool says, to FOLDER
    python watchers.py serve TOOL ADDRESS FOLDER  blocks of steps on demand, and their seconds

Each tool is used as its own documentation says. It runs in a process in which no other tool has ever been imported.
"""
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1]))
from speed_cases import CASES, Watched, Watcher, prepared, train


class TraceML(Watcher):
    "Under `traceml run`; the step's context as in its quickstart."
    def __init__(self):
        import traceml_ai
        traceml_ai.init(mode="auto")
        self.step = traceml_ai.trace_step


class Profiled(Watcher):
    "Every step is recorded."
    def __init__(self, profiler: Any): self.stepped = profiler.step


@contextlib.contextmanager
def bare(folder: Path, model: nn.Module, optimizer: Any) -> Iterator[Watcher]: yield Watcher()


@contextlib.contextmanager
def recorded(folder: Path, model: nn.Module, optimizer: Any) -> Iterator[Watcher]:
    from mlinfra.engine.record.watch import watch
    with watch(folder, model, optimizer) as w: yield Watched(w)


@contextlib.contextmanager
def speed_rules(folder: Path, model: nn.Module, optimizer: Any) -> Iterator[Watcher]:
    from mlinfra.debugger import Debugger
    from mlinfra.engine.rules.default_rules import SPEED_RULES
    from mlinfra.engine.record.watch import watch
    rules = [Debugger([rule() for rule in SPEED_RULES])]
    with watch(folder, model, optimizer, rules=rules) as w: yield Watched(w)


@contextlib.contextmanager
def all_rules(folder: Path, model: nn.Module, optimizer: Any) -> Iterator[Watcher]:
    from mlinfra.debugger import Debugger
    from mlinfra.engine.record.watch import watch
    with watch(folder, model, optimizer, rules=[Debugger()]) as w: yield Watched(w)


@contextlib.contextmanager
def traceml(folder: Path, model: nn.Module, optimizer: Any) -> Iterator[Watcher]: yield TraceML()


@contextlib.contextmanager
def gpuprof(folder: Path, model: nn.Module, optimizer: Any) -> Iterator[Watcher]:
    import gpuprof
    folder.mkdir(parents=True, exist_ok=True)
    with gpuprof.profile("bench", summary=False, db_path=str(folder / "gpuprof.db")): yield Watcher()


@contextlib.contextmanager
def profiler(folder: Path, model: nn.Module, optimizer: Any) -> Iterator[Watcher]:
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU]) as found: yield Profiled(found)
    if folder.name == "case": (folder.parent / "says.txt").write_text(table_of_operators(found))


def table_of_operators(found: Any) -> str: return found.key_averages().table("self_cpu_time_total", row_limit=5)


TOOLS: dict[str, Callable] = {
    "bare": bare, "watch": recorded, "watch, speed rules": speed_rules, "watch, all rules": all_rules,
    "TraceML": traceml, "gpuprof": gpuprof, "torch.profiler": profiler}


# ---- blocks of steps

def block_model(modules: int, width: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(modules)))


def block(tool: str, folder: Path, modules: int, width: int, batch: int, steps: int) -> tuple[list[float], list[int]]:
    "Seconds from the start of a step to the start of the next, and the steps whose tensors were looked at."
    model = block_model(modules, width)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    from speed_cases import Parts
    batches = [(torch.randn(batch, width), torch.randint(0, width, (batch,)))] * steps
    with TOOLS[tool](folder, model, optimizer) as watcher: starts = train(Parts(model, batches), watcher, optimizer)
    looked = looks_in(folder) if tool == "watch, all rules" else []
    return [after - before for before, after in zip(starts, starts[1:])], looked


def looks_in(folder: Path) -> list[int]:
    from mlinfra.engine.record.run_folder import Run
    return [int(row[0]) for event in Run(folder).events("looks") for row in event.data["rows"] if row[1]]


def serve(tool: str, address: str, folder: Path) -> None:
    "Blocks on demand."
    torch.set_num_threads(1)
    with Client(address, "AF_UNIX") as line:
        line.send(os.getpid())
        for n in range(1_000_000):
            order = line.recv()
            if order is None: return
            line.send(block(tool, folder / str(n), *order))


# ---- one training with a fault, or a healthy one

def run_case(tool: str, name: str, folder: Path) -> None:
    "Train, and write down what was said and what was injected."
    case, rank = CASES[name], os.environ.get("RANK", "0")
    parts, optimizer = prepared(case, folder)
    with TOOLS[tool](folder / "case", parts.model, optimizer) as watcher: starts = train(parts, watcher, optimizer)
    if case.ranks > 1:
        dist.barrier()
        dist.destroy_process_group()
    seconds = time.perf_counter() - starts[0]
    (folder / f"ledger-{rank}.json").write_text(json.dumps(dict(spent=parts.ledger.spent, steps=len(starts),
                                                                seconds=seconds)))


def says(tool: str, folder: Path) -> list[str]:
    "What a tool says at the end, a finding in each line, in its own words."
    return {"TraceML": of_traceml, "gpuprof": of_gpuprof, "torch.profiler": of_profiler}.get(tool, of_ours)(folder)


def of_ours(folder: Path) -> list[str]:
    from mlinfra.engine.rules.inspection import apply_rules
    from mlinfra.engine.record.run_folder import Run
    run = Run(folder / "case")
    shares = {part: share for part, share in run.shares().items() if share >= 0.1}
    where = ", ".join(f"{part} {share:.0%}" for part, share in sorted(shares.items(), key=lambda row: -row[1]))
    return [*(str(finding) for finding in apply_rules(run).findings), f"(shares of the time: {where})"]


def of_traceml(folder: Path) -> list[str]:
    (path,) = folder.glob("logs/*/final_summary.txt")
    lines = [re.sub(r"\s+", " ", line.strip("|+- ")) for line in path.read_text().splitlines()]
    return [line for line in lines if line]


def of_gpuprof(folder: Path) -> list[str]:
    import sqlite3

    from gpuprof.insights import analyze, analyze_group
    path = str(folder / "case" / "gpuprof.db")
    with contextlib.closing(sqlite3.connect(path)) as db:
        runs = db.execute("SELECT id, rank, group_id FROM runs ORDER BY id").fetchall()
    words = lambda one: f"[{one['severity']}] {one['title']} | {one['recommendation']}"
    found = [(f"rank {rank}: " if len(runs) > 1 else "") + words(one)
             for run, rank, _ in runs for one in analyze(path, run)["insights"]]
    if len(runs) > 1: found += [f"group: {words(one)}" for one in analyze_group(path, runs[0][2])["insights"]]
    return found


def of_profiler(folder: Path) -> list[str]:
    path = folder / "says.txt"
    return ["(a table of operators, and no verdict)"] if path.exists() else []


def main() -> None:
    what, tool, *rest = sys.argv[1:]
    if what == "serve": serve(tool, rest[0], Path(rest[1]))
    elif what == "case": run_case(tool, rest[0], Path(rest[1]))
    elif what == "says": print(json.dumps(says(tool, Path(rest[0]))))


if __name__ == "__main__": main()
