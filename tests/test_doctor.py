"""The doctor where a notebook cannot show it: certain causes, budgets, pipelines left as they were, faults, the shell.

Where seconds matter the clock is ours: computing and sleeping move it, so that a diagnosis is the same on any machine,
busy or not.
"""
import copy
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from copies import heard, twin
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from mlinfra.cli import main
from mlinfra.data import BatchLoader, Images
from mlinfra.doctor import diagnose
from mlinfra.engine.doctor import ablation, batch_source, diagnosis, lighter_loading, predictions, remedies, verdicts
from mlinfra.engine.doctor.ablation import Bench, Round
from mlinfra.engine.doctor.remedies import Advice, Cure, Trials
from mlinfra.engine.doctor.step_timer import Budget
from mlinfra.engine.doctor.training_pipeline import copies_of, kept_beside, make_pipeline
from mlinfra.engine.loading import loading_times
from mlinfra.engine.loading.batch_tensors import identity
from mlinfra.engine.loading.dataset_callables import find_callables
from mlinfra.engine.loading.loader_surgery import loader_kind
from mlinfra.engine.loading.loading_times import Loading
from mlinfra.engine.base.cores import read_cores
from mlinfra.engine.base.sample_statistics import Estimate
from mlinfra.lab.patients import PATIENTS, Fetching, SlowBus, slow_read
from mlinfra.engine.base.jobs import Stopped

QUICK = dict(budget_seconds=0.5, device="cpu")


def children():
    "The processes that we have started and that still run, but for Python's own resource tracker."
    running = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    return {p for p in running if "resource_tracker" not in " ".join(p.cmdline())}


@pytest.fixture(autouse=True)
def no_process_left():
    "A diagnosis ends with its processes; what other tests share, a browser, was there before."
    before = children()
    yield
    assert children() <= before


class Machine:
    "A clock of our own: only `spin` and `sleep` take time, and each look at it a microsecond."
    def __init__(self): self.now, self.cpu, self.started = 100.0, 0.0, 100.0

    def look(self):
        self.now += 1e-6
        return self.now

    def sleep(self, seconds): self.now += seconds

    def spin(self, seconds):
        self.now += seconds
        self.cpu += seconds

    @property
    def used(self): return self.now - self.started


@pytest.fixture
def machine(monkeypatch):
    "A machine that is never busy; no number of workers is worth a try, for they would not know of its clock."
    one, threads = Machine(), torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for each other would only cost real seconds
    for name, clock in dict(perf_counter=one.look, monotonic=one.look, thread_time=lambda: one.cpu,
                            process_time=lambda: one.cpu,
                            sleep=one.sleep).items(): monkeypatch.setattr(time, name, clock)
    for room in (loading_times, ablation): monkeypatch.setattr(room, "queued_seconds", lambda: 0.0)
    monkeypatch.setattr(remedies, "worker_numbers", lambda now, workers, cores: [])
    yield one
    torch.set_num_threads(threads)


class Samples(Dataset):
    "Samples; `transform`, if there is one, is called with each, and `reading` before."
    def __init__(self, count=64, transform=None, reading=None):
        self.count, self.transform, self.reading = count, transform, reading
    def __len__(self): return self.count

    def __getitem__(self, i):
        if self.reading is not None: self.reading()
        x = torch.full((4,), float(i))
        return (x if self.transform is None else self.transform(x)), i % 2


class Heavy(nn.Module):
    "A model whose forward calls something first."
    def __init__(self, work=None):
        super().__init__(); self.work, self.layer, self.norm = work, nn.Linear(4, 2), nn.BatchNorm1d(2)

    def forward(self, x):
        if self.work is not None: self.work()
        return self.norm(self.layer(x))


def after(work, x):
    work()
    return x


# ---- causes that are certain

def certain(machine):
    "cause -> model, loader, options: what is slow takes five times as long as all the rest."
    def model(seconds): return Heavy(lambda: machine.spin(seconds))
    def every(count, work): return lambda step: work() if step % count == count - 1 else None
    quick = DataLoader(Samples(), 8)
    stalling = iter(range(10**9))
    class Stumbling:
        def __iter__(self):
            for n in range(100):
                yield torch.rand(8, 4), torch.zeros(8, dtype=torch.int64)
                if n % 20 == 19: machine.sleep(8.0)
    def step(net, batch):
        machine.spin(20e-3)
        if next(stalling) % 20 == 19: machine.sleep(8.0)
        return net(batch[0]).mean()
    return {
        "storage": (model(20e-3), DataLoader(Fetching(Samples(), slow_read(50e-3, identity)), 8), {}),
        "preprocessing": (model(20e-3), DataLoader(Samples(transform=lambda x: after(lambda: machine.spin(50e-3), x)),
                                                   8), {}),
        "transfer": (model(20e-3), quick, dict(transfer=SlowBus(8 * 24 / 300e-3))),
        "compute": (model(100e-3), quick, {}),
        "loading": (model(20e-3), DataLoader(Samples(reading=lambda: machine.sleep(50e-3)), 8), {}),
        "storage, named": (model(20e-3), DataLoader(Samples(reading=lambda: machine.sleep(50e-3)), 8),
                           dict(read="__getitem__")),
        "between": (model(20e-3), quick, dict(between=lambda step: machine.spin(200e-3))),
        "between, on every 20th step": (model(20e-3), quick, dict(between=every(20, lambda: machine.sleep(8.0)))),
        "between, in the user's step": (model(0.0), quick, dict(step=step)),
        "between, in a loader": (model(20e-3), Stumbling(), {}),
    }


