"""Losses of many kinds on two ranks that divide a batch: that of one process, or refused before the first step."""
import copy
import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import get_total_norm
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.parallel.parallelize import parallelize
from parallel_loops import CLASSES, SAMPLES, WIDTH, chain, difference


def each(scores, y): return F.cross_entropy(scores, y, reduction="none")
def positives(y): return (y > 0).double()
def focal(scores, y):
    right = scores.log_softmax(1).gather(1, y[:, None]).squeeze(1)
    return (-(1 - right.exp()).square() * right).mean()
def two_terms(scores, y): return F.cross_entropy(scores, y) + 0.1 * scores[:, 1:].square().mean()
def sample_by_sample(scores, y): return torch.stack([each(s[None], t[None]).max() for s, t in zip(scores, y)]).mean()
def rows_of_masks(scores, y):
    mask = torch.arange(CLASSES) <= y[:, None]
    return ((scores.square() * mask).sum(1) / mask.sum(1)).mean()
def contrast(scores, y):
    near = F.normalize(scores)
    return F.cross_entropy(near @ near.flip(0).T, torch.arange(len(y)))


RIGHT = dict(
    focal=focal, two_terms=two_terms, sample_by_sample=sample_by_sample, rows_of_masks=rows_of_masks,
    batchmean=lambda s, y: F.kl_div(s.log_softmax(1), F.one_hot(y, CLASSES) * 0.8 + 0.05, reduction="batchmean"),
    by_length=lambda s, y: each(s, y).sum() / len(y),
    hinge=lambda s, y: F.multi_margin_loss(s, y),
    largest_class=lambda s, y: s.amax(1).sub(1).square().mean() + s.topk(2, 1).values.mean(),
    scaled=lambda s, y: 2 * each(s, y).mean() / 3,
    halves=lambda s, y: sum(F.cross_entropy(*part) for part in zip(s.split(1), y.split(1))) / len(y),
    chunks=lambda s, y: sum(F.cross_entropy(*of, reduction="sum") for of in zip(s.chunk(2), y.chunk(2))) / len(y),
    read=lambda s, y: F.cross_entropy(s, y) * (1.0 if each(s, y).max().item() > 0 else 2.0),
    seen_together=lambda s, y: (each(s, y) + s.square().mean()).mean())
REFUSED = dict(
    root=(lambda s, y: F.mse_loss(s, F.one_hot(y, CLASSES).double()).sqrt(), "not a mean over the samples"),
    perplexity=(lambda s, y: F.cross_entropy(s, y).exp(), "not a mean over the samples"),
    contrast=(contrast, "not a mean over the samples"),
    spread=(lambda s, y: F.cross_entropy(s, y) + s.std(0).mean(), "not a mean over the samples"),
    norm=(lambda s, y: F.cross_entropy(s, y) + 0.1 * s.norm(), "not a mean over the samples"),
    worst=(lambda s, y: each(s, y).max(), "picks among the samples of a batch (max)"),
    hardest=(lambda s, y: each(s, y).topk(2).values.mean(), "picks among the samples of a batch (topk)"),
    total=(lambda s, y: each(s, y).sum(), 'say reduction="sum"'),
    penalty=(lambda s, y: F.cross_entropy(s, y) + 0.01 * s.abs().sum(), 'say reduction="sum"'),
    by_batch_size=(lambda s, y: each(s, y).sum() / 8, "divides a sum by 8"),
    by_data_set=(lambda s, y: each(s, y).sum() / SAMPLES, f"divides a sum by {SAMPLES}, the samples of the data set"),
    real_and_false=(lambda s, y: (lambda real, false: real.mean() - false.mean())(*s.chunk(2)), "together (sub"),
    masked=(lambda s, y: (each(s, y) * positives(y)).sum() / positives(y).sum().clamp(min=1), "Pass weight="),
    picked=(lambda s, y: s[y > 0].square().mean(), "Pass weight="),
    centred=(lambda s, y: F.cross_entropy(s - s.detach().mean(0), y), "several samples of a batch together (sub"),
    flooded=(lambda s, y: (F.cross_entropy(s, y) - 1.3).abs() + 1.3, "several samples of a batch together (abs"),
    trimmed=(lambda s, y: each(s, y)[each(s, y) < each(s, y).detach().quantile(0.8)].mean(), "(quantile"),
    balanced=(lambda s, y: F.cross_entropy(s, y, 1 / (1 + y.bincount(minlength=CLASSES)).double()), "together ("),
    first=(lambda s, y: F.cross_entropy(s[1:], y[1:]), "several samples of a batch together (getitem"),
    normed=(lambda s, y: (lambda loss: loss / loss.item())(F.cross_entropy(s, y)), "Pass weight="))


