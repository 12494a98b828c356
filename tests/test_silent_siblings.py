"""Relatives of known silent errors, each with its healthy twin: other spellings, samplers and layers of one cause."""
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from test_silent_causes import padding, plateau, without_padding
from test_silent_errors import listed, net, samples, sgd, trained
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, ExponentialLR, LinearLR, MultiStepLR
from torch.utils.data import (
    DataLoader, IterableDataset, Sampler, SubsetRandomSampler, TensorDataset, WeightedRandomSampler)

from mlinfra.engine.record.watch import watch
from mlinfra.engine.rules.default_rules import LOOP_RULES, TENSOR_RULES
from mlinfra.engine.rules.inspection import Inspector


pytestmark = pytest.mark.usefixtures("seeded")


def epochs_of(folder, loader, set_epoch):
    "Three epochs, and what is called after each of them."
    done = []

    def after(w):
        done.append(1)
        if set_epoch: set_epoch(len(done))
    return trained(folder, m := net(), sgd(m), loader, after=after)


# ---- frozen by a name that PyTorch does not read

def module_attribute(folder, sick):
    model = net()
    if sick: model[0].requires_grad = False
    else: model[0].requires_grad_(False)
    return trained(folder, model, sgd(model), listed())


def misspelt(folder, sick):
    model = net()
    for p in model[0].parameters(): setattr(p, "require_grad" if sick else "requires_grad", False)
    return trained(folder, model, sgd(model), listed())


def keras_word(folder, sick):
    model = net()
    if sick: model[0].trainable = False
    else: model[0].requires_grad_(False)
    return trained(folder, model, sgd(model), listed())


class Staged(nn.Sequential):
    frozen_stages = (0, 1)


def several_stages(folder, sick):
    model = Staged(*net())
    if not sick: model[0].requires_grad_(False)
    return trained(folder, model, sgd(model), listed())


# ---- the same order in each epoch

class Shuffled(Sampler):
    "A sampler of a user's own."
    epoch = 0
    def __len__(self): return 384
    def set_epoch(self, epoch): self.epoch = epoch
    def __iter__(self): return iter(torch.randperm(384, generator=torch.Generator().manual_seed(self.epoch)).tolist())


def own_sampler(folder, sick):
    sampler = Shuffled()
    loader = DataLoader(TensorDataset(*samples()), 32, sampler=sampler)
    return epochs_of(folder, loader, None if sick else sampler.set_epoch)


class Stream(IterableDataset):
    "A stream that is shuffled by its epoch."
    epoch = 0
    def set_epoch(self, epoch): self.epoch = epoch
    def __iter__(self):
        x, y = samples()
        for i in torch.randperm(len(x), generator=torch.Generator().manual_seed(self.epoch)): yield x[i], y[i]


def own_stream(folder, sick):
    data = Stream()
    return epochs_of(folder, DataLoader(data, 32), None if sick else data.set_epoch)


def reseeded(make):
    def case(folder, sick):
        drawn = torch.Generator().manual_seed(0)
        loader = DataLoader(TensorDataset(*samples()), 32, sampler=make(drawn))
        return epochs_of(folder, loader, (lambda epoch: drawn.manual_seed(0)) if sick else None)
    return case


# ---- layers that model.parameters() does not find

class Listed(nn.Module):
    "A layer in a list or in a dictionary."
    def __init__(self, wrap):
        super().__init__()
        self.first, self.last = nn.Linear(20, 16), nn.Linear(16, 5)
        self.hidden = wrap(nn.Linear(16, 16))

    def forward(self, x): return self.last(self.hidden["0" if hasattr(self.hidden, "keys") else 0](self.first(x)))


def in_a_list(folder, sick):
    model = Listed((lambda layer: [layer]) if sick else (lambda layer: nn.ModuleList([layer])))
    return trained(folder, model, sgd(model), listed())


def in_a_dictionary(folder, sick):
    model = Listed((lambda layer: {"0": layer}) if sick else (lambda layer: nn.ModuleDict({"0": layer})))
    return trained(folder, model, sgd(model), listed())


def frozen_in_a_list(folder, sick):
    "A teacher is hidden in a list on purpose: nothing in it gets a gradient."
    model = Listed(lambda layer: [layer if sick else layer.requires_grad_(False)])
    return trained(folder, model, sgd(model), listed())


# ---- losses

