"""The debugger on real trainings: faults that it must find in time, healthy runs in which it must find nothing."""
import copy
import gc
import io
import json
import math
import multiprocessing
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from clocked import clocked
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.debugger import Debugger, Rule, default_rules
from mlinfra.lab.faults import FAULTS, HEALTHY as WELL, make_healthy, make_patient
from mlinfra.engine.rules import rate_rules
from mlinfra.engine.rules.inspection import apply_rules
from mlinfra.engine.record.run_folder import Run, StepRecord
from mlinfra.engine.record.run_writer import RunWriter
from mlinfra.engine.rules.default_rules import LOOP_RULES, RANK_RULES, SPEED_RULES, TENSOR_RULES
from mlinfra.engine.rules.loss_rules import SameRun, StalledTraining
from mlinfra.engine.train.transformer import Transformer
from mlinfra.engine.record.recorder import Monitor
from mlinfra.engine.record.watch import watch
from mlinfra.models import GluonCNN, resnet18
from mlinfra.training import fit

QUIET = dict(progress=False, keep_memory=False, device="cpu")
SPEED = {rule.__name__ for rule in SPEED_RULES}


@pytest.fixture(autouse=True)
def seeded(): torch.manual_seed(0)


def tensor_debugger(every=4, **how): return Debugger([rule() for rule in TENSOR_RULES], every=every, **how)
def said(debugger): return [(finding.rule, finding.step) for finding in debugger.findings]
def has_hooks(model):
    return any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())


