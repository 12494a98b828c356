"""More errors that raise nothing, each with its healthy twin: formats, tensors that are not trained, losses."""
import copy

import pytest
import torch
import torch.nn.functional as F
from test_silent_errors import CASES, net, sgd
from torch import nn
from torch.optim import optimizer as of_torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from mlinfra.engine.record.watch import watch
from mlinfra.engine.rules.default_rules import LOOP_RULES, TENSOR_RULES
from mlinfra.engine.rules.inspection import Inspector


pytestmark = pytest.mark.usefixtures("seeded")


def said(folder, model, optimizer, batches, loss_fn=F.cross_entropy, *, before=None, after=None, **how):
    "What all rules but those on speed say; `before` and `after` are told the number of the step."
    inspector = Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    with watch(folder, model, optimizer, rules=[inspector], **how) as w:
        for n, (x, y) in enumerate(w(batches)):
            if before: before(n)
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            w.loss(loss)
            if after: after(n, w)
    assert not inspector.remarks, inspector.remarks
    return inspector.findings


def stream(steps, size=32, seed=1, start=0, labels=True):
    "Batches that never come again; from step `start` on, labels do not belong to the inputs unless `labels`."
    make = torch.Generator().manual_seed(seed)
    for n in range(steps):
        x = torch.randn(size, 20, generator=make)
        y = x[:, :5].argmax(1)
        yield x, y if labels or n < start else y[torch.randperm(size, generator=make)]


# ---- which tensors are trained

def stale_optimizer(folder, sick, start=0, steps=40):
    model = net()
    optimizer = sgd(model)

    def new_head(n):
        if n != start: return
        model[2] = nn.Linear(16, 5)
        if not sick: optimizer.param_groups[0]["params"] = list(model.parameters())
    return said(folder, model, optimizer, stream(steps), before=new_head)


def frozen_moves(folder, sick, start=10, steps=60):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    optimizer.zero_grad = lambda: torch.optim.SGD.zero_grad(optimizer, set_to_none=False)

    def freeze(n):
        if n != start: return
        model[0].requires_grad_(False)
        if not sick: model[0].weight.grad = model[0].bias.grad = None
    return said(folder, model, optimizer, stream(steps), before=freeze)


