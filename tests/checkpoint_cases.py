"""Trainings that are killed, and the process that forks them: `python checkpoint_cases.py` reads a task a line, trains
in a child, and answers how the child ended. It has one thread, so it may fork."""
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset

from mlinfra.data import BatchLoader, Images
from mlinfra.engine.checkpoint.checkpoint_folder import CheckpointFolder, delete_partial
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.base.step_folders import step_folder, step_folders
from mlinfra.engine.checkpoint.checkpoint_files import RootLock, latest, read_state, verify
from mlinfra.engine.train.builtin_observers import EarlyStopping
from mlinfra.engine.checkpoint.state_trees import HostCopies, State, TreeEncoder
from mlinfra.training import fit

STEPS = 15  # of each case: 3 epochs of 5


def numbers(samples=40):
    source = torch.Generator().manual_seed(1)
    return torch.rand(samples, 6, generator=source), torch.randint(0, 3, (samples,), generator=source)


class Augmented(Dataset):
    "Draws from all three generators wherever it is loaded."
    def __init__(self, samples=40): self.x, self.y = numbers(samples)
    def __len__(self): return len(self.y)
    def __getitem__(self, i):
        noise = random.random() + np.random.rand() + float(torch.rand(()))
        return self.x[i] + noise, int(self.y[i])


class OwnNoise(Augmented):
    "Keeps a generator of its own."
    def __init__(self, samples=40):
        super().__init__(samples)
        self.source = np.random.default_rng(5)
    def __getitem__(self, i): return self.x[i] + np.float32(self.source.random()), int(self.y[i])


class Stream(IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        for x, y in zip(*(part[worker.id::worker.num_workers] for part in numbers())): yield x + random.random(), y


class Tied(nn.Module):
    "Shares a weight, and has a buffer that its state_dict leaves out."
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.b.weight = self.a.weight
        self.end = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()), persistent=False)
    def forward(self, x):
        self.calls += 1
        return self.end(self.b(self.a(x).relu())) * (1 + 0.01 * self.calls)


def mlp(): return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
def conv():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(),
                         nn.Linear(64, 3))
def momentum(model): return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
def in_memory(**how): return BatchLoader(TensorDataset(*numbers()), 8, shuffle=True, **how)
def tensors(**how): return DataLoader(TensorDataset(*numbers()), 8, shuffle=True, **how)
def augmented(**how): return DataLoader(Augmented(), 8, shuffle=True, **how)
def images():
    source = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8, generator=source)
    return BatchLoader(Images(pixels, torch.randint(0, 3, (40,), generator=source)), 8, shuffle=True, seed=3)
def huge(outputs, targets): return nn.functional.cross_entropy(outputs, targets) * 4  # overflows in fp16 at first
def replaced(): return RandomSampler(Augmented(), replacement=True, generator=torch.Generator().manual_seed(2))


def case(model=mlp, loader=in_memory, optimizer=momentum, scheduler=None, observers=(), **how):
    "The arguments of fit."
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = model()
    optimizer = optimizer(model)
    rates = dict(scheduler=scheduler(optimizer)) if scheduler else {}
    return dict(model=model, train=loader(), optimizer=optimizer, epochs=3, observers=[make() for make in observers],
                device="cpu", progress=False, keep_memory=False, **rates, **how)


rates = torch.optim.lr_scheduler
CASES = dict(
    momentum=lambda: case(),
    adam=lambda: case(optimizer=lambda m: torch.optim.AdamW(m.parameters(), 0.01, fused=True),
                      scheduler=lambda o: rates.OneCycleLR(o, 0.05, STEPS)),
    lambdas=lambda: case(scheduler=lambda o: rates.SequentialLR(o, [rates.LambdaLR(o, lambda n: 0.5 + n / 9),
                                                                    rates.CosineAnnealingLR(o, 9)], [4])),
    plateau=lambda: case(valid=TensorDataset(*numbers(16)), observers=[lambda: EarlyStopping(9)],
                         scheduler=lambda o: rates.ReduceLROnPlateau(o, patience=0, threshold=0.5)),
    accumulation=lambda: case(loader=lambda: BatchLoader(TensorDataset(*numbers(42)), 3, shuffle=True), accumulation=3),
    seeded=lambda: case(loader=lambda: in_memory(seed=4)),
    skipped=lambda: case(loader=lambda: tensors(num_workers=1)),
    subset=lambda: case(loader=lambda: DataLoader(Subset(TensorDataset(*numbers(99)), range(40)), 8, shuffle=True)),
    main=lambda: case(loader=augmented),
    own=lambda: case(loader=lambda: DataLoader(OwnNoise(), 8, shuffle=True)),
    workers=lambda: case(loader=lambda: augmented(num_workers=2)),
    persistent=lambda: case(loader=lambda: augmented(num_workers=2, persistent_workers=True)),
    replaced=lambda: case(loader=lambda: DataLoader(Augmented(), 8, sampler=replaced(), num_workers=1)),
    stream=lambda: case(loader=lambda: DataLoader(Stream(), 4, num_workers=2), accumulation=2),
    fp16=lambda: case(precision="fp16", loss_fn=huge),
    bf16=lambda: case(precision="bf16", optimizer=lambda m: torch.optim.Adam(m.parameters(), 0.01, amsgrad=True)),
    channels_last=lambda: case(conv, images, lambda m: torch.optim.Adam(m.parameters(), 0.01, fused=True)),
    tied=lambda: case(Tied),
    global_numpy=lambda: case(loss_fn=lambda o, t: nn.functional.cross_entropy(o, t) * (1 + np.random.rand())),
)


