"""More errors that raise nothing, each with its healthy twin: formats, tensors that are not trained, losses."""
import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from test_silent_errors import CASES, net, sgd
from torch import nn
from torch.optim import optimizer as of_torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from mlinfra.engine.record.watch import watch
from mlinfra.engine.rules.default_rules import LOOP_RULES, TENSOR_RULES
from mlinfra.engine.rules.findings import Facts
from mlinfra.engine.rules.inspection import Inspector
from mlinfra.engine.rules.rate_rules import PlateauInWrongMode
from mlinfra.engine.rules.update_rules import OptimizerMadeAnew


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


def adam(model): return torch.optim.Adam(model.parameters(), 1e-2)


def made_anew(folder, sick, make=adam, between=None, batches=None):
    "For each batch a new optimizer, or before it what `between` does."
    model, inspector = net(), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    for n in range(3): model.register_parameter(f"scale_{n}", nn.Parameter(torch.ones(1), requires_grad=False))
    optimizer = make(model)
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for n, (x, y) in enumerate(w(batches or list(stream(24)))):
            if sick: optimizer = make(model)
            if between: optimizer = between(n, model, optimizer)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            w.loss(loss)
    assert not inspector.remarks, inspector.remarks
    assert not of_torch._global_optimizer_pre_hooks and not of_torch._global_optimizer_post_hooks
    return inspector.findings


def plateau(mode, told="accuracy", series=None, as_loss=False, optimizer_of=lambda model: sgd(model, 0.3)):
    "A scheduler that is fed the training loss, or what the validation has told."
    def case(folder, sick):
        model, inspector = net(), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
        optimizer = optimizer_of(model)
        right = "max" if mode == "min" else "min"
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode if sick else right, patience=1)
        with watch(folder, model, optimizer, rules=[inspector]) as w:
            for epoch in range(6):
                losses, figure = [], series[epoch] if series else 0.3 + 0.1 * epoch
                for x, y in w(list(stream(8, seed=epoch))):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
                    w.loss(torch.tensor(figure) if as_loss else loss)
                    losses.append(loss.item())
                if not as_loss and mode == "min": w.evaluation(1 / (2 + epoch), **{told: figure})
                scheduler.step(sum(losses) / len(losses) if mode == "max" and not as_loss else figure)
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


def padding(sick_loss, healthy_loss, left=False, masked=False, idx=0, ended=True):
    "Texts of many lengths, whose last token is 1 if they are `ended`."
    def case(folder, sick):
        model, inspector = Padded(None if masked else idx), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
        optimizer = sgd(model)
        with watch(folder, model, optimizer, rules=[inspector]) as w:
            for ids in w(list(torch.randint(1, 30, (8, 8, 20)))):
                keep = torch.arange(20) < torch.tensor([20, 20, 19, 15, 12, 10, 7, 5])[:, None]
                if ended: ids[torch.arange(8), keep.sum(1) - 1] = 1
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


def averaged(n, model, _):
    "A client of a federation begins with other weights, of what has a gradient."
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None: p.data = 0.99 * p.data
    return momentum(model)


def with_its_state(n, model, old):
    new = momentum(model)
    new.load_state_dict(old.state_dict())
    return new


def phases(n, model, old): return old if n % 2 else momentum(model)


def stages(n, model, old): return old if n % 5 else adam(model)


@pytest.mark.parametrize("between", [averaged, with_its_state, phases, stages])
def test_a_new_optimizer_that_is_meant_is_silent(between, tmp_path):
    found = made_anew(tmp_path, False, momentum, between)
    assert not found, [str(finding) for finding in found]


def test_a_new_optimizer_that_remembers_nothing_is_silent(tmp_path): assert not made_anew(tmp_path, True, sgd)


def test_optimizers_of_tasks_that_take_turns_are_silent(tmp_path):
    "Each batch is of another task, and all tasks train the same tensors."
    made = {}
    def of_task(n, model, _): return made.setdefault(n % 8, momentum(model))
    assert not made_anew(tmp_path, False, between=of_task)


