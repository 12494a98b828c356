"""Healthy trainings of many kinds, watched in a loop of one's own: a rule on numbers that says anything is wrong.

Each is some 100 tiny steps. Add a training as a function of `Loop`, with its name in `HEALTHY`.
"""
import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from mlinfra.debugger import Debugger
from mlinfra.engine.dist.fsdp import fsdp
from mlinfra.engine.dist.ranks import run_ranks
from mlinfra.engine.record.watch import watch
from mlinfra.engine.rules.default_rules import SPEED_RULES
from mlinfra.engine.rules.findings import Facts
from mlinfra.engine.rules.tensor_rules import UnchangedWeights
from mlinfra.engine.rules.tensor_stats import ParameterStats, TensorStats
from mlinfra.pretrained import add_lora

SPEED = {rule.__name__ for rule in SPEED_RULES}
STEPS = 120


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


class Loop:
    "Opens the watch of a training, and keeps it."
    def __init__(self, folder: Path): self.folder, self.debugger = folder, Debugger()

    def __call__(self, model: nn.Module, optimizer: Any) -> Any:
        return watch(self.folder, model, optimizer, rules=[self.debugger])

    def says(self) -> list[str]:
        "What rules on numbers, batches and the loop have found, and what was said of rules that failed."
        told = [words for words in self.debugger.remarks if "the compiler has made one piece" not in words]
        return [*(str(f) for f in self.debugger.findings if f.rule not in SPEED), *told]


def task(steps: int = STEPS, size: int = 32, features: int = 20, classes: int = 4) -> list[tuple[Any, Any]]:
    "Batches that can be learned: the class is the largest of a few sums."
    x = torch.randn(steps * size, features)
    y = (x @ torch.randn(features, classes)).argmax(1)
    return list(zip(x.split(size), y.split(size)))


def mlp(*sizes: int) -> nn.Sequential:
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def learn(w: Any, model: nn.Module, optimizer: Any, batches: Any, after: Callable[[int], Any] = lambda n: None,
          loss_fn: Callable = F.cross_entropy) -> None:
    for n, (x, y) in enumerate(w(batches)):
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        w.loss(loss)
        after(n)


def lora(loop: Loop) -> None:
    model = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(20, 20), nn.GELU())], nn.Linear(20, 4))
    add_lora(model, "*", rank=4)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task())


def gan(loop: Loop) -> None:
    "The critic learns in each step, the generator in each fifth."
    model = nn.ModuleDict(dict(generator=mlp(8, 32, 20), critic=mlp(20, 32, 1)))
    slow, fast = (torch.optim.Adam(model[name].parameters(), 1e-4) for name in ("generator", "critic"))
    with loop(model, [slow, fast]) as w:
        for n, (x, _) in enumerate(w(task())):
            made = model["generator"](torch.randn(len(x), 8))
            real, false = model["critic"](x), model["critic"](made.detach())
            loss = F.softplus(-real).mean() + F.softplus(false).mean()
            fast.zero_grad()
            loss.backward()
            fast.step()
            if n % 5 == 0:
                slow.zero_grad()
                F.softplus(-model["critic"](made)).mean().backward()
                slow.step()
            w.loss(loss)


def critic(loop: Loop) -> None:
    "Of a GAN only the critic is watched: it gets gradients of the generator's loss too, and sets them to zero."
    generator, model = mlp(8, 32, 20), mlp(20, 32, 1)
    slow, fast = (torch.optim.Adam(one.parameters(), 1e-4) for one in (generator, model))
    with loop(model, fast) as w:
        for x, _ in w(task()):
            made = generator(torch.randn(len(x), 8))
            loss = F.softplus(-model(x)).mean() + F.softplus(model(made.detach())).mean()
            fast.zero_grad()
            loss.backward()
            fast.step()
            slow.zero_grad()
            F.softplus(-model(made)).mean().backward()
            slow.step()
            w.loss(loss)