class Killer:
    "Ends the process as kill -9 does: after a step, or between backward and update."
    guard = True
    def __init__(self, at, where="on_step"): self.at, self.where = at, where
    def die(self, run, where):
        if (where, run.iteration) == (self.where, self.at): os.kill(os.getpid(), signal.SIGKILL)
    def on_step(self, run, step): self.die(run, "on_step")
    def on_backward(self, run): self.die(run, "on_backward")


def train(name, root=None, every=4, kill=None, where="on_step", threads=1, best=None, background=True):
    "One attempt; returns what the history has, each float as it is."
    torch.set_num_threads(threads)
    how = CASES[name]()
    keeper = [] if root is None else [Checkpointer(root, every, best=best, background=background)]
    killer = [] if kill is None else [Killer(kill, where)]
    history = fit(observers=[*keeper, *how.pop("observers"), *killer], **how)
    epochs = [[e.epoch, e.iterations, e.samples, e.loss.hex(), repr(e.valid_loss)] for e in history.epochs]
    return dict(losses=[s.loss.hex() for s in history.steps], iterations=[s.iteration for s in history.steps],
                samples=[s.samples for s in history.steps], epochs=epochs,
                weights=[p.double().sum().item().hex() for p in how["model"].state_dict().values()],
                resumed_from=keeper[0].resumed_from if keeper else None,
                left=sorted(step_folders(root)) if root else None)


def child(task):
    "In a process of its own: the answer, or how it ended. Its workers may live a little longer."
    answer = Path(tempfile.mkdtemp(), "answer.json")
    process = os.fork()
    if process == 0:
        try:
            answer.write_text(json.dumps(DO[task.pop("do", "train")](**task)))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(process, 0)
    try:
        if os.WIFSIGNALED(status): return dict(killed=os.WTERMSIG(status))
        return json.loads(answer.read_text()) if os.WEXITSTATUS(status) == 0 else dict(failed=os.WEXITSTATUS(status))
    finally: shutil.rmtree(answer.parent)


# ---- a save that is killed at each of its calls

def small_state(step):
    "A state that tells its step in every part."
    weights = dict(w=torch.full((3, 4), float(step)), b=torch.full((2,), float(step)))
    part = dict(state={0: dict(step=torch.tensor(float(step)))}, groups=[dict(lr=0.1, params=[0])])
    history = dict(columns=["loss"], steps=torch.full((step, 1), float(step)), epochs=[], remarks=[f"step {step}"])
    identity = dict(run="a", config={}, best=None)
    return State(step, 0, dict(model=dict(weights=weights, buffers={}), optimizer=part, history=history,
                               identity=identity))


def is_step(root, step):
    "Whether the checkpoint of a step holds exactly what was saved."
    found, wanted = read_state(step_folder(root, step)), small_state(step)
    kept, tensors = TreeEncoder(), TreeEncoder()
    texts = [json.dumps(e.tree(s.parts, ""), sort_keys=True) for e, s in ((kept, found), (tensors, wanted))]
    return texts[0] == texts[1] and found.step == step and all(
        torch.equal(kept.tensors[file][name], tensor) for file, named in tensors.tensors.items()
        for name, tensor in named.items())


def save_step(root, step, keep=2):
    "What the checkpointer's thread does."
    folder = CheckpointFolder(root, keep)
    folder.save(small_state(step), HostCopies(), background=False)
    if folder.failure: raise folder.failure[1]


def killed_at(call, root, step):
    "Save under a hook that ends the process before its so-many-th call of the system; how many there were."
    count = 0

    def hook(_frame, event, function):
        nonlocal count
        if event != "c_call": return
        own = getattr(function, "__self__", None)
        counts = getattr(function, "__module__", None) in ("posix", "_io", "io", "fcntl") or isinstance(own, io.FileIO)
        count += counts
        if not counts: return
        if count == call: os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(hook)
    try: save_step(root, step)
    finally: sys.setprofile(None)
    return count


def kill_everywhere(root):
    "Kill a save before each of its calls, and look each time at what is left."
    root, found = Path(root), dict(old=0, new=0, wrong=[])
    root.mkdir(parents=True, exist_ok=True)
    for step in (1, 2): save_step(root, step)
    calls = child(dict(do="killed_at", call=0, root=str(shutil.copytree(root, root.parent / "dry")), step=3))
    for call in range(1, calls + 1):
        place = shutil.copytree(root, root.parent / f"call-{call}")
        ended = child(dict(do="killed_at", call=call, root=str(place), step=3))
        newest = latest(place)
        wrong = ended != dict(killed=signal.SIGKILL) or newest is None or newest.step not in (2, 3)
        wrong = wrong or not is_step(place, newest.step) or not verify(place).good.all()
        found["new" if newest is not None and newest.step == 3 else "old"] += 1
        delete_partial(place)
        if newest is not None and newest.step == 2: save_step(place, 3)
        save_step(place, 4)
        left = sorted(path.name for path in place.iterdir())
        if wrong or left != ["step-00000003", "step-00000004"] or not is_step(place, 4): found["wrong"].append(call)
        shutil.rmtree(place)
    return dict(found, calls=calls)


def hold_lock(root):
    "Lock a root and be killed; a process forked before, such as a loader's worker, lives on."
    RootLock(root)
    if child := os.fork(): Path(root, "worker").write_text(str(child))
    else:
        while True: signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)


DO = dict(train=train, killed_at=killed_at, kill_everywhere=kill_everywhere, hold_lock=hold_lock)


def main():
    train("plateau")  # what is imported late is imported once
    for line in sys.stdin: print(json.dumps(child(json.loads(line))), flush=True)


if __name__ == "__main__": main()