def test_a_new_optimizer_beside_that_of_the_run_is_silent(tmp_path):
    "Its own part of the model is trained anew for each batch."
    def beside(n, model, known):
        if n: momentum(model[2]).step()
        model[2].zero_grad()
        return known
    found = made_anew(tmp_path, False, lambda model: momentum(model[0]), beside)
    assert "OptimizerMadeAnew" not in [one.rule for one in found], found


def test_an_optimizer_made_anew_is_told_while_the_loop_goes_on(tmp_path):
    model, heard = net(), []
    inspector = Inspector([rule() for rule in LOOP_RULES], action=heard.append)
    with watch(tmp_path, model, adam(model), rules=[inspector]) as w:
        for x, y in w(list(stream(12))):
            optimizer = adam(model)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert [one.rule for one in heard] == ["OptimizerMadeAnew"] and heard[0].step < 5


class Divided(torch.Tensor):
    "A tensor whose values other ranks would have to give, too."
    compared = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Divided.compared += func is torch.equal
        return super().__torch_function__(func, types, args, kwargs)


def test_values_of_tensors_that_are_divided_among_ranks_are_not_compared():
    rule, model = OptimizerMadeAnew(), nn.Linear(3, 2)
    for name, p in list(model.named_parameters()):
        setattr(model, name, nn.Parameter(p.detach().as_subclass(Divided)))
    rule.begin(Facts(model))
    for _ in range(4):
        optimizer = adam(model)
        for p in model.parameters(): p.grad = torch.ones(p.shape)
        optimizer.step()
    rule.finish()
    assert not Divided.compared and not rule.findings and not rule.abstained


@pytest.mark.parametrize("mode, how", [
    ("min", dict(told="top1_error", series=[0.2, 0.25, 0.3, 0.35, 0.4, 0.46])),          # it overfits
    ("min", dict(told="dice_loss", series=[0.5, 0.4, 0.3, 0.28, 0.35, 0.46])),
    ("min", dict(series=[0.3, 0.6, 0.35, 0.4, 0.33, 0.32])),                             # it goes up and down
    ("max", dict(series=[10.0, 120.0, 200.0, 180.0, 60.0, 30.0], as_loss=True)),         # a score
    ("max", dict(series=[200.0, 180.0, 120.0, 60.0, 40.0, 30.0], as_loss=True,
                 optimizer_of=lambda model: torch.optim.SGD(model.parameters(), 0.01, maximize=True)))])
def test_a_plateau_of_what_may_be_meant_is_silent(mode, how, tmp_path):
    found = plateau(mode, **how)(tmp_path, True)
    assert "PlateauInWrongMode" not in [one.rule for one in found], found


class Own(torch.optim.lr_scheduler.ReduceLROnPlateau):
    "One of a user's, which has no best."
    def step(self, metrics, epoch=None): self.best, self.last_epoch = None, self.last_epoch + 1


def test_a_plateau_without_a_number_for_its_best_is_no_error(tmp_path):
    model = net()
    scheduler = Own(optimizer := sgd(model), "max")
    def after(n, w):
        w.evaluation(1 / (2 + n))
        scheduler.step(1.0)
    assert not said(tmp_path, model, optimizer, stream(8), after=after)


def test_an_epoch_without_an_end_takes_no_memory():
    rule = PlateauInWrongMode()
    rule.begin(Facts())
    step = SimpleNamespace(loss=1.0, samples=2)
    sizes = [rule.on_steps([step] * 1000) or len(pickle.dumps((vars(rule._epoch), rule._losses))) for _ in range(3)]
    assert max(sizes) - min(sizes) < 64, sizes


def test_padding_that_ends_the_texts_is_silent(tmp_path):
    assert not padding(F.cross_entropy, without_padding, ended=False)(tmp_path, True)


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