CAUSES = ("storage", "preprocessing", "transfer", "compute", "loading", "storage, named", "between",
          "between, on every 20th step",
          "between, in the user's step", "between, in a loader")


@pytest.mark.parametrize("name", CAUSES)
def test_a_certain_cause_is_found(name, machine):
    model, loader, options = certain(machine)[name]
    found = diagnose(model, loader, budget_seconds=200, device="cpu", **options)
    assert found.verdict == name.split(",")[0], found
    assert ("cannot be told apart" in str(found)) == (name == "loading")
    if name == "loading": assert 'read="..." names what reads' in str(found)
    if name.startswith("between, in"): assert "every 20th step" in str(found)


def test_the_stages_are_the_seconds_that_were_spent(machine):
    loader = DataLoader(Fetching(Samples(transform=lambda x: after(lambda: machine.spin(20e-3), x)),
                                 slow_read(30e-3, identity)), 8)
    options = dict(transfer=SlowBus(8 * 24 / 70e-3), between=lambda step: machine.spin(50e-3))
    found = diagnose(Heavy(lambda: machine.spin(100e-3)), loader, budget_seconds=100, device="cpu", **options)
    right = dict(storage=240e-3, preprocessing=160e-3, worker_transfer=0.0, transfer=70e-3, compute=100e-3,
                 between=50e-3)
    seconds = {stage: e.value for stage, e in found.stages.items()}
    near = dict(abs=1e-3)  # a look at the clock takes a microsecond, and there are dozens in a batch
    assert seconds == pytest.approx(right, **near)
    assert found.step.value == pytest.approx(sum(right.values()), **near)
    assert found.loading.storage == pytest.approx(240e-3, **near)
    assert found.table().ms.sum() == pytest.approx(1e3 * found.step.value, abs=0.5)


def test_the_pipeline_of_the_panel_is_bound_by_its_bus_and_bytes_cure_it(machine):
    "Floats cross a bus of 50 MB a second, 32 ms a batch, and nothing else takes time: a quarter of the bytes, 8 ms."
    patient = PATIENTS["copy-bound"]
    found = diagnose(*patient.make(), **patient.options, budget_seconds=30)
    assert found.verdict == patient.cause == "transfer"
    advice = found.advice[0]
    assert advice.change == "floats of the bytes on the device, after the copy"
    assert advice.predicted_speedup == pytest.approx(4, rel=0.05)
    assert found.verify(advice, budget_seconds=10).measured_speedup == pytest.approx(4, rel=0.05)


# ---- a budget is kept

@pytest.mark.parametrize("load, step", [(0.05, 0.05), (0.2, 0.01), (0.01, 0.2), (1.0, 1.0), (2.0, 0.1), (0.1, 3.0),
                                        (10.0, 0.1), (0.1, 30.0), (20.0, 20.0)])
def test_a_budget_is_kept_or_it_is_said_before(load, step, machine):
    "Budgets from less than a step to hundreds of them: kept to a factor of 1.5, or it was said before the first round."
    loader = DataLoader(Samples(reading=lambda: machine.sleep(load / 8)), 8)
    warned = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = diagnose(Heavy(lambda: machine.spin(step)), loader, budget_seconds=20, device="cpu",
                         report=lambda share, words: warned.append((machine.used, words)))
    said = [str(w.message) for w in caught if "allow budget_seconds=" in str(w.message)]
    assert machine.used <= 30 or said, f"{machine.used:.0f} s"
    if said:
        when, words = warned[0]
        assert "allow budget_seconds" in words and when <= 2 * load + 2 * step + 1, "before the first round"
        assert machine.used <= max(30,
                                   12 * load + 12 * step), "what cannot fit ends after one round and what it overlaps"
    assert bool(said) == (12 * load + 15 * step > 28) and found.rounds >= 1


