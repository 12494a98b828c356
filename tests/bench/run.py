"""make bench: measure mlinfra against its peers, keep the figures, and say which marks were met.

Every stage runs in a process of its own. A full run goes into tests/bench/results, stage by stage, so that one can
be run again alone: cpu.json, and cuda.json for the stages that need a GPU. A shortened one goes into test-output and
leaves the committed figures as they are.
"""
import argparse
import datetime
import json
import multiprocessing
import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import advice
import browser
import by_tool
import checkpoints
import decode
import exporting
import few_lines
import footprint
import formats
import gpu
import inference
import networks
import parallel
import patients
import saving
import serving
import stages
import threads
import traces
from peers import PEERS, ROOT
from stages import FULL

RESULTS, SHORT = ROOT / "tests" / "bench" / "results", ROOT / "test-output"


def table_of(figures: Any) -> str:
    "A row for each contender."
    import pandas as pd
    return pd.DataFrame(figures).T.to_string()


def column_of(figures: dict[str, float]) -> str:
    "A figure in each line."
    import pandas as pd
    return pd.Series(figures, name="").to_frame().to_string()


def tables_of(figures: dict[str, Any]) -> str:
    "A table for each part."
    return "\n".join(f"{part}\n{table_of(rows)}" for part, rows in figures.items())


def rows_by_workers(figures: list[dict[str, Any]]) -> str:
    "The sweep's rows."
    import pandas as pd
    return pd.DataFrame(figures).set_index("workers").to_string()


@dataclass(frozen=True)
class Mark:
    "A figure, and what it has to be."
    what: str
    figure: float
    bound: float
    least: bool = False  # whether `bound` is the least it may be, and not the most

    @property
    def met(self) -> bool: return self.figure >= self.bound if self.least else self.figure <= self.bound

    def __str__(self) -> str:
        how = "at least" if self.least else "at most"
        return f"{'met   ' if self.met else 'MISSED'} {self.what}: {self.figure:.4g} ({how} {self.bound:g})"


Measure = Callable[[int, int], Any]             # (rounds, iterations) -> figures
Marks = Callable[[dict[str, Any]], list[Mark]]  # the results -> what the stage is held against


@dataclass(frozen=True)
class Stage:
    "A part of the benchmark, in one place: what it measures, under which keys, its marks and its table."
    name: str
    parts: dict[str, Measure]                 # key in the results -> what fills it
    marks: Marks = lambda results: []
    show: Callable[[Any], str] = table_of     # figures of one part -> text
    with_gpu: bool = False                    # needs one, and its figures are kept in cuda.json

    def measure(self, rounds: int, iterations: int) -> Iterator[dict[str, Any]]:
        "The figures of one part after another, each measured in a fresh process; a part without figures is left out."
        for key, part in self.parts.items():
            if figures := apart(part, rounds, iterations, self.with_gpu): yield {key: figures}

    def file(self, iterations: int) -> Path:
        "Where its figures are kept; those of a shortened run are kept apart."
        return (RESULTS if iterations == FULL else SHORT) / ("cuda.json" if self.with_gpu else "cpu.json")


def apart(part: Measure, rounds: int, iterations: int, with_gpu: bool) -> Any:
    "Run in a fresh process: memory settings and threads of one part do not reach the next."
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, prepare, (with_gpu,)) as pool:
        return pool.submit(part, rounds, iterations).result()


def prepare(with_gpu: bool) -> None:
    "Hide the GPU from stages that are about the CPU; let a loader's workers start as elsewhere, not by spawning."
    if not with_gpu: os.environ["CUDA_VISIBLE_DEVICES"] = ""
    multiprocessing.set_start_method(None, force=True)


# ---- what it ran on

def hardware() -> str:
    from mlinfra.engine.base.machine import this_machine
    return str(this_machine())


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()} | {package: version(package) for package in ("torch", "torchvision")}
    for peer in dict.fromkeys(PEERS.values()):
        if peer.ready(): found |= peer.versions()
    return found


# ---- the results

def load(path: Path) -> dict[str, Any]: return json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, results: dict[str, Any]) -> None:
    "Replace the file in one step."
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(rounded(results), indent=1, ensure_ascii=False) + "\n")
    os.replace(temporary, path)