def training(name):
    "Losses and weights, or the words of a refusal and whether the weights are as before."
    torch.manual_seed(0)
    made = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, WIDTH, generator=made, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (SAMPLES,), generator=made)
    y[:8] = torch.tensor([0, 0, 1, 2, 1, 2, 3, 1])  # one rank has two positives, the other four
    loader = DataLoader(TensorDataset(x, y), 8)
    model = chain().double()
    loss_of = RIGHT[name] if name in RIGHT else REFUSED[name][0]
    before = {own: p.detach().clone() for own, p in model.named_parameters()}
    run = parallelize(model, loader, "ddp", torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), device="cpu")
    losses = []
    try:
        for x, y in run.loader:
            loss = loss_of(run.model(x), y)
            loss.backward()
            losses.append(run.mean(loss))
            run.optimizer.step(), run.optimizer.zero_grad()
        return losses, {own: tensor.clone() for own, tensor in run.state_dict().items()}
    except ValueError as error:
        return str(error), all(torch.equal(p, before[own]) for own, p in run.state_dict().items())
    finally: run.close()


@pytest.fixture(scope="module")
def two():
    names = [*RIGHT, *REFUSED]
    found = run_ranks(call_each, 2, [(training, name) for name in names], share_cores=True, timeout_seconds=120)
    return {name: [found[rank][i] for rank in (0, 1)] for i, name in enumerate(names)}


@pytest.mark.parametrize("name", RIGHT)
def test_a_mean_over_samples_is_that_of_one_process(name, two):
    alone = training(name)
    for found in two[name]:
        assert not isinstance(found[0], str), found[0]
        assert difference(alone, found) < 1e-12


@pytest.mark.parametrize("name", REFUSED)
def test_another_loss_is_refused_before_the_first_step(name, two):
    assert not isinstance(training(name)[0], str), "one process takes it"
    for words, untouched in two[name]:
        assert isinstance(words, str) and REFUSED[name][1] in words and untouched, words


@dataclass(frozen=True)
class Answer:
    hidden: torch.Tensor
    scores: torch.Tensor


class Kept:
    "An object that nobody can look into by its type."
    def __init__(self, hidden, scores): self.hidden, self.scores = hidden, scores


class Answering(nn.Module):
    "A model whose outputs are in an object, or stay in the model."
    def __init__(self, kind):
        super().__init__()
        self.body, self.head, self.kind = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), kind
    def forward(self, x):
        hidden = self.body(x).tanh()
        if self.kind in (Answer, Kept): return self.kind(hidden, self.head(hidden))
        if self.kind is None: self.penalty = hidden.square().mean()
        return self.head(hidden)


def answered(kind):
    "Losses of a model that answers so; shares of 4 and 3, and of 1 and nothing."
    torch.manual_seed(0)
    made = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, WIDTH, generator=made, dtype=torch.float64)
    loader = DataLoader(TensorDataset(x, torch.randint(0, CLASSES, (SAMPLES,), generator=made)), 7)
    model, seen = Answering(kind).double(), []
    if kind == "hook": model.body.register_forward_hook(lambda _layer, _inputs, out: seen.append(out))
    run = parallelize(model, loader, "ddp", torch.optim.SGD(model.parameters(), 0.1), device="cpu")
    losses = []
    for x, y in run.loader:
        out = run.model(x)
        if kind in (Answer, Kept): loss = F.cross_entropy(out.scores, y) + 0.1 * out.hidden.square().mean()
        else: loss = F.cross_entropy(out, y) + 0.1 * (run.model.penalty if kind is None else seen[-1].square().mean())
        loss.backward()
        losses.append(run.mean(loss))
        run.optimizer.step(), run.optimizer.zero_grad()
    run.close()
    return losses, run.state_dict()


def test_outputs_in_an_object_or_kept_by_the_model_are_weighed():
    kinds = [Answer, Kept, None, "hook"]
    found = run_ranks(call_each, 2, [(answered, kind) for kind in kinds], share_cores=True)
    for i, kind in enumerate(kinds):
        for rank in (0, 1): assert difference(answered(kind), found[rank][i]) < 1e-12, kind


