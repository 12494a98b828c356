"""The doctor where a notebook cannot show it: causes that are certain, pipelines left as they were, faults, the shell."""
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from mlinfra.engine import ablation, remedies
from mlinfra import doctor
from mlinfra.data import BatchLoader, Images
from mlinfra.doctor import diagnose
from mlinfra.engine.loaders import keep
from mlinfra.engine.patients import Fetching, SlowBus, slow_read
from mlinfra.engine.widgets import Stopped

FAST = dict(seconds=4, device="cpu")
pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def one_thread():
    "What is tested here is not torch's threads, which wait for each other on a busy machine."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def children():
    "The processes that we have started and that still run, but for Python's own resource tracker."
    return {p for p in psutil.Process().children() if "resource_tracker" not in " ".join(p.cmdline())}


@pytest.fixture(autouse=True)
def no_process_left():
    "A diagnosis ends with its processes; what other tests share, a browser, was there before."
    before = children()
    yield
    assert children() <= before


def spin(seconds):
    "Compute for so long, however busy the machine is."
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass


class Samples(Dataset):
    "Random samples; `transform`, if there is one, is called with each."
    def __init__(self, count=64, transform=None): self.count, self.transform = count, transform
    def __len__(self): return self.count

    def __getitem__(self, i):
        x = torch.full((4,), float(i))
        return (x if self.transform is None else self.transform(x)), i % 2


class Spinning:
    "A transform that computes."
    def __init__(self, seconds): self.seconds = seconds

    def __call__(self, x):
        spin(self.seconds)
        return x


class Jittered:
    "A transform with a generator of its own."
    def __init__(self): self.draws = np.random.default_rng(0)
    def __call__(self, x): return x + self.draws.random()


class Heavy(nn.Module):
    "A model whose forward computes for a given time."
    def __init__(self, seconds): super().__init__(); self.seconds, self.layer, self.norm = seconds, nn.Linear(4, 2), nn.BatchNorm1d(2)

    def forward(self, x):
        spin(self.seconds)
        return self.norm(self.layer(x))


class Sleepy(Samples):
    "Sleeps where nobody can see what for."
    def __getitem__(self, i):
        time.sleep(2e-3)
        return super().__getitem__(i)

    def fetch(self, i): return i


CERTAIN = {
    "storage": lambda: (Heavy(1e-3), DataLoader(Fetching(Samples(), slow_read(5e-3, keep)), 8), {}),
    "preprocessing": lambda: (Heavy(1e-3), DataLoader(Samples(transform=Spinning(4e-3)), 8), {}),
    "transfer": lambda: (Heavy(1e-3), DataLoader(Samples(), 8), dict(transfer=SlowBus(8 * 24 / 30e-3))),
    "compute": lambda: (Heavy(30e-3), DataLoader(Samples(), 8), {}),
    "inconclusive": lambda: (Heavy(1e-3), DataLoader(Sleepy(), 8), {}),
}


def diagnose_patiently(cause, model, loader, **options):
    "A diagnosis; where it is undecided, which may be the machine's fault, another one that takes longer."
    found = diagnose(model, loader, **options, **FAST)
    undecided = found.verdict in ("mixed", "inconclusive") and found.verdict != cause
    return diagnose(model, loader, **options, **FAST | dict(seconds=20)) if undecided else found


@pytest.mark.parametrize("cause", CERTAIN)
def test_a_certain_cause_is_found(cause):
    model, loader, options = CERTAIN[cause]()
    found = diagnose_patiently(cause, model, loader, **options)
    assert found.verdict == cause, found
    assert ("cannot be told apart" in str(found)) == (cause == "inconclusive")


def test_what_workers_hide_is_no_bottleneck():
    loader = DataLoader(Fetching(Samples(), slow_read(4e-3, keep)), 8, num_workers=2)
    found = diagnose_patiently("compute", Heavy(60e-3), loader)
    assert found.verdict == "compute" and found.work["storage"] > 16e-3, "eight reads of 4 ms, to within a factor of two"
    assert "hidden by 2 workers" in " ".join(found.remarks)