def process_of_its_own():
    "One that has done nothing yet: where the system can, a copy of one that has loaded PyTorch."
    methods = multiprocessing.get_all_start_methods()
    return ProcessPoolExecutor(1, multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn"))


# ---- faults

def judged(fault):
    "What is found in a training with this fault at its worst, the remarks, and whether hooks are left."
    patient, debugger = make_patient(fault, FAULTS[fault].strengths[-1], 80), Debugger(every=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patient.train(debugger)
    return debugger.findings, debugger.remarks, has_hooks(patient.model)


@pytest.mark.parametrize("fault", FAULTS)
@clocked
def test_each_fault_is_found_in_time(fault):
    if fault == "leak":  # a process that has freed much fills that first
        with process_of_its_own() as own:
            findings, remarks, hooks = own.submit(judged, fault).result(120)
    else: findings, remarks, hooks = judged(fault)
    hits = [finding for finding in findings if finding.rule in FAULTS[fault].rules]
    assert hits and hits[0].step <= FAULTS[fault].by, findings
    strange = [f for f in findings if f.rule not in FAULTS[fault].rules and f.rule not in SPEED]
    assert not [f for f in strange if f.step < hits[0].step], f"the cause is named first: {findings}"
    assert hits[0].message and hits[0].advice and not remarks and not hooks


def batches(count=120, size=32, features=20, classes=4, seed=0):
    "A task that can be learned: the class is the largest of a few sums."
    make = torch.Generator().manual_seed(seed)
    x = torch.randn(count * size, features, generator=make)
    return DataLoader(TensorDataset(x, (x @ torch.randn(features, classes, generator=make)).argmax(1)), size)


def mlp(*sizes, act=nn.ReLU):
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def run(model, loader=None, debugger=None, observers_more=(), **how):
    debugger = debugger or tensor_debugger()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(model, loader or batches(), observers=[debugger, *observers_more], **QUIET | how)
    return debugger


class Backward(nn.Module):
    "Passes on what comes, and its gradient times a factor: as of a function whose slope was written by hand."
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
    def forward(self, x): return x.detach() * (1 - self.factor) + x * self.factor


class Cut(nn.Module):
    def forward(self, x): return x.detach()


class Log(nn.Module):
    def forward(self, x): return torch.log(x.clamp(min=-0.5) + 0.5)


def between(module, sizes=(20, 32, 32, 32, 32, 4)):
    "Linear layers with ReLU, and a module after each of them."
    layers = []
    for a, b in zip(sizes, sizes[1:]): layers += [nn.Linear(a, b), nn.ReLU(), module]
    return nn.Sequential(*layers[:-2])


def rate(lr): return lambda parameters: torch.optim.SGD(parameters, lr)


def bad_sample():
    x = torch.rand(320, 4)
    x[40, :] = -1.0  # sample 8 of batch 1
    return DataLoader(TensorDataset(x, torch.randint(0, 2, (320,))), 32)


def saturated():
    model = mlp(20, 64, 64, 4, act=nn.Tanh)
    nn.init.normal_(model[0].weight, std=100.0)
    return model


def half_the_units(): return mlp(20, 32, 4).to(torch.bfloat16)


def bf16_step(net, batch): return F.cross_entropy(net(batch[0].bfloat16()).float(), batch[1])


def noise(): return DataLoader(TensorDataset(torch.randn(3200, 20), torch.randint(0, 4, (3200,))), 16)


def learned_by_heart():
    x, y = torch.randn(64, 20), torch.randint(0, 4, (64,))
    valid = TensorDataset(torch.randn(256, 20), torch.randint(0, 4, (256,)))
    return mlp(20, 128, 128, 4), DataLoader(TensorDataset(x, y), 16), dict(epochs=14, valid=valid, optimizer="adam")


def wrong_labels():
    "A model that never says class 3, and validation data that say nothing else."
    model, data = mlp(20, 64, 4), batches(12).dataset
    nn.init.constant_(model[-1].bias, 0.0)
    model[-1].bias.data[3] = -100.0
    valid = TensorDataset(data.tensors[0], torch.full((len(data),), 3))
    return model, batches(12, classes=3), dict(epochs=5, valid=valid, optimizer="adam")


def rare_class():
    y = torch.zeros(3200, dtype=torch.long)
    y[:100] = 1
    return DataLoader(TensorDataset(torch.randn(3200, 20), y), 32)


def loud(): return DataLoader(TensorDataset(100 * torch.randn(640, 20), torch.randint(0, 4, (640,))), 32)


# rule -> model, loader, settings of `fit`, and the step by which it must have spoken; a look is taken every 4 steps
SICK = {
    "NonFinite": lambda: (nn.Sequential(Log(), nn.Linear(4, 2)), bad_sample(), dict(), 1),
    "ExplodingLoss": lambda: (mlp(20, 64, 64, 4), batches(30), dict(optimizer=rate(30.0)), 10),
    "VanishingGradient": lambda: (between(Backward(0.02)), batches(30), dict(optimizer=rate(0.01)), 8),
    "ExplodingGradient": lambda: (between(Backward(30.0)), batches(30), dict(optimizer=rate(1e-12)), 8),
    "UpdateRatio": lambda: (mlp(20, 64, 64, 4), batches(30), dict(optimizer=rate(1e-8)), 20),
    "DeadRelu": lambda: (dead_mlp(), batches(30), dict(), 4),
    "SaturatedActivation": lambda: (saturated(), batches(30), dict(), 4),
    "AllZero": lambda: (between(Backward(0.0)), batches(30), dict(), 12),
    "UnchangedWeights": lambda: (nn.Sequential(nn.Linear(20, 32), nn.ReLU(), Cut(), nn.Linear(32, 4)), batches(30),
                                 dict(), 12),
    "PoorInitialisation": lambda: (mlp(20, *[32] * 12, 4, act=nn.Sigmoid), batches(30), dict(), 4),
    "LossNotDecreasing": lambda: (mlp(20, 8, 4), noise(), dict(), 99),
    "Overfitting": lambda: (*learned_by_heart(), 55),
    "Overtraining": lambda: (mlp(20, 16, 4), batches(8), dict(epochs=8, valid=batches(4).dataset,
                                                              optimizer=rate(1e-10)), 63),
    "BrokenMetric": lambda: (*wrong_labels(), 59),
    "ClassImbalance": lambda: (mlp(20, 8, 2), rare_class(), dict(), 0),
    "UnnormalisedInputs": lambda: (mlp(20, 8, 4), loud(), dict(optimizer=rate(1e-4)), 0),
}


@pytest.mark.parametrize("rule", SICK)
def test_each_rule_speaks_in_time(rule):
    model, loader, how, by = SICK[rule]()
    debugger = run(model, loader, **how)
    steps = [finding.step for finding in debugger.findings if finding.rule == rule]
    assert steps and steps[0] <= by, said(debugger)
    assert not debugger.remarks and not has_hooks(model)


def test_a_step_that_does_not_come_is_noticed_beside_the_training():
    found = threading.Event()
    debugger = Debugger([StalledTraining(0.01)], action=lambda finding: found.set())
    def waiting():
        yield from batches(20)
        assert found.wait(60), "nobody notices that the loader hangs"
    run(mlp(20, 8, 4), OnceAtATime(waiting()), debugger)
    assert said(debugger) == [("StalledTraining", 20)]


def test_a_run_that_is_the_same_as_another(tmp_path):
    def trained(seed, debugger, *observers):
        torch.manual_seed(seed)
        fit(mlp(20, 8, 4), batches(40), observers=[*observers, debugger], **QUIET)
        return said(debugger)
    trained(1, tensor_debugger(), Monitor(tmp_path))
    assert trained(1, Debugger([SameRun(tmp_path)])) == [("SameRun", 19)]
    assert not trained(2, Debugger([SameRun(tmp_path)]))


def test_every_rule_on_tensors_has_a_sick_run_and_is_asked_in_a_healthy_one():
    "Rules on speed and on loops have tests of their own."
    named = {rule.name for rule in default_rules()} - SPEED - {rule.__name__ for rule in LOOP_RULES + RANK_RULES}
    assert named == {rule.__name__ for rule in TENSOR_RULES}
    assert named == set(SICK) | {"StalledTraining"}, "of a run that must fire"
    silent = set(named)  # those that have not been able to judge any of two healthy runs
    for name in ("validated", "generator"):
        model, loader, how = HEALTHY[name]()
        debugger = run(model, loader, **how)
        assert not debugger.findings
        silent &= set(debugger.abstained)
    assert not silent, "a rule that always abstains raises no false alarm, and finds nothing"


def test_updates_that_are_too_small_and_updates_lost_in_rounding():
    found = run(half_the_units(), step=bf16_step, optimizer=rate(1e-7)).findings
    assert found[0].rule == "UnchangedWeights" and "rounding" in found[0].message
    debugger = run(mlp(20, 64, 64, 4), optimizer=rate(20.0))
    assert {"UpdateRatio", "ExplodingLoss"} & set(dict(said(debugger)))


def test_where_a_number_was_born_forward_backward_and_in_the_loss():
    debugger = run(nn.Sequential(Log(), nn.Linear(4, 2)), bad_sample())
    (finding,) = [f for f in debugger.findings if f.rule == "NonFinite"]
    assert (finding.step, finding.tensor) == (1, "0") and "sample 8 of the batch" in finding.message
    naive = lambda out, y: -torch.softmax(1e4 * out, 1).log().gather(1, y[:, None]).mean()
    data = DataLoader(TensorDataset(torch.rand(320, 4), torch.randint(0, 2, (320,))), 32)
    (finding,) = [f for f in run(mlp(4, 8, 2), data, loss_fn=naive).findings if f.rule == "NonFinite"]
    assert finding.tensor == "loss"


def test_a_number_is_born_in_mid_run_in_a_named_layer():
    debugger = Debugger(every=50)
    history = make_patient("blank", 10, 60).train(debugger)
    lost = next(step.iteration for step in history.steps if step.loss != step.loss)
    (finding,) = [f for f in debugger.findings if f.rule == "NonFinite"]
    assert lost > 10 and lost % 50, "far from any look"
    assert (finding.step, finding.tensor) == (lost, "standardise") and "sample" in finding.message


def test_a_loss_lost_in_a_step_that_was_not_checked_is_seen_and_says_so():
    class Unchecked:
        "Nothing is checked after the first look."
        def on_step(self, run, step):
            if step.iteration != 5: return
            debugger.inspector._probe.close()
    patient, debugger = make_patient("blank", 10, 60), Debugger(every=50)
    history = patient.train(debugger, Unchecked())
    lost = next(step.iteration for step in history.steps if step.loss != step.loss)
    (finding,) = [f for f in debugger.findings if f.rule == "NonFinite"]
    assert (finding.step, finding.tensor) == (lost, "loss") and "Debugger(every=100)" in finding.advice


class Distance(nn.Module):
    "Of two embeddings, as in siamese networks: the slope of the root is not finite where they are equal."
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 8)
    def forward(self, pair): return (self.embed(pair[:, 0]) - self.embed(pair[:, 1])).square().sum(1).sqrt()


def test_a_backward_pass_is_not_taken_for_a_loss():
    x = torch.randn(160, 2, 16)
    x[37, 1] = x[37, 0]
    data, loss = DataLoader(TensorDataset(x, torch.ones(160)), 16), lambda out, y: (out - y).square().mean()
    (finding,) = [f for f in run(Distance(), data, Debugger(), loss_fn=loss).findings if f.rule == "NonFinite"]
    assert (finding.step, finding.tensor) == (2, "Distance") and "in its sqrt" in finding.message, finding
    assert "sample 5 of the batch" in finding.message


@pytest.mark.parametrize("spoil, words", [(lambda y: y.fill_(-100), "each is -100"),
                                          (lambda y: y.float().fill_(math.nan), "numbers that are not finite")])
def test_targets_without_a_finite_loss_are_named(tmp_path, spoil, words):
    loader = [(x, y if n != 30 else spoil(y.clone())) for n, (x, y) in enumerate(batches(60))]
    model, debugger = mlp(20, 64, 4), Debugger()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(tmp_path, model, optimizer, rules=[debugger]) as w:
        for x, y in w(loader):
            out = model(x)
            loss = F.cross_entropy(out, y) if y.dtype == torch.long else (out[:, 0] - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)
    (finding,) = [f for f in debugger.findings if f.rule == "NonFinite"]
    assert (finding.step, finding.tensor) == (30, "target") and words in finding.message, finding


def test_a_parameter_that_an_optimizer_leaves_out_is_not_lost_in_rounding(tmp_path):
    model, debugger = mlp(20, 64, 64, 4), Debugger()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(tmp_path, model, optimizer, rules=[debugger]) as w:
        for n, (x, y) in enumerate(w(batches(120))):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            kept = model[2].weight.detach().clone()
            optimizer.step()
            if n >= 60:  # from here on
                with torch.no_grad(): model[2].weight.copy_(kept)
            w.loss(loss)
    assert "UnchangedWeights" not in dict(said(debugger)), "the optimizer did its part; other rules judge the rest"
    debugger = run(mlp(20, 64, 64, 4), batches(), Debugger(), optimizer=rate(0.1), scheduler=died)
    (finding,) = debugger.findings
    assert finding.rule == "LearningRateDied" and finding.step <= 30 + 100, finding


def test_schedulers_are_looked_for_a_few_times_and_not_in_each_step(monkeypatch):
    asked, look = [], rate_rules.living_schedulers
    monkeypatch.setattr(rate_rules, "living_schedulers", lambda: asked.append(1) or look())
    run(mlp(20, 64, 64, 4), batches(), Debugger(), optimizer=rate(0.1), scheduler=died)
    assert 1 <= len(asked) <= 3, "it takes tens of milliseconds, which the user's steps would take"


def died(optimizer): return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0 if n < 30 else 1e-30)


