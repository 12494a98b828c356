"""Watching where a notebook cannot show it: forks, threads, kills, full disks, broken rules, a GPU's driver."""
import contextlib
import copy
import io
import itertools
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from clocked import clocked
from copies import heard, twin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.checkpoint import Checkpointer, latest, verify
from mlinfra.lab.cpu_noise import busy_neighbour
from mlinfra.engine.base.host_copy import HostCopy
from mlinfra.engine.dist.ranks import run_ranks
from mlinfra.engine.record.run_folder import Run
from mlinfra.engine.record.sampler import Sampler, SamplerThread
from mlinfra.engine.record.callbacks import LoopWatch
from mlinfra.engine.record.recorder import Monitor
from mlinfra.engine.record.watch import watch
from mlinfra.engine.rules.rate_rules import SchedulerSearch
from mlinfra.debugger import Debugger
from mlinfra.trace import TraceSteps
from mlinfra.training import fit

try: import resource
except ImportError: resource = None  # Windows has no limits

QUIET = dict(progress=False, keep_memory=False, device="cpu")


@pytest.fixture(autouse=True)
def seeded(): torch.manual_seed(0)


def data(samples=64): return TensorDataset(torch.randn(samples, 4), torch.randint(0, 2, (samples,)))
def linear(): return nn.Linear(4, 2)


class Paused:
    "Batches that come after a pause."
    def __init__(self, count, seconds): self.batches, self.seconds = list(DataLoader(data(count * 16), 16)), seconds

    def __iter__(self):
        for batch in self.batches:
            time.sleep(self.seconds)
            yield batch


