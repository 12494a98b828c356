"""Errors that raise nothing: each is found in a small training, its cause is named, and its healthy twin is silent."""
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

from mlinfra.engine.record.watch import watch
from mlinfra.engine.rules.default_rules import LOOP_RULES, SPEED_RULES, TENSOR_RULES
from mlinfra.engine.rules.inspection import Inspector
from mlinfra.lab import silent_errors as lab
from mlinfra.training import fit

SPEED = {rule.__name__ for rule in SPEED_RULES}


pytestmark = pytest.mark.usefixtures("seeded")


def samples(n=384, features=20, classes=5):
    "Inputs and labels that can be learned."
    make = torch.Generator().manual_seed(0)
    x = torch.randn(n, features, generator=make)
    return x, x[:, :classes].argmax(1)


def net(*more, out=5): return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, out), *more)
def sgd(model, lr=0.05): return torch.optim.SGD(model.parameters(), lr)


def listed(size=32): x, y = samples(); return list(zip(x.split(size), y.split(size)))


def trained(folder, model, optimizer, loader, loss_fn=F.cross_entropy, *, epochs=3, zero=True, each=None, after=None,
            **how):
    "What all rules but those on speed say of a loop of one's own."
    inspector = Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    with watch(folder, model, optimizer, rules=[inspector], **how) as w:
        for epoch in range(epochs):
            for x, y in w(loader):
                if zero: optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                optimizer.step()
                w.loss(loss)
                if each: each(epoch)
            if after: after(w)
    assert not inspector.remarks, inspector.remarks
    return inspector.findings


# ---- data

class Noisy(Dataset):
    "Adds noise from a generator that it keeps."
    def __init__(self, rng): self.rng, (self.x, self.y) = rng, samples(128)
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.x[i] + float(self.rng.random()), self.y[i]


class Stream(IterableDataset):
    "Yields all samples, or in each worker its share of them; it is shuffled alike in all workers."
    def __init__(self, divided): self.divided, (self.x, self.y) = divided, samples(256)

    def __iter__(self):
        info = get_worker_info()
        order = np.random.default_rng(0).permutation(len(self.x))
        for i in order[info.id::info.num_workers] if self.divided else order: yield self.x[i], self.y[i]


def own_seed(worker): get_worker_info().dataset.rng = random.Random(torch.initial_seed())
def by_number(worker): get_worker_info().dataset.rng = random.Random(worker)
def workers(data, **how): return DataLoader(data, 16, num_workers=2, **how)


def equal_epochs(folder, sick):
    loader = workers(Noisy(random.Random(0)), shuffle=True, worker_init_fn=by_number if sick else own_seed)
    return trained(folder, m := net(), sgd(m), loader, epochs=2)


def repeated_stream(folder, sick): return trained(folder, m := net(), sgd(m), workers(Stream(not sick)), epochs=1)


def no_set_epoch(folder, sick):
    data = list(zip(*samples()))
    sampler = DistributedSampler(data, 2, 0)
    loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 16, True))
    after = None if sick else lambda w: sampler.set_epoch(sampler.epoch + 1)
    return trained(folder, m := net(), sgd(m), loader, after=after)


def shared_validation(folder, sick):
    x, y = samples(768)
    held = slice(0, 384) if sick else slice(384, None)
    model = net()

    def validate(w):
        with torch.no_grad():
            for xb, _ in w([(x[held], y[held])], validation=True): model(xb)
    return trained(folder, model, sgd(model), list(zip(x[:384].split(32), y[:384].split(32))), after=validate)


def constant_labels(folder, sick):
    loader = [(x, torch.full_like(y, 2) if sick else y) for x, y in listed()]
    return trained(folder, m := net(), sgd(m), loader)


# ---- loops

def eval_for_ever(folder, sick):
    model = net(nn.Dropout(0.1))
    return trained(folder, model, sgd(model), listed(), after=lambda w: model.eval() if sick else model.eval().train())


def training_in_evaluation(folder, sick):
    model = net(nn.BatchNorm1d(5))

    @torch.no_grad()
    def validate(w):
        with w.evaluation(): model.train(sick)(samples()[0])
        model.train()
    return trained(folder, model, sgd(model), listed(), after=validate)


def micro_batches(folder, sick):
    model, inspector = net(), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    optimizer = sgd(model)
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for x, y in w(listed(64)):
            optimizer.zero_grad()
            for part, labels in zip(x.split([4, 60]), y.split([4, 60])):
                loss = F.cross_entropy(model(part), labels, reduction="mean" if sick else "sum") / (1 if sick else 64)
                loss.backward()
            optimizer.step()
            w.loss(float(loss.detach()))
    return inspector.findings


def clipped_while_scaled(folder, sick):
    model, scaler = net(), torch.amp.GradScaler("cpu")
    optimizer, inspector = sgd(model), Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for x, y in w(listed() * 2):
            optimizer.zero_grad()
            scaler.scale(loss := F.cross_entropy(model(x), y)).backward()
            if not sick: scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            w.loss(loss)
    return inspector.findings


