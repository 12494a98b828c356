"""A diagnosis, a sweep and a check of the validation leave no trace: neither in the data set nor in the process."""
import gc
import os
import random
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from mlinfra.doctor import diagnose
from mlinfra.training import fit
from mlinfra.workers import sweep_workers

ROWS, WIDTH = 120, 64
SEEN = {}  # a cache of the module


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    "Row i is full of i, in one file and as members of an archive."
    folder = tmp_path_factory.mktemp("rows")
    rows = np.repeat(np.arange(ROWS, dtype=np.float32), WIDTH).reshape(ROWS, WIDTH)
    rows.tofile(folder / "rows.bin")
    with zipfile.ZipFile(folder / "rows.zip", "w") as archive:
        for i, row in enumerate(rows): archive.writestr(f"{i}.npy", row.tobytes())
    return folder


class Rows(Dataset):
    "Samples whose values tell their number; each kind keeps something once the first one was asked for."
    def __init__(self, folder): self.folder = folder
    def __len__(self): return ROWS
    def row(self, i): return torch.full((WIDTH,), float(i))
    def __getitem__(self, i): return self.row(i), i % 4


class LazyFile(Rows):
    "Opens its file at the first sample, as users of h5py are told to do."
    file = None
    def row(self, i):
        self.file = self.file or open(self.folder / "rows.bin", "rb", buffering=0)
        self.file.seek(4 * WIDTH * i)
        return torch.from_numpy(np.frombuffer(self.file.read(4 * WIDTH), np.float32).copy())


class LazyZip(Rows):
    archive = None
    def row(self, i):
        self.archive = self.archive or zipfile.ZipFile(self.folder / "rows.zip")
        return torch.from_numpy(np.frombuffer(self.archive.read(f"{i}.npy"), np.float32).copy())


class LazyPool(Rows):
    "Starts threads at the first sample; a fork of this process would wait for them for ever."
    pool = None
    def row(self, i):
        self.pool = self.pool or ThreadPoolExecutor(2)
        return self.pool.submit(super().row, i).result()


class Caching(Rows):
    def __init__(self, folder): super().__init__(folder); self.kept, self.lock = {}, threading.Lock()
    def row(self, i):
        with self.lock: SEEN[i] = self.kept[i] = super().row(i)
        return self.kept[i]


class Counting(Rows):
    "Counts its samples and draws from generators of its own and from the global ones."
    def __init__(self, folder): super().__init__(folder); self.count, self.draws = 0, np.random.default_rng(0)
    def row(self, i):
        self.count += 1
        noise = self.draws.random() + random.random() + np.random.rand() + torch.rand(()).item()
        return super().row(i) + 0 * noise


class EpochCounting(RandomSampler):
    epochs = 0
    def __iter__(self):
        self.epochs += 1
        return super().__iter__()


KINDS = (LazyFile, LazyZip, LazyPool, Caching, Counting)


def state_of(loader):
    "All that could have changed; files are named by what they are."
    gc.collect()
    held = {name: dict(value) if isinstance(value, dict) else value for name, value in vars(loader.dataset).items()}
    draws = getattr(loader.dataset, "draws", None)
    descriptors = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                   if os.path.exists(f"/proc/self/fd/{name}")]
    return dict(held=held, draws=draws and str(draws.bit_generator.state), seen=dict(SEEN),
                sampler=getattr(loader.sampler, "epochs", 0), workers=loader.num_workers, iterator=loader._iterator,
                files=sorted(name for name in descriptors if name.startswith(str(loader.dataset.folder))),
                threads={thread.name for thread in threading.enumerate()},
                children={process.pid for process in psutil.Process().children()
                          if "resource_tracker" not in " ".join(process.cmdline())},
                torch=torch.get_rng_state().tolist(), python=random.getstate(), numpy=str(np.random.get_state()),
                shared={name for name in os.listdir("/dev/shm") if f"_{os.getpid()}_" in name},
                pools=torch.get_num_threads(), dtype=torch.get_default_dtype())


def wrong_rows(dataset):
    "Rows that a training with two workers gets wrong."
    found = torch.cat([x for x, _ in DataLoader(dataset, 8, num_workers=2, timeout=60)])
    return int((found != torch.arange(float(ROWS))[:, None]).any(1).sum())


def check_untouched(loader, act):
    before = state_of(loader)
    act()
    for thread in threading.enumerate():  # a closed queue's thread ends a moment later
        if thread.name not in before["threads"]: thread.join(60)
    after = state_of(loader)
    for name, value in before.items(): assert after[name] == value, name
    assert wrong_rows(loader.dataset) == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_diagnosis_leaves_no_trace(kind, workers, files):
    data = kind(files)
    loader = DataLoader(data, 8, sampler=EpochCounting(data), num_workers=workers, generator=torch.Generator())
    model = nn.Linear(WIDTH, 4)
    check_untouched(loader, lambda: diagnose(model, loader, device="cpu", budget_seconds=1.5))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_leaves_no_trace(kind, files):
    loader = DataLoader(kind(files), 8, num_workers=2)
    check_untouched(loader, lambda: sweep_workers(loader.dataset, (0, 1), 16, model=lambda: nn.Linear(WIDTH, 4),
                                                  progress=False, device="cpu"))


@pytest.mark.parametrize("kind", KINDS)
def test_validation_that_workers_load_is_not_loaded_here(kind, files):
    loader = DataLoader(kind(files), 8, num_workers=1)
    model, train = nn.Linear(WIDTH, 4), [(torch.rand(8, WIDTH), torch.zeros(8, dtype=torch.int64))]
    def act():
        state = torch.get_rng_state(), random.getstate(), np.random.get_state()
        fit(model, train, epochs=1, valid=loader, progress=False, device="cpu")
        for put, kept in zip((torch.set_rng_state, random.setstate, np.random.set_state), state): put(kept)
    check_untouched(loader, act)
