"""Healthy trainings of many kinds, watched in a loop of one's own: a rule on numbers that says anything is wrong.

Each is some 100 tiny steps. Add a training as a function of `Loop`, with its name in `HEALTHY`.
"""
import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from mlinfra.debugger import Debugger
from mlinfra.engine.record.watch import watch
from mlinfra.engine.rules.default_rules import SPEED_RULES
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


def task(steps: int = STEPS, size: int = 32, features: int = 20, classes: int = 4) -> list[tuple[Any, Any]]:
    "Batches that can be learned: the class is the largest of a few sums."
    x = torch.randn(steps * size, features)
    y = (x @ torch.randn(features, classes)).argmax(1)
    return list(zip(x.split(size), y.split(size)))


def mlp(*sizes: int) -> nn.Sequential:
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def learn(w: Any, model: nn.Module, optimizer: Any, batches: Any, after: Callable[[int], Any] = lambda n: None) -> None:
    for n, (x, y) in enumerate(w(batches)):
        loss = F.cross_entropy(model(x), y)
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


HEALTHY: dict[str, Callable[[Loop], None]] = {
    "LoRA": lora, "GAN": gan, "recommender": recommender,
    "recommender, sparse gradients": lambda loop: recommender(loop, sparse=True), "policy gradient": policy_gradient,
    "accumulation": accumulation, "sorted stream": sorted_stream, "warm-up": warm_up,
    "moving average": moving_average, "gradient checkpointing": gradient_checkpointing,
    "several optimizers": several_optimizers, "schedule-free": schedule_free, "scaled gradients": scaled_gradients}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of_a_healthy_training(name: str, tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    HEALTHY[name](loop)
    assert not [str(f) for f in loop.debugger.findings if f.rule not in SPEED] and not loop.debugger.remarks