def rate_by_batch(folder, sick):
    model = net()
    optimizer = sgd(model)
    plan = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.3)
    by = dict(each=lambda epoch: plan.step()) if sick else dict(after=lambda w: plan.step())
    return trained(folder, model, optimizer, listed(), epochs=4, **by)


# ---- heads

class Mixed(nn.Module):
    "Each output depends on all tokens, or on those so far."
    def __init__(self, causal):
        super().__init__()
        self.table, self.head, self.causal = nn.Embedding(30, 16), nn.Linear(16, 30), causal

    def forward(self, ids):
        x = self.table(ids)
        return self.head(x + (x.cumsum(1) if self.causal else x.sum(1, keepdim=True)) / 20)


def no_causal_mask(folder, sick):
    texts = (torch.randint(0, 30, (24, 16, 1)) + torch.randint(0, 4, (24, 16, 20)).cumsum(2)) % 30
    return trained(folder, m := Mixed(not sick), sgd(m), [(ids[:, :-1], ids[:, 1:]) for ids in texts],
                   lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()))


def double_softmax(folder, sick): return trained(folder, m := net(*[nn.Softmax(1)] * sick), sgd(m), listed())


def raw_nll(folder, sick):
    return trained(folder, m := net(*[nn.LogSoftmax(1)] * (not sick)), sgd(m, 1e-3), listed(), F.nll_loss, epochs=1)


def detached(folder, sick):
    def loss_fn(out, y):
        loss = F.cross_entropy(out, y)
        return torch.tensor(loss.item(), requires_grad=True) if sick else loss
    return trained(folder, m := net(), sgd(m), listed(), loss_fn)


CASES = dict(
    EqualWorkerRandomness=lab.equal_workers, EqualEpochRandomness=equal_epochs, RepeatedByWorkers=repeated_stream,
    SameOrderEachEpoch=no_set_epoch, SharedValidationSamples=shared_validation, ConstantLabels=constant_labels,
    BatchWithoutSpread=lab.empty_batches, ForgottenZeroGrad=lab.no_zero_grad, EvalModeTraining=eval_for_ever,
    DropoutInEvaluation=lab.dropout_in_evaluation,
    UnpreparedEvaluation=lab.early_evaluation, TrainingModeEvaluation=training_in_evaluation,
    UnequalMicroBatches=micro_batches, ClippedWhileScaled=clipped_while_scaled, LearningRateDied=rate_by_batch,
    StoppedEarly=lab.too_few_steps, NothingFrozen=lab.nothing_frozen, HalfLoaded=lab.half_loaded,
    MissingCausalMask=no_causal_mask, ProbabilitiesAsLogits=double_softmax, BroadcastTarget=lab.broadcast,
    DetachedLoss=detached)


@pytest.mark.parametrize("rule", CASES)
def test_the_cause_is_named_and_nothing_else(rule, tmp_path):
    "And each finding is in the run folder with the rest of the run."
    found = CASES[rule](tmp_path, True)
    assert [finding.rule for finding in found] == [rule], [str(finding) for finding in found]
    assert found[0].message and found[0].advice and found[0].step < 100


@pytest.mark.parametrize("rule", CASES)
def test_the_healthy_twin_is_silent(rule, tmp_path):
    found = CASES[rule](tmp_path, False)
    assert not found, [str(finding) for finding in found]


@pytest.mark.parametrize("train, rule", [
    (lab.nothing_to_train, "UnchangedWeights"), (lab.optimizer_before_wrap, "StaleOptimizer"),
    (lab.stale_step, "UnchangedWeights"), (lab.no_autocast, "PrecisionLost")])
def test_published_errors_are_told(train, rule, tmp_path):
    "The others of the list are in `CASES`, or between ranks."
    assert [finding.rule for finding in train(tmp_path / "sick", True)] == [rule]
    assert not train(tmp_path / "well", False)


def test_logits_in_nll_loss_are_told(tmp_path):
    assert [f.rule for f in raw_nll(tmp_path / "sick", True)] == ["ProbabilitiesAsLogits"]
    assert not raw_nll(tmp_path / "well", False)


@pytest.mark.parametrize("sick", [True, False])
def test_fit_tells_of_its_batches_and_losses(sick):
    from mlinfra.debugger import Debugger
    debugger = Debugger([rule() for rule in LOOP_RULES])
    model = net(*[nn.Softmax(1)] * sick)
    fit(model, listed(), observers=[debugger], epochs=2, progress=False, keep_memory=False, device="cpu")
    assert [f.rule for f in debugger.findings] == ["ProbabilitiesAsLogits"] * sick and not debugger.remarks
    assert not model._forward_hooks and not model._forward_pre_hooks