@pytest.mark.parametrize("load, step", [(0.05, 0.05), (0.5, 0.05), (0.05, 0.5)])
def test_a_verification_keeps_its_budget(load, step, machine):
    found = diagnose(Heavy(lambda: machine.spin(step)),
                     DataLoader(Samples(reading=lambda: machine.sleep(load / 8)), 8), budget_seconds=20, device="cpu")
    before = machine.used
    found.verify(Advice("nothing", Estimate(1.0, 1.0, 1.0), "none", lighter_loading.changed), budget_seconds=10)
    assert machine.used - before <= 15


def test_a_cure_without_time_is_named(machine, monkeypatch):
    def slow(trials): return trials.rounds(lambda: machine.sleep(20.0) or {})
    monkeypatch.setattr(remedies, "CURES", (Cure("a slow cure", bool, slow),))
    found = diagnose(Heavy(lambda: machine.spin(0.1)), DataLoader(Samples(), 8), budget_seconds=20, device="cpu")
    assert "a slow cure could not be tried: three trials did not fit" in " ".join(found.remarks) and machine.used <= 50


# ---- nothing hangs

class Unpicklable(Samples):
    def __getitem__(self, i): return torch.zeros(4), (lambda: i)


def first_of(samples): return torch.stack([x for x, _ in samples]), [what for _, what in samples]


def mean_of_first(model, batch): return model(batch[0]).mean()


def test_batches_that_workers_cannot_send_are_refused_at_once():
    "Python drops what cannot be pickled without an error, and whoever waits for it waits for ever."
    start = time.monotonic()
    with pytest.raises(ValueError, match="2 workers of this loader cannot send its batches"):
        diagnose(nn.Linear(4, 2), DataLoader(Unpicklable(), 8, num_workers=2, collate_fn=first_of), step=mean_of_first,
                 **QUICK)
    assert time.monotonic() - start < 20, "the time limit of a visit"


def test_batches_that_workers_could_not_send_are_diagnosed_without_workers(monkeypatch):
    monkeypatch.setattr(remedies, "worker_numbers", lambda now, workers, cores: [1])
    monkeypatch.setattr(remedies, "CURES", (replace(remedies.CURES[0], could_gain=bool),))
    remarks = []
    loader = DataLoader(Unpicklable(), 8, collate_fn=first_of)
    with bench_of(nn.Linear(4, 2), loader, step=mean_of_first) as bench:
        found = remedies.advise(bench, [bench.round()] * 3, remarks)
    assert found == () and remarks[0].startswith("other workers could not be tried: ValueError: workers cannot send")


class Waiting(Samples):
    "Waits for ever in a worker, as one does that was forked while a lock was held."
    def __getitem__(self, i):
        if get_worker_info() is not None: signal.pause()
        return super().__getitem__(i)


def bench_of(model, loader, budget=None, cores=2, **options):
    pipe = make_pipeline(model, loader, device="cpu", **options)
    return Bench(pipe, visit_seconds=0.01, budget=budget, cores=cores)


def test_workers_on_trial_that_never_answer_end_with_the_time(monkeypatch):
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)  # then PyTorch ends those that stay
    budget = Budget(1.0)
    with bench_of(nn.Linear(4, 2), DataLoader(Waiting(), 8), budget) as bench, pytest.raises(RuntimeError,
        match="workers sent no batch in time"):
        ablation.measure_contention(bench, 1)


# ---- cures

@pytest.fixture
def one_trial(monkeypatch):
    "One round of a trial, however long it takes."
    monkeypatch.setattr(Trials, "rounds", lambda trials, measure: [measure()])


def workers_advised(bench, measured, seconds=3.0):
    "What the first cure of the table says."
    assert remedies.CURES[0].name == "other workers"
    return remedies.CURES[0].advise(Trials(bench, measured, seconds))


def test_workers_that_only_wait_may_be_more_than_the_cores(monkeypatch):
    "96 ms of sleep a batch: sixteen workers on two cores bring one every 6 ms, and it is said so."
    def trial(bench, n):
        return dict(fed_step=5e-3, workers_load=96e-3 / n, contended_step=5e-3, contended_load=96e-3 / n)
    monkeypatch.setattr(remedies, "measure_contention", trial)
    monkeypatch.setattr(Trials, "in_turn", lambda trials, cure: [dict(now=101e-3, then=6e-3)])
    asleep = Round(full=101e-3, load=96e-3, asleep=96e-3, from_host=5e-3, step_cpu=5e-3)
    with bench_of(nn.Linear(4, 2), DataLoader(Samples(), 8), Budget(60.0)) as bench:
        assert workers_advised(bench, [asleep] * 3, 0.01)[0].change == "num_workers=16 instead of 0"