def over_samples(folder, sick):
    return trained(folder, m := net(), sgd(m), listed(),
                   lambda out, y: F.nll_loss(F.log_softmax(out, 0 if sick else 1), y))


def weights_of_another_shape(folder, sick):
    weights = torch.rand(32, 1)
    if not sick: weights = weights[:, 0]
    return trained(folder, m := net(), sgd(m), listed(),
                   lambda out, y: (F.cross_entropy(out, y, reduction="none") * weights).mean())


def mask_of_another_shape(folder, sick):
    x, y = samples()
    batches = list(zip(x.split(32), torch.stack([y, y], 1).split(32)))
    mask = torch.ones(32, 1, 2) if sick else torch.ones(32, 2)
    return trained(folder, m := net(out=10), sgd(m), batches, lambda out, y: (
        F.cross_entropy(out.view(-1, 5, 2), y, reduction="none") * mask).mean())


def clipped_at_a_low_scale(folder, sick):
    model = net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=1024.0)
    inspector = Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for x, y in w(listed()):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            if not sick: scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return inspector.findings


# ---- schedules for epochs, stepped per batch, that end above a thousandth

def schedule(make):
    def case(folder, sick):
        model = net()
        optimizer = sgd(model)
        scheduler = make(optimizer)
        each = (lambda *_: scheduler.step()) if sick else None
        return trained(folder, model, optimizer, listed(), epochs=12, each=each,
                       after=None if sick else lambda w: scheduler.step())
    return case


def restarts(folder, sick):
    model = net()
    optimizer = sgd(model)
    scheduler = CosineAnnealingWarmRestarts(optimizer, 10)
    count = iter(range(1, 1000))
    def each(*_): scheduler.step(None if sick else next(count) / 12)
    return trained(folder, model, optimizer, listed(), epochs=6, each=each)


def of_another(folder, sick):
    "The optimizer was made anew after the scheduler."
    model = net()
    first, second = sgd(model), sgd(model)
    scheduler = ExponentialLR(first if sick else second, 0.9)
    first.step()
    return trained(folder, model, second, listed(), after=lambda w: scheduler.step())


def never_called(folder, sick):
    model = net()
    optimizer = sgd(model)
    scheduler = ExponentialLR(optimizer, 0.9)
    return trained(folder, model, optimizer, listed(), after=lambda w: None if sick else scheduler.step())


# ---- kl_div, which takes logarithms

def divergence(wrong):
    def case(folder, sick):
        teacher = net().requires_grad_(False)
        with torch.no_grad(): batches = [(x, teacher(x).softmax(1)) for x, _ in listed()]
        take = wrong if sick else (lambda out: out.log_softmax(1))
        loss_fn = lambda out, y: F.kl_div(take(out), y, reduction="batchmean")
        return trained(folder, m := net(), sgd(m), batches, loss_fn)
    return case


# ---- gradients that are not zeroed everywhere, or zeroed too often, and losses that are divided twice

def loop_of(folder, step, size=32, model=None, batches=None, optimizer_of=None):
    "Each batch goes to `step(model, optimizer, number, *batch)`, which returns the loss."
    model, inspector = model or net(), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    optimizer = (optimizer_of or sgd)(model)
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for _ in range(3):
            for n, batch in enumerate(w(batches or listed(size))): w.loss(step(model, optimizer, n, *batch))
    return inspector.findings


def head_zeroed(folder, sick):
    def step(model, optimizer, n, x, y):
        (model[2] if sick else model).zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return loop_of(folder, step)


def accumulated(divide, zeroed):
    def case(folder, sick):
        def step(model, optimizer, n, x, y):
            loss = F.cross_entropy(model(x), y)
            (loss / (divide if sick else 4)).backward()
            if n % 4 == 3: optimizer.step()
            if n % 4 == 3 or sick and zeroed: optimizer.zero_grad()
            return loss
        return loop_of(folder, step, 8)
    return case


# ---- labels of a language model

def shifted(places):
    def case(folder, sick):
        model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30))
        texts = torch.randint(0, 30, (24, 16, 20)).cumsum(2) % 30
        by = places if sick else 1
        def step(model, optimizer, n, ids):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids)[:, :20 - by].flatten(0, 1), ids[:, by:].flatten())
            loss.backward()
            optimizer.step()
            return loss
        return loop_of(folder, step, model=model, batches=[(one,) for one in texts])
    return case


# ---- language models that see what they are to predict