class Words(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.table.weight if tied else nn.Parameter(self.table.weight.detach().clone())

    def forward(self, x): return self.head(torch.tanh(self.body(self.table(x))))


def next_words(steps):
    return [(ids := torch.randint(20, (64,)), (ids + 1) % 20) for _ in range(steps)]


def tying_lost(folder, sick, start=None, steps=30):
    model = Words(tied=not sick or start is not None)
    optimizer = sgd(model, 0.3)

    def untie(n):
        if not sick or n != start: return
        model.head.weight = nn.Parameter(model.table.weight.detach().clone())
        optimizer.param_groups[0]["params"].append(model.head.weight)
    return said(folder, model, optimizer, next_words(steps), before=untie)


def loaded_in_part(folder, sick, start=5, steps=30):
    model = net()

    def load(n):
        if n != start: return
        state = {"module." * sick + name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(state, strict=False)
    return said(folder, model, sgd(model), stream(steps), before=load)


# ---- precision

class Mixed(nn.Module):
    "Computes its body inside of an autocast of its own."
    def __init__(self, forgets):
        super().__init__()
        self.a, self.b, self.c, self.forgets = nn.Linear(20, 16), nn.Linear(16, 16), nn.Linear(16, 5), forgets

    def forward(self, x):
        forgets = self.forgets() if callable(self.forgets) else self.forgets
        with torch.autocast("cpu", torch.bfloat16): x = F.relu(self.a(x))
        with torch.autocast("cpu", torch.bfloat16, enabled=not forgets): x = F.relu(self.b(x.float()))
        with torch.autocast("cpu", torch.bfloat16): return self.c(x)


def precision_lost(folder, sick, start=0, steps=40):
    now = [0]
    model = Mixed(lambda: sick and now[0] >= start)
    return said(folder, model, sgd(model), stream(steps), before=lambda n: now.__setitem__(0, n),
                config=dict(precision="bf16"))


# ---- the rate and the course of the loss

def rate_cycles(folder, sick):
    model = net()
    optimizer = sgd(model)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    return said(folder, model, optimizer, stream(60), after=lambda n, w: plan.step() if sick or n % 12 == 11 else None)


def unrelated_labels(folder, sick, start=0, steps=160):
    return said(folder, m := net(), sgd(m, 0.3), stream(steps, labels=not sick, start=start))


def rises_again(folder, sick, start=150, steps=260):
    "From some step on the inputs are noisy."
    batches = [(x + 0.7 * torch.randn_like(x) * (sick and n >= start), y) for n, (x, y) in enumerate(stream(steps))]
    return said(folder, m := net(), sgd(m, 0.5), batches)


def spike(folder, sick, start=110, steps=140):
    batches = [(x, (y + 1) % 5 if sick and n == start else y) for n, (x, y) in enumerate(stream(steps))]
    return said(folder, m := net(), sgd(m, 0.5), batches)


def resumed(folder, sick):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    assert not said(folder, model, optimizer, stream(150))
    again, state = net(), copy.deepcopy(model.state_dict())
    if sick: del state["2.weight"]
    again.load_state_dict(state, strict=False)
    other = torch.optim.Adam(again.parameters(), 1e-2)
    other.load_state_dict(optimizer.state_dict())
    return said(folder, again, other, stream(30, seed=2))


# ---- what the loop does between its lines

def clipped_late(folder, sick):
    model = net()
    def clip(*_): nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return said(folder, model, sgd(model), stream(40), after=clip if sick else None)


def stepped_twice(folder, sick):
    model = net()
    optimizer = sgd(model)
    return said(folder, model, optimizer, stream(40), after=(lambda *_: optimizer.step()) if sick else None)


def seeded_each_step(folder, sick):
    model = net(nn.Dropout(0.1))
    return said(folder, model, sgd(model), stream(40), before=(lambda n: torch.manual_seed(1)) if sick else None)


def same_batch(folder, sick):
    loader, model = DataLoader(TensorDataset(*next(stream(1, 384))), 32), net()
    optimizer, inspector = sgd(model), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        kept = iter(w(loader))
        for _ in range(30 if sick else 12):
            x, y = next(iter(w(loader)) if sick else kept)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            w.loss(loss)
    return inspector.findings


def backward_twice(folder, sick):
    def loss_fn(out, y):
        loss = F.cross_entropy(out, y)
        if sick: loss.backward(retain_graph=True)
        return loss
    return said(folder, m := net(), sgd(m), stream(40), loss_fn)


def made_anew(folder, sick, make=lambda m: torch.optim.Adam(m.parameters(), 1e-2), between=None, steps=8, epochs=5):
    "In each epoch a new optimizer, or between two of them what `between` does."
    model, inspector = net(), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    optimizer = make(model)
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for epoch in range(epochs):
            if sick: optimizer = make(model)
            if between: optimizer = between(epoch, model, optimizer)
            for x, y in w(list(stream(steps, seed=epoch))):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                w.loss(loss)
    assert not inspector.remarks, inspector.remarks
    assert not of_torch._global_optimizer_pre_hooks and not of_torch._global_optimizer_post_hooks
    return inspector.findings


def plateau(mode, told="accuracy"):
    "A scheduler that is fed the training loss, or what the validation has told."
    def case(folder, sick):
        model, inspector = net(), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
        optimizer = sgd(model, 0.3)
        right = "max" if mode == "min" else "min"
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode if sick else right, patience=1)
        with watch(folder, model, optimizer, rules=[inspector]) as w:
            for epoch in range(6):
                losses = []
                for x, y in w(list(stream(8, seed=epoch))):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
                    w.loss(loss)
                    losses.append(loss.item())
                if mode == "max": scheduler.step(sum(losses) / len(losses))
                else:
                    w.evaluation(1 / (2 + epoch), **{told: 0.3 + 0.1 * epoch})
                    scheduler.step(0.3 + 0.1 * epoch)
        assert not inspector.remarks, inspector.remarks
        return inspector.findings
    return case


# ---- what a loss is given

class Padded(nn.Module):
    def __init__(self, padding=0):
        super().__init__()
        self.table, self.body = nn.Embedding(30, 16, padding_idx=padding), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 30)

    def forward(self, ids, attention_mask=None): return self.head(self.body(self.table(ids))[0])


