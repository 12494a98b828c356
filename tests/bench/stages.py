"""The stages that need no browser. Each returns what the results' file keeps under its name."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from contenders import BATCH, CONTENDERS, RATE
from peers import MXNET, PEERS, ROOT

HERE = Path(__file__).resolve().parent
FULL = 938  # iterations of batch 64 in an epoch of MNIST


def first(data: Any, iterations: int) -> Any:
    "As many images as that many iterations take."
    from mlinfra.data import Images
    return Images(data.images[:BATCH * iterations], data.labels[:BATCH * iterations])


def spread(ratios: list[float], name: str = "") -> dict[str, float]:
    "The median, the least and the greatest of the rounds."
    from mlinfra.engine.base.sample_statistics import median
    return {f"{name}ratio": median(ratios), f"{name}low": min(ratios), f"{name}high": max(ratios)}


# ---- epoch

def epoch(rounds: int, iterations: int) -> dict[str, Any]:
    "Every contender in turn, round after round; ratios to the floor of the same round."
    environments = {peer for peer in PEERS.values() if peer.make()}
    names = [name for name in CONTENDERS if name not in PEERS or PEERS[name] in environments]
    with tempfile.TemporaryDirectory() as folder:
        root = raw_files(Path(folder))
        table = [{name: run_contender(name, root, iterations) for name in names} for _ in range(rounds)]
    kept = [name for name in names if all(times[name] for times in table)]
    if "floor" not in kept: raise RuntimeError("the floor did not run: there is nothing to compare with")
    return {name: compare([times[name] for times in table], [times["floor"] for times in table]) for name in kept}


def raw_files(folder: Path) -> Path:
    "A root such as torchvision uses, linked to our unpacked files."
    from mlinfra.data import mnist
    from mlinfra.engine.loading.idx_files import MD5
    from mlinfra.engine.base.store import cache_dir
    mnist(train=True), mnist(train=False)  # unpacks them
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in MD5: (raw / name).symlink_to(cache_dir() / "mnist" / name)
    return folder


def run_contender(name: str, root: Path, iterations: int) -> dict[str, float] | None:
    "Its times, or None and a line of why."
    from mlinfra.engine.base.machine import usable_cores
    python = PEERS[name].python if name in PEERS else sys.executable
    # the same cores for all, and no allocator settings but those that a contender makes itself
    env = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    env["PYTHONPATH"] = str(ROOT)
    # MXNet runs as the source did, without it: its engine has threads of its own, and OpenMP's get in their way
    if PEERS.get(name) is not MXNET: env["OMP_NUM_THREADS"] = str(usable_cores())
    command = [python, str(HERE / "contenders.py"), name, str(root), str(iterations), str(usable_cores())]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=root)
    if done.returncode == 0:
        times = json.loads(done.stdout.splitlines()[-1])
        print(f"  {name:28} {times['wall']:7.2f} s wall {times['cpu']:7.2f} s CPU", flush=True)
        return times
    print(f"  {name} left out: {' '.join(done.stderr.strip().splitlines()[-1:])}", flush=True)
    return None


def compare(own: list[dict[str, float]], floor: list[dict[str, float]]) -> dict[str, float]:
    "Ratios round by round; medians of everything else that was measured."
    from mlinfra.engine.base.sample_statistics import median
    row: dict[str, float] = {}
    for kind in ("wall", "cpu"): row |= spread([mine[kind] / its[kind] for mine, its in zip(own, floor)], f"{kind}_")
    names = {"wall": "wall_seconds", "cpu": "cpu_seconds"}
    return row | {names.get(key, key): median(times[key] for times in own) for key in own[0]}


# ---- accuracy

SEEDS = 5


def train_once(train: Any, test: Any, seed: int, epochs: int, optimizers: Callable) -> float:
    "Accuracy of one run; `optimizers` takes model and iterations and returns optimizer and scheduler."
    import torch
    from mlinfra.data import BatchLoader
    from mlinfra.models import GluonCNN
    from mlinfra.training import evaluate, fit
    torch.manual_seed(seed)
    model, loader = GluonCNN(), BatchLoader(train, BATCH, shuffle=True, seed=seed)
    optimizer, scheduler = optimizers(model, epochs * len(loader))
    fit(model, loader, epochs=epochs, optimizer=optimizer, scheduler=scheduler, progress=False)
    return evaluate(model, test)


def as_published(model: Any, iterations: int) -> tuple[Any, None]:
    from mlinfra.training import sgd
    return sgd(model, RATE), None


def ours(model: Any, iterations: int) -> tuple[Any, Any]:
    from mlinfra.training import recipe
    return recipe(model, iterations)


def adamw(lr: float) -> Callable:
    "Our recipe at another learning rate."
    from mlinfra.training import recipe
    return lambda model, iterations: recipe(model, iterations, lr)


def with_momentum(model: Any, iterations: int) -> tuple[Any, Any]:
    "SGD with momentum under the schedule of our recipe."
    import torch
    from mlinfra.training import recipe, sgd
    factor = recipe(model, iterations)[1].lr_lambdas[0]
    optimizer = sgd(model, RATE, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def accuracy(rounds: int, iterations: int) -> dict[str, Any]:
    "Test accuracy of three recipes, over seeds."
    from mlinfra.data import mnist
    train, test, table = first(mnist(), iterations), first(mnist(train=False), iterations), {}
    for name, epochs, optimizers in (
        ("source: SGD 0.1, 1 epoch", 1, as_published),
        ("recipe(), 1 epoch", 1, ours),
        ("recipe(), 2 epochs", 2, ours),
    ):
        found = [train_once(train, test, seed, epochs, optimizers) for seed in range(SEEDS)]
        table[name] = dict(epochs=epochs, seeds=SEEDS, mean=sum(found) / SEEDS, min=min(found), max=max(found))
        print(f"  {name:28} {min(found):.2%} to {max(found):.2%}", flush=True)
    return table


def selection(rounds: int, iterations: int) -> dict[str, Any]:
    "How the one-epoch recipe was chosen: on validation images that it never trained on, without the test set."
    from mlinfra.data import mnist, split
    data, seeds, table = first(mnist(), iterations), 2, {}
    train, valid = split(data, len(data) // 6)
    candidates = {"SGD 0.1, momentum 0.9": with_momentum} | {f"AdamW {lr:g}": adamw(lr) for lr in (1e-3, 3e-3, 1e-2)}
    for name, optimizers in candidates.items():
        found = [train_once(train, valid, seed, 1, optimizers) for seed in range(seeds)]
        table[name] = dict(seeds=seeds, mean=sum(found) / seeds, min=min(found), max=max(found))
        print(f"  {name:28} {min(found):.2%} to {max(found):.2%} on {len(valid):,} validation images", flush=True)
    return table


# ---- sweep

def sweep(rounds: int, iterations: int) -> list[dict[str, Any]]:
    "The 2018 experiment on all images: its rows, with what the curve of 0 and 2 workers predicts; prints the verdict."
    from mlinfra.data import mnist, sample_to_float
    from mlinfra.engine.base.machine import usable_cores
    from mlinfra.workers import fit_curve, sweep_workers, verdict
    train, test = (first(mnist(train=part), iterations) for part in (True, False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the rows' notes say what is beyond the cores
        frame = sweep_workers(
            train, (0, 2, 4, 6, 8), BATCH, test=test, transform=sample_to_float, repeats=1, progress=False
        )
    curve = fit_curve(frame[frame.workers.isin([0, 2])], usable_cores())
    frame["predicted_seconds"] = [curve.train_seconds(n) for n in frame.workers]
    print(verdict(frame, curve), flush=True)
    return json.loads(frame.to_json(orient="records", double_precision=9))


# ---- import

IMPORTED, IMPORTS = ("mlinfra", "mlinfra.training", "mlinfra.workers"), 5  # modules, and how often at least


def imports(rounds: int, iterations: int) -> dict[str, float]:
    "Seconds that each import adds to `import torch`: medians over fresh processes, in turn."
    from mlinfra.engine.base.sample_statistics import median
    found: dict[str, list[float]] = {module: [] for module in IMPORTED}
    for i in range(1 + max(rounds, IMPORTS)):
        for module in IMPORTED:
            seconds = import_seconds(module)
            if i > 0: found[module].append(seconds)  # the first round fills the caches
    return {module: median(seconds) for module, seconds in found.items()}


def import_seconds(module: str) -> float:
    "In a process of its own."
    code = f"import time, torch; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return float(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    )


# ---- micro

def micro(rounds: int, iterations: int) -> dict[str, float]:
    """Seconds that timing and reporting add to a step: repeated in a loop, and between real steps.
    After some milliseconds of other work the same lines take ten times as long, for they are in no cache any more."""
    work, pace = real_step()
    return in_a_loop(pace) | {f"in_training_{name}": seconds for name, seconds in in_training(iterations, work).items()}


def real_step() -> tuple[Callable[[], None], float]:
    "A function that computes what a step computes, and its seconds."
    import torch
    from mlinfra.data import BatchLoader, mnist, to_float
    from mlinfra.models import GluonCNN
    from mlinfra.engine.train.allocator import keep_memory
    from mlinfra.engine.base.sample_statistics import median
    from mlinfra.engine.base.timing import interleave
    keep_memory()
    model, (x, y) = GluonCNN().to(memory_format=torch.channels_last), next(iter(BatchLoader(mnist(), BATCH)))
    work = lambda: torch.nn.functional.cross_entropy(
        model(to_float(x).contiguous(memory_format=torch.channels_last)), y
    ).backward()
    return work, median(interleave({"step": work}, 20)["step"])


class Bookkeeping:
    "What `fit` does beside computing, with a bar and no other observer."
    def __init__(self, iterations: int):
        import torch
        from mlinfra.engine.train.step_clock import HostClock
        from mlinfra.engine.train.builtin_observers import ProgressBar
        from mlinfra.engine.train.observers import Observers
        from mlinfra.training import PHASES, History
        self.clock, self.observers, self.history = HostClock(PHASES), Observers([], []), History()
        self.bar, self.loss = ProgressBar(), torch.tensor(0.5)
        self.run = SimpleNamespace(iterations=iterations, begun=0)

    def phases(self) -> None:
        "The laps of a step, its record, and the telling."
        from mlinfra.training import Step
        self.clock.start()
        for phase in ("wait", "copy", "forward", "backward", "update"): self.clock.lap(phase)
        self.clock.finish((0, len(self.history.steps), BATCH), self.loss)
        for reading in self.clock.ready():
            step = Step(*reading.what, reading.loss, **reading.seconds)
            self.history.steps.append(step)
            self.observers.tell("on_step", self.run, step)

    def progress(self) -> None: self.bar.on_step(self.run, self.history.steps[-1])

    def redraw(self) -> None: self.bar.bar.set_postfix(loss=f"{self.loss.item():.3f}")

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        "An open bar; what a terminal takes to show it is the terminal's."
        with open(os.devnull, "w") as null, contextlib.redirect_stderr(null):
            self.bar.on_start(self.run)
            yield
            self.bar.on_end(self.run)


def in_a_loop(pace: float, times: int = 10_000) -> dict[str, float]:
    "Mean seconds when repeated; the bar redraws by the clock, so a step of `pace` seconds bears a part of a redraw."
    books = Bookkeeping(2 * times)
    def mean(action: Callable[[], None]) -> float:
        start = time.perf_counter()
        for _ in range(times): action()
        return (time.perf_counter() - start) / times
    with books.shown():
        redraw = mean(books.redraw) * min(1.0, pace / books.bar.bar.mininterval)
        return dict(phases_seconds=mean(books.phases), progress_seconds=mean(books.progress) + redraw)


def in_training(iterations: int, work: Callable[[], None]) -> dict[str, float]:
    "Mean seconds between real steps."
    books, spent = Bookkeeping(iterations), []
    with books.shown():
        for _ in range(iterations):
            work()
            start = time.perf_counter()
            books.phases()
            middle = time.perf_counter()
            books.progress()
            spent.append((middle - start, time.perf_counter() - middle))
    return dict(zip(("phases_seconds", "progress_seconds"), (sum(column) / iterations for column in zip(*spent))))