class Reader(nn.Module):
    "A table, something that mixes places, and a head; `returns_loss` as nanoGPT does."
    def __init__(self, mix, returns_loss=False):
        super().__init__()
        self.table, self.mix, self.head, self.returns_loss = nn.Embedding(30, 16), mix, nn.Linear(16, 30), returns_loss
        self.place = nn.Embedding(20, 16)

    def forward(self, ids, labels=None):
        out = self.head(self.mix(self.table(ids) + self.place(torch.arange(ids.shape[1]))))
        return (out, F.cross_entropy(out.flatten(0, 1), labels.flatten())) if self.returns_loss else out


class Attention(nn.Module):
    def __init__(self, masked):
        super().__init__()
        self.masked, self.layer = masked, nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if self.masked else None
        return self.layer(x, src_mask=mask)


class Filter(nn.Module):
    "A convolution over the places, padded on both sides or on the left."
    def __init__(self, masked):
        super().__init__()
        self.pad, self.layer = (2, 0) if masked else (1, 1), nn.Conv1d(16, 16, 3)

    def forward(self, x): return self.layer(F.pad(x.transpose(1, 2), self.pad)).transpose(1, 2)


class Memory(nn.Module):
    def __init__(self, masked):
        super().__init__()
        self.layer = nn.GRU(16, 16 if masked else 8, batch_first=True, bidirectional=not masked)

    def forward(self, x): return self.layer(x)[0]


def texts_of(rows=8, count=24): return torch.randint(0, 30, (count, rows, 1)) + torch.randint(0, 4, (
    count, rows, 20)).cumsum(2)


def unmasked(mix, returns_loss=False):
    def case(folder, sick):
        model = Reader(mix(not sick), returns_loss)
        def step(model, optimizer, n, ids):
            optimizer.zero_grad()
            if returns_loss: loss = model(ids[:, :-1], ids[:, 1:])[1]
            else: loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            return loss
        return loop_of(folder, step, model=model, batches=[(one,) for one in texts_of() % 30])
    return case


# ---- micro-batches whose mean losses are added

def summed(optimizer_of=None, text=False, clip=False):
    def case(folder, sick):
        def step(model, optimizer, n, x, y=None):
            if y is None: x, y = x[:, :-1], x[:, 1:].flatten()
            loss = F.cross_entropy(model(x).flatten(0, -2), y)
            (loss if sick else loss / 4).backward()
            if n % 4 < 3: return loss
            if clip: nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            return loss
        model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30)) if text else None
        batches = [(one,) for one in texts_of() % 30] if text else None
        return loop_of(folder, step, 8, model, batches, optimizer_of)
    return case


def summed_parts(folder, sick):
    "A batch is divided in the loop."
    def step(model, optimizer, n, x, y):
        optimizer.zero_grad()
        for part, labels in zip(x.split(8), y.split(8)):
            loss = F.cross_entropy(model(part), labels)
            (loss if sick else loss / 4).backward()
        optimizer.step()
        return loss
    return loop_of(folder, step)


def adamw(model): return torch.optim.AdamW(model.parameters(), 1e-3)


# ---- a part that stays in eval mode

def part_in_eval(folder, sick):
    body = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(body, nn.Dropout(0.1), nn.Linear(16, 5))
    def after(w):
        model.eval()
        (model[1] if sick else model).train()
    return trained(folder, model, sgd(model), listed(), after=after)


# ---- gradients that are changed too late, targets of a binary cross entropy

def clipped_after_adam(folder, sick):
    def step(model, optimizer, n, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if not sick: nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        if sick: nn.utils.clip_grad_value_(model.parameters(), 0.01)
        return loss
    return loop_of(folder, step, optimizer_of=adamw)


def yes_or_no(wrong):
    def case(folder, sick):
        x, y = samples()
        right = (y > 1).float()[:, None]
        batches = list(zip(x.split(32), (wrong(right) if sick else right).split(32)))
        def step(model, optimizer, n, x, y):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(x), y)
            loss.backward()
            optimizer.step()
            return loss
        return loop_of(folder, step, model=net(out=1), batches=batches, optimizer_of=lambda m: sgd(m, 0.5))
    return case


def beyond_a_sigmoid(folder, sick):
    batches = [(x, 9.0 * (y > 1)[:, None] / (1 if sick else 9)) for x, y in listed()]
    def step(model, optimizer, n, x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return loop_of(folder, step, model=net(nn.Sigmoid(), out=1), batches=batches)


class WithLoss(nn.Module):
    "Gives its loss with its outputs."
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x, y): return F.cross_entropy(out := self.body(x), y), out