def train(w, model, optimizer, batches, after=lambda n: None):
    for n, (x, y) in enumerate(w(batches)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after(n)


def watched(folder, after=lambda n: None, batches=None, epochs=1, **how):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(folder, model, optimizer, **how) as w:
        for _ in range(epochs): train(w, model, optimizer, batches or Paused(6, 0.0), after)
    return Run(folder)


class Ledger:
    "What a rule is told: steps, and before them which step has ended last."
    def __init__(self): self.findings, self.steps, self.ended, self.truth, self.done = [], [], [], [], 0
    def on_step(self, record): self.steps.append(record.iteration)
    def on_ended(self, iteration):
        self.ended.append(iteration)
        self.truth.append(self.done - 1)

    @property
    def patience(self): return 50  # wants to hear of 50 at once


def test_rules_are_told_late_and_know_which_step_has_ended_last(tmp_path):
    rule, model = Ledger(), linear()
    def count(n): rule.done += 1
    with watch(tmp_path / "loop", rules=[rule]) as w:
        train(w, model, torch.optim.SGD(model.parameters(), 0.1), list(DataLoader(data(16 * 120), 16)), count)
    assert rule.steps == list(range(120)) and rule.ended == rule.truth and len(set(rule.ended)) < 100
    rule = Ledger()
    class Count:
        def on_step(self, run, step): rule.done += 1
    observers = [Count(), Monitor(tmp_path / "fit", rules=[rule])]
    fit(linear(), DataLoader(data(16 * 120), 16), epochs=1, observers=observers, **QUIET)
    assert rule.steps == list(range(120)) and set(rule.ended) == set(rule.truth) and len(set(rule.ended)) < 100


def lie_end_to_end(run):
    steps = run.steps
    ends = (steps.start + steps.seconds).to_numpy()[:-1] + steps.between.to_numpy()[1:]
    assert abs(ends - steps.start.to_numpy()[1:]).max() < 1e-9 and steps.between[0] == steps.start[0]
    assert math.isclose(sum(run.shares().values()), 1) and sum(run.seconds().values()) <= run.events("end")[0].at + 1e-6
    return steps


# ---- where time is booked

@pytest.mark.parametrize("epochs", [1, 3])
def test_steps_of_fit_lie_end_to_end(tmp_path, epochs):
    start = time.perf_counter()
    fit(linear(), DataLoader(data(), 16), epochs=epochs, valid=data(), observers=[Monitor(tmp_path)], **QUIET)
    wall, run = time.perf_counter() - start, Run(tmp_path)
    assert len(lie_end_to_end(run)) == 4 * epochs and sum(run.seconds().values()) < wall
    assert len(run.table("loader")) == len(run.table("evaluation")) == epochs


@clocked
def test_a_slow_loader_is_wait(tmp_path):
    steps = lie_end_to_end(watched(tmp_path, batches=Paused(4, 0.03)))
    assert (steps.wait >= 0.03).all() and steps.between[1:].max() < 0.03


@clocked
def test_a_pause_after_the_update_is_between(tmp_path):
    steps = lie_end_to_end(watched(tmp_path, lambda n: time.sleep(0.1 if n == 2 else 0)))
    assert steps.between[3] >= 0.1 and steps.evaluation.sum() == 0 and steps.seconds.max() < 0.1


@pytest.mark.parametrize("how", ["block", "loader", "no_grad"])
@clocked
def test_a_validation_in_the_loop_is_evaluation(tmp_path, how):
    model, pauses = linear(), Paused(5, 0.02)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(tmp_path, model, optimizer) as w:
        def validate(n):
            if n != 2: return
            if how == "block":
                with w.evaluation(): [model(x) for x, _ in pauses]
            elif how == "loader": [model(x) for x, _ in w(pauses)]
            else:
                with torch.no_grad(): [model(x) for x, _ in pauses]
        train(w, model, optimizer, Paused(6, 0.0), validate)
    steps = lie_end_to_end(Run(tmp_path))
    assert len(steps) == 6 and steps.evaluation[3] >= (0.08 if how == "no_grad" else 0.1)
    assert steps.evaluation.drop(3).sum() == 0 and steps.between[3] >= 0.1 and steps.wait.max() < 0.02


def test_epochs_and_what_lies_between_them(tmp_path):
    run = watched(tmp_path, epochs=3)
    steps = lie_end_to_end(run)
    assert list(steps.iteration) == list(range(18)) and list(steps.epoch) == [0] * 6 + [1] * 6 + [2] * 6
    assert list(run.epochs.iterations) == [6] * 3


@pytest.mark.parametrize("how", ["watch", "fit"])
def test_what_rules_search_for_is_no_time_of_the_loader(tmp_path, monkeypatch, how):
    "A search of 0.1 s before an epoch, as in a process with many objects."
    monkeypatch.setattr(SchedulerSearch, "look", lambda *_: time.sleep(0.1))
    model, data = nn.Linear(4, 2), DataLoader(TensorDataset(torch.randn(8, 4), torch.zeros(8, dtype=torch.long)), 4)
    optimizer, rules = torch.optim.SGD(model.parameters(), 0.1), [Debugger()]
    if how == "fit":
        fit(model, data, epochs=2, optimizer=optimizer, observers=[Monitor(tmp_path / "run", rules=rules)], **QUIET)
    else:
        with watch(tmp_path / "run", model, optimizer, rules=rules) as w:
            for _ in range(2):
                for x, y in w(data): nn.functional.cross_entropy(model(x), y).backward()
    run = Run(tmp_path / "run")
    assert run.steps.opening.max() < 0.1 and run.steps.between.max() >= 0.1
    assert max(event.data["seconds"] for event in run.events("loader")) < 0.1


def test_leaving_a_loop_keeps_its_step(tmp_path):
    with watch(tmp_path) as w:
        for n, _ in enumerate(w(Paused(6, 0.0))):
            if n == 2: break
    steps = lie_end_to_end(Run(tmp_path))
    assert len(steps) == 3 and steps.forward.isna().all() and (steps.other > 0).all()


@pytest.mark.parametrize("given", ["model", "optimizer"])
def test_what_cannot_be_told_apart_is_not_a_number(tmp_path, given):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(tmp_path, **{given: dict(model=model, optimizer=optimizer)[given]}) as w:
        train(w, model, optimizer, Paused(4, 0.0))
    steps = lie_end_to_end(Run(tmp_path))
    known = ["forward", "copy"] if given == "model" else ["update"]
    assert (steps[known] > 0).all(axis=None) and steps[["backward"]].isna().all(axis=None) and (steps.other > 0).all()


class Diffusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = linear()
    def forward(self, x): return self.net(x)
    def training_loss(self, x):
        time.sleep(0.02)
        return self.net(x).square().mean()


@clocked
def test_a_loss_that_is_another_method_is_forward_and_not_copy(tmp_path):
    model = Diffusion()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(tmp_path, model, optimizer) as w:
        for x, _ in w(Paused(6, 0.0)):
            loss = model.training_loss(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)
    steps = lie_end_to_end(Run(tmp_path))
    assert steps[["copy", "forward", "backward"]].iloc[0].isna().all(), "it is not known before the first step is over"
    assert (steps.forward[1:] >= 0.02).all() and steps["copy"][1:].max() < 0.02
    assert set(vars(model)) == set(vars(Diffusion()))


class Wrapping(torch.optim.Optimizer):
    "As Accelerate's and Lookahead of many projects: nothing of its base class is called."
    def __init__(self, inner): self.inner = inner
    def step(self): self.inner.step()


def test_an_optimizer_that_wraps_another_tells_its_update(tmp_path):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(tmp_path, model, Wrapping(optimizer)) as w: train(w, model, optimizer, Paused(3, 0.0))
    assert (Run(tmp_path).steps["update"] > 0).all()


@pytest.mark.parametrize("leave", [None, RuntimeError("out of memory"), KeyboardInterrupt()])
def test_a_step_that_was_left_has_no_loss_and_no_nan(tmp_path, leave):
    with contextlib.suppress(RuntimeError, KeyboardInterrupt), watch(tmp_path) as w:
        for n, _ in enumerate(w(Paused(6, 0.0))):
            if n == 3 and leave is not None: raise leave
            if n == 3: break
            w.loss(math.nan if n == 2 and leave is None else 1.0)
    run = Run(tmp_path)
    assert [e.data["iteration"] for e in run.events("nan_loss")] == ([2] if leave is None else [])


# ---- hooks

def test_hooks_are_taken_off_by_an_exception_too(tmp_path):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(KeyboardInterrupt), watch(tmp_path, model, optimizer) as w:
        for _ in w(Paused(3, 0.0)): raise KeyboardInterrupt
    hooks = (model._forward_hooks, model._forward_pre_hooks, optimizer._optimizer_step_pre_hooks,
             optimizer._optimizer_step_post_hooks)
    assert not any(hooks) and Run(tmp_path).events("end")[0].data["how"] == "interrupted"


def test_copies_and_pickles_of_a_watched_model_are_not_watched(tmp_path):
    model, x = linear(), torch.randn(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(tmp_path, model, optimizer) as w:
        for _ in w(Paused(3, 0.0)):
            twin = copy.deepcopy(model)
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            again = torch.load(file, weights_only=False)
            twin(x), again(x)
    assert Run(tmp_path).steps.forward.isna().all(), "nobody called the model itself"


def test_a_forward_that_raises_is_over(tmp_path):
    model = linear()
    with watch(tmp_path, model, torch.optim.SGD(model.parameters(), 0.1)) as w:
        for x, _ in w(Paused(3, 0.0)):
            with pytest.raises(RuntimeError): model(x[:, :3])
            model(x)
            time.sleep(0.1)
    steps = Run(tmp_path).steps
    assert steps.backward.min() >= 0.1, "what comes after a forward is not booked as forward"


def test_nonsense_is_refused_before_anything_runs(tmp_path):
    for wrong, says in ((dict(model=3), "model must be"), (dict(optimizer=3), "optimizer must be"),
                        (dict(rules=[3]), "a rule must have"), (dict(every_seconds=0), "every_seconds must be")):
        with pytest.raises(ValueError, match=says): watch(tmp_path / "run", **wrong)
    with pytest.raises(TypeError, match="config must give each setting a name"): watch(tmp_path / "run", config="lr=1")
    with pytest.raises(RuntimeError, match="use it in a with block"): watch(tmp_path / "run")([])
    assert not (tmp_path / "run").exists()


def test_settings_have_any_form_that_names_them_and_a_loss_is_a_number(tmp_path):
    with watch(tmp_path, config=Namespace(lr=0.5)) as w:
        for _ in w([1]):
            for wrong in (None, dict(loss=1.0), torch.ones(1) * 1j):
                with pytest.raises(TypeError, match="loss must be a number or a tensor of real numbers"): w.loss(wrong)
            w.loss(torch.tensor([1.0, 3.0]))
    assert Run(tmp_path).config["lr"] == 0.5 and Run(tmp_path).records()["loss"].tolist() == [2.0]


# ---- rules, threads, faults

class Rule:
    def __init__(self, fails=False): self.fails, self.findings, self.samples = fails, [], 0
    def on_sample(self, sample): self.samples += 1

    def on_step(self, record):
        if self.fails: raise ArithmeticError("never")
        if record.iteration == 2: self.findings.append(dict(rule="third", step=record.iteration))


@pytest.mark.parametrize("how", ["fit", "watch"])
def test_a_rule_that_raises_is_left_out_and_the_others_go_on(tmp_path, how):
    rules = [Rule(fails=True), Rule()]
    with pytest.warns(UserWarning, match="Rule was left out: it raised ArithmeticError: never") as said:
        if how == "fit": fit(linear(), DataLoader(data(), 16), observers=[Monitor(tmp_path, rules=rules)], **QUIET)
        else: watched(tmp_path, rules=rules)
    run = Run(tmp_path)
    assert len(said) == 1 and run.findings[0].data == dict(rule="third", step=2) and rules[1].samples > 0
    assert any("left out" in event.data["words"] for event in run.events("remark")) and run.ended


def test_a_place_that_cannot_be_written_does_not_stop_the_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="the run is not recorded"):
        history = fit(linear(), DataLoader(data(), 16), observers=[Monitor(tmp_path / "file")], **QUIET)
    assert len(history.steps) == 4 and history.remarks == []


def test_a_training_that_fails_is_told(tmp_path):
    def loader():
        yield from itertools.islice(DataLoader(data(), 16), 2)
        raise OSError("gone")
    with pytest.raises(OSError, match="gone"): fit(linear(), loader(), observers=[Monitor(tmp_path)], **QUIET)
    end = Run(tmp_path).events("end")[0].data
    assert end == dict(how="raised", error="OSError: gone") and len(Run(tmp_path).steps) == 2


def fitted(folder): fit(linear(), DataLoader(data(96), 16), observers=[Monitor(folder)], **QUIET)


@pytest.mark.parametrize("train_in", [watched, fitted])
def test_two_trainings_in_threads(tmp_path, train_in):
    threads = [threading.Thread(target=train_in, args=(tmp_path / name,)) for name in "ab"]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    for name in "ab": assert len(lie_end_to_end(Run(tmp_path / name))) == 6
    assert not [thread for thread in threading.enumerate() if thread.name == "mlinfra-sampler"]


@pytest.fixture
def workers():
    "How many more workers than before a sampler sees."
    before = workers_now()
    return lambda: workers_now() - before


def workers_now():
    sampler = Sampler()
    try: return sampler.sample().workers or 0
    finally: sampler.close()


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_workers_of_a_loader_are_seen_and_write_nothing(tmp_path):
    loader, before = DataLoader(data(), 16, num_workers=1, multiprocessing_context="fork"), workers_now()
    run = watched(tmp_path, lambda n: time.sleep(0.1), loader, every_seconds=0.02)
    assert len(lie_end_to_end(run)) == 4 and run.steps.samples.sum() == 64 and not run.skipped
    assert sys.platform != "linux" or run.samples.workers.max() == before + 1


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_is_one_however_it_was_started_and_its_helpers_are_none(workers, method):
    over = multiprocessing.get_context(method).Event()  # its semaphore has a resource tracker, another process
    worker = multiprocessing.get_context(method).Process(target=over.wait, args=(120,))
    worker.start()
    try: until(lambda: workers() == 1, "the worker is seen")
    finally:
        over.set()
        worker.join()
    assert workers() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_other_programs_that_a_process_starts_are_no_workers(workers):
    with busy_neighbour(processes=2, rest_seconds=0):
        sampler = Sampler()
        until(lambda: sampler.sample().machine_cores, "the neighbours compute")
        seen = [sampler.sample() for _ in range(8)]  # it looks for new children every few samples
        sampler.close()
        assert workers() == 0 and {sample.workers for sample in seen} == {seen[0].workers}


def test_a_sampler_that_fails_ends_alone():
    def refuse(sample): raise OSError("no")
    thread = SamplerThread(refuse, 0.01)
    thread._thread.join(5)
    assert isinstance(thread.error, OSError) and not thread._thread.is_alive()


class Hears:
    "A rule that keeps what it hears of."
    def __init__(self): self.findings, self.kinds, self.loaders = [], [], []
    def on_step(self, record): self.kinds.append("step")
    def on_event(self, kind, at, data): self.kinds.append(kind)
    def on_loader(self, loader): self.loaders.append(loader)


def test_rules_hear_of_all_that_a_frameworks_loop_tells(tmp_path):
    rule, loader = Hears(), DataLoader(data(), 16)
    with LoopWatch(tmp_path, rules=[rule], told=True) as w:
        w.begin_epoch(loader)
        w.batch(16, "forward")
        w.end_step()
        w.event("log", logs=dict(lr=0.1))
        w.end_epoch()
    run = Run(tmp_path)
    assert rule.kinds == ["loader", "step", "log", "epoch"] and rule.loaders == [loader]
    assert run.events("log")[0].data == dict(logs=dict(lr=0.1)) and list(run.epochs.iterations) == [1]
    assert run.events("loader")[0].data["batch_size"] == 16


# ---- what happens to long runs

def fills(pipe, folder):
    "No file may grow beyond 6,000 bytes."
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, hard))
        history = fit(linear(), DataLoader(data(1600), 16), observers=[Monitor(folder, 3600)], **QUIET)
    pipe.send((len(history.steps), history.remarks, [str(each.message) for each in said]))