def test_the_cure_of_a_slow_store_is_predicted_and_verified(monkeypatch, one_trial):
    "320 ms of sleep a batch against nothing: what five workers gain, no busy machine takes away."
    monkeypatch.setattr(remedies, "worker_numbers", lambda now, workers, cores: [5])
    with bench_of(nn.Linear(4, 2), DataLoader(Fetching(Samples(), slow_read(20e-3, identity)), 16)) as bench:
        found = workers_advised(bench, [bench.round()])
    assert found and found[0].speedup.low > 1 and found[0].change == "num_workers=5 instead of 0"
    verified = diagnosis.verify_advice(bench.pipe, found[0], Budget(1.0))
    assert verified.measured_speedup > 1 and f"{verified.error:+.0%}" in str(verified)


def test_no_more_workers_than_cores_where_they_compute():
    busy = Round(full=10.0, load=9.0, asleep=0.0, from_host=1.0, step_cpu=1.0)
    assert max(predictions.worker_numbers(busy, 0, 4)) == 4 and predictions.worker_numbers(busy, 1, 1) == []


def test_workers_that_lose_in_a_trial_are_not_advised(monkeypatch, one_trial):
    monkeypatch.setattr(remedies, "worker_numbers", lambda now, workers, cores: [1])
    # a prediction that is far too good
    monkeypatch.setattr(remedies, "step_with_workers", lambda now, **trial: now.full / 10)
    monkeypatch.setattr(Trials, "in_turn", lambda trials, cure: [dict(now=1.0, then=1.0)])
    with bench_of(Heavy(), DataLoader(Samples(), 8)) as bench:
        assert workers_advised(bench, [bench.round()]) == []


def test_nothing_is_advised_where_nothing_helps(machine):
    images = Images(torch.zeros(64, 1, 2, 2, dtype=torch.uint8), torch.zeros(64, dtype=torch.int64))
    found = diagnose(nn.Sequential(nn.Flatten(), Heavy(lambda: machine.spin(30e-3))), BatchLoader(images, 32),
                     budget_seconds=20, device="cpu")
    assert found.verdict == "compute" and found.advice == ()
    with pytest.raises(ValueError, match="no advice to verify"): found.verify(budget_seconds=1)


def test_a_batch_size_that_does_nothing_is_not_advised():
    class Wrapper:
        def __init__(self): self.dataset, self.batch_size = Samples(640), 8
        def __len__(self): return 80
    with bench_of(Heavy(), [(torch.rand(8, 4), torch.zeros(8, dtype=torch.int64))] * 10) as bench:
        bench.pipe = SimpleNamespace(loader=Wrapper())
        assert remedies.CURES[-1].name == "a larger batch" and remedies.CURES[-1].advise(Trials(bench, [])) == []


def test_what_workers_hide_is_no_bottleneck():
    "Two workers load for 50 ms a batch, a step takes 100 ms."
    hidden = Round(full=0.101, from_workers=0.1, from_host=0.1, on_device=0.1, load=0.05, storage=0.05, unknown=0.0,
                  between=0.0)
    assert verdicts.verdict_of([hidden] * 6, verdicts.Setting(2, 2)) == "compute"


def test_batches_that_were_loaded_ahead_do_not_count():
    "Workers that stay fill their queues while other ways are measured: a visit begins when these are empty."
    seen = []
    def step(net, batch):
        seen.append(batch[0][0, 0].item())
        return net(batch[0]).mean()
    loader = DataLoader(Samples(640), 8, num_workers=2, persistent_workers=True)
    with bench_of(nn.Linear(4, 2), loader, step=step) as bench:
        seen.clear()
        bench.full()
        assert bench.source.queue == 4 and seen[0] == 4 * 8, "the first four batches are not trained on"


def test_a_wait_is_not_scaled_with_the_cost_of_watching_it(monkeypatch):
    "Watching makes a batch of 40 ms take 50, of which it sleeps for 34: as long as without."
    def load_once(loader, indices, places):
        return Loading(0.05 if places else 0.04, 0.034 if places else 0.0, 0.0, 0.0, 0.034), torch.zeros(1)
    monkeypatch.setattr(batch_source, "load_once", load_once)
    source = batch_source.BatchSource(DataLoader(Samples(), 8), {("reading",): "loader"})
    try: assert source.load(10.0)[0].storage == pytest.approx(0.034)
    finally: source.close()


def test_a_busy_machine_is_said():
    "As many processes that compute as there are cores: neither of the two signs can miss them."
    command = [sys.executable, "-c", "while True: pass"]
    crowd = [subprocess.Popen(command) for _ in range(ablation.usable_cores())]
    try:
        with bench_of(Heavy(lambda: spin(2e-3)), DataLoader(Samples(), 8)) as bench:
            before = read_cores(children=True)
            for _ in range(2): bench.round()
        assert "diagnose where nothing else runs" in diagnosis.remark_on_others(bench, before)
    finally:
        for process in crowd: process.kill(), process.wait()


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass


# ---- yours stays yours

class Jittered:
    "A transform with a generator of its own."
    def __init__(self): self.draws = np.random.default_rng(0)
    def __call__(self, x): return x + self.draws.random()


def state_of(loader):
    return loader.generator.get_state().tolist(), loader.num_workers, loader._iterator, vars(loader.dataset).copy()


def test_everything_is_left_as_it_was():
    torch.manual_seed(5)
    model = Heavy()
    model(torch.rand(8, 4)).sum().backward()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    loader = DataLoader(Samples(transform=Jittered()), 8, shuffle=True, num_workers=1,
                        generator=torch.Generator().manual_seed(3))
    jitter = loader.dataset.transform.draws.bit_generator.state
    weights, gradients = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()]
    before = str(optimizer.state_dict()), state_of(loader), torch.get_rng_state().tolist(), random.getstate()
    numbers = np.random.get_state()[1].copy()
    diagnose(model, loader, optimizer=optimizer, read="__getitem__", **QUICK)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(model.parameters(), gradients))
    assert before == (str(optimizer.state_dict()), state_of(loader), torch.get_rng_state().tolist(), random.getstate())
    assert np.array_equal(numbers, np.random.get_state()[1])
    assert jitter == loader.dataset.transform.draws.bit_generator.state
    assert type(loader.dataset) is Samples


def test_workers_that_stay_are_not_started():
    loader = DataLoader(Samples(), 8, num_workers=1, persistent_workers=True)
    with bench_of(Heavy(), loader) as bench: bench.round()
    assert loader._iterator is None


def test_layers_in_evaluation_stay_so():
    model = Heavy().train()
    model.norm.eval()
    twin, *_ = copies_of(nn.Sequential(model.norm), None, torch.device("cpu"))
    assert not twin[0].training and twin[0] is not model.norm


class Scaled(nn.Module):
    "A loss that has a weight, and counts its calls."
    def __init__(self):
        super().__init__()
        self.scale, self.calls = nn.Parameter(torch.ones(())), nn.Buffer(torch.zeros(()))

    def forward(self, outputs, targets):
        self.calls += 1
        return nn.functional.cross_entropy(outputs * self.scale, targets)


def test_a_loss_with_weights_and_what_the_step_finds_by_itself_stay_as_they_are():
    loss, net, teacher, warmth = Scaled(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), nn.BatchNorm1d(4), Scaled()
    warmth.scale.grad = gradient = torch.tensor(3.0)
    def step(model, batch):
        return loss(model(batch[0]), batch[1]) + (warmth(model(batch[0]), batch[1]) * teacher(batch[0])).mean()
    head = torch.optim.SGD(net[1].parameters(), 0.1)  # the other layer gets gradients and is not trained
    with kept_beside(step), bench_of(net, DataLoader(Samples(), 8), step=step, optimizer=head) as bench: bench.round()
    assert loss.calls == warmth.calls == teacher.num_batches_tracked == 0
    assert loss.scale.grad is teacher.weight.grad is None and warmth.scale.grad is gradient == 3
    pipe = make_pipeline(net, DataLoader(Samples(), 8), loss_fn=loss, device="cpu",
                         optimizer=torch.optim.SGD([*net.parameters(), *loss.parameters()], 0.1))
    held = pipe.optimizer.param_groups[0]["params"]
    pipe.step(pipe.model, next(iter(pipe.loader))).backward()
    assert all(p.grad is not None for p in held) and loss.scale.grad is None and loss.calls == 0
    with remedies._recompute(precision="bf16")(pipe) as changed:
        changed.step(changed.model, next(iter(changed.loader))).backward()
        assert all(p.grad is not None for group in changed.optimizer.param_groups for p in group["params"])


class Remembered(Scaled):
    "Keeps its last loss, with the graph: no copy can be made then."
    def forward(self, outputs, targets):
        self.last = super().forward(outputs, targets)
        return self.last


def test_a_loss_that_cannot_be_copied_is_used_itself_and_put_back():
    net, loss = nn.Linear(4, 2), Remembered()
    loss(net(torch.rand(3, 4)), torch.tensor([0, 1, 0])).backward()
    gradient = loss.scale.grad
    diagnose(net, DataLoader(Samples(), 8), loss_fn=loss, **QUICK)
    assert loss.calls == loss.scale == 1 and loss.scale.grad is gradient


TEACHER = nn.BatchNorm1d(4)