def merged(results: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    "The results with what was just found, and beside each part what it was measured on."
    here = dict(hardware=hardware(), date=f"{datetime.date.today()}", versions=versions())
    return results | found | {"measured_on": results.get("measured_on", {}) | dict.fromkeys(found, here)}


def rounded(value: Any) -> Any:
    "Four digits are more than any of these figures repeats to."
    if isinstance(value, dict): return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list): return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


# ---- the marks of each stage

def epoch_marks(results: dict[str, Any]) -> list[Mark]:
    race = results["epoch"]
    ours = race["mlinfra"]
    found = [Mark("epoch / floor, wall", ours["wall_ratio"], 0.70),
             Mark("epoch / floor, CPU", ours["cpu_ratio"], 0.65),
             Mark("loader, of the epoch", ours["loader_share"], 0.01)]
    for peer, bound in (("keras_tf", 1.0), ("lightning", 0.55)):
        if peer in race:
            found.append(Mark(f"epoch / {peer}, wall", ours["wall_ratio"] / race[peer]["wall_ratio"], bound))
    return found


def micro_marks(results: dict[str, Any]) -> list[Mark]:
    costs = results["micro"]
    return [Mark("phases and progress, of a step (micro-costs, in a loop)", costs["share"], 0.005),
            Mark("the same between real steps, out of the caches", costs["in_training_share"], 0.005)]


def threads_marks(results: dict[str, Any]) -> list[Mark]:
    return [Mark(f'threads="auto" / the better fixed number, {name.removesuffix(", auto")}', row["ratio"], 1.1)
            for name, row in results["threads"].items() if name.endswith(", auto")]


def accuracy_marks(results: dict[str, Any]) -> list[Mark]:
    least = {"recipe(), 1 epoch": 0.985, "recipe(), 2 epochs": 0.99}
    return [Mark(f"{recipe}: least test accuracy over seeds", results["accuracy"][recipe]["min"], bound, least=True)
            for recipe, bound in least.items()]


def import_marks(results: dict[str, Any]) -> list[Mark]:
    return [Mark("slowest import beyond torch, seconds", max(results["import"].values()), 0.2)]


def decode_marks(results: dict[str, Any]) -> list[Mark]:
    table = results["decode"]
    best = table["JpegFolder + RandomCropFlip"]["ratio"]
    peers = [peer for peer in ("webdataset", "tf.data", "torchvision ImageFolder") if peer in table]
    return [Mark("decode, crop, flip, normalise / decode alone", best, 1.5),
            Mark("raw cache / decode alone", table["RawCache + RandomCropFlip"]["ratio"], 0.85),
            *(Mark(f"JpegFolder / {peer}", best / table[peer]["ratio"], 1.0) for peer in peers)]


def doctor_marks(results: dict[str, Any]) -> list[Mark]:
    rows = results["doctor"].values()
    cures = [cure for row in rows for cure in row["cures"]]
    errors = [abs(cure["error"]) for cure in cures if not cure["beside_load"]]
    loaded = sum(row["verdicts"][-1] != row["cause"] for row in rows if row["last_beside_load"])
    wrong = sum(len(row["verdicts"]) - row["right"] for row in rows) - loaded
    found = [Mark("wrong verdicts, machine quiet", wrong, 0),
             Mark("wrong verdicts, beside a busy process", loaded, 0),
             Mark("false cures", sum(cure["high"] < 1 for cure in cures), 0)]
    if errors: found.append(Mark("median error of predicted speed-ups, machine quiet", median(errors), 0.15))
    return found


def exporting_marks(results: dict[str, Any]) -> list[Mark]:
    table, found = results["exporting"], []
    for model in dict.fromkeys(name.rpartition(", eager")[0] for name in table if name.endswith(", eager")):
        eager, ort, int8 = (table[f"{model}, {form}"] for form in ("eager", "onnxruntime", "int8, ranges of examples"))
        found += [Mark(f"{model}: onnxruntime / eager, images/s, batch {b}", ort[f"ratio_{b}"], 1.0, least=True)
                  for b in (1, 64)]
        found += [Mark(f"{model}: int8 / eager, images/s, batch {b}", int8[f"ratio_{b}"], 1.5, least=True)
                  for b in (1, 64)]
        found.append(Mark(f"{model}: accuracy that int8 loses", eager["accuracy"] - int8["accuracy"], 0.005))
        found.append(Mark(f"{model}: largest difference of onnxruntime from eager", ort["largest_difference"], 1e-4))
    return found


