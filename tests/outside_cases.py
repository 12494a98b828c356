"""Trainings whose state lies outside of model and optimizer: in losses, samplers, data sets, observers, closures."""

import copy
import multiprocessing
import random
import sys
import threading
from array import array
from collections import defaultdict, deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import ModuleType

import numpy as np
import outside_counter
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

from mlinfra.training import fit

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(X, (X.sum(1) > 0).long())
GLOBAL = random.Random()


class Model(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class Loss(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.calls, self.noise = 0, {"own": np.random.RandomState(3)}

    def forward(self, outputs, targets):
        self.calls += 1
        return cross_entropy(super().forward(outputs), targets) * (1 + self.calls / 9 + float(self.noise["own"].rand()))


class Counting(Sampler):
    epoch = 0

    def __init__(self):
        self.order = list(range(64))

    def __len__(self):
        return 64

    def __iter__(self):
        self.epoch += 1
        random.Random(self.epoch).shuffle(self.order)  # of what the last epoch has left
        return iter(self.order)


class Noise:
    def __init__(self):
        self.rngs = [dict(a=np.random.default_rng(0)), torch.Generator().manual_seed(0)]

    def __call__(self, x):
        return x + float(self.rngs[0]["a"].normal()) + torch.rand((), generator=self.rngs[1])


class Noisy(Dataset):
    def __init__(self):
        self.augment, self.seen = Noise(), torch.zeros(64)

    def __len__(self):
        return 64

    def __getitem__(self, i):
        self.seen[i] += 1  # a memory of what was seen, which the sample depends on
        return self.augment(X[i]) * self.seen[i] + GLOBAL.random(), DATA[i][1]


def collate():
    own = random.Random(5)
    return lambda rows: (torch.stack([x for x, _ in rows]) * own.random(), torch.stack([y for _, y in rows]))


class Average:
    "Averages of the weights, which the loss pulls towards."
    guard = True

    def __init__(self, how):
        self.how, self.shadow = how, None

    def on_start(self, run):
        if self.how == "module":
            self.shadow = copy.deepcopy(run.model)
        else:
            self.shadow = {name: p.detach().clone() for name, p in run.model.named_parameters()}

    @torch.no_grad()
    def on_step(self, run, step):
        named = dict(self.shadow.named_parameters()) if self.how == "module" else self.shadow
        for name, p in run.model.named_parameters():
            if self.how == "replaced":
                named[name] = 0.9 * named[name] + 0.1 * p
            else:
                named[name].lerp_(p, 0.1)
            p.lerp_(named[name], 0.2)


class Asked:
    guard = True

    def __init__(self):
        self.strength = 1.0

    def on_backward(self, run):
        self.strength *= 0.9
        for p in run.model.parameters():
            p.grad *= self.strength

    def state_dict(self):
        return dict(strength=self.strength)

    def load_state_dict(self, kept):
        self.strength = kept["strength"]


class Thaw:
    guard = True

    def on_epoch(self, run, epoch):
        if epoch.epoch == 0:
            run.optimizer.add_param_group(dict(params=[*run.model[0].parameters()], lr=0.5))
            run.model[0].requires_grad_(True)


class Lookahead:
    def __init__(self, optimizer):
        self.optimizer, self.count = optimizer, 0
        self.param_groups = optimizer.param_groups
        self.slow = [[p.detach().clone() for p in group["params"]] for group in optimizer.param_groups]

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self):
        self.optimizer.step()
        self.count += 1
        if self.count % 3:
            return
        for group, slow in zip(self.param_groups, self.slow):
            for p, s in zip(group["params"], slow):
                p.copy_(s.lerp_(p, 0.5))


class Within(torch.optim.Optimizer):
    "The same as a torch optimizer around another one."

    def __init__(self, optimizer):
        super().__init__([p for g in optimizer.param_groups for p in g["params"]], {})
        self.base, self.param_groups, self.state, self.count = optimizer, optimizer.param_groups, optimizer.state, 0

    def step(self, closure=None):
        self.base.step()
        self.count += 1
        for group in self.param_groups:
            group["lr"] = 0.1 / (1 + self.count)


def adversary(model):
    other = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(other.parameters(), 0.1)

    def step(model, batch):
        optimizer.zero_grad()
        cross_entropy(other(batch[0]), batch[1]).backward()
        optimizer.step()
        return cross_entropy(model(batch[0]) + other(batch[0]).detach(), batch[1])

    return step


def turned_adversary(model, how):
    "An adversary whose optimizer has its parameters in another order in each process, as a set gives them."
    torch.manual_seed(1)
    other = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    turned_adversary.turned = not getattr(turned_adversary, "turned", False)
    optimizer = adam([p for layer in other[::-1 if turned_adversary.turned else 1] for p in layer.parameters()])

    def step(model, batch):
        optimizer.zero_grad()
        cross_entropy(other(model(batch[0]).detach()), batch[1]).backward()
        optimizer.step()
        return cross_entropy(model(batch[0]), batch[1]) + other(model(batch[0])).square().mean()

    how |= dict(step=step)


def adam(parameters):
    return torch.optim.Adam(parameters, 0.05)


def loss_with_weights(model, how):
    loss = Loss()
    how |= dict(loss_fn=loss, optimizer=adam([*model.parameters(), *loss.parameters()]))


def thaw(model, how):
    model[0].requires_grad_(False)
    how |= dict(optimizer=adam(model[2].parameters()), observers=[Thaw()])


rise = 0  # has the name of an attribute
AUGMENT = sys.modules["augment_of_test"] = ModuleType("augment_of_test")
exec("import random\nrng = random.Random(1)\ndef noise(): return rng.random()", vars(AUGMENT))


class Rising(Sampler):
    made = 0  # of the class

    def __init__(self):
        self.rise = self.start = self.time = 0
        self.items, self.phase = [f"item {n}" for n in range(64)] * 3, 0
        self.seen = dict.fromkeys(map(str, range(192)), 0)

    def __len__(self):
        return 64

    def __iter__(self):
        self.rise += 1 + rise
        self.start += 1
        self.time += 2
        type(self).made = self.made % 7 + 1
        self.seen["3"] += 1
        self.phase = None if self.phase == 0 else np.int64(3)
        random.Random(self.start + self.time + self.made + self.seen["3"] + int(self.phase or 0)).shuffle(self.items)
        return iter([int(one.split()[1]) for one in self.items[:64]])


@dataclass(slots=True)
class Count:
    n: int = 0


def counting(model, how):
    state, counts, pool, hard, seeds = Count(), defaultdict(int), set(), [], [2**63 + 5, -1, 0.5, True]
    generators = [torch.Generator().manual_seed(n) for n in range(3)]

    def step(model, batch, a=generators[0], b=generators[1], *, c=generators[2]):
        state.n += 1
        counts[state.n % 3] += 1
        pool.add(len(counts) + state.n % 5)
        hard.append((state.n, batch[1][:1]))
        seeds[1:] = [seeds[1] + 1, *seeds[2:]]
        drawn = float(torch.rand((), generator=a) + 2 * torch.rand((), generator=b) + 3 * torch.rand((), generator=c))
        scale = 1 + state.n + counts[1] + len(pool) + len(hard) + float(hard[-1][1]) + seeds[1] + drawn
        return cross_entropy(model(batch[0]), batch[1]) * (scale + AUGMENT.noise()) / 50

    AUGMENT.rng.seed(2)
    how |= dict(step=step)


def within_closure():
    n = 0

    class Slower:
        guard = True

        def __init__(self):
            self.had = dict(n=0)

        def on_backward(self, run):
            nonlocal n
            n += 1
            self.had["n"] += 1
            for p in run.model.parameters():
                p.grad /= n + self.had["n"]

    return Slower()


class Shifted:
    "A value whose first memory is that of another value, of a sample or of a weight, and is replaced by each call."

    def __init__(self, model, rows):
        self.model, self.now, self.past, self.rows = model, torch.zeros(2), None, rows[:8]
        self.past, self.weight = self.now, model[0].weight.data

    def __call__(self, outputs, targets):
        self.past, self.now = self.now, outputs.detach().mean(0)
        self.rows, self.weight = 2 * self.now, self.now.repeat(8, 2)[:8, :4].clone()
        return cross_entropy(outputs + self.now - self.past, targets)


def shifted(model, how):
    rows = X.clone()
    how |= dict(train=DataLoader(TensorDataset(rows, DATA[:][1]), 8, shuffle=True), loss_fn=Shifted(model, rows))


class Counted(DataLoader):
    "Yields batches of its own making, which an epoch begins with."
    epochs = 0

    def __iter__(self):
        self.epochs += 1
        for x, y in super().__iter__(): yield x * self.epochs, y


class Lines(IterableDataset):
    "Reads on in its file, and counts in memory that processes share."
    def __init__(self):
        self.read, self.seen = open(__file__, "rb"), multiprocessing.Value("i", 0)

    def __iter__(self):
        for x, y in DATA:
            self.seen.value += 1
            yield x * (self.read.read(1)[0] + self.seen.value % 50) / 50, y


def hooked(model, how):
    calls, sums, before, adam = [0, 0], {}, deque(maxlen=3), how["optimizer"]

    def scaled(module, inputs, outputs):
        calls[0] += 1
        return outputs * (1 + calls[0] % 5)

    def summed(p):
        sums[p] = sums.get(p, 0) + p.grad
        p.grad = sums[p].clone()

    class Slowed:
        def __init__(self): self.steps = 0

        def __call__(self, optimizer, *_call):
            self.steps += 1
            optimizer.param_groups[0]["lr"] = 0.1 / self.steps

    class Turned:
        def turn(self, grad):
            before.append(float(grad.sum()))
            return grad * (1 + sum(before))

    model[0].register_forward_hook(scaled)
    model[0].bias.register_hook(Turned().turn)
    model[0].weight.register_post_accumulate_grad_hook(summed)
    adam.register_step_pre_hook(Slowed())


def odd_values(model, how):
    class Parts:
        def __init__(self):
            self.share, self.price, self.date, self.window = Fraction(1), Decimal("0.1"), datetime(2020, 1, 1), range(3)
            self.ring, self.counts, self.line = bytearray(2), array("i", [0]), 1

    parts, local = Parts(), threading.local()

    def step(model, batch):
        import outside_counter as counter
        parts.share, parts.price, parts.date = parts.share / 2, parts.price * 2, parts.date + timedelta(hours=1)
        parts.window = range(parts.window.stop, parts.window.stop + 3)
        parts.ring[0] = (parts.ring[0] + 3) % 256
        parts.counts[0] += 1
        parts.line += 1
        local.count = getattr(local, "count", 0) + 1
        scale = sum(map(float, (local.count, parts.share, parts.date.hour, parts.window.start, parts.ring[0],
                                parts.counts[0], parts.line, parts.price, counter.count())))
        return cross_entropy(model(batch[0]), batch[1]) * (1 + scale) / 100

    how |= dict(step=step)


def drawn_weight(model, how):
    generator = random.Random(5)
    how |= dict(epochs=6, accumulation=2, weight=lambda batch: generator.randint(1, 9))


KINDS = {
    "hooks": hooked,
    "odd values": odd_values,
    "weight": drawn_weight,
    "own loader": lambda model, how: how.update(train=Counted(DATA, 8, shuffle=True)),
    "lines": lambda model, how: how.update(train=DataLoader(Lines(), 8)),
    "shifted": shifted,
    "turned": turned_adversary,
    "names": lambda model, how: how.update(train=DataLoader(DATA, 8, sampler=Rising())),
    "counting": counting,
    "closure": lambda model, how: how.update(observers=[within_closure()]),
    "loss": loss_with_weights,
    "sampler": lambda model, how: how.update(train=DataLoader(DATA, 8, sampler=Counting())),
    "data set": lambda model, how: how.update(train=DataLoader(Noisy(), 8, shuffle=True)),
    "collate": lambda model, how: how.update(train=DataLoader(DATA, 8, collate_fn=collate())),
    "module": lambda model, how: how.update(observers=[Average("module")]),
    "tensors": lambda model, how: how.update(observers=[Average("tensors")]),
    "replaced": lambda model, how: how.update(observers=[Average("replaced")]),
    "asked": lambda model, how: how.update(observers=[Asked()]),
    "thaw": thaw,
    "adversary": lambda model, how: how.update(step=adversary(model)),
    "lookahead": lambda model, how: how.update(optimizer=Lookahead(adam(model.parameters()))),
    "within": lambda model, how: how.update(optimizer=Within(adam(model.parameters()))),
}


class Stop:
    guard = True

    def on_step(self, run, step):
        if step.iteration == 12:
            run.stop()


def train(kind, *observers, **more):
    torch.manual_seed(0)
    np.random.seed(0)
    GLOBAL.seed(4)
    Rising.made = outside_counter.COUNT = 0
    model, how = Model(), dict(train=DataLoader(DATA, 8, shuffle=True), observers=[])
    how["optimizer"] = adam(model.parameters())
    if kind in KINDS:
        KINDS[kind](model, how)
    watchers = [*observers, *how.pop("observers")]
    plain = dict(epochs=3, device="cpu", progress=False, keep_memory=False)
    how = plain | how | dict(observers=watchers) | more
    return fit(model, how.pop("train"), **how)


def losses(history):
    return [step.loss for step in history.steps]