def by_number():
    "The layers of a Sequential, by their numbers, as the plain model has them."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()
    loader = DataLoader(TensorDataset(torch.ones(8, WIDTH, dtype=torch.float64), torch.arange(8) % CLASSES), 8)
    model[0].requires_grad_(False)
    run = parallelize(model, loader, "ddp", torch.optim.SGD(model.parameters(), 0.1), device="cpu")
    for step in range(3):
        if step == 1: run.model[0].requires_grad_(True)
        for x, y in run.loader:
            run.optimizer.zero_grad()
            F.cross_entropy(run.model(x), y).backward()
            run.optimizer.step()
    assert bool(run.model) and len(run.model) == 3 and [type(layer) for layer in run.model][1] is nn.Tanh
    run.close()
    return [0.0], run.state_dict()


def test_layers_are_found_by_number_and_thawed():
    alone = by_number()
    for found in run_ranks(by_number, 2, share_cores=True).values(): assert difference(alone, found) < 1e-12


def let_go(take):
    "The words by which a batch is refused that the loop does not work on; None if it is taken."
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.ones(SAMPLES, WIDTH, dtype=torch.float64)), 7)
    model = chain().double()
    run = parallelize(model, loader, "ddp", torch.optim.SGD(model.parameters(), 0.1), device="cpu")
    try:
        if take == "kept": (x,) = next(batches := iter(run.loader))
        if take == "next": (x,) = next(iter(run.loader))
        if take == "list": ((x,), *_) = list(run.loader)
        if take == "ahead":
            batches = iter(run.loader)
            for _ in range(3): (x,) = next(batches)
            next(batches)
        run.model(x).square().mean().backward()
        run.optimizer.step()
    except ValueError as error: return str(error)
    finally: run.close()


def test_a_batch_is_used_while_the_loop_works_on_it():
    takes = ["kept", "next", "list", "ahead"]
    found = run_ranks(call_each, 2, [(let_go, take) for take in takes], share_cores=True)
    for rank in (0, 1):
        assert found[rank][0] is None
        for words in found[rank][1:]: assert words and "keep the iterator" in words, words


# ---- single numbers that a model makes of a batch, and what a loop does with parts of gradients

class Alone(nn.Module):
    "Returns its loss alone, or beside its outputs, or keeps a term of it."
    def __init__(self, kind):
        super().__init__()
        self.body, self.router, self.kind = chain(), nn.Linear(WIDTH, 3), kind

    def forward(self, x, y):
        own, scores = OWN[self.kind], self.body(x)
        if self.kind != "balance": return own(scores, y)
        chances = self.router(x).softmax(1)
        shares = F.one_hot(chances.argmax(1), 3).double().mean(0)
        self.balance = 3 * (shares * chances.mean(0)).sum()
        return F.cross_entropy(scores, y)


def positive_mean(scores, y): return (each(scores, y) * positives(y)).sum() / positives(y).sum().clamp(min=1)
def by_batch(scores, y): return each(scores, y).sum() / len(y)
def padded(scores, y): return F.cross_entropy(scores, y.where(y > 0, -100))
def total(scores, y): return each(scores, y).sum()
OWN = dict(mean=F.cross_entropy, by_batch=by_batch, padded=padded, two=two_terms, total=total, masked=positive_mean,
           root=lambda s, y: F.mse_loss(s[:, 0], y.double()).sqrt(), balance=None)
TOLD = dict(total=dict(reduction="sum"),
            masked=dict(weight=lambda batch: float(positives(batch[1]).sum().clamp(min=1))))
SAID = dict(total='reduction="sum"', masked="mean over a mask", root="mean over a mask", balance="balance of experts")


def model_alone(kind, told):
    torch.manual_seed(0)
    made = torch.Generator().manual_seed(1)
    x = torch.randn(16, WIDTH, generator=made, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (16,), generator=made)
    y[:8] = torch.tensor([0, 0, 1, 0, 1, 2, 3, 1])
    model = Alone(kind).double()
    run = parallelize(model, DataLoader(TensorDataset(x, y), 8), "ddp", torch.optim.SGD(model.parameters(), 0.1),
                      device="cpu", **(TOLD[kind] if told else {}))
    try:
        for x, y in run.loader:
            run.optimizer.zero_grad()
            loss = run.model(x, y)
            if kind == "balance": loss = loss + 0.1 * run.model.balance
            loss.backward()
            run.optimizer.step()
        return [0.0], {own: tensor.clone() for own, tensor in run.state_dict().items()}
    except ValueError as error: return str(error)
    finally: run.close()


