"""The debugger on real trainings: faults that it must find in time, healthy runs in which it must find nothing."""
import copy
import io
import threading
import time
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.debugger import Debugger, Rule
from mlinfra.engine.faults import FAULTS, make_patient
from mlinfra.engine.inspection import examine
from mlinfra.engine.runs import Run
from mlinfra.engine.speed_rules import SPEED_RULES
from mlinfra.engine.tensor_rules import TENSOR_RULES
from mlinfra.engine.transformer import Transformer
from mlinfra.engine.watch import Monitor, watch
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


# ---- faults

@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_in_time(fault):
    patient, debugger = make_patient(fault, FAULTS[fault].strengths[-1], 80), Debugger()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patient.train(debugger)
    hits = [finding for finding in debugger.findings if finding.rule in FAULTS[fault].rules]
    assert hits and hits[0].step <= FAULTS[fault].by, said(debugger)
    strange = [f for f in debugger.findings if f.rule not in FAULTS[fault].rules and f.rule not in SPEED]
    assert not [f for f in strange if f.step < hits[0].step], f"the cause is named first: {said(debugger)}"
    assert hits[0].message and hits[0].advice and not debugger.remarks and not has_hooks(patient.model)


def batches(count=120, size=32, features=20, classes=4, seed=0):
    "A task that can be learned: the class is the largest of a few sums."
    make = torch.Generator().manual_seed(seed)
    x = torch.randn(count * size, features, generator=make)
    return DataLoader(TensorDataset(x, (x @ torch.randn(features, classes, generator=make)).argmax(1)), size)


def mlp(*sizes, act=nn.ReLU):
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def run(model, loader=None, debugger=None, **how):
    debugger = debugger or tensor_debugger()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(model, loader or batches(), observers=[debugger], **QUIET | how)
    return debugger


def test_vanishing_gradients_of_deep_sigmoids():
    debugger = run(mlp(20, *[32] * 9, 4, act=nn.Sigmoid))
    assert {f.rule for f in debugger.findings} & {"VanishingGradient", "PoorInitialisation"}


def test_gradients_that_grow_towards_the_input():
    model = mlp(20, *[64] * 6, 4, act=nn.Identity)
    for layer in model[::2]: nn.init.normal_(layer.weight, std=2.0)
    found = {f.rule for f in run(model, optimizer=torch.optim.SGD(model.parameters(), 1e-30)).findings}
    assert found & {"PoorInitialisation", "ExplodingGradient"}


def test_saturated_tanh():
    model = mlp(20, 64, 64, 4, act=nn.Tanh)
    nn.init.normal_(model[0].weight, std=100.0)
    assert ("SaturatedActivation", 4) in said(run(model))


def test_a_layer_behind_detach_gets_no_gradient():
    class Cut(nn.Module):
        def forward(self, x): return x.detach()
    found = run(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), Cut(), nn.Linear(32, 4))).findings
    assert [(f.rule, f.tensor) for f in found] == [("UnchangedWeights", "0.weight")] and found[0].step <= 12


def test_updates_lost_in_rounding():
    model = mlp(20, 32, 4).to(torch.bfloat16)
    step = lambda net, batch: F.cross_entropy(net(batch[0].bfloat16()).float(), batch[1])
    found = run(model, step=step, optimizer=torch.optim.SGD(model.parameters(), 1e-7)).findings
    assert found[0].rule == "UnchangedWeights" and "rounding" in found[0].message


def test_a_loss_that_does_not_fall():
    noise = DataLoader(TensorDataset(torch.randn(3200, 20), torch.randint(0, 4, (3200,))), 16)
    assert ("LossNotDecreasing", 99) in said(run(mlp(20, 8, 4), noise))


def test_class_imbalance_is_read_from_the_labels():
    y = torch.zeros(3200, dtype=torch.long)
    y[:100] = 1
    assert "ClassImbalance" in dict(said(run(mlp(20, 8, 2), DataLoader(TensorDataset(torch.randn(3200, 20), y), 32))))


def test_where_a_number_was_born_forward_backward_and_in_the_loss():
    class Log(nn.Module):
        def forward(self, x): return torch.log(x.clamp(min=-0.5) + 0.5)
    x = torch.rand(320, 4)
    x[40, :] = -1.0  # sample 8 of batch 1
    data = DataLoader(TensorDataset(x, torch.randint(0, 2, (320,))), 32)
    debugger = run(nn.Sequential(Log(), nn.Linear(4, 2)), data)
    (finding,) = [f for f in debugger.findings if f.rule == "NonFinite"]
    assert (finding.step, finding.tensor) == (1, "0") and "sample" in finding.message and "8" in finding.message
    naive = lambda out, y: -torch.softmax(1e4 * out, 1).log().gather(1, y[:, None]).mean()
    (finding,) = [f for f in run(mlp(4, 8, 2), DataLoader(TensorDataset(x.abs(), torch.randint(0, 2, (320,))), 32),
                                 loss_fn=naive).findings if f.rule == "NonFinite"]
    assert finding.tensor == "loss"


def test_overfitting_and_a_metric_that_stands_still():
    x, y = torch.randn(64, 20), torch.randint(0, 4, (64,))
    valid = TensorDataset(torch.randn(256, 20), torch.randint(0, 4, (256,)))
    model = mlp(20, 128, 128, 4)
    found = run(model, DataLoader(TensorDataset(x, y), 16), epochs=14, valid=valid, optimizer="adam")
    assert "Overfitting" in dict(said(found))


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
    "zero head": lambda: (zero_head(), batches(), dict()),
    "residual": lambda: (residual_net(), batches(), dict()),
}


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
    assert [f.rule for f in examine(Run(tmp_path)).findings if f.rule not in SPEED] == ["DeadRelu"]


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
    def on_look(self, look): raise KeyError("broken")


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


def test_no_data_of_the_user_is_kept():
    debugger = run(dead_mlp())
    for finding in debugger.findings:
        assert all(isinstance(value, (int, float)) for value in finding.numbers.values())
    assert debugger.inspector._probe is None