def counted_again(folder, sick):
    "The model computes its loss; a norm is read by autograd.grad, and gradients are clipped."
    def step(model, optimizer, n, x, y):
        optimizer.zero_grad()
        loss, _ = model(x, y)
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        if sick: loss.backward(retain_graph=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss
    return loop_of(folder, step, model=WithLoss())


def made_in_the_loop(folder, sick):
    "Its rate falls by hand."
    model, inspector = net(), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    optimizer = adamw(model)
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for n, (x, y) in enumerate(w(listed())):
            if sick: optimizer = torch.optim.AdamW(model.parameters(), 1e-3 * 0.9 ** n)
            else: optimizer.param_groups[0]["lr"] = 1e-3 * 0.9 ** n
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return inspector.findings


# ---- settings and tensors that nobody reads

def rate_as_attribute(folder, sick):
    def step(model, optimizer, n, x, y):
        if sick: optimizer.lr = 0.01
        else: optimizer.param_groups[0]["lr"] = 0.01
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return loop_of(folder, step)


def rate_by_another_name(folder, sick):
    key = "learning_rate" if sick else "lr"
    def optimizer(model): return torch.optim.SGD([{"params": [*model.parameters()], key: 0.01}], 0.05)
    model = net()
    return trained(folder, model, optimizer(model), listed())


def eps_for_momentum(folder, sick):
    model = net(nn.BatchNorm1d(5, *[0.8] * sick))
    return trained(folder, model, sgd(model), listed())


class Scaled(nn.Module):
    "A scale that is a tensor, and no parameter."
    def __init__(self, wrap):
        super().__init__()
        self.body, self.scale = net(), wrap(torch.ones(5, requires_grad=True))

    def forward(self, x): return self.body(x) * self.scale


def no_parameter(folder, sick):
    model = Scaled((lambda t: t) if sick else nn.Parameter)
    return trained(folder, model, sgd(model), listed())


CASES = dict(
    counted_again=("BackwardTwice", counted_again), made_in_the_loop=("OptimizerMadeAnew", made_in_the_loop),
    accuracy_falls=("PlateauInWrongMode", plateau("min")),
    padding_on_the_left=("PaddingCounted", padding(F.cross_entropy, without_padding, left=True)),
    padding_by_a_mask=("PaddingCounted", padding(F.cross_entropy, without_padding, masked=True)),
    beyond_a_sigmoid=("TargetsOutOfRange", beyond_a_sigmoid), rate_as_attribute=("SettingNotRead", rate_as_attribute),
    rate_by_another_name=("SettingNotRead", rate_by_another_name),
    eps_for_momentum=("SettingNotRead", eps_for_momentum), no_parameter=("StaleOptimizer", no_parameter),
    clipped_after_adam=("ClippedAfterUpdate", clipped_after_adam),
    pixels=("TargetsOutOfRange", yes_or_no(lambda y: 255 * y)),
    counts=("TargetsOutOfRange", yes_or_no(lambda y: y + 1)),
    restarts=("LearningRateCycles", restarts), of_another=("StaleOptimizer", of_another),
    never_called=("StoppedEarly", never_called),
    probabilities=("ProbabilitiesAsLogits", divergence(lambda out: out.softmax(1))),
    logits=("ProbabilitiesAsLogits", divergence(lambda out: out)), head_zeroed=("ForgottenZeroGrad", head_zeroed),
    divided_twice=("UnequalMicroBatches", accumulated(16, False)),
    zeroed_each_batch=("UnequalMicroBatches", accumulated(4, True)), not_shifted=("UnrelatedLabels", shifted(0)),
    shifted_twice=("UnrelatedLabels", shifted(2)), part_in_eval=("EvalModeTraining", part_in_eval),
    attention=("MissingCausalMask", unmasked(Attention)), nano=("MissingCausalMask", unmasked(Attention, True)),
    filter=("MissingCausalMask", unmasked(Filter)), memory=("MissingCausalMask", unmasked(Memory)),
    summed=("UnequalMicroBatches", summed()), summed_texts=("UnequalMicroBatches", summed(text=True)),
    summed_and_clipped=("UnequalMicroBatches", summed(adamw, clip=True)),
    summed_parts=("UnequalMicroBatches", summed_parts),
    module_attribute=("NothingFrozen", module_attribute), misspelt=("NothingFrozen", misspelt),
    keras_word=("NothingFrozen", keras_word), several_stages=("NothingFrozen", several_stages),
    own_sampler=("SameOrderEachEpoch", own_sampler), own_stream=("SameOrderEachEpoch", own_stream),
    weighted_sampler=("SameOrderEachEpoch", reseeded(
        lambda g: WeightedRandomSampler(torch.ones(384), 384, generator=g))),
    subset_sampler=("SameOrderEachEpoch", reseeded(lambda g: SubsetRandomSampler(range(384), generator=g))),
    in_a_list=("StaleOptimizer", in_a_list), in_a_dictionary=("StaleOptimizer", in_a_dictionary),
    frozen_in_a_list=("StaleOptimizer", frozen_in_a_list),
    over_samples=("ProbabilitiesAsLogits", over_samples),
    weights_of_another_shape=("BroadcastTarget", weights_of_another_shape),
    mask_of_another_shape=("BroadcastTarget", mask_of_another_shape),
    clipped_at_a_low_scale=("ClippedWhileScaled", clipped_at_a_low_scale),
    linear_schedule=("LearningRateDied", schedule(lambda o: LinearLR(o, 1.0, 0.01, 8))),
    milestones=("LearningRateDied", schedule(lambda o: MultiStepLR(o, [3, 6]))))


@pytest.mark.parametrize("name", CASES)
def test_a_relative_of_a_known_error_is_told(name, tmp_path):
    rule, case = CASES[name]
    found = case(tmp_path, True)
    assert [one for one in found if one.rule == rule], found


@pytest.mark.parametrize("name", CASES)
def test_its_healthy_twin_is_silent(name, tmp_path):
    found = CASES[name][1](tmp_path, False)
    assert not found, found


def divided_afterwards(model, optimizer, n, x, y):
    "Gradients of whole batches are added and divided before the update."
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    if n % 4 == 3:
        for p in model.parameters(): p.grad /= 4
        optimizer.step()
        optimizer.zero_grad()
    return loss


def two_views(model, optimizer, n, x, y):
    "The loss on the batch and on a disturbed copy of it: a sum that is meant."
    optimizer.zero_grad()
    for noise in (0.0, 0.1, 0.2): F.cross_entropy(model(x + noise * torch.randn_like(x)), y).backward()
    optimizer.step()
    return F.cross_entropy(model(x), y).detach()


def norm_afterwards(model, optimizer, n, x, y):
    "The norm of the gradients is read with a limit that none reaches, after the update."
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), torch.inf)
    optimizer.zero_grad()
    return loss


