"""Losses, accuracies and metrics are means over what they are means over, however batches are cut."""
from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mlinfra.engine.train.builtin_observers import ClipGradients
from mlinfra.training import evaluate, fit

QUIET = dict(progress=False, device="cpu", channels_last=False)
CLASS_WEIGHTS = torch.tensor([0.1, 1.0, 3.0, 0.5, 2.0])


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 6), nn.Linear(6, 5)
    def forward(self, x): return self.head(self.table(x)).transpose(1, 2)


def tokens(samples=14):
    "Rows of tokens, of which the first are padded, and none counts in two of them."
    torch.manual_seed(0)
    x, y = torch.randint(0, 5, (samples, 9)), torch.randint(0, 5, (samples, 9))
    y[:4, 2:], y[4:6] = -100, -100
    return x, y


def cross_entropy(**how): return lambda m, b: F.cross_entropy(m(b[0]), b[1], **how)
def plain(m, b): return F.cross_entropy(m(b[0]), b[0])
def likelihood(m, b): return F.nll_loss(m(b[0]).log_softmax(1), b[1], CLASS_WEIGHTS)
def squares(m, b): return F.mse_loss(m(b[0]), F.one_hot(b[0], 5).transpose(1, 2).float())
def logits(m, b):
    classes = F.one_hot(b[0], 5).transpose(1, 2).float()
    return F.binary_cross_entropy_with_logits(m(b[0]), classes, CLASS_WEIGHTS[:, None])
def pair(m, b): return F.cross_entropy(m(b[0]), b[1], reduction="sum"), (b[1] != -100).sum()
def number(m, b): return F.cross_entropy(m(b[0]), b[1], reduction="sum"), int((b[1] != -100).sum())
def masked(m, b):
    kept = (b[1] != -100).float()
    return (F.cross_entropy(m(b[0]), b[1].clamp(0), reduction="none") * kept).sum() / kept.sum().clamp(min=1)
def scaled(m, b): return sum([0.5 * F.cross_entropy(m(b[0]), b[1]), F.cross_entropy(m(b[0]), b[1]) / 4])
def by_samples(m, b): return F.cross_entropy(m(b[0]), b[1], reduction="sum") / len(b[0])
def ctc(m, b):
    scores, lengths = m(b[0]).permute(2, 0, 1).log_softmax(2), torch.full((len(b[0]),), 9)
    return F.ctc_loss(scores, b[0][:, :3] % 4 + 1, lengths, lengths // 4)
def counts(b): return (b[1] != -100).sum()


LOSSES = dict(
    plain=(plain, {}), ignored=(cross_entropy(), {}), weighted=(cross_entropy(weight=CLASS_WEIGHTS), {}),
    another=(cross_entropy(ignore_index=3), dict(relabel=True)), smoothed=(cross_entropy(label_smoothing=0.1), {}),
    everything=(cross_entropy(weight=CLASS_WEIGHTS, label_smoothing=0.1), {}), likelihood=(likelihood, {}),
    summed=(cross_entropy(reduction="sum"), {}), squares=(squares, {}), logits=(logits, {}), pair=(pair, {}),
    number=(number, {}), own=(masked, dict(weight=counts)), scaled=(scaled, {}),
    by_samples=(by_samples, {}), ctc=(ctc, {}))


def trained(step, batches, accumulation, relabel=False, lr=0.1, model=None, **how):
    torch.manual_seed(1)
    model = Tokens() if model is None else copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr)
    history = fit(model, batches, step=step, accumulation=accumulation, optimizer=optimizer, **how, **QUIET)
    return history, torch.cat([p.detach().flatten() for p in model.parameters()])


def cut(data, size): return list(zip(*(part.split(size) for part in data)))


