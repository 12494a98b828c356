"""What watching costs a step, and which faults are named, for ours, TraceML, gpuprof, TrainCheck and torch.profiler.

Every tool has a process of its own, so no tool's patches reach another's block. For the costs these processes stay,
and blocks of steps are asked of each in turn. For the faults each training is a fresh process.
"""
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path
from statistics import mean, median
from typing import Any

import psutil
from peers import ROOT, TRAINCHECK, WATCHERS

sys.path.append(str(ROOT / "tests"))
SCRIPT = ROOT / "tests" / "bench" / "watchers.py"
OURS = "watch, all rules"
COSTS = ("bare", "watch", "watch, speed rules", OURS, "TraceML", "gpuprof", "TrainCheck", "torch.profiler")
PLACES = {"TraceML": WATCHERS, "gpuprof": WATCHERS, "TrainCheck": TRAINCHECK}  # the others run in ours
BLOCKS = {  # modules, width, batch, steps in a block; the milliseconds are about those of the bare step
    "0.17 ms step, 1 module": (1, 8, 8, 1_000),
    "2 ms step, 1 module": (1, 1_024, 32, 400),
    "5 ms step, 101 modules": (101, 8, 8, 300),
}
SETTLED, NOT_COUNTED = 120, 50  # from these steps on looks are rare; and what a tool does at the start is over
SLOW = {"TrainCheck": 6}  # steps in a block, in one round: it writes down every call of PyTorch, for seconds a step
BETWEEN_LOOKS = 50


def command(tool: str, folder: Path, ranks: int = 1) -> list[str]:
    "What starts a tool's process, as its documentation says, up to the script's arguments."
    if tool not in PLACES: return [sys.executable, str(SCRIPT)]
    if tool == "gpuprof": return [WATCHERS.python, str(SCRIPT)]
    if tool == "TrainCheck":
        collect = str(Path(TRAINCHECK.python).with_name("traincheck-collect"))
        script = shutil.copy(SCRIPT.with_name("collected.py"), folder)  # beside which it writes another one
        return [collect, "-p", script, "--models-to-track", "model", "--output-dir", str(folder / "collected")]
    launcher = str(Path(WATCHERS.python).with_name("traceml"))
    return [launcher, "run", str(SCRIPT), "--mode", "summary", "--logs-dir", str(folder / "logs"), "--run-name", "run",
            "--master-port", str(free_port()), "--aggregator-port", str(free_port()), "--nproc-per-node", str(ranks),
            "--args"]


def free_port() -> int:
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        return here.getsockname()[1]