def by_sample(model, optimizer, n, x, y):
    "The gradient of each sample is clipped, and the loop adds them (DP-SGD)."
    added = [torch.zeros_like(p) for p in model.parameters()]
    for one, label in zip(x[:4], y[:4]):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(one[None]), label[None])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for whole, p in zip(added, model.parameters()): whole += p.grad
    for whole, p in zip(added, model.parameters()): p.grad = whole / 4
    optimizer.step()
    return loss


def by_hand(model, optimizer, n, x, y):
    "Gradients are computed by torch.autograd.grad and put in the place of those of before."
    loss = F.cross_entropy(model(x), y)
    for p, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))): p.grad = grad
    optimizer.step()
    return loss


def moved_by_hand(model, optimizer, n, x, y):
    "A perturbation that the loop moves by itself is no forgotten parameter."
    if not n: model.shift = torch.zeros(20, requires_grad=True)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x + model.shift), y)
    loss.backward()
    optimizer.step()
    model.shift.data += 0.01 * model.shift.grad.sign()
    return loss


def keeps_input(model, optimizer, n, x, y):
    "A model keeps its latest input, of which a gradient is wanted."
    model.latest = x.clone().requires_grad_()
    kept.append(weakref.ref(model.latest))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(model.latest), y)
    loss.backward()
    optimizer.step()
    return loss


def gradients_read(model, optimizer, n, x, y):
    "The norm of a gradient is read by autograd.grad, before the pass that adds it."
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    loss.backward()
    optimizer.step()
    return loss