def relabelled(x, y): return x, torch.where(y == -100, 3, y)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_micro_batches_train_as_one_batch(name, clip):
    step, how = LOSSES[name]
    data = relabelled(*tokens()) if how.get("relabel") else tokens()
    def run(size, many):
        watchers = dict(observers=[ClipGradients(0.05)]) if clip else {}
        return trained(step, cut(data, size), many, **how, **watchers)
    (one, whole), (four, parts) = run(14, 1), run(4, 4)  # 4 + 4 + 4 + 2
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    assert math.isclose(one.steps[0].loss, four.steps[0].loss, rel_tol=1e-5) and len(four.steps) == 1
    assert not any("several means" in remark for remark in four.remarks)


@pytest.mark.parametrize("name", LOSSES)
def test_validation_is_that_of_one_batch(name):
    step, how = LOSSES[name]
    data = relabelled(*tokens()) if how.get("relabel") else tokens()
    found = [trained(step, [data], 1, lr=0.0, valid=cut(data, size), **how)[0].epochs[0].valid_loss for size in (14, 4)]
    assert math.isclose(*found, rel_tol=1e-5)
    torch.manual_seed(1)
    model = Tokens()
    step = {"own": pair}.get(name, step)
    want = step(model, data)
    want = float((want[0] / want[1] if isinstance(want, tuple) else want).detach())
    assert math.isclose(found[0], want, rel_tol=1e-5)


def test_several_means_are_each_joined_by_their_own_counts_in_evaluation():
    def step(m, b):
        out = m(b[0])
        return F.cross_entropy(out, b[1]) + 0.1 * F.cross_entropy(out, b[0]) + out.square().mean()
    data = tokens()
    whole, parts = (trained(step, [data], 1, lr=0.0, valid=cut(data, size))[0].epochs[0].valid_loss
                    for size in (14, 7))
    assert math.isclose(whole, parts, rel_tol=1e-5)
    assert any("several means" in remark for remark in trained(step, cut(data, 7), 2)[0].remarks)


def test_even_counts_leave_the_arithmetic_as_it_was():
    data = tokens(16)
    by_hand = lambda m, b: F.cross_entropy(m(b[0]), b[0], reduction="none").mean()
    (one, seen), (two, unseen) = trained(plain, cut(data, 4), 4), trained(by_hand, cut(data, 4), 4)
    torch.testing.assert_close(seen, unseen)
    assert len(one.remarks) == len(two.remarks)
    assert type(F.cross_entropy(torch.zeros(2, 2), torch.zeros(2).long())) is torch.Tensor, "put back"


def test_bf16_and_a_scaler_join_as_float32_does():
    data = tokens()
    model = nn.Sequential(Tokens())
    half = trained(cross_entropy(), cut(data, 4), 4, precision="bf16", model=model)[1]
    torch.testing.assert_close(half, trained(cross_entropy(), [data], 1, model=model)[1], rtol=0.02, atol=0.002)


def test_segmentation_ignores_in_loss_and_accuracy():
    torch.manual_seed(0)
    x, model = torch.randn(6, 2, 5, 5), nn.Conv2d(2, 3, 1)
    y = model(x).argmax(1)
    y[:2, 1:], y[5] = 255, 255
    data = list(zip(x.split(2), y.split(2)))
    history = fit(model, data, loss_fn=nn.CrossEntropyLoss(ignore_index=255), valid=data,
                  optimizer=torch.optim.SGD(model.parameters(), 0.0), **QUIET)
    want = float(F.cross_entropy(model(x), y, ignore_index=255).detach())
    assert history.epochs[0].accuracy == 1.0 and math.isclose(history.epochs[0].valid_loss, want, rel_tol=1e-6)
    assert evaluate(model, data) == 1.0


def test_an_ignored_class_is_no_answer():
    x, y = torch.eye(4), torch.tensor([0, 0, 2, 3])
    history = fit(fixed(), [(x, y)], loss_fn=nn.CrossEntropyLoss(ignore_index=0), valid=[(x, y)],
                  optimizer=lambda p: torch.optim.SGD(p, 0.0), **QUIET)
    assert history.epochs[0].accuracy == 1.0