class Clicks(nn.Module):
    "A recommender: a large table of which a batch reads few rows, with dense or sparse gradients."
    def __init__(self, sparse: bool):
        super().__init__()
        self.users, self.items = (nn.Embedding(2_000, 16, sparse=sparse) for _ in range(2))
        self.top = mlp(32, 16, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.top(torch.cat([self.users(ids[:, 0]), self.items(ids[:, 1])], 1)).squeeze(1)


def recommender(loop: Loop, sparse: bool = False) -> None:
    model = Clicks(sparse)
    optimizer = torch.optim.SGD(model.parameters(), 0.5) if sparse else torch.optim.Adagrad(model.parameters(), 0.05)
    ids = (2_000 * torch.rand(STEPS, 32, 2) ** 4).long()
    with loop(model, optimizer) as w:
        for batch in w(ids):
            loss = F.binary_cross_entropy_with_logits(model(batch), (batch[:, 0] < 125).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def policy_gradient(loop: Loop) -> None:
    "The loss is the advantage times a logarithm: it need not fall, and its sign changes."
    model = mlp(4, 32, 2)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with loop(model, optimizer) as w:
        for state in w(list(torch.randn(STEPS, 64, 4))):
            chances = torch.distributions.Categorical(logits=model(state))
            action = chances.sample()
            reward = (action == (state[:, 0] > 0)).float()
            loss = -((reward - reward.mean()) * chances.log_prob(action)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss + 10)  # beside other terms, as in PPO


def accumulation(loop: Loop) -> None:
    model = mlp(20, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with loop(model, optimizer) as w:
        for n, (x, y) in enumerate(w(task(2 * STEPS))):
            loss = F.cross_entropy(model(x), y) / 4
            loss.backward()
            if n % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            w.loss(4 * loss)


def sorted_stream(loop: Loop) -> None:
    "Samples come by their class: the loss falls within each class, and rises where the next begins."
    model, batches = mlp(20, 64, 4), task()
    x, y = (torch.cat(part) for part in zip(*batches))
    order = y.argsort(stable=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with loop(model, optimizer) as w: learn(w, model, optimizer, list(zip(x[order].split(32), y[order].split(32))))


def warm_up(loop: Loop) -> None:
    "From a rate of zero, and a cosine to zero at the end."
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    factor = lambda n: min(n / 40, 0.5 + 0.5 * math.cos(math.pi * n / STEPS))
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task(), lambda n: rate.step())


def moving_average(loop: Loop) -> None:
    "A copy of the weights follows them, and is validated."
    model, batches = mlp(20, 64, 4), task()
    optimizer, twin = torch.optim.Adam(model.parameters(), 3e-3), copy.deepcopy(model).requires_grad_(False)

    def follow(n: int) -> None:
        for slow, p in zip(twin.parameters(), model.parameters()): slow.lerp_(p.detach(), 0.01)
        if n % 30 < 29: return
        with w.evaluation() as found, torch.no_grad():
            x, y = batches[0]
            found.tell(F.cross_entropy(twin(x), y))

    with loop(model, optimizer) as w: learn(w, model, optimizer, batches, follow)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = mlp(20, 64, 64), nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint(self.body, x, use_reentrant=False))


def gradient_checkpointing(loop: Loop) -> None:
    model = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task())


def several_optimizers(loop: Loop) -> None:
    "One for the body, one for the head."
    model = mlp(20, 64, 64, 4)
    parts = [torch.optim.SGD(model[:4].parameters(), 0.1), torch.optim.Adam(model[4:].parameters())]
    with loop(model, parts) as w:
        for x, y in w(task()):
            loss = F.cross_entropy(model(x), y)
            for optimizer in parts: optimizer.zero_grad()
            loss.backward()
            for optimizer in parts: optimizer.step()
            w.loss(loss)


class ScheduleFree(torch.optim.Optimizer):
    "SGD on an average of the iterates; train mode and eval mode have different weights."
    def __init__(self, params: Any, lr: float):
        super().__init__(params, dict(lr=lr))
        self.count, self.mode = 0, "train"

    @torch.no_grad()
    def step(self) -> None:
        self.count += 1
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state: state.update(z=p.clone(), x=p.clone())
            state["z"] -= self.param_groups[0]["lr"] * p.grad
            state["x"].lerp_(state["z"], 1 / self.count)
            p.copy_(state["z"].lerp(state["x"], 0.9))

    @torch.no_grad()
    def swap(self, mode: str) -> None:
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            p.copy_(state["x"] if mode == "eval" else state["z"].lerp(state["x"], 0.9))


def schedule_free(loop: Loop) -> None:
    model, batches = mlp(20, 64, 4), task()
    optimizer = ScheduleFree(model.parameters(), 0.3)

    def validate(n: int) -> None:
        if n % 30 < 29: return
        optimizer.swap("eval")
        with w.evaluation() as found, torch.no_grad(): found.tell(F.cross_entropy(model(batches[0][0]), batches[0][1]))
        optimizer.swap("train")

    with loop(model, optimizer) as w: learn(w, model, optimizer, batches, validate)


def scaled_gradients(loop: Loop) -> None:
    "As with GradScaler and fp16: the first scales are too large, and these updates are left out."
    model = mlp(20, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 26, growth_interval=1000)
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            with torch.autocast("cpu", torch.float16): loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            w.loss(loss)
    assert scaler.get_scale() < 2.0 ** 24, "some updates were left out"


# ---- learning rates and optimizers

def long_warm_up(loop: Loop) -> None:
    "Linear over 1,000 steps, of which these are the first."
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, total_iters=1000)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task(), lambda n: rate.step())