def gradients_read_afterwards(model, optimizer, n, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward(retain_graph=True)
    torch.autograd.grad(loss, list(model.parameters()))
    optimizer.step()
    return loss


def in_two_halves(model, optimizer, n, x, y):
    "The signs of an L1 loss are the same for both, and so is the gradient of the last bias."
    optimizer.zero_grad()
    out, target = model(x), torch.where(torch.arange(5) < 3, 9.0, -9.0).repeat(32, 1)
    for part in (slice(16), slice(16, 32)): F.l1_loss(out[part], target[part]).backward(retain_graph=True)
    optimizer.step()
    return F.cross_entropy(model(x), y).detach()


def two_targets(model, optimizer, n, x, y):
    "A label and a teacher, both above: with an L1 loss both bring the same."
    optimizer.zero_grad()
    out = model(x)
    for target in (8.0, 9.0): F.l1_loss(out, torch.full_like(out, target)).backward(retain_graph=True)
    optimizer.step()
    return F.cross_entropy(model(x), y).detach()


def equal_halves(model, optimizer, n, x, y):
    "Of ones, with which somebody measures the speed."
    optimizer.zero_grad()
    out = model(torch.ones(2, 20))
    for part in (slice(1), slice(1, 2)):
        F.cross_entropy(out[part], torch.ones(1, dtype=torch.long)).backward(retain_graph=True)
    optimizer.step()
    return F.cross_entropy(model(x), y).detach()


def common_penalty(model, optimizer, n, x, y):
    "Two tasks, and both have the same penalty; nothing else reaches one of the parameters."
    optimizer.zero_grad()
    out = model(x)
    for labels in (y, (y + 1) % 5):
        (F.cross_entropy(out, labels) + 0.01 * model.prior.square().sum()).backward(retain_graph=True)
    optimizer.step()
    return F.cross_entropy(out, y).detach()


def bounded(model, optimizer, n, x, y):
    "Logits are bounded on both sides."
    optimizer.zero_grad()
    loss = F.cross_entropy(F.hardtanh(model(x), -10, 10), y)
    loss.backward()
    optimizer.step()
    return loss


kept: list = []


@pytest.mark.parametrize("step", [divided_afterwards, two_views, norm_afterwards, by_sample, by_hand, moved_by_hand,
                                  keeps_input, bounded, gradients_read, gradients_read_afterwards])
def test_what_is_meant_is_silent(step, tmp_path): assert not loop_of(tmp_path, step, 8)


@pytest.mark.parametrize("step", [in_two_halves, equal_halves, two_targets, common_penalty])
def test_several_losses_of_one_pass_are_not_one_loss(step, tmp_path):
    model = net()
    model.prior = nn.Parameter(torch.randn(4))
    found = loop_of(tmp_path, step, model=model)
    assert "BackwardTwice" not in [one.rule for one in found], found


def test_equal_micro_batches_are_silent(tmp_path):
    "As those of a batch of ones, with which somebody measures the speed."
    def step(model, optimizer, n, x, y):
        optimizer.zero_grad()
        for part, labels in zip(torch.ones_like(x).split(8), torch.ones_like(y).split(8)):
            loss = F.cross_entropy(model(part), labels) / 4
            loss.backward()
        optimizer.step()
        return loss
    assert "BackwardTwice" not in [one.rule for one in loop_of(tmp_path, step)]


def test_accumulation_over_one_batch_that_comes_again_is_silent(tmp_path):
    def step(model, optimizer, n, x, y):
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        if n % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        return loss
    found = loop_of(tmp_path, step, batches=listed()[:1] * 12)
    assert not [one for one in found if one.rule == "BackwardTwice"], found


def test_an_input_that_a_model_keeps_is_not_kept_alive(tmp_path):
    kept.clear()
    def step(*batch):
        gc.collect()
        assert sum(one() is not None for one in kept) < 2
        return keeps_input(*batch)
    loop_of(tmp_path, step)


def test_a_resized_mask_is_in_range(tmp_path):
    "What bilinear interpolation makes of ones may be 1.0000001."
    batches = [(x, F.one_hot(y, 5) * (1 + 2 ** -23)) for x, y in listed()]
    model = net()
    assert not trained(tmp_path, model, sgd(model), batches, F.binary_cross_entropy_with_logits)


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.GRU(5, 8), nn.Linear(8, 5)

    def forward(self, x): return self.head(self.body(x.transpose(0, 1))[0].mean(0))


@pytest.mark.parametrize("size", [1, 4])
def test_micro_batches_of_sequences_as_long_as_the_batch_are_silent(size, tmp_path):
    x = torch.randn(12, 16, 16, 5)
    batches = [(one, one.sum(1).argmax(1)) for one in x]
    def step(model, optimizer, n, x, y):
        optimizer.zero_grad()
        for part, labels in zip(x.split(size), y.split(size)):
            loss = F.cross_entropy(model(part), labels) * size / 16
            loss.backward()
        optimizer.step()
        return loss.detach()
    found = loop_of(tmp_path, step, model=TimeFirst(), batches=batches)
    assert not [one for one in found if one.rule == "SamplesAsTime"], found


def no_such_setting(model):
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    optimizer.momentum = 0.9
    return optimizer


def no_such_name(model): return torch.optim.SGD([{"params": [*model.parameters()], "weightdecay": 0.1}], 0.05)


@pytest.mark.parametrize("make, words", [(no_such_setting, "Adam has no momentum"),
                                         (no_such_name, "it trains with 0.")])
def test_what_is_read_in_the_place_of_a_setting(make, words, tmp_path):
    found = trained(tmp_path, m := net(), make(m), listed())
    assert any(one.rule == "SettingNotRead" and words in str(one) and "0.05" not in str(one) for one in found), found


def test_two_optimizers_of_one_pass_hear_of_equal_dropout(tmp_path):
    model, inspector = net(), Inspector([rule() for rule in LOOP_RULES])
    model.insert(1, nn.Dropout(0.1))
    both = [sgd(model[0]), sgd(model[-1])]
    with watch(tmp_path, model, both, rules=[inspector]) as w:
        for x, y in w(listed()):
            torch.manual_seed(1)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            for one in both:
                one.step()
                one.zero_grad()
            w.loss(loss)
    assert [one.rule for one in inspector.findings] == ["EqualStepRandomness"]


def test_large_gradients_are_not_kept_from_being_freed(tmp_path):
    model, alive = nn.Sequential(nn.Linear(20, 5000, bias=False), nn.Linear(5000, 20, bias=False)), []
    latest = []
    def step(model, optimizer, n, x, y):
        alive.extend(one() is not None for one in latest)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        latest[:] = [weakref.ref(p.grad) for p in model.parameters()]
        optimizer.zero_grad()
        return loss
    loop_of(tmp_path, step, model=model)
    assert not any(alive)


def test_a_sum_that_adam_divides_again_is_silent(tmp_path): assert not summed(adamw)(tmp_path, True)


class Copier(nn.Module):
    "An encoder that sees the whole text, and a decoder that gets it place by place: an autoencoder."
    def __init__(self):
        super().__init__()
        self.table, self.whole, self.head = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30)
        self.again = nn.Embedding(30, 16)

    def forward(self, ids):
        whole = self.whole(self.table(ids))[1].transpose(0, 1)
        return self.head(self.again(ids) + whole)