def test_what_looking_costs_is_no_stall_of_the_run(tmp_path):
    zeros = dict(zip(StepRecord._fields, [0] * len(StepRecord._fields)))
    with RunWriter(tmp_path, rank=0, world_size=1) as writer:
        for n in range(200):
            slow = 0.05 if n % 10 == 0 else 0.001
            writer.step(StepRecord(**zeros | dict(iteration=n, count=1, samples=1, start=n * 0.01, forward=slow)))
    stalls = lambda: [f.rule for f in apply_rules(Run(tmp_path)).findings if f.rule == "PeriodicStall"]
    assert stalls()
    with (tmp_path / "events-0.jsonl").open("a") as file:
        rows = [[n, True, 0.001] for n in range(0, 200, 10)]
        file.write(json.dumps(dict(kind="looks", at=2.0, rows=rows)) + "\n")
    assert not stalls(), "the debugger's own"


# ---- healthy runs

class OnceAtATime:
    "A loader that has no length and no settings."
    def __init__(self, loader): self.loader = loader
    def __iter__(self): yield from self.loader


def images(count=40, size=16, channels=1, side=28):
    x = torch.rand(count * size, channels, side, side)
    y = (x.mean((1, 2, 3)) > 0.5).long() + 2 * (x[:, :, : side // 2].mean((1, 2, 3)) > 0.5).long()
    return DataLoader(TensorDataset(x, y), size)


def tokens(count=40): return DataLoader(TensorDataset(torch.randint(0, 64, (count * 8, 12))), 8)


def token_step(model, batch):
    (words,) = batch
    return F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def kaiming(depth=20):
    model = mlp(20, *[64] * depth, 4)
    for layer in model[::2]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return model


def frozen():
    model = mlp(20, 64, 64, 4)
    model[:4].requires_grad_(False)
    return model


def normed():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 16, 3, 2),
                         nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 12 * 12, 4))