def test_the_cure_of_a_slow_store_is_predicted_and_verified():
    found = diagnose(Heavy(1e-3), DataLoader(Fetching(Samples(), slow_read(20e-3, keep)), 8), seconds=8, device="cpu")
    advice = found.advice[0]
    verified = found.verify(advice, seconds=6)
    assert advice.change.startswith("num_workers=") and advice.low > 1 and verified.measured_speedup > 1
    assert f"{verified.error:+.0%}" in str(verified)


def test_no_more_workers_than_cores(monkeypatch):
    monkeypatch.setattr(doctor, "usable_cores", lambda: 1)
    found = diagnose(Heavy(1e-3), DataLoader(Fetching(Samples(), slow_read(5e-3, keep)), 8, num_workers=1), **FAST)
    assert not any(advice.change.startswith("num_workers") for advice in found.advice)


def test_workers_that_lose_in_a_trial_are_not_advised(monkeypatch):
    monkeypatch.setattr(remedies, "_candidates", lambda m, now, cores: [1])
    monkeypatch.setattr(remedies, "_coupled", lambda m: m["full"] / 10)  # a prediction that is far too good
    bench = ablation.Bench(ablation.make_pipeline(Heavy(20e-3), DataLoader(Samples(), 8), device="cpu"), visit=0.1, pilot=1.0)
    assert remedies.worker_advice(bench, doctor.measure_rounds(bench, 1.0), 2) == []


def test_nothing_is_advised_where_nothing_helps():
    images = Images(torch.zeros(64, 1, 2, 2, dtype=torch.uint8), torch.zeros(64, dtype=torch.int64))
    found = diagnose(nn.Sequential(nn.Flatten(), Heavy(30e-3)), BatchLoader(images, 32), **FAST)
    assert found.verdict == "compute" and found.advice == ()
    with pytest.raises(ValueError, match="no advice to verify"): found.verify(seconds=1)


# ---- yours stays yours

def state_of(loader):
    return loader.generator.get_state().tolist(), loader.num_workers, loader._iterator, vars(loader.dataset).copy()


def test_everything_is_left_as_it_was():
    torch.manual_seed(5)
    model = Heavy(1e-4)
    model(torch.rand(8, 4)).sum().backward()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    loader = DataLoader(Samples(transform=Jittered()), 8, shuffle=True, num_workers=1, generator=torch.Generator().manual_seed(3))
    jitter = loader.dataset.transform.draws.bit_generator.state
    before = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()], copy.deepcopy(optimizer.state_dict()), state_of(loader)
    draws = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    diagnose(model, loader, optimizer=optimizer, **FAST)
    after = model.state_dict(), [p.grad for p in model.parameters()], optimizer.state_dict(), state_of(loader)
    assert all(torch.equal(a, b) for a, b in zip(before[0].values(), after[0].values())) and all(map(torch.equal, before[1], after[1]))
    assert str(before[2]) == str(after[2]) and before[3] == after[3] and jitter == loader.dataset.transform.draws.bit_generator.state
    assert torch.equal(draws[0], torch.get_rng_state()) and np.array_equal(draws[1], np.random.get_state()[1]) and draws[2] == random.getstate()


def test_workers_that_stay_are_not_started():
    loader = DataLoader(Samples(), 8, num_workers=1, persistent_workers=True)
    diagnose(Heavy(1e-3), loader, **FAST)
    assert loader._iterator is None


def test_layers_in_evaluation_stay_so():
    model = Heavy(1e-4).train()
    model.norm.eval()
    pipe = ablation.make_pipeline(model, DataLoader(Samples(), 8), device="cpu")
    assert pipe.model.training and not pipe.model.norm.training and pipe.model is not model


