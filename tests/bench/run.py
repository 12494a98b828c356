"""make bench: measure mlinfra against its peers, keep the figures, and say which marks were met.

Every stage runs in a process of its own. A full run goes into tests/bench/results, stage by stage, so that one can be run
again alone: cpu.json, and cuda.json for stages gpu and resnet50. A shortened one goes into test-output and leaves the
committed figures as they are.
"""
import argparse
import datetime
import json
import multiprocessing
import os
import platform
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import browser
import decode
import footprint
import formats
import gpu
import inference
import parallel
import patients
import stages
from peers import PEERS, ROOT
from stages import FULL

RESULTS, SHORT = ROOT / "tests" / "bench" / "results", ROOT / "test-output"


def keyed(name: str, stage: Callable) -> Callable[[int, int], dict[str, Any]]:
    return lambda rounds, iterations: {name: apart(stage, rounds, iterations)}


# stage -> what it adds to the results
STAGES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "epoch": keyed("epoch", stages.epoch),
    "accuracy": lambda *how: keyed("accuracy", stages.accuracy)(*how) | keyed("selection", stages.selection)(*how),
    "sweep": lambda *how: apart(stages.sweep, *how),
    "import": keyed("import", stages.imports),
    "micro": keyed("micro", stages.micro),
    "decode": keyed("decode", decode.decode),
    "doctor": keyed("doctor", patients.doctor),
    "inference": lambda *how: keyed("inference", inference.inference)(*how) | keyed("streams", inference.streams)(*how),
    "precision": keyed("precision", formats.precision),
    "memory": keyed("memory", footprint.memory),
    "allreduce": keyed("allreduce", parallel.allreduce),
    "ddp": keyed("ddp", parallel.ddp),
    "browser": keyed("browser", browser.browser),
    "gpu": keyed("gpu", gpu.gpu),
    "resnet50": keyed("resnet50", formats.resnet50),
}


SECOND = {"accuracy": ["selection"], "inference": ["streams"]}  # stage -> what else it adds


def apart(stage: Callable, rounds: int, iterations: int) -> Any:
    "Run in a fresh process: memory settings and threads of one stage do not reach the next."
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), prepare, (stage in (gpu.gpu, formats.resnet50),)) as pool: return pool.submit(stage, rounds, iterations).result()


def prepare(with_gpu: bool) -> None:
    "Hide the GPU from stages that are about the CPU, and let a loader's workers start as they do elsewhere, not by spawning."
    if not with_gpu: os.environ["CUDA_VISIBLE_DEVICES"] = ""
    multiprocessing.set_start_method(None, force=True)


# ---- what it ran on

def hardware() -> str:
    import psutil
    from mlinfra.engine.machine import usable_cores
    return ", ".join([*gpu_names(), cpu_model(), f"{usable_cores()} cores", f"{psutil.virtual_memory().total / 2**30:.0f} GiB", system()])


def gpu_names() -> list[str]:
    import torch
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def cpu_model() -> str:
    try: lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError: return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def system() -> str:
    try: return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError: return platform.system()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()} | {package: version(package) for package in ("torch", "torchvision")}
    for peer in dict.fromkeys(PEERS.values()):
        if peer.ready(): found |= peer.versions()
    return found


# ---- the results

def file_of(stage: str, iterations: int) -> Path:
    "Where a stage keeps its figures."
    return (RESULTS if iterations == FULL else SHORT) / ("cuda.json" if stage in ("gpu", "resnet50") else "cpu.json")


def load(path: Path) -> dict[str, Any]: return json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, results: dict[str, Any]) -> None:
    "Replace the file in one step."
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(rounded(results), indent=1, ensure_ascii=False) + "\n")
    os.replace(temporary, path)


