"""Twenty pipelines whose ailment is known because they were built with it: does the doctor find it?

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
from mlinfra.engine.loading.crops import RandomCropFlip
from mlinfra.engine.loading.jpegs import JpegFolder, make_jpegs
from mlinfra.engine.loading.batch_tensors import identity
from mlinfra.lab.patients import Fetching, Patient, SlowBus, SlowCollate, slow_read
from mlinfra.engine.workers.worker_sweep import Blur
from mlinfra.models import GluonCNN, resnet18


@cache
def photos() -> Path:
    "Small photographs in a folder that lives as long as the process."
    photos.folder = tempfile.TemporaryDirectory(prefix="mlinfra-patients-")
    return make_jpegs(Path(photos.folder.name, "photos"), 256, size=(256, 192), progress=False)


def digits(count: int = 4_000) -> PerSample: return PerSample(Subset(mnist(), range(count)))
def blurred(times: int) -> PerSample: return PerSample(Subset(mnist(), range(4_000)), Blur(times))
def linear() -> nn.Module: return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
def small_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
def wide() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU(),
                         nn.Linear(3000, 10))


class Tokens(Dataset):
    "Sequences of numbers that are parsed from text for every sample, as many a data set does it."
    def __init__(self, count: int, length: int, transform: Callable[[str], torch.Tensor]):
        self.lines, self.transform = [" ".join(str((i * 31 + j * 7) % 1000) for j in range(length))
                                      for i in range(count)], transform

    def __len__(self) -> int: return len(self.lines)
    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]: return self.transform(self.lines[i]), i % 10


def parse(line: str) -> torch.Tensor: return torch.tensor([float(word) for word in line.split()])
def torchvision_folder(side: int) -> Dataset:
    from torchvision import transforms as t
    from torchvision.datasets import ImageFolder
    usual = t.Compose([t.RandomResizedCrop(side), t.RandomHorizontalFlip(), t.ToTensor(),
                       t.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    return ImageFolder(photos(), usual)


def slow_folder(seconds: float, side: int = 64) -> JpegFolder:
    return JpegFolder(photos(), RandomCropFlip(side), read=slow_read(seconds))
def load(dataset: Any, batch: int = 32, **how: Any) -> DataLoader:
    return DataLoader(dataset, batch, shuffle=True, **how)


def ill(cause: str, model: Callable[[], nn.Module], loader: Callable[[], Any], **options: Any) -> Patient:
    return Patient(cause, lambda: (model(), loader()), options)


def from_store(seconds: float, samples: int = 4_000, batch: int = 32, **how: Any) -> DataLoader:
    "Digits that a slow store delivers."
    return load(Fetching(digits(samples), slow_read(seconds, identity)), batch, **how)


def decoded() -> JpegFolder: return JpegFolder(photos(), RandomCropFlip(96))
def floats() -> BatchLoader: return BatchLoader(mnist(), 512, shuffle=True, seed=0, transform=to_float)
def batches_of(size: int) -> BatchLoader: return BatchLoader(mnist(), size, shuffle=True, seed=0)
def rows() -> TensorDataset: return TensorDataset(torch.rand(512, 784), torch.zeros(512, dtype=torch.int64))
def small_resnet() -> nn.Module: return resnet18(10, "small")


TWENTY = {  # name -> a pipeline and its ailment
    "storage: digits from a slow store": ill("storage", GluonCNN, lambda: from_store(3e-3)),
    "storage: JPEGs from a slow store": ill("storage", small_net, lambda: load(slow_folder(8e-3))),
    "storage: the same, two workers": ill("storage", small_net, lambda: load(slow_folder(12e-3), num_workers=2)),
    "storage: a subset of a slow folder": ill("storage", small_net,
                                              lambda: load(Subset(slow_folder(8e-3), range(200)), 16)),
    "storage: named by the user": ill("storage", linear, lambda: from_store(2e-3), read="read"),
    "preprocessing: blurs": ill("preprocessing", GluonCNN, lambda: load(blurred(200))),
    "preprocessing: blurs, two workers": ill("preprocessing", linear, lambda: load(blurred(150), num_workers=2)),
    "preprocessing: torchvision's recipe": ill("preprocessing", small_net, lambda: load(torchvision_folder(96))),
    "preprocessing: JPEG decoding": ill("preprocessing", small_net, lambda: load(decoded())),
    "preprocessing: parsing text": ill("preprocessing", lambda: nn.Linear(2_000, 10),
                                       lambda: load(Tokens(512, 2_000, parse))),
    "preprocessing: a slow collate": ill("preprocessing", GluonCNN,
                                         lambda: load(digits(), collate_fn=SlowCollate(200))),
    "preprocessing: sample by sample": ill("preprocessing", linear, lambda: load(digits(), 64)),
    "transfer: a slow bus": ill("transfer", linear, floats, device="cpu", transfer=SlowBus(100e6)),
    "transfer: a slow bus, a DataLoader": ill("transfer", linear, lambda: load(rows(), 128), device="cpu",
                                              transfer=SlowBus(20e6)),
    "transfer: workers for nothing": ill("transfer", lambda: nn.Linear(50_000, 1),
                                         lambda: DataLoader(Ready(32, 50_000), None, num_workers=2), device="cpu"),
    "compute: a CNN": ill("compute", GluonCNN, lambda: batches_of(128)),
    "compute: ResNet-18": ill("compute", small_resnet, lambda: load(digits(640), 8)),
    "compute: wide layers": ill("compute", wide, lambda: batches_of(64)),
    "compute: a tiny batch": ill("compute", GluonCNN, lambda: batches_of(2)),
    "compute: loading hidden by workers": ill("compute", small_resnet, lambda: from_store(5e-3, 640, 8, num_workers=2)),
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


SECONDS, SHORT_SECONDS = 15.0, 6.0  # that a diagnosis may take; a verification, and a diagnosis in a trial


def doctor(rounds: int, iterations: int) -> dict[str, Any]:
    "Each patient `rounds` times, the last time of several with a busy neighbour; advice is verified in first and last."
    from stages import FULL
    seconds = SECONDS if iterations == FULL else SHORT_SECONDS
    return {name: _examined(name, patient, rounds, seconds) for name, patient in TWENTY.items()}


def _examined(name: str, patient: Patient, rounds: int, seconds: float) -> dict[str, Any]:
    from mlinfra.doctor import diagnose
    verdicts, cures = [], []
    for i in range(rounds):
        beside = i > 0 and i == rounds - 1
        with neighbour(beside):
            diagnosis = diagnose(*patient.make(), **patient.options, budget_seconds=seconds)
            verdicts.append(diagnosis.verdict)
            verified = [diagnosis.verify(advice, SHORT_SECONDS)
                        for advice in diagnosis.advice[:1 if beside else 2]] if i == 0 or beside else []
        cures += [dict(change=v.advice.change, predicted=v.advice.predicted_speedup, measured=v.measured_speedup,
                       low=v.speedup.low, high=v.speedup.high, error=v.error, beside_load=beside) for v in verified]
        print(f"  {name:40} {diagnosis.verdict:15}{'beside a busy process; ' * beside}{'; '.join(map(str, verified))}",
              flush=True)
    return dict(cause=patient.cause, verdicts=verdicts, last_beside_load=rounds > 1,
                right=verdicts.count(patient.cause), cures=cures)