def environment() -> dict[str, str]:
    "Nothing of a GPU, one thread, and our package."
    return os.environ | dict(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")


# ---- what it costs

@contextlib.contextmanager
def served(tool: str, home: Path) -> Iterator[tuple[Any, int]]:
    "A tool's process, and how many there are beside the one that trains."
    folder = home / tool.replace(" ", "-")
    folder.mkdir()
    address = str(folder / "line")
    with Listener(address, "AF_UNIX") as listener, (folder / "log").open("w") as log:
        order = [] if tool == "TrainCheck" else ["serve", tool, address, str(folder / "runs")]
        path = f"{Path(PLACES.get(tool, WATCHERS).python).parent}:{os.environ['PATH']}"
        started = subprocess.Popen([*command(tool, folder), *order], stdout=log, stderr=log, cwd=folder,
                                   env=environment() | dict(BENCH_LINE=address, PATH=path))
        threading.Thread(target=hang_up, args=(started, address), daemon=True).start()
        line = listener.accept()
        line.recv()
        others = len(psutil.Process(started.pid).children(recursive=True))
        try: yield line, others
        finally:
            line.send(None)
            started.wait(120)


def hang_up(process: subprocess.Popen, address: str) -> None:
    "A process that ends before it has answered leaves nobody waiting: reading from it is an error then."
    process.wait()
    with contextlib.suppress(OSError): Client(address, "AF_UNIX").close()


def costs(rounds: int, iterations: int) -> dict[str, Any]:
    """Microseconds that each tool adds to a step, of medians and of means, and what a look takes beside the 50 steps
    between two looks. Every round asks all tools in turn."""
    from stages import FULL
    tools = [tool for tool in COSTS if tool not in PLACES or PLACES[tool].make()]
    seen: dict[str, dict[str, list[Any]]] = {name: {tool: [] for tool in tools} for name in BLOCKS}
    shorter = min(1.0, iterations / FULL)
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        lines = {tool: stack.enter_context(served(tool, Path(home))) for tool in tools}
        for n in range(-1, max(1, round(4 * rounds * shorter))):
            for name, (modules, width, batch, steps) in BLOCKS.items():
                for k in range(len(tools)):  # another one begins in each round
                    tool = tools[(k + n) % len(tools)]
                    if tool in SLOW and n != 0: continue
                    many = SLOW.get(tool, max(60, round(steps * shorter)))
                    lines[tool][0].send((modules, width, batch, many))
                    told = lines[tool][0].recv()
                    if n >= 0: seen[name][tool].append(told)
        others = {tool: line[1] for tool, line in lines.items()}
    return {f"{name}, {tool}": row_of(blocks[tool], blocks["bare"]) | dict(other_processes=others[tool])
            for name, blocks in seen.items() for tool in tools}


def row_of(blocks: list[Any], bare: list[Any]) -> dict[str, float]:
    "Of the medians of blocks and of their means: the step, and what was added in the same round."
    row = {}
    for name, figure in (("median", median), ("mean", mean)):
        own, base = ([1e6 * figure(times[min(NOT_COUNTED, len(times) // 4):]) for times, _ in part]
                     for part in (blocks, bare))
        added = [a - b for a, b in zip(own, base)]
        row |= {f"{name}_us": median(own), f"{name}_added_us": median(added),
                f"{name}_ratio": median(a / b for a, b in zip(own, base))}
        if name == "median": row |= dict(low_added_us=min(added), high_added_us=max(added))
    looks = [1e6 * (times[n] - median(times)) for times, looked in blocks for n in looked if SETTLED <= n < len(times)]
    if looks: row |= dict(look_us=median(looks), look_share=median(looks) / BETWEEN_LOOKS / row["median_us"])
    return row


# ---- what it says

@dataclass(frozen=True)
class Right:
    "What a right answer holds, in anybody's words: patterns for the verdict and for the place."
    verdict: str
    place: str = ""


WAITS = r"input-bound|waiting on the loader|for the loader|dataloader.*stall|input wait"
SLOW_RANK = r"rank 1 needs|rank skew: rank 1 |why: r1/n0"  # the one named first is the slow one
RIGHT = {
    "slow read": Right(WAITS, r"i/o.bound|disk|reads or waits"),
    "busy transform": Right(WAITS, r"cpu.bound|cpu pegged|which computes"),
    "slow collate": Right(WAITS, r"collate"),
    "tiny model": Right(r"batch|launch overhead|overhead-bound|calling the operations", ""),
    "stall in step": Right(r"every 10 steps|stall|spike|tail latency|variance", r"forward"),
    "stall between steps": Right(r"every 10 steps|stall|spike|tail latency|variance|residual", r"between|inter-step"),
    "stall in dataset": Right(r"every 10 steps|stall|spike|tail latency|variance|input-bound", r"loader|input"),
    "leak": Right(r"memory grows|memory creep|leak", r"tensors of shape|retained"),
    "slow validation": Right(r"validation|evaluation", r"validation|evaluation"),
    "two faults at once": Right(rf"({WAITS})(.|\n)*(every 10 steps|stall|tail latency|residual)", r"between two steps"),
    "straggler in data": Right(SLOW_RANK, r"loader|input"),
    "straggler in body": Right(SLOW_RANK, r"between batch and forward|residual|other"),
    "straggler in forward": Right(SLOW_RANK, r"forward"),
}


def faults(tool: str, cases: Iterable[str] | None = None) -> dict[str, Any]:
    "Trainings of tests/speed_cases.py: what a tool says word by word, and what of it is right."
    from speed_cases import CASES, HEALTHY
    if tool in ("TraceML", "gpuprof") and not WATCHERS.make(): return {}

    def row(name: str) -> dict[str, Any]:
        print(f"{tool}: {name}", flush=True)
        words, truth = said_of(tool, name)
        return dict(says=words) | (alarm_row(tool, words) if name in HEALTHY else right_row(tool, name, words, truth))

    names = list(cases or CASES)
    return {name: row(name) for name in names}


def said_of(tool: str, name: str) -> tuple[list[str], float | None]:
    "What a tool says of a training, and the milliseconds that were injected each time."
    from speed_cases import CASES
    case = CASES[name]
    with tempfile.TemporaryDirectory() as home:
        folder, arguments = Path(home), ["case", tool, name, home]
        ranks = 1 if tool == "TraceML" else case.ranks
        env = environment() | dict(TORCHELASTIC_RUN_ID="bench")
        if case.ranks > 1 and tool != "TraceML": env |= dict(WORLD_SIZE=str(case.ranks))
        start = [*command(tool, folder, case.ranks), *arguments]
        with (folder / "log").open("w") as log:
            started = [subprocess.Popen(start, env=env | (dict(RANK=str(n)) if case.ranks > 1 else {}), stdout=log,
                                        stderr=log, cwd=home) for n in range(ranks)]
            codes = [process.wait(180) for process in started]
        if any(codes): return [f"(failed: {(folder / 'log').read_text()[-400:]})"], None
        python = WATCHERS.python if tool in ("TraceML", "gpuprof") else sys.executable
        asked = subprocess.run([python, str(SCRIPT), "says", tool, home], env=environment(), check=True,
                               capture_output=True, text=True)
        ledger = json.loads((folder / f"ledger-{case.ranks - 1}.json").read_text())
    spent = ledger["spent"].get(case.place)
    return json.loads(asked.stdout.splitlines()[-1]), 1e3 * median(spent) if spent else None


def right_row(tool: str, name: str, words: list[str], truth: float | None) -> dict[str, Any]:
    "Verdict, place and milliseconds: right, wrong, or there is nothing to be named."
    if name not in RIGHT: return dict(verdict=alarm_row(tool, words)["alarms"] == 0)  # it computes: nothing to blame
    right = RIGHT[name]
    causes = "\n".join(line.split(" | ")[0] for line in words if not line.startswith("Next:")).lower()
    holds = lambda pattern: bool(re.search(pattern, causes, re.MULTILINE))
    told = "\n".join(line for line in causes.splitlines() if re.search(right.verdict, line)) or causes
    row: dict[str, Any] = dict(verdict=holds(right.verdict))
    if right.place: row["place"] = row["verdict"] and holds(right.place)
    if truth is not None: row |= dict(truth_ms=truth, milliseconds=row["verdict"] and tells(told, truth))
    return row


def tells(words: str, truth: float) -> bool:
    "Whether a duration within 10% of the truth, in milliseconds, is among the words."
    scale = {"ms": 1.0, "s": 1e3}
    return any(abs(float(value) * scale[unit] - truth) <= 0.1 * truth
               for value, unit in re.findall(r"([\d.]*\d) ?(ms|s)\b", words))


def alarm_row(tool: str, words: list[str]) -> dict[str, Any]:
    "Findings that call for a change: none is right."
    if tool == "TraceML":
        verdict = next((line for line in words if line.startswith("Verdict:")), "")
        return dict(alarms=int(bool(re.search(r"WARN|CRITICAL", verdict)) and "COMPUTE-BOUND" not in verdict))
    if tool == "gpuprof": return dict(alarms=sum("[high]" in line or "[medium]" in line for line in words))
    return dict(alarms=sum(line.startswith("step ") for line in words))


def faults_of_ours(rounds: int, iterations: int) -> dict[str, Any]: return faults(OURS)
def faults_of_traceml(rounds: int, iterations: int) -> dict[str, Any]: return faults("TraceML")
def faults_of_gpuprof(rounds: int, iterations: int) -> dict[str, Any]: return faults("gpuprof")


def short(row: dict[str, Any]) -> str:
    "A cell of the table."
    if "alarms" in row: return f"{row['alarms']} alarms"
    words = {True: "yes", False: "no"}
    return ", ".join(f"{key} {words[row[key]]}" for key in ("verdict", "place", "milliseconds") if key in row)


def table(figures: dict[str, Any]) -> str:
    "A case in each line."
    return "\n".join(f"{name:24} {short(row)}" for name, row in figures.items()) if figures else "(not there)"