class SlowFirst(nn.Sequential):
    calls = 0
    def forward(self, x):
        if not self.calls: time.sleep(0.3)
        self.calls += 1
        return super().forward(x)


def slow_accuracy(outputs, targets):
    time.sleep(0.1)
    return (outputs.argmax(1) == targets).float().mean()


HEALTHY = {
    "cnn with sgd": lambda: (GluonCNN(4), images(), dict()),
    "cnn with adam": lambda: (GluonCNN(4), images(), dict(optimizer="adam")),
    "cnn with batch norm": lambda: (normed(), images(), dict()),
    "resnet": lambda: (resnet18(num_classes=4, stem="small"), images(14, 8), dict()),
    "transformer": lambda: (Transformer(64, 32, 2, 2, 12), tokens(), dict(step=token_step, optimizer="adamw")),
    "frozen backbone": lambda: (frozen(), batches(), dict()),
    "slow first step": lambda: (SlowFirst(*mlp(20, 64, 4)), batches(), dict()),
    "generator": lambda: (mlp(20, 64, 4), OnceAtATime(batches()), dict()),
    "slow validation": lambda: (mlp(20, 64, 4), batches(40), dict(
        epochs=2, valid=batches(1).dataset, metric=slow_accuracy)),
    "kaiming relu 20": lambda: (kaiming(), batches(), dict(optimizer=lambda p: torch.optim.SGD(p, 0.01))),
    "validated": lambda: (mlp(20, 64, 4), batches(40), dict(epochs=3, valid=batches(40).dataset)),
    "warm-up and cosine": lambda: warmed(),
    "autoencoder": lambda: (nn.Sequential(*mlp(20, 64, 20), nn.Sigmoid()), batches(),
                            dict(step=copied, optimizer="adam")),
    "recurrent": lambda: (Recurrent(), tokens(), dict(step=token_step, optimizer="adam")),
    "dropout": lambda: (nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4)), batches(),
                        dict()),
    "one head at a time": lambda: (Heads(), batches(), dict()),
    "zero head": lambda: (zero_head(), batches(), dict()),
    "residual": lambda: (residual_net(), batches(), dict()),
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cells, self.out = nn.Embedding(64, 32), nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 64)
    def forward(self, x): return self.out(self.cells(self.words(x))[0])