def sharper(model, x, y, norm):
    "SAM: the gradients are those at weights that are moved by their norm."
    rows = list(model.parameters())
    moves = [p.grad * 0.1 / norm for p in rows]
    with torch.no_grad():
        for p, move in zip(rows, moves): p.add_(move)
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p, move in zip(rows, moves): p.sub_(move)


def penalty(model, by):
    if by == "L2": return 0.01 * sum(p.norm() ** 2 for p in model.parameters())
    return 0.01 * sum(p.square().sum() for p in model.parameters()).sqrt() if by == "root" else 0


def on_parts(rows, by):
    "What loops do with weights and gradients."
    norms = nn.utils
    if by == "each": [norms.clip_grad_norm_([p], 0.05) for p in rows]
    if by == "layers": [norms.clip_grad_norm_(p, 0.05) for p in rows]
    if by == "total": norms.clip_grads_with_norm_(rows, 0.05, norms.get_total_norm([p.grad for p in rows]))
    if by == "captured": norms.clip_grads_with_norm_(rows, 0.05, get_total_norm([p.grad for p in rows]))
    size = norms.get_total_norm(rows) if by == "weights" else 1.0
    with torch.no_grad():
        if by in ("mean", "later"): [p.grad.sub_(p.grad.mean(0)) for p in rows]
        if by == "renorm": [p.copy_(p.renorm(2, 1, 0.3)) for p in rows if p.dim() > 1]
        if by == "row": [p.grad[0].zero_() for p in rows]
        if by == "noise": [p.grad.add_(0.1 * torch.randn_like(p)) for p in rows]
        if by == "nan" and any(p.grad.isnan().any() for p in rows): [p.grad.zero_() for p in rows]
        if by == "casts": [p.grad.copy_(p.grad.double() * (p.grad != 0).float()) for p in rows]
        if by == "unset": [torch.empty_like(p).copy_(p.grad) for p in rows]
        if by == "copies": copy.deepcopy([p.detach() for p in rows])
        if by == "ratio": [p.grad.mul_(p.norm().item() / max(p.grad.norm().item(), 1e-3)) for p in rows]
        if by == "log": sum(p.norm().item() for p in rows)
        if by == "pieces":
            row = torch.cat([p.grad.flatten() for p in rows]) * 0.5
            for p, piece in zip(rows, row.split([p.numel() for p in rows])): p.grad.copy_(piece.view_as(p))
        if by == "vector": norms.vector_to_parameters(norms.parameters_to_vector(rows) * 0.9, rows)
        if by == "stack": size = float(torch.stack([p.grad.norm() for p in rows]).norm())
        for p in rows: p.grad.mul_(size)


READ, ONE = "rank has a part of the", "one gradient of each rank"
PARTS = dict(each=("", ONE), layers=("", ONE), total=("", ""), weights=("", ""), mean=(READ, ""), renorm=(READ, ""),
             row=(READ, ""), noise=(READ, READ), nan=(READ, READ), vector=("", ""), stack=(READ, READ), L2=("", ""),
             root=(READ, READ), sam=(READ, READ), whole=("", ""), casts=("", ""), unset=("", ""), copies=("", ""),
             ratio=("clip_grad_norm_", ""), log=(READ, READ), pieces=("", ""), captured=("", ""), biases=("", ""),
             later=(READ, ""))  # by -> what tensor and pipeline say; "": equal