@pytest.mark.skipif(resource is None, reason="needs a limit on the size of files")
def test_a_disk_that_is_full_in_the_middle_does_not_stop_the_training(tmp_path):
    with twin(fills, tmp_path) as (process, pipe):
        steps, remarks, said = heard(pipe)
        process.join(60)
        assert process.exitcode == 0
    assert steps == 100 and remarks == [] and len(said) == 1 and "not recorded from here on" in said[0]
    run = Run(tmp_path)
    assert list(run.steps.iteration) == list(range((6_000 - 32) // 120)) and not run.ended and not run.skipped


def hangs(pipe, folder, last, seconds):
    "Steps with a pause before each; the last one tells the time, and hangs."
    def hang(n):
        if n < last: return
        pipe.send(time.perf_counter())
        time.sleep(60)
    watched(folder, hang, Paused(last + 1, seconds))


def killed_in(folder, last, seconds):
    "A process of its own is killed in its last step; the time at which that began to hang."
    with twin(hangs, folder, last, seconds) as (process, pipe):
        hung = heard(pipe)
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    return hung


def test_a_kill_in_the_middle_of_a_step_loses_that_step_and_a_restart_goes_on_beside_it(tmp_path):
    killed_in(tmp_path, 5, 0.03)  # longer than the 20 ms for which steps are held back
    run = Run(tmp_path)
    assert list(run.steps.iteration) == list(range(5)) and run.killed is True and not run.ended and not run.skipped
    assert math.isclose(sum(run.shares().values()), 1)
    again = watched(tmp_path)  # the kernel was restarted, and the cell run again
    assert again.attempts == 2 and len(lie_end_to_end(again)) == 6 and again.ended
    assert len(Run(tmp_path, attempt=0).steps) == 5


class Late(HostCopy):
    "A loss on its way from a GPU, which is there after two more steps were told."
    asked = 0

    @property
    def ready(self):
        self.asked += 1
        return self.asked > 2


def test_losses_that_arrive_later_are_kept_with_their_steps(tmp_path, monkeypatch):
    monkeypatch.setattr("mlinfra.engine.record.watch._on_its_way", lambda loss: Late(loss))
    model = linear()
    with watch(tmp_path, model) as w:
        for n, (x, y) in enumerate(w([(torch.ones(2, 4), torch.ones(2))] * 7)):
            model(x)
            w.loss(torch.tensor(float(n)))
    assert list(Run(tmp_path).steps.loss) == [0, 1, 2, 3, 4, 5, 6]


def test_a_kill_among_short_steps_loses_the_last_of_them_only(tmp_path):
    hung = killed_in(tmp_path, 300, 0.001)
    run = Run(tmp_path)
    kept, origin = run.steps, run.events("start")[0].data["clock"]
    assert list(kept.iteration) == list(range(len(kept))), "the first ones, without a gap"
    lost = hung - origin - (kept.start + kept.seconds).max()
    assert 0 <= lost < 0.2, "20 ms, and what a busy machine takes between two steps"


def test_a_wall_clock_that_is_set_back_leaves_the_axis_alone(tmp_path, monkeypatch):
    wall, wall_ns, behind, started = time.time, time.time_ns, [0], time.time()
    monkeypatch.setattr(time, "time", lambda: wall() - behind[0])
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() - behind[0] * 10**9)
    def set_back(n):
        if n == 2: behind[0] = 3_600
        while n == 5 and len(Run(tmp_path).events("sample")) < 3: time.sleep(0.005)
    run = watched(tmp_path, set_back, every_seconds=0.005, batches=Paused(6, 0.02))
    steps, ats = lie_end_to_end(run), [event.at for event in run.events()]
    assert abs(time.time() - started) > 3_000, "the clock was set back"
    assert len(steps) == 6 and steps.start.is_monotonic_increasing and 0 <= min(ats) and max(ats) < 600
    assert run.samples["seconds"].min() > 0 and abs(run.started - started) < 600 and run.killed is False


def test_a_folder_that_is_being_written_is_refused(tmp_path):
    model = linear()
    with watch(tmp_path) as w:
        train(w, model, torch.optim.SGD(model.parameters(), 0.1), Paused(3, 0.0))
        with pytest.raises(FileExistsError, match="give this run a folder of its own"): watched(tmp_path)
        with pytest.warns(UserWarning, match="give this run a folder of its own"):
            history = fit(linear(), DataLoader(data(), 16), observers=[Monitor(tmp_path)], **QUIET)
    run = Run(tmp_path)
    assert len(history.steps) == 4 and len(history.remarks) == 1, "the training goes on, unrecorded"
    assert run.attempts == 1 and len(run.steps) == 3 and run.ended
    assert not [thread for thread in threading.enumerate() if thread.name == "mlinfra-sampler"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_training_that_forks_goes_on_and_its_copy_writes_nothing(tmp_path):
    model, children = linear(), []
    try:
        with watch(tmp_path, model, torch.optim.SGD(model.parameters(), 0.1), every_seconds=0.005) as w:
            def fork(n):
                if n == 2: children.append(os.fork())
                if children == [0]: raise InterruptedError  # the copy leaves the loop
            train(w, model, w._optimizers[0], Paused(6, 0.0), fork)
    except InterruptedError: os._exit(0)
    finally:
        if children == [0]: os._exit(1)
    until(lambda: os.waitpid(children[0], os.WNOHANG) != (0, 0), "the copy ends")
    run = Run(tmp_path)
    assert len(lie_end_to_end(run)) == 6 and [event.data["how"] for event in run.events("end")] == ["finished"]


def one_of_two(folder):
    "The second one's loader sleeps."
    watched(folder, lambda n: time.sleep(0.02), Paused(20, 0.01 * int(os.environ["RANK"])))


def followed(folder):
    "Read a run from its first steps to its end."
    until(lambda: len(list(folder.glob("steps-*.bin"))) == 2, "both ranks write", 120)
    reader, seen = Run(folder), 0
    def is_over():
        nonlocal seen
        reader.refresh()
        assert len(reader.steps) >= seen
        seen = len(reader.steps)
        return reader.ended
    until(is_over, "both ranks have ended", 120)
    return reader


def test_ranks_of_torchrun_write_and_one_reader_joins_them(tmp_path):
    "Its launcher starts them, as copies of a process that has loaded PyTorch."
    with ThreadPoolExecutor(1) as beside:
        following = beside.submit(followed, tmp_path / "run")
        run_ranks(one_of_two, 2, tmp_path / "run", share_cores=True)
        reader = following.result(120)
    assert reader.ranks == (0, 1) and reader.world_size == 2 and reader.killed is False
    for rank in (0, 1): assert list(reader.steps[reader.steps["rank"] == rank].iteration) == list(range(20))
    waits = reader.steps.groupby("rank").wait.min()
    assert waits[1] >= 0.01, "its loader sleeps"


# ---- the driver of a GPU, without one

STUB = """
#include <string.h>
typedef int R; typedef void *D; typedef unsigned u;
R nvmlInitWithFlags(u flags) { return 0; }
R nvmlShutdown(void) { return 0; }
R nvmlDeviceGetCount_v2(u *n) { *n = 2; return 0; }
R nvmlDeviceGetHandleByIndex_v2(u i, D *d) { *d = (D)(long)(i + 1); return 0; }
R nvmlDeviceGetUUID(D d, char *s, u n) { strcpy(s, d == (D)1 ? "GPU-a" : "GPU-b"); return 0; }
R nvmlDeviceGetName(D d, char *s, u n) { strcpy(s, "Stub"); return 0; }
R nvmlDeviceGetUtilizationRates(D d, u *r) { r[0] = 75; r[1] = 5; return 0; }
R nvmlDeviceGetMemoryInfo(D d, unsigned long long *m) { m[0] = 1000; m[1] = 400; m[2] = 600; return 0; }
R nvmlDeviceGetPowerUsage(D d, u *v) { if (d == (D)2) return 3; *v = 250000; return 0; }
R nvmlDeviceGetClockInfo(D d, u kind, u *v) { *v = kind == 1 ? 1500 : 9; return 0; }
R nvmlDeviceGetMaxClockInfo(D d, u kind, u *v) { *v = 2000; return 0; }
R nvmlDeviceGetPcieThroughput(D d, u way, u *v) { *v = way == 1 ? 3000 : 100; return 0; }
const char *nvmlErrorString(R r) { return "Not Supported"; }
"""
ASKS = """
import json
from mlinfra.engine.record.sampler import Sampler, sample_row
sampler = Sampler()
print(json.dumps([sample_row(sampler.sample())["gpus"], sampler.remarks]))
sampler.close()
"""


def asked(**environment):
    "What a process of its own sees of the GPUs."
    kept = {name: value for name, value in os.environ.items() if name not in ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK")}
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, env=kept | environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler on Linux")
def test_what_the_driver_says_and_what_it_does_not(tmp_path):
    (tmp_path / "stub.c").write_text(STUB)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "stub.c"], check=True)
    (first, second), remarks = asked(LD_LIBRARY_PATH=str(tmp_path))
    assert remarks == [] and first == dict(
        index=0, name="Stub", utilisation=0.75, memory_bytes=600, total_bytes=1000, power_watts=250.0, clock_hz=1.5e9,
        max_clock_hz=2e9, temperature_celsius=None, to_device_bytes_per_s=3e6, from_device_bytes_per_s=1e5)
    assert second["index"] == 1 and second["power_watts"] is None, "this one does not tell"
    (only,), _ = asked(LD_LIBRARY_PATH=str(tmp_path), CUDA_VISIBLE_DEVICES="GPU-b,GPU-a", LOCAL_RANK="0")
    assert only["index"] == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver here")
def test_without_a_driver_nothing_is_made_up():
    gpus, remarks = asked()
    assert gpus is None and remarks[0].startswith("GPUs are not measured: ")


@pytest.mark.parametrize("folder", ["", "~/runs", 3, b"runs", "a\0b"])
def test_what_names_no_folder_is_refused_before_anything_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for use in (Checkpointer, latest, verify, Monitor, watch, Run, TraceSteps):
        with pytest.raises(ValueError, match="^(root|folder) must be the path of a folder"): use(folder)
    assert not list(tmp_path.iterdir())


def test_a_file_where_checkpoints_should_be_is_an_error():
    for use in (latest, verify):
        with pytest.raises(NotADirectoryError): use(__file__)