def test_a_batch_size_that_does_nothing_is_not_advised():
    class Wrapper:
        def __init__(self): self.dataset, self.batch_size = Samples(640), 8
        def __iter__(self): return iter([(torch.rand(8, 4), torch.zeros(8, dtype=torch.int64))] * 10)
    assert not any("batches of" in a.change for a in diagnose(Heavy(1e-3), Wrapper(), **FAST).advice)


def test_a_stop_ends_it_and_leaves_no_process():
    def stop(fraction, words): raise Stopped("stopped")
    model, state = Heavy(1e-3), torch.get_rng_state()
    with pytest.raises(Stopped): diagnose(model, DataLoader(Samples(), 8, num_workers=2), report=stop, **FAST)
    assert torch.equal(state, torch.get_rng_state())


# ---- any model, any loader

class Dicts(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return dict(x=torch.rand(4))


class TakesDicts(nn.Module):
    def __init__(self): super().__init__(); self.layer = nn.Linear(4, 2)
    def forward(self, x): return dict(out=self.layer(x))


class Stream(IterableDataset):
    def __iter__(self): return iter([(torch.rand(4), 0)] * 20)


class Lengthless:
    "A batch sampler that does not know how many there are."
    def __iter__(self): return iter([[0, 1, 2], [3, 4]])


class Ranged(IterableDataset):
    "A stream whose range a worker_init_fn sets, as PyTorch's documentation does it."
    start, end = None, 64
    def __iter__(self): return iter([(torch.rand(4), 0)] * (self.end - self.start))


def set_range(worker): torch.utils.data.get_worker_info().dataset.start = 60


class Halving(DataLoader):
    "Yields what it makes of the batches, which a plain DataLoader over the same data would not."
    def __iter__(self): return ((x[::2], y[::2]) for x, y in super(Halving, self).__iter__())


class Wrapping:
    "A loader of one's own around a DataLoader with workers."
    def __init__(self): self.inner = DataLoader(Samples(), 8, num_workers=1)
    def __iter__(self): return (batch for batch in self.inner)


class Viewing(nn.Module):
    "Flattens as many a hand-written network does, which a channels_last tensor does not bear."
    def __init__(self): super().__init__(); self.conv, self.layer = nn.Conv2d(3, 4, 3), nn.Linear(144, 2)
    def forward(self, x): return self.layer(self.conv(x).view(x.size(0), -1))


@pytest.mark.parametrize("make", [
    lambda: (TakesDicts(), DataLoader(Dicts(), 8)),
    lambda: (nn.Linear(4, 2), DataLoader(Stream(), 8, num_workers=1)),
    lambda: (nn.Linear(4, 2), DataLoader(TensorDataset(torch.rand(64, 4)), 8)),
    lambda: (nn.Linear(4, 2), [(torch.rand(8, 4), torch.zeros(8, dtype=torch.int64))] * 3),
    lambda: (nn.Linear(4, 1), DataLoader(TensorDataset(torch.rand(64, 4), torch.rand(64, 1)), None)),
    lambda: (Heavy(5e-3), DataLoader(Stream(), 8)),
    lambda: (nn.Linear(4, 1), DataLoader(TensorDataset(torch.rand(64, 4), torch.arange(64)), 8)),
    lambda: (nn.Linear(4, 2), DataLoader(Samples(), batch_sampler=Lengthless())),
    lambda: (nn.Linear(4, 2), DataLoader(Ranged(), 4, num_workers=1, worker_init_fn=set_range)),
    lambda: (Viewing(), DataLoader(TensorDataset(torch.rand(32, 3, 8, 8), torch.zeros(32, dtype=torch.int64)), 8)),
    lambda: (nn.Linear(4, 2), DataLoader(Samples(16) + Samples(16), 8)),
    lambda: (nn.Linear(4, 2), Halving(Samples(), 8, num_workers=1)),
    lambda: (nn.Linear(4, 2), Wrapping()),
], ids=["dicts", "stream", "inputs alone", "a list of batches", "no batching", "a heavy stream", "labels beyond the outputs", "a sampler without length",
        "a worker_init_fn", "a model that channels_last breaks", "two data sets in one", "a DataLoader with its own iteration", "a DataLoader in a wrapper"])
def test_other_shapes_of_models_and_loaders(make):
    found = diagnose(*make(), seconds=2, device="cpu")
    assert found.verdict in doctor.VERDICTS and found.step.value > 0


@pytest.mark.parametrize("make, words", [
    (lambda: (nn.Linear(4, 2), iter([])), "iterated again and again"),
    (lambda: (nn.Linear(4, 2), []), "yields no batch"),
    (lambda: (nn.Linear(4, 2), DataLoader(Samples(4), 8, drop_last=True)), "yields no batch"),
    (lambda: (nn.Flatten(), DataLoader(Samples(), 8)), "no parameter to train"),
    (lambda: (len, DataLoader(Samples(), 8)), "must be a torch module"),
    (lambda: (nn.Linear(5, 2), DataLoader(Samples(), 8)), "Give step=lambda"),
])
def test_nonsense_is_refused(make, words):
    with pytest.raises(ValueError, match=words): diagnose(*make(), **FAST)


# ---- faults

class Failing(Samples):
    def __getitem__(self, i):
        if i == 13: raise FileNotFoundError("sample 13 has vanished")
        return super().__getitem__(i)


class Deadly(Samples):
    def __getitem__(self, i):
        if torch.utils.data.get_worker_info() is not None: os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_data_set_is_told_as_it_is(workers):
    with pytest.raises(FileNotFoundError, match="sample 13 has vanished"): diagnose(Heavy(1e-3), DataLoader(Failing(), 8, num_workers=workers), **FAST)


def test_a_killed_worker_is_an_error_and_no_hang():
    with pytest.raises(RuntimeError, match="worker .* killed|exited unexpectedly"): diagnose(Heavy(1e-3), DataLoader(Deadly(), 8, num_workers=2), **FAST)


TINY = """
import torch
from torch.utils.data import DataLoader, Dataset
from mlinfra.doctor import diagnose

class Big(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.zeros(1_000_000), 0

class First(torch.nn.Linear):
    def forward(self, x): return super().forward(x[:, :1])

diagnose(First(1, 2), DataLoader(Big(), 8, num_workers=1), device="cpu", seconds=3)
"""


def can_unshare():
    "Whether we may mount a file system of our own, which takes root."
    return shutil.which("unshare") is not None and subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="a small /dev/shm of our own needs root and unshare")