def test_what_the_step_finds_in_objects_and_inner_functions_stays_as_it_was():
    class Slots:
        __slots__ = ("net",)
        def __init__(self): self.net = nn.BatchNorm1d(4)
    class Loss:
        def __init__(self): self.own, self.parts = nn.BatchNorm1d(4), SimpleNamespace(net=Slots())
        def __call__(self, outputs, targets):
            x = torch.rand(8, 4)
            return outputs.mean() + sum(each.mean() for each in [f(x) for f in (self.own, self.parts.net.net)])
    loss, net = Loss(), nn.Linear(4, 2)
    ways = [dict(loss_fn=loss), dict(step=lambda m, b: loss(m(b[0]), sum(TEACHER(x).sum() for x in b[0].split(4))))]
    for how in ways:
        pipe = make_pipeline(net, DataLoader(Samples(), 8), device="cpu", **how)
        with kept_beside(pipe.step): pipe.step(pipe.model, next(iter(pipe.loader))).backward()
        for norm in (TEACHER, loss.own, loss.parts.net.net):
            assert norm.num_batches_tracked == 0 and norm.weight.grad is None


@pytest.mark.filterwarnings("ignore:.*torch.jit.script", "ignore:.*nested")
def test_modules_of_other_kinds_are_put_back():
    scripted, odd = torch.jit.script(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))).eval(), nn.Linear(4, 2)
    odd.ragged = nn.Buffer(torch.nested.nested_tensor([torch.rand(2), torch.rand(3)]))
    def step(model, batch): return (model(batch) - scripted.train()(batch) - odd(batch)).square().mean()
    with kept_beside(step): step(nn.Linear(4, 2), torch.rand(3, 4)).backward()
    assert not any(m.training for m in scripted.modules()) and all(p.grad is None for p in scripted.parameters())
    assert dict(scripted.named_buffers())["1.num_batches_tracked"] == 0 and odd.weight.grad is None


def test_what_cannot_be_put_back_is_said_and_the_rest_is_put_back():
    teacher = nn.BatchNorm1d(4)
    teacher.weight.grad = torch.ones(4)
    with pytest.warns(UserWarning, match="1 gradients, modes or buffers beside the model could not be put back"):
        with kept_beside(lambda: teacher):
            teacher(torch.rand(3, 4))
            teacher.weight.data = torch.ones(3)  # the gradient does not fit any more
    assert teacher.num_batches_tracked == 0


def test_a_stop_ends_it_and_leaves_no_process():
    def stop(fraction, words): raise Stopped("stopped")
    model, state = Heavy(), torch.get_rng_state()
    with pytest.raises(Stopped): diagnose(model, DataLoader(Samples(), 8, num_workers=2), report=stop, **QUICK)
    assert torch.equal(state, torch.get_rng_state())


# ---- any model, any loader