def one_cycle(loop: Loop) -> None:
    "The rate ends at 1e-8 of its peak."
    model = mlp(20, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, STEPS, final_div_factor=1e7)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task(), lambda n: rate.step())


def warm_restarts(loop: Loop) -> None:
    model = mlp(20, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rate = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 20, 2)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task(), lambda n: rate.step())


def lbfgs(loop: Loop) -> None:
    "Many forward and backward passes in an update, on all samples each time."
    model, (x, y) = mlp(20, 16, 4), task(1, 256)[0]
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=4)
    with loop(model, optimizer) as w:
        for x, y in w([(x, y)] * 60):
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y) + 1e-3 * sum(p.square().sum() for p in model.parameters())
                loss.backward()
                return loss
            w.loss(optimizer.step(closure))


def sharpness_aware(loop: Loop) -> None:
    "Two backward passes in an update; the weights are moved before the second, and moved back."
    model = mlp(20, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            with torch.no_grad():
                moves = [0.05 * p.grad / p.grad.norm().clamp_min(1e-12) for p in model.parameters()]
                for p, move in zip(model.parameters(), moves): p += move
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p, move in zip(model.parameters(), moves): p -= move
            optimizer.step()
            optimizer.zero_grad()
            w.loss(loss)


def weight_averaging(loop: Loop) -> None:
    "SWA with a constant rate; its batch norm's statistics are computed at the end, in train mode without gradients."
    model, batches = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)), task()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    mean, rate = torch.optim.swa_utils.AveragedModel(model), torch.optim.swa_utils.SWALR(optimizer, 0.05, 5)

    def average(n: int) -> None:
        if n < 80 or n % 5: return
        mean.update_parameters(model)
        rate.step()

    with loop(model, optimizer) as w:
        learn(w, model, optimizer, batches, average)
        torch.optim.swa_utils.update_bn(batches[:10], mean)
        with w.evaluation() as found, torch.no_grad():
            found.tell(F.cross_entropy(mean.eval()(batches[0][0]), batches[0][1]))


# ---- how a batch is made, divided and weighed

def ragged_accumulation(loop: Loop) -> None:
    "Four micro-batches an update, three at the end of an epoch, where the last is small; weighed by their samples."
    model, (x, y) = mlp(20, 64, 4), task(1, 15 * 32 - 20)[0]
    optimizer, parts = torch.optim.SGD(model.parameters(), 0.1), list(zip(x.split(32), y.split(32)))
    with loop(model, optimizer) as w:
        for _ in range(8):
            for n, (x, y) in enumerate(w(parts)):
                whole = sum(len(part) for _, part in parts[n // 4 * 4:n // 4 * 4 + 4])
                loss = F.cross_entropy(model(x), y)
                (loss * len(x) / whole).backward()
                w.loss(loss)
                if n % 4 < 3 and n + 1 < len(parts): continue
                optimizer.step()
                optimizer.zero_grad()


def batches_of_one(loop: Loop) -> None:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task(STEPS, 1))


def growing_batches(loop: Loop) -> None:
    "A curriculum: from 4 samples a batch to 64."
    model, (x, y) = mlp(20, 32, 4), task(1, 40 * (4 + 16 + 64))[0]
    sizes = [4] * 40 + [16] * 40 + [64] * 40
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with loop(model, optimizer) as w: learn(w, model, optimizer, list(zip(x.split(sizes), y.split(sizes))))


def mixup(loop: Loop) -> None:
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            share, other = float(torch.distributions.Beta(0.4, 0.4).sample()), torch.randperm(len(x))
            out = model(share * x + (1 - share) * x[other])
            loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[other])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


class Divided(IterableDataset):
    "Each worker yields its share of a stream."
    def __init__(self) -> None: self.x, self.y = task(1, 60 * 16)[0]
    def __len__(self) -> int: return len(self.x)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        yield from list(zip(self.x, self.y))[info.id::info.num_workers]


def divided_stream(loop: Loop) -> None:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with loop(model, optimizer) as w: learn(w, model, optimizer, DataLoader(Divided(), 16, num_workers=2))