def test_a_tiny_shared_memory_is_told():
    script = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" -c "$1"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, sys.executable, TINY], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "shared memory" in done.stderr and "No space left" in done.stderr


# ---- from the shell

FACTORY = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __init__(self): self.loader = self.fetch
    def fetch(self, i):
        time.sleep(20e-3)
        return torch.rand(4)
    def __len__(self): return 64
    def __getitem__(self, i): return self.loader(i), 0

def slow(): return nn.Linear(4, 2), DataLoader(Slow(), 8)
def nonsense(): return 3
"""


def shell(tmp_path, *args):
    (tmp_path / "mine.py").write_text(FACTORY)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as in `one_thread`
    return subprocess.run([Path(sys.executable).with_name("mlinfra"), "doctor", *args], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)


def test_one_command_diagnoses_and_verifies(tmp_path):
    done = shell(tmp_path, "mine:slow", "--seconds", "6", "--verify", "--device", "cpu")
    if "verdict: inconclusive" in done.stdout: done = shell(tmp_path, "mine:slow", "--seconds", "20", "--verify", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "verdict: storage" in done.stdout and "num_workers=" in done.stdout and "verified: " in done.stdout and "prediction was off by" in done.stdout


@pytest.mark.parametrize("spec", ["mine", "mine:nothing", "nowhere:at_all", "mine:nonsense"])
def test_a_wrong_factory_is_one_clear_line(tmp_path, spec):
    done = shell(tmp_path, spec)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.startswith("mlinfra doctor: ")