def padding(sick_loss, healthy_loss, left=False, masked=False, idx=0):
    def case(folder, sick):
        model, inspector = Padded(None if masked else idx), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
        optimizer = sgd(model)
        with watch(folder, model, optimizer, rules=[inspector]) as w:
            for ids in w(list(torch.randint(1, 30, (8, 8, 20)))):
                keep = torch.arange(20) < torch.tensor([20, 20, 19, 15, 12, 10, 7, 5])[:, None]
                if left: keep = keep.flip(1)
                ids = ids * keep
                out = model(ids, attention_mask=keep.long()) if masked else model(ids)
                optimizer.zero_grad()
                loss = (sick_loss if sick else healthy_loss)(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
                loss.backward()
                optimizer.step()
                w.loss(loss)
        assert not inspector.remarks, inspector.remarks
        return inspector.findings
    return case


def without_padding(out, y): return F.cross_entropy(out, y, ignore_index=0)


def of_two_signs(folder, sick):
    batches = [(x, (y > 1).float()[:, None] * (1 + sick) - int(sick)) for x, y in stream(60)]
    return said(folder, m := net(out=1), sgd(m, 0.5), batches, F.binary_cross_entropy_with_logits)


def rectified(folder, sick): return said(folder, m := net(*[nn.ReLU()] * sick), sgd(m), stream(40))


def mixed_classes(folder, sick):
    "Each place of a picture has a class."
    x = torch.rand(20, 8, 3, 6, 7)
    model = nn.Conv2d(3, 5, 1)
    def loss_fn(out, y): return F.cross_entropy((out if sick else out.permute(0, 2, 3, 1)).reshape(-1, 5), y.flatten())
    return said(folder, model, sgd(model), list(zip(x, (x[:, :, 0] * 5).long())), loss_fn)


class Recurrent(nn.Module):
    "Reads 4 steps of 5 values."
    def __init__(self, batch_first):
        super().__init__()
        self.body, self.head = nn.GRU(5, 16, batch_first=batch_first), nn.Linear(16, 5)

    def forward(self, x): return self.head(self.body(x.view(-1, 4, 5))[0].mean(1))


def samples_as_time(folder, sick): return said(folder, m := Recurrent(not sick), sgd(m), stream(20))


# ---- settings that nobody reads, samples that never come

def not_read(folder, sick):
    model = net(nn.BatchNorm1d(5, momentum=0.99 if sick else 0.01))
    return said(folder, model, sgd(model), stream(20))


def class_weights(folder, sick):
    x, y = next(stream(1, 384))
    weights = torch.rand(5)
    sampler = WeightedRandomSampler(weights if sick else weights[y], 384)
    return said(folder, m := net(), sgd(m), DataLoader(TensorDataset(x, y), 32, sampler=sampler))


MORE = dict(StaleOptimizer=stale_optimizer, FrozenMoves=frozen_moves, TyingLost=tying_lost, LoadedInPart=loaded_in_part,
            PrecisionLost=precision_lost, LearningRateCycles=rate_cycles, UnrelatedLabels=unrelated_labels,
            LossRoseAgain=rises_again, LossSpike=spike, ResumedWorse=resumed,
            ClippedAfterUpdate=clipped_late, EqualStepRandomness=seeded_each_step, SameBatch=same_batch,
            TargetsOutOfRange=of_two_signs, RectifiedLogits=rectified,
            SteppedTwice=stepped_twice, MixedClasses=mixed_classes, SettingNotRead=not_read,
            SamplerWithoutSamples=class_weights, SamplesAsTime=samples_as_time, BackwardTwice=backward_twice,
            OptimizerMadeAnew=made_anew, PlateauInWrongMode=plateau("max"),
            PaddingCounted=padding(F.cross_entropy, without_padding))


def test_each_rule_has_a_case():
    assert CASES.keys() | MORE.keys() == {rule.__name__ for rule in LOOP_RULES}


@pytest.mark.parametrize("rule", MORE)
def test_the_cause_is_named_and_nothing_else(rule, tmp_path):
    found = MORE[rule](tmp_path, True)
    assert [finding.rule for finding in found] == [rule], [str(finding) for finding in found]
    assert found[0].message and found[0].advice


@pytest.mark.parametrize("rule", MORE)
def test_the_healthy_twin_is_silent(rule, tmp_path):
    found = MORE[rule](tmp_path, False)
    assert not found, [str(finding) for finding in found]


# ---- what looks like a fault and is none

def momentum(model): return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


def averaged(epoch, model, _):
    "A client of a federation begins with other weights."
    with torch.no_grad():
        for p in model.parameters(): p.data.mul_(0.99)
    return momentum(model)


def with_its_state(epoch, model, old):
    new = momentum(model)
    new.load_state_dict(old.state_dict())
    return new


def phases(epoch, model, old): return old if epoch % 2 else momentum(model)


@pytest.mark.parametrize("between", [averaged, with_its_state, phases])
def test_a_new_optimizer_that_is_meant_is_silent(between, tmp_path):
    found = made_anew(tmp_path, False, momentum, between)
    assert not found, [str(finding) for finding in found]


def test_a_new_optimizer_that_remembers_nothing_is_silent(tmp_path): assert not made_anew(tmp_path, True, sgd)


def test_optimizers_of_tasks_that_take_turns_are_silent(tmp_path):
    "Each batch is of another task, and all tasks train the same tensors."
    made = {}
    def of_task(epoch, model, _): return made.setdefault(epoch, momentum(model))
    assert not made_anew(tmp_path, False, between=of_task, steps=1, epochs=5)

def test_a_frozen_tensor_that_its_optimizer_leaves_where_it_is_is_silent(tmp_path):
    "RMSprop without momentum remembers squares only: a gradient of zeros moves nothing."
    optimizer = torch.optim.RMSprop((model := net()).parameters(), 1e-3)
    optimizer.zero_grad = lambda: torch.optim.RMSprop.zero_grad(optimizer, set_to_none=False)
    assert not said(tmp_path, model, optimizer, stream(40), before=lambda n: model[0].requires_grad_(n < 10))


def test_a_load_that_a_later_one_makes_whole_is_silent(tmp_path):
    "A strict load raises, and the loop loads what it has renamed; or the head is loaded afterwards."
    model = net()

    def load(n):
        if n not in (5, 7): return
        state = {name: value.clone() for name, value in model.state_dict().items()}
        if n == 7:
            model.load_state_dict(dict(list(state.items())[:2]), strict=False)
            return model[2].load_state_dict(model[2].state_dict())
        with pytest.raises(RuntimeError): model.load_state_dict({f"module.{name}": state[name] for name in state})
        model.load_state_dict(state)
    assert not said(tmp_path, model, sgd(model), stream(30), before=load)


def test_what_a_load_lacks_is_counted_without_the_hooks_of_the_user(tmp_path):
    model, called = net(nn.LayerNorm(5)), []
    model.register_buffer("table", torch.zeros(2), persistent=False)
    model._register_state_dict_hook(lambda *news: called.append(1))
    found = said(tmp_path, model, sgd(model), stream(30), before=lambda n: n == 5 and model.load_state_dict(
        {"0.bias": torch.zeros(16)}, strict=False))
    assert [f.rule for f in found] == ["LoadedInPart"] and not called
    assert found[0].message.startswith("load_state_dict left 5 of the model's 6 tensors"), found


# ---- when it is told

def zero_grad_missing(folder, start):
    model, count = net(), iter(range(10_000))
    optimizer = sgd(model)
    optimizer.zero_grad = lambda: next(count) < start and torch.optim.SGD.zero_grad(optimizer)
    return said(folder, model, optimizer, stream(start + 101))


def eval_left_on(folder, start):
    model = net(nn.Dropout(0.1))
    return said(folder, model, sgd(model), stream(start + 101), before=lambda n: model.train(n < start))


class Skips(torch.optim.SGD):
    "Leaves its first parameter out from some step on."
    start, done = 0, 0

    @torch.no_grad()
    def step(self, closure=None):
        first = self.param_groups[0]["params"][0]
        old = first.clone()
        super().step(closure)
        if self.done >= self.start: first.copy_(old)
        self.done += 1


def skipped(folder, start):
    model = net()
    optimizer = Skips(model.parameters(), 0.05)
    optimizer.start = start
    return said(folder, model, optimizer, stream(start + 101))


def units_die(folder, start):
    model = net()
    return said(folder, model, sgd(model), stream(start + 101),
                before=lambda n: n == start and nn.init.constant_(model[0].bias, -100.0))


LATE = dict(
    ForgottenZeroGrad=zero_grad_missing, EvalModeTraining=eval_left_on, UnchangedWeights=skipped, DeadRelu=units_die,
    StaleOptimizer=lambda folder, start: stale_optimizer(folder, True, start, start + 101),
    FrozenMoves=lambda folder, start: frozen_moves(folder, True, start, start + 101),
    PrecisionLost=lambda folder, start: precision_lost(folder, True, start, start + 101))


@pytest.mark.parametrize("start", [33, 700])
@pytest.mark.parametrize("rule", LATE)
def test_a_fault_that_begins_at_any_step_is_told_a_hundred_steps_later_at_most(rule, start, tmp_path):
    found = LATE[rule](tmp_path, start)
    assert [finding.rule for finding in found] == [rule] and start <= found[0].step <= start + 100, found


def test_labels_that_say_nothing_of_a_validation_are_told(tmp_path):
    "What is learnt by heart falls, and the validation stays at the entropy of the labels; true labels are silent."
    for sick in (True, False):
        model, held = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 5)), next(stream(1, 256, seed=9))
        known = list(stream(4 if sick else 12, seed=3, labels=not sick))

        @torch.no_grad()
        def validate(n, w, model=model, held=held):
            if n % 12 == 11: w.evaluation(F.cross_entropy(model(held[0]), held[1]))
        found = said(tmp_path / str(sick), model, torch.optim.Adam(model.parameters(), 1e-2 if sick else 1e-3),
                     known * (24 // len(known) * 3), after=validate)
        assert [finding.rule for finding in found] == ["UnrelatedLabels"] * sick, [str(finding) for finding in found]


def test_a_schedule_that_was_made_for_more_steps_is_told(tmp_path):
    for planned in (400, 100):
        optimizer = sgd(model := net())
        plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, planned)
        found = said(tmp_path / str(planned), model, optimizer, stream(100), after=lambda n, w, plan=plan: plan.step())
        assert [finding.rule for finding in found] == ["StoppedEarly"] * (planned == 400)
        if found: assert "was made for 400 steps and had been called 100 times" in found[0].message