class Noisy(Dataset):
    "Noise from a generator of NumPy's that each worker seeds for itself."
    def __init__(self) -> None: self.x, self.y = task(1, 40 * 16)[0]
    def __len__(self) -> int: return len(self.x)
    def __getitem__(self, i: int) -> Any: return self.x[i] + 0.1 * self.rng.standard_normal(20).astype("f4"), self.y[i]


def seed_worker(worker: int) -> None: get_worker_info().dataset.rng = np.random.default_rng(torch.initial_seed())


def persistent_workers(loop: Loop) -> None:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(Noisy(), 16, True, num_workers=2, worker_init_fn=seed_worker, persistent_workers=True)
    with loop(model, optimizer) as w:
        for _ in range(3): learn(w, model, optimizer, loader)


# ---- losses and heads

def contrastive(loop: Loop) -> None:
    "Two views of the same samples in a batch; the labels are the places of the partners."
    model = mlp(20, 64, 16)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with loop(model, optimizer) as w:
        for x, _ in w(task()):
            one, other = (F.normalize(model(x + 0.3 * torch.randn_like(x)), dim=1) for _ in range(2))
            loss = F.cross_entropy(one @ other.T / 0.2, torch.arange(len(x)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def distillation(loop: Loop) -> None:
    "A frozen teacher in eval mode is part of the model; the loss takes the softmax of its outputs as a target."
    model = nn.ModuleDict(dict(teacher=nn.Sequential(mlp(20, 64, 4), nn.Dropout(0.5)), student=mlp(20, 16, 4)))
    model["teacher"].requires_grad_(False).eval()
    optimizer = torch.optim.Adam(model["student"].parameters(), 3e-3)
    with loop(model, optimizer) as w:
        for x, _ in w(task()):
            with torch.no_grad(): wanted = model["teacher"](x).div(0.1).softmax(1)
            loss = F.kl_div(model["student"](x).log_softmax(1), wanted, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def self_distillation(loop: Loop) -> None:
    "As in BYOL: the teacher follows the student, and gets the other view."
    student, batches = mlp(20, 64, 16), task()
    teacher, model = copy.deepcopy(student).requires_grad_(False), nn.Sequential(student, mlp(16, 32, 16))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with loop(model, optimizer) as w:
        for x, _ in w(batches):
            with torch.no_grad(): wanted = teacher(x + 0.1 * torch.randn_like(x))
            loss = 2 - 2 * F.cosine_similarity(model(x + 0.1 * torch.randn_like(x)), wanted).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for slow, p in zip(teacher.parameters(), student.parameters()): slow.lerp_(p.detach(), 0.05)
            w.loss(loss)


def two_heads(loop: Loop) -> None:
    "Classes and a number, each with a loss of its own."
    model = nn.ModuleDict(dict(body=mlp(20, 64, 32), classes=nn.Linear(32, 4), number=nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            body = model["body"](x).relu()
            loss = F.cross_entropy(model["classes"](body), y) + F.mse_loss(model["number"](body).squeeze(1), x[:, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def regression(loop: Loop) -> None:
    "Outputs and targets are (samples, 1)."
    model, batches = mlp(20, 64, 1), [(x, x[:, :1].sin()) for x, _ in task()]
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with loop(model, optimizer) as w: learn(w, model, optimizer, batches, loss_fn=F.mse_loss)


def rare_class(loop: Loop) -> None:
    "Of 100 labels one is 1, so that many a batch has a single label."
    x = torch.randn(STEPS * 32, 20)
    y = (x[:, 0] > 2.33).float()
    model = nn.Sequential(mlp(20, 32, 1), nn.Flatten(0))
    optimizer, batches = torch.optim.Adam(model.parameters(), 3e-3), list(zip(x.split(32), y.split(32)))
    with loop(model, optimizer) as w:
        learn(w, model, optimizer, batches, loss_fn=F.binary_cross_entropy_with_logits)


def density(loop: Loop) -> None:
    "The negative log-likelihood of a narrow Gaussian: it passes through zero."
    model, batches = mlp(20, 64, 2), [(x, 0.05 * x[:, 0]) for x, _ in task()]
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = lambda out, y: (out[:, 1] + (y - out[:, 0]).square() * (-2 * out[:, 1]).exp() / 2).mean()
    with loop(model, optimizer) as w: learn(w, model, optimizer, batches, loss_fn=loss_fn)


class Autoencoder(nn.Module):
    "A variational one: noise in the code in training."
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = mlp(20, 64, 8), mlp(4, 64, 20)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = self.encoder(x).chunk(2, 1)
        kl = (mean.square() + spread.exp() - spread - 1).sum(1) / 2
        return self.decoder(mean + (spread / 2).exp() * torch.randn_like(mean)), kl


def autoencoder(loop: Loop) -> None:
    "The target is the input, and there are no labels."
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with loop(model, optimizer) as w:
        for x in w([x @ torch.randn(20, 20) * 0.2 for x, _ in task()]):
            again, kl = model(x)
            loss = ((again - x).square().sum(1) / 2 + kl).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def label_smoothing(loop: Loop) -> None:
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task(), loss_fn=loss_fn)


def diffusion(loop: Loop) -> None:
    "Predicts the noise that was added; its last layer begins at zero."
    model = mlp(21, 64, 64, 20)
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with loop(model, optimizer) as w:
        for x, _ in w(task()):
            noise, t = torch.randn_like(x), torch.rand(len(x), 1)
            out = model(torch.cat([(1 - t).sqrt() * x + t.sqrt() * noise, t], 1))
            loss = F.mse_loss(out, noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def gradient_penalty(loop: Loop) -> None:
    "As in WGAN-GP: the loss holds a gradient, so that backward goes twice through the critic."
    model = mlp(20, 64, 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.0, 0.9))
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            false = torch.randn_like(x) + 1
            between = torch.rand(len(x), 1).lerp(x, false).requires_grad_()
            (slope,) = torch.autograd.grad(model(between).sum(), between, create_graph=True)
            loss = model(false).mean() - model(x).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def adversarial(loop: Loop) -> None:
    "A backward pass for the gradient of the inputs, which also leaves gradients in the weights."
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            x = x.clone().requires_grad_()
            F.cross_entropy(model(x), y).backward()
            optimizer.zero_grad()
            loss = F.cross_entropy(model((x + 0.05 * x.grad.sign()).detach()), y)
            loss.backward()
            optimizer.step()
            w.loss(loss)


def meta_learning(loop: Loop) -> None:
    "As in MAML: one step inside on some samples of a task, and the update by the others."
    model = mlp(20, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            weights = dict(model.named_parameters())
            inner = F.cross_entropy(torch.func.functional_call(model, weights, (x[:16],)), y[:16])
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            moved = {name: p - 0.1 * g for (name, p), g in zip(weights.items(), slopes)}
            loss = F.cross_entropy(torch.func.functional_call(model, moved, (x[16:],)), y[16:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def proximal_policy(loop: Loop) -> None:
    "Four updates on each batch of experience."
    model = mlp(4, 32, 2)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with loop(model, optimizer) as w:
        for state in w(list(torch.randn(60, 64, 4))):
            with torch.no_grad(): before = torch.distributions.Categorical(logits=model(state))
            action = before.sample()
            gain = (action == (state[:, 0] > 0)).float() - 0.5
            for _ in range(4):
                now = torch.distributions.Categorical(logits=model(state))
                ratio = (now.log_prob(action) - before.log_prob(action)).exp()
                loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            w.loss(loss)


# ---- models

class Language(nn.Module):
    "The embedding is the last layer's weight, too."
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 32), nn.Linear(32, 50, bias=False)
        self.head.weight = self.embedding.weight
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, norm_first=True)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.block(self.embedding(ids), src_mask=mask, is_causal=True))


def language_model(loop: Loop) -> None:
    "Each token is the one before plus 0, 1 or 2; samples of several lengths are padded, and padding is left out."
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    texts = (1 + torch.randint(0, 3, (STEPS, 16, 17)).cumsum(2) + torch.randint(0, 48, (STEPS, 16, 1))) % 49 + 1
    lengths = torch.randint(4, 18, (STEPS, 16, 1))
    texts = texts.where(torch.arange(17) < lengths, 0)
    with loop(model, optimizer) as w:
        for ids in w(list(texts)):
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            w.loss(loss)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(8, 32, batch_first=True), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        out, hidden = self.cell(x, hidden)
        return self.head(out), hidden


def carried_state(loop: Loop) -> None:
    "Truncated backpropagation: the hidden state goes on from batch to batch, detached."
    model, hidden = Recurrent(), None
    optimizer, track = torch.optim.Adam(model.parameters(), 3e-3), torch.randn(16, STEPS * 10 + 1, 8).cumsum(1).sin()
    with loop(model, optimizer) as w:
        for n in w(list(range(STEPS))):
            piece = track[:, 10 * n:10 * n + 11]
            out, hidden = model(piece[:, :-1], hidden)
            hidden = hidden.detach()
            loss = F.mse_loss(out, piece[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def frozen_batch_norm(loop: Loop) -> None:
    "Fine-tuning with the statistics of batch norm as they were loaded: model.train(), then its batch norm to eval."
    model = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    optimizer, batches = torch.optim.SGD(model.parameters(), 0.1), task()

    def train() -> None:
        model.train()
        for part in model.modules():
            if isinstance(part, nn.BatchNorm1d): part.eval()

    def validate(n: int) -> None:
        if n % 40 < 39: return
        model.eval()
        with w.evaluation() as found, torch.no_grad(): found.tell(F.cross_entropy(model(batches[0][0]), batches[0][1]))
        train()

    train()
    with loop(model, optimizer) as w: learn(w, model, optimizer, batches, validate)


def new_head(loop: Loop) -> None:
    "A frozen body in eval mode, run without gradients, and a head that learns."
    model = nn.ModuleDict(dict(body=nn.Sequential(mlp(20, 64), nn.BatchNorm1d(64), nn.ReLU()), head=nn.Linear(64, 4)))
    model["body"].requires_grad_(False).eval()
    optimizer = torch.optim.Adam(model["head"].parameters(), 1e-2)
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            with torch.no_grad(): seen = model["body"](x)
            loss = F.cross_entropy(model["head"](seen), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def unfreezing(loop: Loop) -> None:
    "The head first; from step 40 on the body too, at a lower rate, in a group that is added then."
    model = mlp(20, 64, 64, 4)
    model[:4].requires_grad_(False)
    optimizer = torch.optim.Adam(model[4].parameters(), 3e-3)

    def unfreeze(n: int) -> None:
        if n != 40: return
        model.requires_grad_(True)
        optimizer.add_param_group(dict(params=list(model[:4].parameters()), lr=1e-3))

    with loop(model, optimizer) as w: learn(w, model, optimizer, task(), unfreeze)


class Experts(nn.Module):
    "Each sample goes to one of six experts; some get one sample or none. `balance` keeps all of them busy."
    def __init__(self) -> None:
        super().__init__()
        self.router, self.head = nn.Linear(20, 6), nn.Linear(16, 4)
        self.experts = nn.ModuleList(mlp(20, 16) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chances = self.router(x).softmax(1)
        share, place = chances.max(1)
        self.balance = (chances.mean(0) * F.one_hot(place, 6).float().mean(0)).sum()
        out = x.new_zeros(len(x), 16)
        for n, expert in enumerate(self.experts):
            if (chosen := place == n).any(): out[chosen] = expert(x[chosen]) * share[chosen, None]
        return self.head(out.relu())


def experts(loop: Loop) -> None:
    model = Experts()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    loss_fn = lambda out, y: F.cross_entropy(out, y) + model.balance
    with loop(model, optimizer) as w: learn(w, model, optimizer, task(STEPS, 8), loss_fn=loss_fn)


def alternating_tasks(loop: Loop) -> None:
    "A head of its own for each task; the second task comes in each fourth step."
    model = nn.ModuleDict(dict(body=mlp(20, 32), classes=nn.Linear(32, 4), number=nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with loop(model, optimizer) as w:
        for n, (x, y) in enumerate(w(task())):
            body = model["body"](x).relu()
            if n % 4: loss = F.cross_entropy(model["classes"](body), y)
            else: loss = F.mse_loss(model["number"](body).squeeze(1), x[:, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


def dropout(loop: Loop) -> None:
    "Dropout, also as a function; validated each 30 steps, and train() is restored."
    class Wet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.drop, self.last = nn.Linear(20, 64), nn.Dropout(0.2), nn.Linear(64, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.drop(F.dropout(self.first(x).relu(), 0.1, self.training)))

    model, batches = Wet(), task()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def validate(n: int) -> None:
        if n % 30 < 29: return
        model.eval()
        with torch.no_grad():
            for x, _ in w(batches[-2:], validation=True): model(x)
        model.train()

    with loop(model, optimizer) as w: learn(w, model, optimizer, batches[:-2], validate)


def compiled(loop: Loop) -> None:
    model = mlp(20, 64, 4)
    model.compile(backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with loop(model, optimizer) as w: learn(w, model, optimizer, task(60))


def half_precision(loop: Loop) -> None:
    "Forward in bf16 by autocast."
    model = nn.Sequential(mlp(20, 64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    with loop(model, optimizer) as w:
        for x, y in w(task()):
            with torch.autocast("cpu", torch.bfloat16): loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)


class Ads(nn.Module):
    "As DLRM: numbers through an MLP, ids through sparse tables of several sizes, products of pairs, an MLP."
    def __init__(self) -> None:
        super().__init__()
        self.bottom, self.top = mlp(6, 32, 8), mlp(8 + 6, 16, 1)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, 8, mode="sum", sparse=True) for rows in (2_000, 200, 3))

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(numbers)
        parts = torch.stack([dense, *(table(ids[:, n]) for n, table in enumerate(self.tables))], 1)
        one, other = torch.triu_indices(4, 4, 1)
        return self.top(torch.cat([dense, (parts @ parts.mT)[:, one, other]], 1)).squeeze(1)


def advertisements(loop: Loop) -> None:
    model = Ads()
    parts = [torch.optim.SparseAdam(list(model.tables.parameters()), 1e-2),
             torch.optim.Adagrad([*model.bottom.parameters(), *model.top.parameters()], 1e-2)]
    rows = torch.tensor([2_000, 200, 3])
    batches = [(torch.randn(32, 6), (rows * torch.rand(32, 3, 2).movedim(2, 1).pow(4)).long().mT) for _ in range(STEPS)]
    with loop(model, parts) as w:
        for numbers, ids in w(batches):
            out = model(numbers, ids.reshape(32, 3, 2))
            loss = F.binary_cross_entropy_with_logits(out, (numbers[:, 0] > 0.5).float())
            for one in parts: one.zero_grad()
            loss.backward()
            for one in parts: one.step()
            w.loss(loss)


# ---- what ends, converges or begins anew

def milestones(loop: Loop) -> None:
    "A hundredth of the rate after 2 epochs, and again after 4 of 14."
    model, batches = mlp(20, 64, 4), task(16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rate = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], 0.01)
    with loop(model, optimizer) as w:
        for _ in range(14):
            learn(w, model, optimizer, batches)
            rate.step()


def folds(loop: Loop) -> None:
    "Cross-validation in one watch: what one fold is validated on the others train on."
    model, (x, y) = mlp(20, 32, 4), task(1, 480)[0]
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    begun, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    with loop(model, optimizer) as w:
        for fold in range(3):
            model.load_state_dict(begun)
            optimizer.load_state_dict(state)
            held = torch.arange(len(x)) % 3 == fold
            for _ in range(3):
                learn(w, model, optimizer, list(zip(x[~held].split(16), y[~held].split(16))))
                with torch.no_grad():
                    for batch, _ in w(list(zip(x[held].split(16), y[held].split(16))), validation=True): model(batch)


def queue(loop: Loop) -> None:
    "As MoCo: against a queue of random numbers the first losses are small; it fills with what is alike, and they rise."
    model = mlp(20, 64, 32)
    twin, others = copy.deepcopy(model).requires_grad_(False), F.normalize(torch.randn(32, 1024), dim=0)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with loop(model, optimizer) as w:
        for x, _ in w(DataLoader(TensorDataset(torch.randn(STEPS * 32, 20) + 3, torch.arange(STEPS * 32) % 4), 32)):
            with torch.no_grad():
                for slow, p in zip(twin.parameters(), model.parameters()): slow.lerp_(p, 0.001)
                same = F.normalize(twin(x), dim=1)
            own = F.normalize(model(x), dim=1)
            logits = torch.cat([(own * same).sum(1, keepdim=True), own @ others], 1) / 0.07
            loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.loss(loss)
            others = torch.cat([others[:, len(x):], same.T], 1)


def seldom_chosen(loop: Loop) -> None:
    "An expert that is chosen in the first steps and then for a while not, because the router prefers the others."
    model = Experts()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)

    def away(n: int) -> None:
        with torch.no_grad(): model.router.bias[5] = -20.0 if 3 < n < 60 else 0.0

    with loop(model, optimizer) as w: learn(w, model, optimizer, task(), away)


def each_step_validated(loop: Loop) -> None:
    "As a graph network: all nodes are one batch, and each step is validated."
    model, ((x, y),) = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 4)), task(1, 300)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    with loop(model, optimizer) as w:
        for _ in range(STEPS):
            model.train()
            learn(w, model, optimizer, [(x[:60], y[:60])])
            model.eval()
            with w.evaluation() as found, torch.no_grad(): found.tell(F.cross_entropy(model(x[60:]), y[60:]))


def stopped_on_purpose(loop: Loop) -> None:
    "Planned for 50 epochs, and left when the validation loss has not improved in two."
    model, ((x, y),) = mlp(20, 64, 4), task(1, 300)
    optimizer, best, since = torch.optim.Adam(model.parameters(), 3e-2), math.inf, 0
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    with watch(loop.folder, model, optimizer, rules=[loop.debugger], config=dict(epochs=50)) as w:
        while since < 2:
            learn(w, model, optimizer, list(zip(x[:160].split(8), y[:160].split(8))))
            rate.step()
            with w.evaluation() as found, torch.no_grad():
                found.tell(loss := F.cross_entropy(model(x[160:]), y[160:]))
            best, since = min(best, float(loss)), 0 if loss < best else since + 1


# ---- two ranks

def on_two_ranks(folder: str, how: str) -> list[str]:
    "What this rank says."
    rank, loop = dist.get_rank(), Loop(Path(folder))
    torch.manual_seed(rank)
    batches = task(60)
    torch.manual_seed(0)
    model = mlp(20, 64, 4)
    model = fsdp(model) if how == "fsdp" else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    with loop(model, optimizer) as w:
        if how == "fsdp": learn(w, model, optimizer, batches)
        else: without_sync(w, model, optimizer, batches)
    return loop.says()


def without_sync(w: Any, model: Any, optimizer: Any, batches: Any) -> None:
    "Two micro-batches an update; gradients are averaged with the second."
    for n, (x, y) in enumerate(w(batches)):
        last = n % 2
        with contextlib.nullcontext() if last else model.no_sync():
            loss = F.cross_entropy(model(x), y)
            (loss / 2).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        w.loss(loss)


HEALTHY: dict[str, Callable[[Loop], None]] = {
    "LoRA": lora, "GAN": gan, "critic": critic, "recommender": recommender,
    "recommender, sparse gradients": lambda loop: recommender(loop, sparse=True), "policy gradient": policy_gradient,
    "accumulation": accumulation, "sorted stream": sorted_stream, "warm-up": warm_up,
    "moving average": moving_average, "gradient checkpointing": gradient_checkpointing,
    "several optimizers": several_optimizers, "schedule-free": schedule_free, "scaled gradients": scaled_gradients,
    "warm-up over 1,000 steps": long_warm_up, "one cycle": one_cycle, "warm restarts": warm_restarts, "LBFGS": lbfgs,
    "sharpness-aware": sharpness_aware, "weight averaging": weight_averaging,
    "accumulation, ragged": ragged_accumulation, "batches of one": batches_of_one, "growing batches": growing_batches,
    "mixup": mixup, "divided stream": divided_stream, "persistent workers": persistent_workers,
    "contrastive": contrastive, "distillation": distillation, "self-distillation": self_distillation,
    "two heads": two_heads, "regression": regression, "rare class": rare_class, "density": density,
    "variational autoencoder": autoencoder, "label smoothing": label_smoothing, "diffusion": diffusion,
    "gradient penalty": gradient_penalty, "adversarial": adversarial, "meta-learning": meta_learning,
    "proximal policy": proximal_policy, "language model, tied": language_model, "carried state": carried_state,
    "frozen batch norm": frozen_batch_norm, "new head": new_head, "unfreezing": unfreezing, "experts": experts,
    "alternating tasks": alternating_tasks,
    "dropout": dropout, "compiled": compiled, "bf16": half_precision, "advertisements": advertisements,
    "milestones": milestones, "folds": folds, "queue": queue, "seldom chosen": seldom_chosen,
    "each step validated": each_step_validated, "stopped on purpose": stopped_on_purpose}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of_a_healthy_training(name: str, tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    HEALTHY[name](loop)
    assert not loop.says()


@pytest.mark.parametrize("gradient, last, says", [(1e-2, 1e-2, True), (1e-6, 1e-2, False), (1e-2, 1e-9, False)])
def test_a_gradient_that_is_rounding_moves_nothing(gradient: float, last: float, says: bool) -> None:
    "As of a bias before batch norm at a low rate, which sums over samples and places, and of a training that is done."
    rule = UnchangedWeights()
    rule.begin(Facts())
    for step in (0, 40, 50, 60, 70):
        size = 1e-2 if step == 0 else last
        rows = [("weight", (4, 4), size, 1e-3), ("bias", (4,), min(gradient, size), 0.0), ("other", (4, 4), size, 1e-3)]
        rule.on_tensors(TensorStats(step, None, (), tuple(
            ParameterStats(name, shape, 1.0, grad, grad, moved, 1e-3, eps=2.0 ** -23)
            for name, shape, grad, moved in rows), 0.0))
    assert bool(rule.findings) is says


@pytest.mark.parametrize("how", ["fsdp", "ddp"])
def test_nothing_is_said_of_two_ranks(how: str, tmp_path: Path) -> None:
    assert run_ranks(on_two_ranks, 2, str(tmp_path), how, share_cores=True, timeout_seconds=120) == {0: [], 1: []}