def fixed():
    model = nn.Linear(4, 4, bias=False)
    nn.init.eye_(model.weight)
    return model


class Labels:
    "A language model's own loss, as transformers compute it."
    def __init__(self):
        from transformers import GPT2Config, GPT2LMHeadModel
        torch.manual_seed(0)
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=9, n_embd=8, n_layer=1, n_head=2,
                                                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def test_the_loss_of_a_language_model_of_transformers():
    pytest.importorskip("transformers")
    x, y = tokens()
    model = Labels().model
    batches = [dict(input_ids=a, labels=b) for a, b in cut((x, y), 4)]
    step = lambda m, b: m(**b).loss
    one, whole = trained(step, [dict(input_ids=x, labels=y)], 1, model=model, valid=batches)
    _, parts = trained(step, batches, 4, model=model)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    frozen, _ = trained(step, batches, 4, model=model, lr=0.0, valid=batches)
    assert math.isclose(frozen.epochs[0].valid_loss, one.steps[0].loss, rel_tol=1e-5)


def test_torchmetrics_compute_over_all_batches():
    metrics = pytest.importorskip("torchmetrics.classification")
    torch.manual_seed(0)
    x, y, model = torch.randn(10, 4), torch.randint(0, 4, (10,)), nn.Linear(4, 4)
    data, f1 = cut((x, y), 3), metrics.MulticlassF1Score(4)
    want = float(metrics.MulticlassF1Score(4)(model(x), y))
    assert math.isclose(evaluate(model, data, metric=f1), want, rel_tol=1e-6)
    assert math.isclose(evaluate(model, data, metric=f1), want, rel_tol=1e-6), "reset before each"
    history = fit(model, data, valid=data, metric=dict(f1=f1, first=lambda o, t: o[:, 0].mean()),
                  optimizer=torch.optim.SGD(model.parameters(), 0.0), **QUIET)
    found = history.epochs[0].metric
    assert math.isclose(found["f1"], want, rel_tol=1e-6)
    assert math.isclose(found["first"], float(model(x)[:, 0].mean().detach()), rel_tol=1e-5)
    with pytest.raises(TypeError, match="metric must be"): evaluate(model, data, metric=3)


def test_samples_are_what_the_user_says():
    sequences, labels = torch.randn(7, 4, 3), torch.randint(0, 2, (4,))
    step = lambda m, b: F.cross_entropy(m(b[0]).mean(0), b[1])
    batches = [(sequences, labels)] * 2
    for how, samples, remarks in ((dict(batch_dim=1), 4, 0), (dict(samples=lambda b: len(b[1])), 4, 0), ({}, 7, 1)):
        history = fit(nn.Linear(3, 2), batches, step=step, valid=batches, **how, **QUIET)
        assert history.steps[0].samples == samples, how
        assert sum("lengths 7, 4" in remark for remark in history.remarks) == remarks
    assert evaluate(nn.Linear(3, 2), batches, step=step, batch_dim=1) > 0


def test_the_doctor_and_a_watched_loop_count_as_they_are_told(tmp_path):
    from mlinfra.doctor import diagnose
    from mlinfra.monitor import watch
    from mlinfra.engine.record.run_folder import Run
    batches = [(torch.randn(7, 4, 3), torch.randint(0, 2, (4,)))] * 8
    step = lambda m, b: F.cross_entropy(m(b[0]).mean(0), b[1])
    with watch(tmp_path / "run", batch_dim=1) as w:
        for _batch in w(batches): pass
    assert set(Run(tmp_path / "run").steps.samples) == {4}
    asked = []
    def samples(batch): return asked.append(batch) or len(batch[1])
    diagnose(nn.Linear(3, 2), batches, step=step, samples=samples, budget_seconds=3.0, device="cpu")
    assert asked
    with pytest.raises(ValueError, match="batch_dim"):
        diagnose(nn.Linear(3, 2), batches, step=step, batch_dim=9, budget_seconds=3.0, device="cpu")