class Heads(nn.Module):
    "Two heads that take turns: each has no gradient in every other step."
    def __init__(self):
        super().__init__()
        self.body, self.heads, self.calls = mlp(20, 64, 64), nn.ModuleList([nn.Linear(64, 4), nn.Linear(64, 4)]), 0
    def forward(self, x):
        self.calls += 1
        return self.heads[self.calls // 3 % 2](torch.relu(self.body(x)))


def copied(model, batch): return F.mse_loss(model(batch[0]), torch.sigmoid(batch[0]))


def warmed():
    model, steps = mlp(20, 64, 64, 4), 120
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    factor = lambda n: min(n / 20, 0.5 * (1 + torch.tensor(3.1416 * n / steps).cos().item()))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    return model, batches(steps), dict(optimizer=optimizer, scheduler=scheduler)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(32, 32), nn.Linear(32, 32)
        nn.init.zeros_(self.outer.weight)
    def forward(self, x): return x + self.outer(torch.relu(self.inner(x)))


def residual_net(): return nn.Sequential(nn.Linear(20, 32), *[Residual() for _ in range(8)], nn.Linear(32, 4))


def zero_head():
    model = mlp(20, 64, 64, 4)
    nn.init.zeros_(model[-1].weight)
    return model


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_raises_no_alarm(name):
    model, loader, how = HEALTHY[name]()
    debugger = run(model, loader, **how)
    assert not debugger.findings and not debugger.remarks, [str(f) for f in debugger.findings]
    assert not has_hooks(model)


@pytest.mark.parametrize("name", WELL)
def test_the_healthy_trainings_of_the_lesson_raise_no_alarm(name):
    debugger = tensor_debugger(every=5)
    make_healthy(name, 120).train(debugger)
    assert not debugger.findings and not debugger.remarks, [str(f) for f in debugger.findings]


# ---- where it is used

def own_loop(folder, model, loader, debugger, tell=True, lr=0.1, **how):
    optimizer = torch.optim.SGD(model.parameters(), lr)
    with watch(folder, model, optimizer, rules=[debugger], **how) as w:
        for x, y in w(loader):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if tell: w.loss(loss)
    return w


def dead_mlp():
    model = mlp(20, 64, 64, 4)
    nn.init.constant_(model[2].bias, -50.0)
    return model


@pytest.mark.parametrize("tell", [True, False])
def test_a_loop_of_ones_own(tmp_path, tell):
    model, debugger = dead_mlp(), tensor_debugger()
    w = own_loop(tmp_path, model, batches(), debugger, tell)
    assert w.findings == debugger.findings and said(debugger) == [("DeadRelu", 4)] and not has_hooks(model)
    (kept,) = Run(tmp_path).findings
    assert kept.data["rule"] == "DeadRelu" and kept.data["tensor"] == "3" and kept.data["advice"]
    assert [f.rule for f in apply_rules(Run(tmp_path)).findings if f.rule not in SPEED] == ["DeadRelu"]


def test_findings_of_fit_reach_the_run_folder(tmp_path):
    debugger = tensor_debugger()
    fit(dead_mlp(), batches(), observers=[Monitor(tmp_path, rules=[debugger])], **QUIET)
    assert [e.data["rule"] for e in Run(tmp_path).findings] == [f.rule for f in debugger.findings] == ["DeadRelu"]


@pytest.mark.parametrize("how", ["fit", "watch"])
def test_a_finding_can_stop_the_run(tmp_path, how):
    debugger = tensor_debugger(every=1, action="stop")
    if how == "fit": steps = len(fit(dead_mlp(), batches(), observers=[debugger], **QUIET).steps)
    else:
        own_loop(tmp_path, dead_mlp(), batches(), debugger)
        steps = len(Run(tmp_path).steps)
    assert steps == 2


def actions(folder, action, **how):
    "The same finding with an action, in `fit` and in a loop of one's own."
    for place in ("fit", "watch"):
        model, debugger = dead_mlp(), tensor_debugger(every=1, action=action, save_to=folder / f"{place}-saved", **how)
        if place == "fit": steps = len(fit(model, batches(), observers=[debugger], **QUIET).steps)
        else:
            own_loop(folder / "run", model, batches(), debugger)
            steps = len(Run(folder / "run").steps)
        yield debugger, steps, folder / f"{place}-saved"


def test_a_finding_can_be_remarked(tmp_path):
    with pytest.warns(UserWarning, match="DeadRelu at 3") as told:
        steps = [n for _, n, _ in actions(tmp_path, "remark")]
    assert len(told) == 2 and steps == [120, 120]


def test_a_finding_can_save_the_model(tmp_path):
    for debugger, steps, saved in actions(tmp_path, ("save", "stop")):
        (path,) = saved.iterdir()
        found = torch.load(path)
        assert steps == 2 and path.name == "step-1-DeadRelu.pt" and not debugger.remarks
        model = dead_mlp()
        model.load_state_dict(found["model"])
        torch.optim.SGD(model.parameters(), 0.1).load_state_dict(found["optimizers"][0])


def test_a_finding_can_call(tmp_path):
    calls = []
    for _ in actions(tmp_path, lambda finding: calls.append((finding.rule, finding.step))): pass
    assert calls == [("DeadRelu", 1)] * 2


def test_a_folder_that_cannot_be_written_ends_the_saving_and_not_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    debugger = tensor_debugger(every=1, action="save", save_to=tmp_path / "file")
    with pytest.warns(UserWarning, match="DeadRelu raised"): history = fit(
        dead_mlp(), batches(), observers=[debugger], **QUIET)
    assert len(history.steps) == 120 and "cannot write" in debugger.remarks[0]


def test_an_action_is_called_once_for_each_finding_and_may_fail():
    calls = []
    def act(finding):
        calls.append(finding.rule)
        raise OSError("the mail server is away")
    debugger = tensor_debugger(action=act)
    with pytest.warns(UserWarning, match="mail server"): fit(dead_mlp(), batches(), observers=[debugger], **QUIET)
    assert calls == ["DeadRelu"] and "mail server" in debugger.remarks[0]


def test_a_rule_of_ones_own_in_five_lines():
    class LowLoss(Rule):
        def on_step(self, step):
            if step.loss < 1.0: self.found(step, f"the loss is {step.loss:.2f}")
    late = lambda step: "late" if step.iteration == 9 else None
    debugger = run(mlp(20, 64, 4), batches(), Debugger([LowLoss(), late]))
    assert [name for name, _ in said(debugger)].count("LowLoss") == 1 and ("<lambda>", 9) in said(debugger)


# ---- robustness

class Breaks(Rule):
    def on_step(self, step): raise KeyError("broken")
    def on_tensors(self, look): raise KeyError("broken")


def test_a_rule_that_raises_is_left_out():
    debugger = Debugger([Breaks(), *[rule() for rule in TENSOR_RULES]], every=2)
    run(dead_mlp(), debugger=debugger)
    assert len(debugger.remarks) == 1 and said(debugger) == [("DeadRelu", 2)]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.shared, self.tied = (nn.Linear(20, 20) for _ in range(3))
        self.act, self.last = nn.ReLU(inplace=True), nn.Linear(20, 4)
        self.tied.weight = self.shared.weight
    def forward(self, x):
        x = self.act(self.shared(self.act(self.first(x))))
        return self.last(self.act(self.tied(self.shared(x))))


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = mlp(20, 64, 64, 64), nn.Linear(64, 4)
    def forward(self, x): return self.head(checkpoint(self.body, x, use_reentrant=False))


@pytest.mark.parametrize("make", [Twice, Recomputed], ids=["called twice and tied", "checkpointed"])
def test_unusual_modules(make):
    plain = make()
    seen = copy.deepcopy(plain)
    debugger = run(seen, debugger=tensor_debugger(every=2))
    fit(plain, batches(), **QUIET)
    assert not debugger.findings and not debugger.remarks
    for a, b in zip(plain.parameters(), seen.parameters()): assert torch.equal(a, b), "looking changes nothing"


def test_looking_leaves_random_numbers_and_statistics_alone():
    make = lambda: nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 4))
    torch.manual_seed(1)
    plain = make()
    seen = copy.deepcopy(plain)
    states = []
    for model, observers in ((plain, []), (seen, [tensor_debugger(every=1)])):
        torch.manual_seed(2)
        fit(model, batches(), observers=observers, **QUIET)
        states.append(model.state_dict())
    for a, b in zip(*(state.values() for state in states)): assert torch.equal(a, b)