def stream_marks(results: dict[str, Any]) -> list[Mark]:
    table = results["streams"]
    models = dict.fromkeys(name.rsplit(", load", 1)[0] for name in table)
    kinds = {"": "", "_hindsight": ", had the drift been known"}
    return [
        Mark(
            f"{model}: median error of predicted {name}{words}",
            median(row[f"{name}_error{kind}"] for key, row in table.items() if key.startswith(f"{model}, load")),
            bound,
        )
        for model in models
        for name, bound in (("p50", 0.15), ("p95", 0.25))
        for kind, words in kinds.items()
    ]


def precision_marks(results: dict[str, Any]) -> list[Mark]:
    rows = results["precision"]["predictions"].values()
    errors = [abs(row["run_twice_error"]) for row in rows if "run_twice_error" in row]
    return [Mark("median error of a step's predicted seconds, run twice", median(errors), 0.15)] if errors else []


def memory_marks(results: dict[str, Any]) -> list[Mark]:
    errors = [abs(row["total_bytes"] / row["resident_bytes"] - 1) for row in results["memory"].values()]
    return [Mark("median error of a step's memory, against resident memory", median(errors), 0.05)]


def networks_marks(results: dict[str, Any]) -> list[Mark]:
    rows = results["networks"].values()
    return [Mark("networks that fit did not train for three steps", sum(row["steps"] != 3 for row in rows), 0),
            Mark("networks whose parameters layer_table does not count once",
                 sum(row["parameters_ratio"] != 1 for row in rows), 0),
            Mark("largest error of layer_table's operations, against PyTorch's counter",
                 max(abs(row["operations_ratio"] - 1) for row in rows), 0.01),
            Mark("largest error of estimate, against an independent count of the bytes alive",
                 max(abs(row["estimate_ratio"] - 1) for row in rows), 0.03)]


def ddp_marks(results: dict[str, Any]) -> list[Mark]:
    table = results["ddp"]
    own = table.get("ddp, shared memory, global batch 128", table["ddp, global batch 128"])
    peers = [name for name in ("Lightning", "accelerate") if f"loop of {name}" in table]
    return [
        Mark("two ranks of one thread / one process of two, global batch 128", own["ratio"], 1.0),
        Mark("averaging, of a step at global batch 128", own["averaging_ratio"], 0.10),
        *(
            Mark(f"{name} of two ranks / train_ddp's", table[f"loop of {name}"]["ratio"], 1.0, least=True)
            for name in peers
        ),
    ]


def parallelize_marks(results: dict[str, Any]) -> list[Mark]:
    table = results["parallelize"]
    ours = table["parallelize"]
    return [Mark("lines of a script that parallelize changes, how it is started included", ours["lines"] + 1, 3),
            Mark("largest difference of a weight from one process", ours["largest_difference"], 1e-6),
            Mark("step by parallelize / by the better of accelerate and Fabric",
                 ours["better_peer_ratio"], 1.02)]


def first_picture_marks(results: dict[str, Any]) -> list[Mark]:
    return [Mark(f"{lesson}: seconds from Start to the first picture", row["seconds"], 2.0)
            for lesson, row in results["first_picture"].items()]


def browser_marks(results: dict[str, Any]) -> list[Mark]:
    limits = {"matplotlib": 0.35, "SVG": 0.25}
    return [Mark(f"{panel} panel ({row['kind']}) / interact", row["ratio_to_interact"], limits[row["kind"]])
            for panel, row in results["browser"].items() if row["kind"] in limits]