class Dicts(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return dict(x=torch.rand(4))


class TakesDicts(nn.Module):
    def __init__(self): super().__init__(); self.layer = nn.Linear(4, 2)
    def forward(self, x): return dict(out=self.layer(x))


class Nested(Dataset):
    "Two inputs in a dict in a tuple, and a target that is a number."
    def __len__(self): return 32
    def __getitem__(self, i): return {"pair": (torch.rand(4), torch.rand(4)), "name": "sample"}, torch.rand(1)


def nested_step(model, batch):
    parts, target = batch
    return nn.functional.mse_loss(model(parts["pair"][0] + parts["pair"][1]), target)


class Stream(IterableDataset):
    def __iter__(self): return iter([(torch.rand(4), 0)] * 20)


class Lengthless:
    "A batch sampler that does not know how many there are."
    def __iter__(self): return iter([[0, 1, 2], [3, 4]])


class Ranged(IterableDataset):
    "A stream whose range a worker_init_fn sets, as PyTorch's documentation does it."
    start, end = None, 64
    def __iter__(self): return iter([(torch.rand(4), 0)] * (self.end - self.start))


def set_range(worker): get_worker_info().dataset.start = 60


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


SHAPES = {
    "dicts": lambda: (TakesDicts(), DataLoader(Dicts(), 8), {}),
    "nested": lambda: (nn.Linear(4, 1), DataLoader(Nested(), 8), dict(step=nested_step)),
    "stream": lambda: (nn.Linear(4, 2), DataLoader(Stream(), 8, num_workers=1), {}),
    "inputs alone": lambda: (nn.Linear(4, 2), DataLoader(TensorDataset(torch.rand(64, 4)), 8), {}),
    "a list of batches": lambda: (nn.Linear(4, 2), [(torch.rand(8, 4), torch.zeros(8, dtype=torch.int64))] * 3, {}),
    "numpy batches": lambda: (nn.Linear(4, 2), [(np.random.rand(8, 4), np.zeros(8, dtype=np.int64))] * 3, {}),
    "no batching": lambda: (nn.Linear(4, 1), DataLoader(TensorDataset(torch.rand(64, 4), torch.rand(64, 1)), None), {}),
    "a stream in this process": lambda: (Heavy(), DataLoader(Stream(), 8), {}),
    "labels beyond the outputs": lambda: (nn.Linear(4, 1),
                                          DataLoader(TensorDataset(torch.rand(64, 4), torch.arange(64)), 8), {}),
    "a sampler without length": lambda: (nn.Linear(4, 2), DataLoader(Samples(), batch_sampler=Lengthless()), {}),
    "a worker_init_fn": lambda: (nn.Linear(4, 2), DataLoader(Ranged(), 4, num_workers=1, worker_init_fn=set_range), {}),
    "a model that channels_last breaks": lambda: (Viewing(),
                                                  DataLoader(TensorDataset(torch.rand(32, 3, 8, 8),
                                                      torch.zeros(32, dtype=torch.int64)), 8), {}),
    "two data sets in one": lambda: (nn.Linear(4, 2), DataLoader(Samples(16) + Samples(16), 8), {}),
    "a DataLoader with its own iteration": lambda: (nn.Linear(4, 2), Halving(Samples(), 8, num_workers=1), {}),
    "a DataLoader in a wrapper": lambda: (nn.Linear(4, 2), Wrapping(), {}),
    "a data set": lambda: (nn.Linear(4, 2), Samples(), {}),
    "an optimizer's name": lambda: (nn.Linear(4, 2), Samples(), dict(optimizer="adam")),
}


@pytest.mark.parametrize("name", SHAPES)
def test_other_shapes_of_models_and_loaders(name):
    model, loader, options = SHAPES[name]()
    pipe = make_pipeline(model, loader, device="cpu", **options)
    places = find_callables(pipe.loader.dataset) if loader_kind(pipe.loader) == "map" else {}
    with Bench(pipe, places, visit_seconds=0.01) as bench: measured = [bench.round()]
    seconds = verdicts.stage_seconds(measured[0], verdicts.Setting(bench.source.workers, 2))
    assert verdicts.judge(seconds) in verdicts.VERDICTS and measured[0].full > 0


def test_a_model_that_a_cure_breaks_is_diagnosed_all_the_same():
    model, loader, _ = SHAPES["a model that channels_last breaks"]()
    found = diagnose(model, loader, budget_seconds=3, device="cpu")
    assert found.verdict in verdicts.VERDICTS and found.step.value > 0
    assert "channels_last memory" not in str(found.advice)


@pytest.mark.parametrize("make, words", [
    (lambda: (nn.Linear(4, 2), iter([])), "iterated again and again"),
    (lambda: (nn.Linear(4, 2), 3), "loader must be a DataLoader, a data set or a list"),
    (lambda: (nn.Linear(4, 2), []), "yields no batch"),
    (lambda: (nn.Linear(4, 2), DataLoader(Samples(4), 8, drop_last=True)), "yields no batch"),
    (lambda: (nn.Flatten(), DataLoader(Samples(), 8)), "no parameter to train"),
    (lambda: (len, DataLoader(Samples(), 8)), "must be a torch module"),
    (lambda: (nn.Linear(5, 2), DataLoader(Samples(), 8)), "Give step=lambda"),
    (lambda: (nn.Linear(4, 2, device="meta"), DataLoader(Samples(), 8)), "have no values"),
])
def test_nonsense_is_refused(make, words):
    with pytest.raises(ValueError, match=words): diagnose(*make(), **QUICK)


@pytest.mark.parametrize("options, words", [
    (dict(budget_seconds=0), "budget_seconds must be a finite number above 0, got 0"),
    (dict(budget_seconds=float("nan")), "budget_seconds"),
    (dict(precision="int4"), "precision must be one of"), (dict(step=3), "step must be a function"),
    (dict(between=2.0), "between must be a function"), (dict(report=3), "report must be a function, got 3"),
    (dict(read="nowhere"), "nowhere is not a callable of Samples"),
    (dict(channels_last="yes"), "channels_last must be True or False"), (dict(transform=3), "transform must be a name"),
    (dict(loss_fn=nn.MSELoss), r"loss_fn must not be a class: pass MSELoss\(\)"),
])
def test_nonsense_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words): diagnose(nn.Linear(4, 2), DataLoader(Samples(), 8), **QUICK | options)


# ---- faults of the user's own code are shown as theirs

class Failing(Samples):
    def __getitem__(self, i):
        if i == 13: raise FileNotFoundError("sample 13 has vanished")
        return super().__getitem__(i)


class Deadly(Samples):
    def __getitem__(self, i):
        if get_worker_info() is not None: os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


class Stubborn(nn.Linear):
    def forward(self, x): raise ValueError("I will not")