def clipped_by_hand(how, by):
    "The words of a refusal, or what was trained."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()
    data = TensorDataset(torch.randn(16, WIDTH, dtype=torch.float64), torch.arange(16) % CLASSES)
    optimizer, steps = torch.optim.SGD(model.parameters(), 0.5), []
    run = parallelize(model, DataLoader(data, 8), how, None if by == "later" else optimizer, device="cpu")
    if by == "later": run.optimizer = optimizer
    run.optimizer.register_step_post_hook(lambda *_: steps.append(1))
    try:
        for x, y in run.loader:
            run.optimizer.zero_grad()
            (F.cross_entropy(run.model(x), y) + penalty(run.model, by)).backward()
            rows = list(run.model.parameters())
            on_parts(rows, by)
            if by == "sam": sharper(run.model, x, y, torch.stack([p.grad.norm() for p in rows]).norm())
            if by == "whole": sharper(run.model, x, y, nn.utils.clip_grad_norm_(rows, math.inf))
            if by == "biases":
                named = dict(run.model.named_parameters())
                nn.utils.clip_grad_norm_([p for name, p in named.items() if name in ("0.bias", "4.bias")], 0.01)
            if by == "torch": nn.utils.clip_grad_norm_(rows, 0.05)
            if by == "hand":
                norm = sum(p.grad.norm().item() ** 2 for p in rows) ** 0.5
                for p in rows: p.grad.mul_(min(1.0, 0.05 / norm))
            if by == "rate": run.optimizer.param_groups[0]["lr"] = 0.1 * sum(float(p.norm()) for p in rows)
            run.optimizer.step()
        return [0.0], {own: tensor.clone() for own, tensor in run.state_dict().items()}
    except ValueError as error: return f"{error} after {len(steps)} steps"
    finally: run.close()


class Listed(nn.Module):
    "Layers in a list, in lists in a list, and in a dictionary: nothing calls the containers."
    def __init__(self):
        super().__init__()
        self.rows = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.pairs = nn.ModuleList(nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2)) for _ in range(2))
        self.heads = nn.ModuleDict(dict(one=nn.Linear(WIDTH, CLASSES), two=nn.Linear(WIDTH, CLASSES)))

    def forward(self, x):
        for layer in self.rows: x = layer(x).tanh()
        for one, two in self.pairs: x = x + two(one(x).tanh())
        return self.heads["one"](x) + self.heads["two"](x)


def layers_in_lists(how):
    torch.manual_seed(0)
    model = Listed().double()
    data = TensorDataset(torch.randn(16, WIDTH, dtype=torch.float64), torch.arange(16) % CLASSES)
    run = parallelize(model, DataLoader(data, 8), how, torch.optim.SGD(model.parameters(), 0.5), device="cpu")
    for x, y in run.loader:
        run.optimizer.zero_grad()
        F.cross_entropy(run.model(x), y).backward()
        run.optimizer.step()
    weights = run.state_dict()
    run.close()
    return [0.0], weights


@pytest.fixture(scope="module")
def alone():
    asked = [(model_alone, kind, told) for kind in OWN for told in (False, True) if not told or kind in TOLD]
    asked += [(layers_in_lists, "fsdp")]
    asked += [(clipped_by_hand, how, by) for how in ("pipeline", "tensor") for by in ("torch", "hand", "rate", *PARTS)]
    found = run_ranks(call_each, 2, asked, share_cores=True, timeout_seconds=120)
    return {one[1:]: [found[rank][i] for rank in (0, 1)] for i, one in enumerate(asked)}


@pytest.mark.parametrize("kind", OWN)
def test_a_number_that_a_model_makes_of_a_batch(kind, alone):
    for told in (False, True):
        for found in alone.get((kind, told), []):
            if kind in SAID and not told: assert isinstance(found, str) and SAID[kind] in found, found
            else: assert not isinstance(found, str) and difference(model_alone(kind, told), found) < 1e-12, found


@pytest.mark.parametrize("how", ["pipeline", "tensor"])
def test_a_loop_that_reads_a_part_of_the_gradients_or_weights_is_refused(how, alone):
    for found in alone[how, "torch"]: assert difference(clipped_by_hand("ddp", "torch"), found) < 1e-12, found
    for found in alone[how, "hand"]: assert isinstance(found, str) and "clip_grad_norm_" in found, found
    for found in alone[how, "rate"]: assert isinstance(found, str) and "lr of group 0" in found, found


@pytest.mark.parametrize("by", PARTS)
def test_what_is_made_of_parts_is_that_of_one_process_or_refused_on_all_ranks(by, alone):
    for how, words in zip(("tensor", "pipeline"), PARTS[by]):
        for found in alone[how, by]:
            if words: assert isinstance(found, str) and words in found and found.endswith("after 0 steps"), (how, found)
            else: assert difference(clipped_by_hand("auto", by), found) < 1e-12, (how, found)


def test_fsdp_takes_layers_in_lists_and_dictionaries(alone):
    for found in alone["fsdp",]: assert difference(layers_in_lists("ddp"), found) < 1e-12
