"""Twenty pipelines whose ailment is known because they were built with it: stage `doctor` asks whether the doctor finds it.

Simulated hardware is only what this machine lacks: a slow store, a slow bus. Everything else really reads and computes.
"""
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from mlinfra.data import BatchLoader, PerSample, mnist, to_float
from mlinfra.engine.crops import RandomCropFlip
from mlinfra.engine.jpegs import JpegFolder, make_jpegs
from mlinfra.engine.loaders import identity
from mlinfra.engine.patients import Fetching, Patient, SlowBus, SlowCollate, slow_read
from mlinfra.engine.sweeps import Blur
from mlinfra.models import GluonCNN, resnet18


@cache
def photos() -> Path:
    "Small photographs in a folder that lives as long as the process."
    photos.folder = tempfile.TemporaryDirectory(prefix="mlinfra-patients-")
    return make_jpegs(Path(photos.folder.name, "photos"), 256, size=(256, 192), progress=False)


def digits(count: int = 4_000) -> PerSample: return PerSample(Subset(mnist(), range(count)))
def blurred(times: int) -> PerSample: return PerSample(Subset(mnist(), range(4_000)), Blur(times))
def linear() -> nn.Module: return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
def small_net() -> nn.Module: return nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
def wide() -> nn.Module: return nn.Sequential(nn.Flatten(), nn.Linear(784, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU(), nn.Linear(3000, 10))


class Tokens(Dataset):
    "Sequences of numbers that are parsed from text for every sample, as many a data set does it."
    def __init__(self, count: int, length: int, transform: Callable[[str], torch.Tensor]):
        self.lines, self.transform = [" ".join(str((i * 31 + j * 7) % 1000) for j in range(length)) for i in range(count)], transform

    def __len__(self) -> int: return len(self.lines)
    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]: return self.transform(self.lines[i]), i % 10


def parse(line: str) -> torch.Tensor: return torch.tensor([float(word) for word in line.split()])
def torchvision_folder(side: int) -> Dataset:
    from torchvision import transforms as t
    from torchvision.datasets import ImageFolder
    usual = t.Compose([t.RandomResizedCrop(side), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    return ImageFolder(photos(), usual)


def slow_folder(seconds: float, side: int = 64) -> JpegFolder: return JpegFolder(photos(), RandomCropFlip(side), read=slow_read(seconds))
def load(dataset: Any, batch: int = 32, **how: Any) -> DataLoader: return DataLoader(dataset, batch, shuffle=True, **how)


TWENTY = {  # name -> a pipeline and its ailment
    "storage: digits from a slow store": Patient("storage", lambda: (GluonCNN(), load(Fetching(digits(), slow_read(3e-3, identity))))),
    "storage: JPEGs from a slow store": Patient("storage", lambda: (small_net(), load(slow_folder(8e-3)))),
    "storage: the same, two workers": Patient("storage", lambda: (small_net(), load(slow_folder(12e-3), num_workers=2))),
    "storage: a subset of a slow folder": Patient("storage", lambda: (small_net(), load(Subset(slow_folder(8e-3), range(200)), 16))),
    "storage: named by the user": Patient("storage", lambda: (linear(), load(Fetching(digits(), slow_read(2e-3, identity)))), dict(read="read")),
    "preprocessing: blurs": Patient("preprocessing", lambda: (GluonCNN(), load(blurred(200)))),
    "preprocessing: blurs, two workers": Patient("preprocessing", lambda: (linear(), load(blurred(150), num_workers=2))),
    "preprocessing: torchvision's recipe": Patient("preprocessing", lambda: (small_net(), load(torchvision_folder(96)))),
    "preprocessing: JPEG decoding": Patient("preprocessing", lambda: (small_net(), load(JpegFolder(photos(), RandomCropFlip(96))))),
    "preprocessing: parsing text": Patient("preprocessing", lambda: (nn.Linear(2_000, 10), load(Tokens(512, 2_000, parse)))),
    "preprocessing: a slow collate": Patient("preprocessing", lambda: (GluonCNN(), load(digits(), collate_fn=SlowCollate(200)))),
    "preprocessing: sample by sample": Patient("preprocessing", lambda: (linear(), load(digits(), 64))),
    "transfer: a slow bus": Patient("transfer", lambda: (linear(), BatchLoader(mnist(), 512, shuffle=True, seed=0, transform=to_float)), dict(device="cpu", transfer=SlowBus(100e6))),
    "transfer: a slow bus, a DataLoader": Patient("transfer", lambda: (linear(), load(TensorDataset(torch.rand(512, 784 * 4).view(512, 4, 784)[:, 0], torch.zeros(512, dtype=torch.int64)), 128)), dict(device="cpu", transfer=SlowBus(20e6))),
    "transfer: workers for nothing": Patient("transfer", lambda: (nn.Linear(50_000, 1), DataLoader(Ready(32, 50_000), None, num_workers=2)), dict(device="cpu")),
    "compute: a CNN": Patient("compute", lambda: (GluonCNN(), BatchLoader(mnist(), 128, shuffle=True, seed=0))),
    "compute: ResNet-18": Patient("compute", lambda: (resnet18(10, "small"), load(digits(640), 8))),
    "compute: wide layers": Patient("compute", lambda: (wide(), BatchLoader(mnist(), 64, shuffle=True, seed=0))),
    "compute: a tiny batch": Patient("compute", lambda: (GluonCNN(), BatchLoader(mnist(), 2, shuffle=True, seed=0))),
    "compute: loading hidden by workers": Patient("compute", lambda: (resnet18(10, "small"), load(Fetching(digits(640), slow_read(5e-3, identity)), 8, num_workers=2))),
}


class Ready(Dataset):
    "Batches that are there already: what remains is to hand them over."
    def __init__(self, samples: int, width: int): self.batch = torch.rand(samples, width), torch.rand(samples, 1)
    def __len__(self) -> int: return 1_000
    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]: return self.batch


@contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    "Another process that computes without a pause, on one core's worth, if it is to be busy."
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try: yield
    finally:
        if process: process.kill(), process.wait()


def doctor(rounds: int, iterations: int, seconds: float = 15.0) -> dict[str, Any]:
    "Each patient diagnosed `rounds` times, the last of several with a busy neighbour; in the first and the last, advice is verified."
    from stages import FULL
    seconds = seconds if iterations == FULL else 6.0
    return {name: _examined(name, patient, rounds, seconds) for name, patient in TWENTY.items()}


def _examined(name: str, patient: Patient, rounds: int, seconds: float) -> dict[str, Any]:
    from mlinfra.doctor import diagnose
    verdicts, cures = [], []
    for i in range(rounds):
        beside = i > 0 and i == rounds - 1
        with neighbour(beside):
            diagnosis = diagnose(*patient.make(), **patient.options, budget_seconds=seconds)
            verdicts.append(diagnosis.verdict)
            verified = [diagnosis.verify(advice, 6.0) for advice in diagnosis.advice[:1 if beside else 2]] if i == 0 or beside else []
        cures += [dict(change=v.advice.change, predicted=v.advice.predicted_speedup, measured=v.measured_speedup, low=v.speedup.low, high=v.speedup.high, error=v.error, beside_load=beside) for v in verified]
        print(f"  {name:40} {diagnosis.verdict:15}{'beside a busy process; ' * beside}{'; '.join(map(str, verified))}", flush=True)
    return dict(cause=patient.cause, verdicts=verdicts, last_beside_load=rounds > 1, right=verdicts.count(patient.cause), cures=cures)