def rounded(value: Any) -> Any:
    "Four digits are more than any of these figures repeats to."
    if isinstance(value, dict): return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list): return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def show(results: dict[str, Any], done: list[str]) -> None:
    "A table for each stage."
    import pandas as pd
    for name in [key for stage in done for key in (stage, *SECOND.get(stage, ()))]:
        table = results.get(name)
        if not table: continue
        if name == "sweep": frame = pd.DataFrame(table).set_index("workers")
        elif name in ("import", "micro"): frame = pd.Series(table, name="").to_frame()
        elif name == "precision":
            for part, rows in table.items(): print(f"\n== {name}: {part}\n{pd.DataFrame(rows).T.to_string()}")
            continue
        else: frame = pd.DataFrame(table).T
        print(f"\n== {name}\n{frame.to_string()}")
    if "sweep" in done: print(results["verdict"])


# ---- the marks

def marks(results: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    "What, the figure, at most or at least, the mark; of the stages that have results."
    found = []
    if race := results.get("epoch"): found += epoch_marks(race)
    if costs := results.get("micro"):
        found += [("phases and progress, of a step (micro-costs, in a loop)", costs["share"], "<=", 0.005),
                  ("the same between real steps, out of the caches", costs["in_training_share"], "<=", 0.005)]
    if table := results.get("accuracy"):
        found += [(f"{recipe}: least test accuracy over seeds", table[recipe]["min"], ">=", mark)
                  for recipe, mark in (("recipe(), 1 epoch", 0.985), ("recipe(), 2 epochs", 0.99))]
    if table := results.get("import"): found.append(("slowest import beyond torch, seconds", max(table.values()), "<=", 0.2))
    if table := results.get("decode"): found += decode_marks(table)
    if table := results.get("streams"): found += stream_marks(table)
    if table := results.get("doctor"): found += doctor_marks(table)
    if table := results.get("precision"): found += precision_marks(table["predictions"])
    if table := results.get("ddp"): found += ddp_marks(table)
    if table := results.get("gpu"): found.append(("naive loop / fit with CUDA graphs, wall", table["fit_cuda_graph"]["naive_ratio"], ">=", 20))
    if table := results.get("resnet50"): found.append(("ResNet-50 in bf16: fit / torchvision in a bare loop, images/s", table["fit, bf16"]["torchvision_ratio"], ">=", 0.9))
    if table := results.get("memory"): found.append(("median error of a step's memory, against resident memory", median(abs(row["total_bytes"] / row["resident_bytes"] - 1) for row in table.values()), "<=", 0.05))
    limits = {"matplotlib": 0.35, "SVG": 0.25}
    found += [(f"{panel} panel ({row['kind']}) / interact", row["ratio_to_interact"], "<=", limits[row["kind"]])
              for panel, row in results.get("browser", {}).items() if row["kind"] in limits]
    return found


def epoch_marks(race: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    ours = race["mlinfra"]
    found = [("epoch / floor, wall", ours["wall_ratio"], "<=", 0.70), ("epoch / floor, CPU", ours["cpu_ratio"], "<=", 0.65),
             ("loader, of the epoch", ours["loader_share"], "<=", 0.01)]
    for peer, mark in (("keras_tf", 1.0), ("lightning", 0.55)):
        if peer in race: found.append((f"epoch / {peer}, wall", ours["wall_ratio"] / race[peer]["wall_ratio"], "<=", mark))
    return found


def stream_marks(table: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    whose = dict.fromkeys(name.rsplit(", load", 1)[0] for name in table)
    return [(f"{who}: median error of predicted {name}{words}", median(row[f"{name}_error{kind}"] for key, row in table.items() if key.startswith(f"{who}, load")), "<=", mark)
            for who in whose for name, mark in (("p50", 0.15), ("p95", 0.25)) for kind, words in (("", ""), ("_hindsight", ", had the drift been known"))]


def decode_marks(table: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    best = table["JpegFolder + RandomCropFlip"]["ratio"]
    found = [("decode, crop, flip, normalise / decode alone", best, "<=", 1.5), ("raw cache / decode alone", table["RawCache + RandomCropFlip"]["ratio"], "<=", 0.85)]
    return found + [(f"JpegFolder / {peer}", best / table[peer]["ratio"], "<=", 1.0) for peer in ("webdataset", "tf.data", "torchvision ImageFolder") if peer in table]


def doctor_marks(table: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    cures = [cure for row in table.values() for cure in row["cures"]]
    errors = [abs(cure["error"]) for cure in cures if not cure["beside_load"]]
    loaded = sum(row["verdicts"][-1] != row["cause"] for row in table.values() if row["last_beside_load"])
    wrong = sum(len(row["verdicts"]) - row["right"] for row in table.values()) - loaded
    found = [("wrong verdicts, machine quiet", wrong, "<=", 0), ("wrong verdicts, beside a busy process", loaded, "<=", 0), ("false cures", sum(cure["high"] < 1 for cure in cures), "<=", 0)]
    return found + ([("median error of predicted speed-ups, machine quiet", median(errors), "<=", 0.15)] if errors else [])


def ddp_marks(table: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    own = table.get("ddp, shared memory, global batch 128", table["ddp, global batch 128"])
    found = [("two ranks of one thread / one process of two, global batch 128", own["ratio"], "<=", 1.0), ("averaging, of a step at global batch 128", own["averaging_ratio"], "<=", 0.10)]
    return found + [(f"{name} of two ranks / train_ddp's", table[f"loop of {name}"]["ratio"], ">=", 1.0) for name in ("Lightning", "accelerate") if f"loop of {name}" in table]


def precision_marks(table: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    errors = {way: [abs(row[f"{way}_error"]) for row in table.values() if f"{way}_error" in row] for way in ("never_run", "run_twice")}
    return [(f"median error of a step's predicted seconds, {way.replace('_', ' ')}", median(found), "<=", mark) for (way, found), mark in zip(errors.items(), (0.25, 0.15)) if found]


def tell(what: str, figure: float, how: str, mark: float) -> str:
    met = figure <= mark if how == "<=" else figure >= mark
    return f"{'met   ' if met else 'MISSED'} {what}: {figure:.4g} ({'at most' if how == '<=' else 'at least'} {mark:g})"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=STAGES, default=list(STAGES), metavar="STAGE", help=f"of {', '.join(STAGES)}; all unless told")
    parser.add_argument("--rounds", type=int, default=3, help="of the contenders of `epoch` (default %(default)s)")
    parser.add_argument("--iterations", type=int, default=FULL, help=f"of an epoch; fewer than {FULL} is a trial and keeps its figures apart")
    args = parser.parse_args()
    if args.rounds < 1: parser.error(f"--rounds must be at least 1, got {args.rounds}")
    if not 1 <= args.iterations <= FULL: parser.error(f"--iterations must be 1 to {FULL}, got {args.iterations}")
    return args


def with_shares(results: dict[str, Any]) -> dict[str, Any]:
    "The costs of timing and reporting, as shares of the step that stage epoch measured."
    if not (results.get("micro") and results.get("epoch")): return results
    step, costs = results["epoch"]["mlinfra"]["step_seconds"], results["micro"]
    share = lambda prefix: (costs[f"{prefix}phases_seconds"] + costs[f"{prefix}progress_seconds"]) / step
    return results | {"micro": costs | dict(share=share(""), in_training_share=share("in_training_"))}


def main() -> None:
    args = options()
    chosen = [name for name in STAGES if name in args.only]
    if "micro" in chosen and "epoch" not in chosen and not load(file_of("epoch", args.iterations)).get("epoch"):
        raise SystemExit("stage micro gives shares of the step that stage epoch measures: run --only epoch micro")
    about = dict(hardware=hardware(), date=f"{datetime.date.today()}")
    for stage in chosen:
        print(f"\n-- {stage}", flush=True)
        found, path = STAGES[stage](args.rounds, args.iterations), file_of(stage, args.iterations)
        if any(found.values()): keep(path, with_shares(load(path) | found | about | {"versions": versions()}))
    results = load(file_of("epoch", args.iterations)) | load(file_of("gpu", args.iterations))
    show(results, chosen)
    print("\n== marks")
    for mark in marks(results): print(tell(*mark))


if __name__ == "__main__": main()