def test_an_autoencoder_of_texts_is_silent(tmp_path):
    def step(model, optimizer, n, ids):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss
    assert not loop_of(tmp_path, step, model=Copier(), batches=[(one,) for one in texts_of() % 30])


def test_looking_for_a_mask_changes_no_bit(tmp_path):
    def weights(look):
        torch.manual_seed(3)
        model = Reader(Attention(False))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        inspector = Inspector([rule() for rule in LOOP_RULES] if look else [])
        with watch(tmp_path / str(look), model, optimizer, rules=[inspector]) as w:
            for ids in w(list(texts_of(count=6) % 30)):
                optimizer.zero_grad()
                F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
                optimizer.step()
        assert [one.rule for one in inspector.findings] == ["MissingCausalMask"] * look
        return [p.detach().clone() for p in model.parameters()]
    assert all(map(torch.equal, weights(True), weights(False)))


@pytest.mark.parametrize("settings, planned", [
    (dict(num_epochs=4), 48), (dict(num_train_epochs=4.0, max_steps=-1), 48), (dict(max_train_steps=100), 100)])
def test_planned_steps_are_known_by_the_names_that_people_give_them(settings, planned, tmp_path):
    found = trained(tmp_path, m := net(), sgd(m), listed(), epochs=2, config=settings)
    assert any(one.rule == "StoppedEarly" and f"of {planned} planned steps" in str(one) for one in found), found


def test_a_run_without_a_limit_of_steps_has_not_stopped_early(tmp_path):
    model = net()
    assert not trained(tmp_path, model, sgd(model), listed(), config=dict(max_steps=-1, num_train_epochs=3.0))