def stubborn_step(model, batch): raise ValueError("I will not")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_data_set_is_told_as_it_is(workers):
    with pytest.raises(FileNotFoundError, match="sample 13 has vanished"):
        diagnose(Heavy(), DataLoader(Failing(), 8, num_workers=workers), **QUICK)


@pytest.mark.parametrize("model, options", [(Stubborn(4, 2), {}), (nn.Linear(4, 2), dict(step=stubborn_step)),
                                            (nn.Linear(4, 2), dict(loss_fn=stubborn_step))])
def test_an_error_of_the_model_or_the_step_is_told_as_it_is(model, options):
    with pytest.raises(ValueError) as caught: diagnose(model, DataLoader(Samples(), 8), **QUICK | options)
    assert str(caught.value) == "I will not"
    assert any(str(entry.path) == __file__ for entry in list(caught.traceback)[1:]), "with the user's own lines"


def test_a_killed_worker_is_an_error_and_no_hang():
    with pytest.raises(RuntimeError, match="worker .* killed|exited unexpectedly"):
        diagnose(Heavy(), DataLoader(Deadly(), 8, num_workers=2), **QUICK)


class Big(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.zeros(1_000_000), 0


class First(nn.Linear):
    def forward(self, x): return super().forward(x[:, :1])


def has_a_tiny_shared_memory(pipe):
    "With a file system of its own: a megabyte."
    assert ctypes.CDLL(None).unshare(0x00020000) == 0  # CLONE_NEWNS
    for command in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", "size=1m", "tmpfs", "/dev/shm"]):
        subprocess.run(["mount", *command], check=True)
    try: diagnose(First(1, 2), DataLoader(Big(), 8, num_workers=1), device="cpu", budget_seconds=1)
    except Exception: pipe.send(traceback.format_exc())


def can_unshare():
    "Whether we may mount a file system of our own, which takes root."
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="a small /dev/shm of our own needs root and unshare")
def test_a_tiny_shared_memory_is_told():
    with twin(has_a_tiny_shared_memory) as (_, pipe): said = heard(pipe, 120)
    assert "shared memory" in said and "docker run --shm-size=" in said, "before anything hangs"


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

class Broken(Slow):
    def fetch(self, i): return int("word")

net = nn.Linear(4, 2)
def slow(): return nn.Linear(4, 2), DataLoader(Slow(), 8)
def broken(): return nn.Linear(4, 2), DataLoader(Broken(), 8)
def faulty(): return 1 / 0
def nonsense(): return 3
def backwards(): return DataLoader(Slow(), 8), nn.Linear(4, 2)
def misspelt(): return nn.Linear(4, 2), DataLoader(Slow(), 8), dict(budget=3)
def needs(batch_size): return slow()
"""


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    "`mlinfra doctor` in a folder with a module of the user's, without a new process: status, output, errors."
    (tmp_path / "mine.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    def run(*args):
        status = main(["doctor", *args])
        return SimpleNamespace(returncode=status, **capsys.readouterr()._asdict())
    yield run
    sys.modules.pop("mine", None)


def test_one_command_diagnoses_and_verifies(shell, machine, monkeypatch):
    advice = Advice("two of everything", Estimate(1.5, 1.4, 1.6), "none", lighter_loading.changed)
    monkeypatch.setattr(remedies, "CURES", (Cure("two", bool, lambda trials: [advice]),))
    done = shell("mine:slow", "--seconds", "30", "--verify", "--device", "cpu")
    assert done.returncode == 0, done.err
    assert "verdict: storage" in done.out and "advice: two of everything" in done.out
    assert "verified: two of everything: predicted 1.50, measured 1.00" in done.out
    assert "prediction was off by +50%" in done.out


@pytest.mark.parametrize("spec, words", [
    ("mine", "package.module:function"), ("mine:nothing", "mine has no function nothing"),
    ("nowhere:at_all", "there is no module nowhere"),
    ("mine:nonsense", "must return (model, loader)"), ("mine:net", "is a Linear, not a function"),
    ("mine:needs", "without arguments"),
    ("mine:backwards", "got a model of type DataLoader"), ("mine:misspelt", "got 'budget'"),
])
def test_a_wrong_factory_is_one_clear_line(spec, words, shell):
    done = shell(spec)
    assert done.returncode == 2 and done.err.startswith("mlinfra doctor: ") and words in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("spec, line", [("mine:broken", 'return int("word")'), ("mine:faulty", "return 1 / 0")])
def test_an_error_of_the_users_own_code_comes_with_its_lines(spec, line, shell):
    done = shell(spec, "--seconds", "1", "--device", "cpu")
    assert done.returncode == 1 and "Traceback" in done.err and line in done.err
