"""Trainings that save and resume with one tool, each as the tool's own documentation says, each in a forked process.

    python keepers.py TOOL

Each line that it reads is a list of tasks, each line that it writes their results. A task is a training (see `Task`);
a result holds the losses as exact numbers, what was loaded, and what was raised.
"""
import contextlib
import ctypes
import hashlib
import json
import os
import random
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Task:
    "A training, and what happens to it."
    folder: str
    steps: int = 30           # in all
    every: int = 10           # steps between saves
    hidden: int = 64          # width of the model
    samples: int = 160        # of an epoch, in batches of 8
    workers: int = 0          # of the loader
    shuffle: bool = False     # a new order in each epoch
    random_data: bool = False # the data draw random numbers, and the model has dropout
    resume: bool = False      # from what is in the folder
    change: str = ""          # of the model: "wider", "layer more", "layer less", "other names"
    unsavable: bool = False   # the state holds a lock
    metrics: list[float] | None = None  # of each epoch; the best is kept
    full_bytes: int = 0       # size of the disk it saves to; the training is resumed there, too
    kill: float | None = None # in the last save, at this share of its seconds


@dataclass
class Told:
    "What happened."
    losses: dict[str, str] = field(default_factory=dict)     # step -> its loss, exactly
    seen: dict[str, list[int]] = field(default_factory=dict) # step -> its samples
    saved: dict[str, str] = field(default_factory=dict)      # step -> sum of what was saved
    resumed_from: int | None = None
    resumed_sum: str = ""
    error: str = ""
    place: str = ""           # "start", "save", "load" or "step"
    words: list[str] = field(default_factory=list)  # warnings and remarks
    best: str = ""
    seconds: list[float] = field(default_factory=list)  # of each save
    again: dict | None = None # of the second training on a full disk


class Digits(Dataset):
    "Numbers that depend on the index; with `noise` also on the random state of the worker."
    def __init__(self, task: Task):
        draw = torch.Generator().manual_seed(1)
        self.x, self.noise = torch.randn(task.samples, 32, generator=draw), task.random_data
        self.y = torch.randint(8, (task.samples,), generator=draw)

    def __len__(self) -> int: return len(self.x)

    def __getitem__(self, i: int) -> tuple:
        x = self.x[i]
        if self.noise: x = x + 0.1 * torch.randn(32) + 0.1 * random.random() + 0.1 * float(np.random.rand())
        return x, self.y[i], i


def seed_worker(_worker: int) -> None:
    "NumPy's state in a worker, as PyTorch's notes on reproducibility say."
    np.random.seed(torch.initial_seed() % 2**32)


def make_model(task: Task) -> nn.Module:
    hidden = task.hidden + 16 * (task.change == "wider")
    layers: dict[str, nn.Module] = {"first": nn.Linear(32, hidden), "relu": nn.ReLU()}
    if task.random_data: layers["drop"] = nn.Dropout(0.1)
    if task.change == "layer more": layers["more"] = nn.Linear(hidden, hidden)
    layers["third" if task.change == "other names" else "second"] = nn.Linear(hidden, 8)
    if task.change == "layer less":
        del layers["first"]
        layers["second"] = nn.Linear(32, 8)
    return nn.Sequential(__import__("collections").OrderedDict(layers))


def state_sum(model: nn.Module, optimizer: Any, step: int) -> str:
    "A sum over weights, the optimizer's tensors and the step."
    total = hashlib.sha256(str(step).encode())
    for name, tensor in model.state_dict().items(): total.update(name.encode() + tensor.numpy().tobytes())
    for own in optimizer.state_dict()["state"].values():
        for name, value in sorted(own.items()):
            total.update(name.encode() + torch.as_tensor(value, dtype=torch.float32).numpy().tobytes())
    return total.hexdigest()[:16]