def watching_marks(results: dict[str, Any]) -> list[Mark]:
    table, found = results["watching"], []
    for name in by_tool.BLOCKS:
        row, bare = table[f"{name}, {by_tool.OURS}"], table[f"{name}, bare"]
        found.append(Mark(f"microseconds that watch and all rules add to a {name}", row["median_added_us"],
                          max(20.0, 0.005 * bare["median_us"])))
        if "look_share" in row: found.append(Mark(f"a look, of 50 steps: {name}", row["look_share"], 0.05))
        found.append(Mark("other processes", row["other_processes"], 0))
    rows = results["faults, ours"].values()
    wrong = sum(row.get(part) is False for row in rows for part in ("verdict", "place", "milliseconds"))
    return [*found, Mark("verdicts, places and milliseconds of faults that are wrong or missing", wrong, 0),
            Mark("false alarms in healthy runs", sum(row.get("alarms", 0) for row in rows), 0)]


def watching_text(figures: dict[str, Any]) -> str:
    "Costs as a table, cases in lines."
    return by_tool.table(figures) if "slow read" in figures else table_of(figures)


def trace_marks(results: dict[str, Any]) -> list[Mark]:
    table, hta = results["trace"], ("HolisticTraceAnalysis",)
    unread = sum("error" in row for name, row in table.items() if name.endswith(", mlinfra"))
    found = [Mark("traces that ours does not read", unread, 0)]
    if both := traces.pairs(table, "seconds"):
        found.append(Mark("seconds that ours reads a trace / a peer, median", median(a / b for a, b in both), 1.0))
    for figure in ("busy", "overlap"):
        if both := traces.pairs(table, figure, hta):
            off = median(abs(a - b) for a, b in both)
            found.append(Mark(f"median difference from HolisticTraceAnalysis' share: {figure}", off, 0.02))
    return found


def saving_marks(results: dict[str, Any]) -> list[Mark]:
    found = [Mark(f"step with saving every 100 steps in the background / without, {name}", row["ratio"], 1.01)
             for name, row in results["saving"].items()]
    ratio = results["save"]["mlinfra"]["ratio"]
    return [*found, Mark("one save / the disk's own writing of the same bytes", ratio, 1.3)]


def faults_marks(results: dict[str, Any]) -> list[Mark]:
    ours = results["checkpoint faults by tool"]["mlinfra"]
    files = ("file cut in half", "file empty", "file missing", "one bit flipped", "killed in a save")
    good = ("newest is used", "older one is used", "told, older one is used")
    bad = sum(many for fault in files for words, many in ours[fault].items() if words not in good)
    later = [ours[fault] for fault in ("resumed in an epoch", "the same, with random data and dropout")]
    return [Mark("trainings that a damaged checkpoint or a kill in a save ended or misled", bad, 0),
            Mark("later losses that are not the uninterrupted training's",
                 sum(row["of"] - row["equal_losses"] for row in later), 0)]


def serving_marks(results: dict[str, Any]) -> list[Mark]:
    table, found = results["serving"], []
    for name in ("GluonCNN, 64 a request", "ResNet-18, small stem, 64 a request", "ResNet-18, small stem, 1 a request"):
        what = f"server / the model in a loop of 64, images/s: {name}"
        found.append(Mark(what, table[name]["ratio"], 0.8, least=True))
    for name, row in results["latencies"].items():
        if name.endswith(f"load {serving.LOAD:g}"):
            found += [Mark(f"p95 / its limit, {name}", row["p95_of_limit"], 1.0),
                      Mark(f"requests lost in the worst load, {name}", row["lost"], 0)]
    return found


def advice_marks(results: dict[str, Any]) -> list[Mark]:
    found = [Mark(f"error of the predicted gain, {name}", abs(row["error"]), 0.15)
             for name, row in results["gains"].items()]
    pages = results["page"]
    growth = pages["100000 steps"]["seconds"] / pages["10000 steps"]["seconds"]
    size = pages["100000 steps"]["bytes"] / pages["1000 steps"]["bytes"]
    return [*found, Mark("page on 100,000 steps / on 10,000, seconds", growth, 15),
            Mark("page on 100,000 steps / on 1,000, bytes", size, 1.5)]


def gpu_marks(results: dict[str, Any]) -> list[Mark]:
    ratio = results["gpu"]["fit_cuda_graph"]["naive_ratio"]
    return [Mark("naive loop / fit with CUDA graphs, wall", ratio, 20, least=True)]


def resnet50_marks(results: dict[str, Any]) -> list[Mark]:
    ratio = results["resnet50"]["fit, bf16"]["torchvision_ratio"]
    return [Mark("ResNet-50 in bf16: fit / torchvision in a bare loop, images/s", ratio, 0.9, least=True)]