def test_a_compiled_model_is_not_looked_into_and_says_so():
    model = dead_mlp()
    debugger = tensor_debugger(every=2)
    run(torch.compile(model, backend="eager"), debugger=debugger)
    assert "compiler" in debugger.remarks[0] and "DeadRelu" not in dict(said(debugger))
    inside = torch.nn.Sequential(torch.compile(mlp(20, 32, 32), backend="eager"), nn.ReLU(), nn.Linear(32, 4))
    assert not run(inside, debugger=tensor_debugger(every=2)).findings


def test_a_copy_made_in_the_loop_is_not_looked_at(tmp_path):
    copies = []
    class Copier:
        def on_backward(self, run): copies.append(copy.deepcopy(run.model))
        def on_step(self, run, step): torch.save(run.model, io.BytesIO())
    debugger = tensor_debugger(every=1)
    fit(mlp(20, 64, 4), batches(8), observers=[debugger, Copier()], **QUIET)
    before = len(debugger.findings)
    for model in copies: fit(model, batches(4), **QUIET)
    assert len(debugger.findings) == before and not debugger.remarks


def test_in_a_thread_and_two_at_once():
    results = {}
    def work(name, model):
        debugger = tensor_debugger(every=2)
        fit(model, batches(), observers=[debugger], **QUIET)
        results[name] = said(debugger)
    threads = [threading.Thread(target=work, args=row) for row in (("dead", dead_mlp()), ("well", mlp(20, 64, 4)))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert results == dict(dead=[("DeadRelu", 2)], well=[])


def test_several_optimizers(tmp_path):
    model = mlp(20, 64, 64, 4)
    parts = [torch.optim.SGD(model[:2].parameters(), 0.1), torch.optim.Adam(model[2:].parameters())]
    debugger = tensor_debugger(every=2)
    with watch(tmp_path, model, parts, rules=[debugger]) as w:
        for x, y in w(batches()):
            F.cross_entropy(model(x), y).backward()
            for optimizer in parts:
                optimizer.step()
                optimizer.zero_grad()
    assert not debugger.findings and not debugger.remarks


def test_gradient_accumulation_and_half_precision():
    for how in (dict(accumulation=3), dict(precision="bf16")):
        debugger = run(mlp(20, 64, 4), debugger=tensor_debugger(every=2), **how)
        assert not debugger.findings and not debugger.remarks, how


def test_the_same_debugger_serves_two_runs():
    debugger = tensor_debugger(every=2)
    run(dead_mlp(), debugger=debugger)
    assert debugger.findings
    run(mlp(20, 64, 4), debugger=debugger)
    assert not debugger.findings, "of the last run"


def test_what_cannot_be_judged_is_said():
    debugger = run(mlp(20, 64, 4), OnceAtATime(batches()), Debugger())
    assert all(debugger.abstained[rule] for rule in ("ClassImbalance", "TooFewWorkers", "Straggler"))


def tensors_behind(thing, depth=6):
    "Tensors that can be reached from here."
    found, level, seen = [], [thing], set()
    for _ in range(depth):
        level = [x for x in gc.get_referents(*level) if id(x) not in seen and not isinstance(x, (type, type(gc)))]
        seen.update(map(id, level))
        found += [x for x in level if isinstance(x, torch.Tensor)]
    return found


@pytest.mark.parametrize("rule", ["NonFinite", "DeadRelu", "UnnormalisedInputs", "ClassImbalance"])
def test_no_data_of_the_user_is_kept(rule):
    model, loader, how, _ = SICK[rule]()
    debugger = run(model, loader, **how)
    assert debugger.findings and not tensors_behind(debugger.findings)
    for finding in debugger.findings:
        assert all(isinstance(value, (int, float)) for value in finding.numbers.values())
        assert len(json.dumps(asdict(finding))) < 1_000, "words and a few figures"
    facts = debugger.inspector.facts
    assert debugger.inspector._probe is None and facts.model is None and facts.labels is None and not facts.optimizers
    for rule in debugger.inspector.rules: assert not tensors_behind(vars(rule)), rule.name


class Nowhere(nn.Module):
    "A part of the model that has shapes only: the other device of a machine that has one."
    def __init__(self):
        super().__init__()
        self.here, self.there = mlp(20, 64, 4), nn.Linear(20, 4, device="meta").requires_grad_(False)
    def forward(self, x):
        self.there(x.to("meta"))
        return self.here(x)


def test_a_model_on_two_devices(tmp_path):
    model, debugger = Nowhere(), tensor_debugger(every=2)
    own_loop(tmp_path, model, batches(), debugger)
    assert not debugger.findings and not debugger.remarks and not has_hooks(model)


@pytest.mark.parametrize("part", ["ActivationSample", "_some", "_numbers"])
def test_looking_that_fails_ends_and_the_training_goes_on(monkeypatch, part):
    def fails(*args): raise RuntimeError("a tensor of a strange kind")
    monkeypatch.setattr(f"mlinfra.engine.rules.tensor_probe.{part}", fails)
    model, debugger = dead_mlp(), tensor_debugger(every=2)
    with pytest.warns(UserWarning, match="looked at no more.*strange kind"):
        history = fit(model, batches(), observers=[debugger], **QUIET)
    assert len(history.steps) == 120 and not history.remarks and not has_hooks(model)
    assert len(debugger.remarks) == 1 and "strange kind" in debugger.abstained["DeadRelu"]


class Raises:
    def on_step(self, run, step): raise KeyError("an observer")


def test_an_observer_that_raises_beside_it():
    debugger = tensor_debugger(every=2)
    with pytest.warns(UserWarning, match="was detached"):
        fit(dead_mlp(), batches(), observers=[Raises(), debugger], **QUIET)
    assert said(debugger) == [("DeadRelu", 2)]


def test_layers_have_hooks_in_the_steps_that_are_looked_at_only():
    model, on, looked = mlp(20, 64, 4), [], []
    class Look(Rule):
        def on_tensors(self, look): looked.append(look.step)
    class Peek:
        def on_backward(self, run): on.append(any(layer._forward_hooks for layer in model))
    fit(model, batches(), observers=[Debugger([Look()]), Peek()], **QUIET)
    assert [n for n, hooked in enumerate(on) if hooked] == looked == [*range(21), 25, 31, 38, 47, 58, 72, 90, 112]
    assert not has_hooks(model)


class Waits(TorchDispatchMode):
    "Counts what turns a tensor into a Python number: on a GPU each of them waits."
    count = 0
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


def test_a_look_does_not_wait_once_more_for_each_weight():
    def waits(depth):
        model, seen = mlp(20, *[128] * depth, 4), []
        class Look(Rule):
            def on_tensors(self, look): seen.append(look)
        with Waits() as counted: fit(model, batches(), observers=[Debugger([Look()])], **QUIET)
        assert all(p.update_ratio for p in seen[0].parameters if len(p.shape) > 1)
        return counted.count
    assert waits(2) == waits(6)


def forked(model, queue):
    x = torch.randn(32, 20)
    model(x).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    queue.put("well")


def trained_beside_a_fork():
    "What the child said, findings and remarks."
    context, model, told = multiprocessing.get_context("fork"), mlp(20, 64, 4), []
    queue = context.SimpleQueue()
    class Forks:
        def on_step(self, run, step):
            if step.iteration != 7: return
            child = context.Process(target=forked, args=(model, queue))
            child.start()
            child.join(60)
            told.append((child.exitcode, queue.empty() or queue.get()))
    torch.manual_seed(0)
    torch.set_num_threads(1)  # a fork takes no threads along
    debugger = run(model, observers_more=[Forks()])
    return told, said(debugger), debugger.remarks


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
def test_a_forked_process_trains_on_by_itself():
    "In a process of its own: where autograd has threads for another device, no fork may train."
    with process_of_its_own() as own:
        assert own.submit(trained_beside_a_fork).result(120) == ([(0, "well")], [], [])


def short_cosine(optimizer): return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)


@pytest.mark.parametrize("make", [died, short_cosine, None])
def test_no_step_searches_for_schedulers(make, tmp_path, monkeypatch):
    "It is done as an epoch begins, and at the end."
    inside, searched, look = [], [], rate_rules.living_schedulers
    monkeypatch.setattr(rate_rules, "living_schedulers", lambda: searched.append(len(inside)) or look())
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = None if make is None else make(optimizer)
    with watch(tmp_path, model, optimizer, rules=Debugger().rules) as w:
        for _ in range(2):
            for x, y in w([*batches()][:100]):
                inside.append(1)
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if scheduler is not None: scheduler.step()
    assert searched and set(searched) <= {0, len(inside) // 2, len(inside)}