class Training:
    "What all tools train: a model, an optimizer, a loader, and where it has come to."
    def __init__(self, task: Task, told: Told, announce: Callable[[str], None]):
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        self.task, self.told, self.announce = task, told, announce
        self.model = make_model(task)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        own = torch.Generator().manual_seed(5) if not task.shuffle else None
        self.loader = DataLoader(Digits(task), 8, shuffle=task.shuffle, num_workers=task.workers, generator=own,
                                 worker_init_fn=seed_worker)
        self.step, self.extra = 0, {"lock": threading.Lock()} if task.unsavable else {}

    def update(self, batch: Any, backward: Callable[[torch.Tensor], Any] | None = None) -> None:
        "One step, recorded."
        x, y, ids = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        (backward or torch.Tensor.backward)(loss)
        self.optimizer.step()
        self.step += 1
        self.record(loss.item(), ids.tolist())

    def record(self, loss: float, ids: list[int]) -> None:
        self.told.losses[str(self.step)], self.told.seen[str(self.step)] = loss.hex(), ids

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        "Around a save: the sum of what is saved, its seconds, and a word to the one who may kill."
        self.told.place = "save"
        found = state_sum(self.model, self.optimizer, self.step)
        last = self.step >= self.task.steps
        start = time.perf_counter()
        if last: self.announce("s")
        yield
        self.told.seconds.append(time.perf_counter() - start)
        if last: self.announce("e")
        self.told.saved[str(self.step)] = found
        self.told.place = "step"

    def resumed(self) -> None:
        self.told.resumed_from = self.step
        self.told.resumed_sum = state_sum(self.model, self.optimizer, self.step)
        self.told.place = "step"


def newest(folder: str, pattern: str) -> Path | None:
    "By the number in the name, as one does by hand."
    found = sorted(Path(folder).glob(pattern), key=lambda path: int(path.stem.split("-")[-1]))
    return found[-1] if found else None


def plain_loop(t: Training, save: Callable[[], None]) -> None:
    "Epochs; after a load the epoch begins anew, as in the tutorials."
    while t.step < t.task.steps:
        for batch in t.loader:
            t.update(batch)
            if t.step % t.task.every == 0: save()
            if t.step >= t.task.steps: return


# ---- the tools

def torch_save(t: Training) -> None:
    "PyTorch's recipe for a general checkpoint: model, optimizer, epoch."
    path = newest(t.task.folder, "step-*.pt") if t.task.resume else None
    if path is not None:
        held = torch.load(path)
        t.model.load_state_dict(held["model"])
        t.optimizer.load_state_dict(held["optimizer"])
        t.step = held["step"]
        t.resumed()

    def save() -> None:
        with t.saving():
            held = dict(model=t.model.state_dict(), optimizer=t.optimizer.state_dict(), step=t.step, **t.extra)
            torch.save(held, Path(t.task.folder, f"step-{t.step}.pt"))

    plain_loop(t, save)


def dcp(t: Training) -> None:
    "torch.distributed.checkpoint with get_state_dict and set_state_dict, as in its tutorial."
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def parts() -> dict[str, Any]:
        model, optimizer = get_state_dict(t.model, t.optimizer)
        return dict(model=model, optimizer=optimizer, step=t.step, **t.extra)

    path = newest(t.task.folder, "step-*") if t.task.resume else None
    if path is not None:
        held = parts()
        dcp.load(held, checkpoint_id=path)
        set_state_dict(t.model, t.optimizer, model_state_dict=held["model"], optim_state_dict=held["optimizer"])
        t.step = held["step"]
        t.resumed()

    def save() -> None:
        with t.saving(): dcp.save(parts(), checkpoint_id=Path(t.task.folder, f"step-{t.step}"))

    plain_loop(t, save)


def torchsnapshot(t: Training) -> None:
    "app_state with the random state, as in its documentation."
    from torchsnapshot import RNGState, Snapshot, StateDict
    progress = StateDict(step=0, **t.extra)
    app = dict(model=t.model, optim=t.optimizer, progress=progress, rng_state=RNGState())
    path = newest(t.task.folder, "step-*") if t.task.resume else None
    if path is not None:
        Snapshot(str(path)).restore(app)
        t.step = progress["step"]
        t.resumed()

    def save() -> None:
        progress["step"] = t.step
        with t.saving(): Snapshot.take(str(Path(t.task.folder, f"step-{t.step}")), app)

    plain_loop(t, save)