# ---- the stages

STAGES = {stage.name: stage for stage in (
    Stage("epoch", {"epoch": stages.epoch}, epoch_marks),
    Stage("accuracy", {"accuracy": stages.accuracy, "selection": stages.selection}, accuracy_marks),
    Stage("threads", {"threads": threads.threads}, threads_marks),
    Stage("sweep", {"sweep": stages.sweep}, show=rows_by_workers),
    Stage("import", {"import": stages.imports}, import_marks, column_of),
    Stage("micro", {"micro": stages.micro}, micro_marks, column_of),
    Stage("decode", {"decode": decode.decode}, decode_marks),
    Stage("doctor", {"doctor": patients.doctor}, doctor_marks),
    Stage("inference", {"inference": inference.inference, "streams": inference.streams}, stream_marks),
    Stage("exporting", {"exporting": exporting.exporting}, exporting_marks),
    Stage("precision", {"precision": formats.precision}, precision_marks, tables_of),
    Stage("memory", {"memory": footprint.memory}, memory_marks),
    Stage("networks", {"networks": networks.networks}, networks_marks),
    Stage("allreduce", {"allreduce": parallel.allreduce}),
    Stage("ddp", {"ddp": parallel.ddp}, ddp_marks),
    Stage("parallelize", {"parallelize": few_lines.few_lines}, parallelize_marks),
    Stage("watching", {"watching": by_tool.costs, "faults, ours": by_tool.faults_of_ours,
                       "faults, TraceML": by_tool.faults_of_traceml, "faults, gpuprof": by_tool.faults_of_gpuprof},
          watching_marks, watching_text),
    Stage("trace", {"trace": traces.readers}, trace_marks, traces.table),
    Stage("saving", {"saving": saving.beside, "save": saving.one_save}, saving_marks),
    Stage("faults", {"checkpoint faults by tool": checkpoints.faults_by_tool}, faults_marks, checkpoints.table),
    Stage("serving", {"serving": serving.serving, "latencies": serving.latencies}, serving_marks),
    Stage("gains", {"gains": advice.gains, "page": advice.page}, advice_marks),
    Stage("browser", {"browser": browser.browser}, browser_marks),
    Stage("first_picture", {"first_picture": browser.first_picture}, first_picture_marks),
    Stage("gpu", {"gpu": gpu.gpu}, gpu_marks, with_gpu=True),
    Stage("resnet50", {"resnet50": formats.resnet50}, resnet50_marks, with_gpu=True),
)}


def marks(results: dict[str, Any]) -> list[Mark]:
    "Of the stages that have all their results."
    return [mark for stage in STAGES.values() if stage.parts.keys() <= results.keys() for mark in stage.marks(results)]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=STAGES,
        default=list(STAGES),
        metavar="STAGE",
        help=f"of {', '.join(STAGES)}; all unless told",
    )
    parser.add_argument("--rounds", type=int, default=3, help="of the contenders of `epoch` (default %(default)s)")
    parser.add_argument(
        "--iterations",
        type=int,
        default=FULL,
        help=f"of an epoch; fewer than {FULL} is a trial and keeps its figures apart",
    )
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
    chosen = [stage for name, stage in STAGES.items() if name in args.only]
    if (
        "micro" in args.only
        and "epoch" not in args.only
        and not load(STAGES["epoch"].file(args.iterations)).get("epoch")
    ):
        raise SystemExit("stage micro gives shares of the step that stage epoch measures: run --only epoch micro")
    for stage in chosen:
        print(f"\n-- {stage.name}", flush=True)
        path = stage.file(args.iterations)
        for found in stage.measure(args.rounds, args.iterations):  # a part that fails later costs no figures
            keep(path, with_shares(merged(load(path), found)))
    results: dict[str, Any] = {}
    for path in {stage.file(args.iterations): None for stage in STAGES.values()}: results |= load(path)
    for stage in chosen:
        for key in stage.parts.keys() & results.keys(): print(f"\n== {key}\n{stage.show(results[key])}")
    print("\n== marks")
    for mark in marks(results): print(mark)


if __name__ == "__main__": main()