class Counter:
    "What accelerate keeps beside its own."
    def __init__(self, extra: dict): self.step, self.extra = 0, extra
    def state_dict(self) -> dict: return dict(step=self.step, **self.extra)
    def load_state_dict(self, held: dict) -> None: self.step = held["step"]


def accelerate(t: Training) -> None:
    "save_state and load_state with automatic names, and skip_first_batches, as in its guide."
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration
    own = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
                      project_config=ProjectConfiguration(t.task.folder, automatic_checkpoint_naming=True))
    t.model, t.optimizer, t.loader = own.prepare(t.model, t.optimizer, t.loader)
    counter = Counter(t.extra)
    own.register_for_checkpointing(counter)
    if t.task.resume and Path(t.task.folder, "checkpoints").exists():
        own.load_state()
        t.step = counter.step
        t.resumed()

    def save() -> None:
        counter.step = t.step
        with t.saving(): own.save_state()

    size, whole = len(t.loader), t.loader
    for epoch in range(t.step // size, 1 + (t.task.steps - 1) // size):
        whole.set_epoch(epoch)
        begun = t.step % size
        for batch in own.skip_first_batches(whole, begun) if begun else whole:
            t.update(batch, own.backward)
            if t.step % t.task.every == 0: save()
            if t.step >= t.task.steps: return


def lightning(t: Training) -> None:
    "Trainer and ModelCheckpoint; resumed by ckpt_path."
    import lightning as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = t.model

        def training_step(self, batch: Any, _i: int) -> torch.Tensor:
            x, y, self.ids = batch
            self.loss = nn.functional.cross_entropy(self.net(x), y)
            return self.loss

        def configure_optimizers(self) -> Any: return t.optimizer

        def on_save_checkpoint(self, held: dict) -> None: held.update(t.extra)

        def on_train_epoch_end(self) -> None:
            if t.task.metrics is not None: self.log("valid_loss", t.task.metrics[self.current_epoch])

    class Watch(pl.Callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            if path is None: return
            t.step = trainer.global_step
            t.resumed()

        def on_train_batch_end(self, trainer: Any, module: Any, *_rest: Any) -> None:
            t.step = trainer.global_step
            t.record(module.loss.item(), module.ids.tolist())

    class Announced(ModelCheckpoint):
        def _save_checkpoint(self, trainer: Any, path: str) -> None:
            with t.saving(): super()._save_checkpoint(trainer, path)

    if t.task.metrics is None:
        keeper = Announced(t.task.folder, "step-{step}", every_n_train_steps=t.task.every, save_top_k=-1,
                           auto_insert_metric_name=False)
    else: keeper = Announced(t.task.folder, "best-{epoch}", monitor="valid_loss", mode="min", save_top_k=1)
    path = newest(t.task.folder, "step-*.ckpt") if t.task.resume else None
    epochs = len(t.task.metrics) if t.task.metrics is not None else -1
    trainer = pl.Trainer(max_steps=-1 if t.task.metrics is not None else t.task.steps, max_epochs=epochs,
                         accelerator="cpu", callbacks=[Watch(), keeper], logger=False, barebones=False,
                         enable_progress_bar=False, enable_model_summary=False, default_root_dir=t.task.folder)
    trainer.fit(Module(), t.loader, ckpt_path=path)
    t.told.best = Path(keeper.best_model_path).name


def mlinfra(t: Training) -> None:
    "Checkpointer, an observer of fit."
    from mlinfra.checkpoint import Checkpointer
    from mlinfra.training import fit
    ids: list[list[int]] = []

    class Kept(Checkpointer):
        def on_start(self, run: Any) -> None:
            super().on_start(run)
            t.step = run.iteration
            if self.resumed_from is not None: t.resumed()
            t.told.place = "step"

        def on_step(self, run: Any, step: Any) -> None:
            t.step = step.iteration + 1
            t.record(step.loss, ids[-1])
            if t.step >= t.task.steps and t.task.metrics is None: run.stop()  # else it ends by itself, evaluated

        def on_boundary(self, run: Any) -> None:
            if t.step % t.task.every or not t.step: return super().on_boundary(run)
            with t.saving(): super().on_boundary(run)

    def step(model: nn.Module, batch: Any) -> torch.Tensor:
        x, y, own = batch
        ids.append(own.tolist())
        return nn.functional.cross_entropy(model(x), y)

    figures = iter([0.0, *(t.task.metrics or ())])  # fit tries the metric once
    keeper = Kept(t.task.folder, t.task.every, keep=10 if t.task.metrics is None else 1, background=False,
                  best=None if t.task.metrics is None else "metric", resume=t.task.resume, config=t.extra or None)
    judged = {} if t.task.metrics is None else dict(valid=[next(iter(t.loader))], metric=lambda *_: next(figures))
    history = fit(t.model, t.loader, step=step, optimizer=t.optimizer, epochs=-(-t.task.steps // len(t.loader)),
                  observers=[keeper], device="cpu", progress=False, keep_memory=False, **judged)
    t.told.words += history.remarks
    if keeper.best is not None: t.told.best = f"best-epoch={keeper.best.step // len(t.loader) - 1}"


TOOLS = {"torch.save": torch_save, "DCP": dcp, "Lightning": lightning, "accelerate": accelerate,
         "torchsnapshot": torchsnapshot, "mlinfra": mlinfra}


# ---- one task in a fork

def attempt(tool: str, task: Task, announce: Callable[[str], None] = lambda word: None) -> Told:
    "Train, and say how it went."
    told = Told(place="load" if task.resume else "start")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try: TOOLS[tool](Training(task, told, announce))
        except BaseException as error:  # whatever it is, it is what the tool says
            told.error = f"{type(error).__name__}: {error}"[:4000]
            if os.environ.get("KEEPERS_TRACE"): traceback.print_exc()
        told.words += [f"{w.category.__name__}: {w.message}"[:300] for w in heard
                       if w.category not in (FutureWarning, DeprecationWarning)]
    return told


def forked(tool: str, task: Task) -> dict:
    "The same in a process of its own, which may be killed in its last save."
    reading, writing = os.pipe()
    answer = Path(task.folder).with_suffix(".json")
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        if task.full_bytes: result = on_a_small_disk(tool, task)
        else: result = asdict(attempt(tool, task, lambda word: os.write(writing, word.encode())))
        answer.write_text(json.dumps(result))
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    if task.kill is not None: kill_in_save(child, reading, task.kill)
    _, status = os.waitpid(child, 0)
    os.close(reading)
    if answer.exists(): return json.loads(answer.read_text())
    return asdict(Told(error=f"ended by signal {status & 127}" if status & 127 else f"status {status >> 8}"))


def kill_in_save(child: int, line: int, seconds: float) -> None:
    "Wait for the last save, and this many seconds more."
    if os.read(line, 1) != b"s": return
    select.select([line], [], [], seconds)
    os.kill(child, signal.SIGKILL)


def on_a_small_disk(tool: str, task: Task) -> dict:
    "Train on a file system of the given size, and resume there."
    libc = ctypes.CDLL(None, use_errno=True)
    Path(task.folder).mkdir(parents=True, exist_ok=True)
    flags = 0x00020000 | (0x10000000 if os.getuid() else 0)  # a mount namespace, and one of users
    if libc.unshare(flags) or libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None) or libc.mount(
            b"none", task.folder.encode(), b"tmpfs", 0, f"size={task.full_bytes}".encode()):
        return asdict(Told(error=f"no small disk: {os.strerror(ctypes.get_errno())}", place="disk"))
    size, task.full_bytes = task.full_bytes, 0
    first = forked(tool, task)
    again = Task(**asdict(task) | dict(resume=True, steps=task.steps))
    libc.mount(b"none", task.folder.encode(), None, 1 << 5, f"size={4 * size}".encode())  # there is room again
    return first | dict(again=forked(tool, again))


def main() -> None:
    tool = sys.argv[1]
    torch.set_num_threads(1)
    imports = {"Lightning": "lightning", "accelerate": "accelerate", "torchsnapshot": "torchsnapshot",
               "DCP": "torch.distributed.checkpoint.state_dict", "mlinfra": "mlinfra.checkpoint"}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tools print is not an answer
    if tool in imports: __import__(imports[tool])
    for line in sys.stdin:
        found = [forked(tool, Task(**task)) for task in json.loads(line)]
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__": main()
