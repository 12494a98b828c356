"""State outside of model and optimizer: each kind is kept on a resume, or named before the loss."""

import copy
import random
import sys
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.checkpoint.held_state import HeldState, look
from mlinfra.training import fit

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(X, (X.sum(1) > 0).long())
GLOBAL = random.Random()
pytestmark = pytest.mark.filterwarnings("error:checkpoints leave out:UserWarning")


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


KINDS = {
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
    Rising.made = 0
    model, how = Model(), dict(train=DataLoader(DATA, 8, shuffle=True), observers=[])
    how["optimizer"] = adam(model.parameters())
    if kind in KINDS:
        KINDS[kind](model, how)
    watchers = [*observers, *how.pop("observers")]
    how |= dict(epochs=3, observers=watchers, device="cpu", progress=False, keep_memory=False) | more
    return fit(model, how.pop("train"), **how)


def losses(history):
    return [step.loss for step in history.steps]


@pytest.mark.parametrize("kind", KINDS)
def test_state_outside_of_model_and_optimizer_goes_on(kind, tmp_path):
    whole = train(kind)
    train(kind, Checkpointer(tmp_path), Stop())
    again = train(kind, Checkpointer(tmp_path))
    assert losses(again) == losses(whole) and not [words for words in again.remarks if "put back" in words]


class Patience:
    def __init__(self):
        self.waited, self.began = 0, 0.0

    def on_epoch(self, run, epoch):
        self.waited += 1
        self.began = time.perf_counter()


@pytest.mark.filterwarnings("default:checkpoints leave out:UserWarning")
def test_what_is_not_kept_is_named_once_before_the_first_step(tmp_path):
    seen, box, patience = [], [iter(DataLoader(DATA, 8))], Patience()
    patience.orders = iter(range(9))

    class Look:
        def on_step(self, run, step):
            seen.append([words for words in run.history.remarks if words.startswith("checkpoints leave out")])

    def step(model, batch):
        return cross_entropy(model(next(box[0])[0]), batch[1])

    with pytest.warns(UserWarning, match="checkpoints leave out observers.Patience.orders, step.box.0.: a resumed"):
        train("", Checkpointer(tmp_path), patience, Look(), step=step, epochs=1)
    assert len(seen[0]) == 1 and seen[-1] == seen[0]


def test_an_observers_count_goes_on_and_its_clock_does_not(tmp_path):
    train("", Checkpointer(tmp_path, every=3), first := Patience(), Stop())
    train("", Checkpointer(tmp_path), again := Patience())
    assert again.waited == 3  # one for each epoch of both runs
    held = HeldState(dict(one=first))
    first.on_epoch(None, None)
    assert held.state()["values"].keys() == {"one.waited"}


class Hostile:
    __slots__ = ("unset",)

    def __getattr__(self, name):
        raise KeyError(name)


class Kind(type):
    def __getattr__(cls, name):
        raise RuntimeError(name)


class Disguised(metaclass=Kind):
    __class__ = property(lambda self: 1 / 0)


class Values(dict):
    def values(self):
        raise OSError("away")

    __iter__ = __len__ = values


class Bare:
    __dict__ = property(lambda self: 1 / 0)


def test_no_error_of_a_foreign_object_reaches_the_training(tmp_path):
    data = Noisy()
    data.things = [Hostile(), Disguised(), Values(a=1), Disguised]
    data.bare = Bare()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = train("", Checkpointer(tmp_path), train=DataLoader(data, 8), epochs=1)
    assert len(history.steps) == 8


def test_a_look_does_not_read_what_is_large(tmp_path):
    data = Noisy()
    data.big = np.zeros(40_000_000, np.uint8)
    data.file = np.asarray(np.memmap(tmp_path / "file", np.uint8, "w+", shape=999))
    data.cache = {n: torch.zeros(2) for n in range(19_000)}
    held = HeldState({"": data})
    assert "file" not in look({"": data}).values and not held.state()["values"]
    data.big[:], data.cache[3] = 1, torch.ones(9)
    assert held.state()["values"].keys() == {"big", "cache"}
    data.cache[4] = torch.zeros(20_000_000)
    assert held.state()["values"].keys() == {"big"} and held.large == ["cache"]


def test_extra_objects_are_kept_and_refused_without_a_state(tmp_path):
    kept, other = Asked(), Asked()
    train("", Checkpointer(tmp_path, extra=dict(strength=kept)), kept, epochs=1)
    with pytest.raises(TypeError, match="must have state_dict and load_state_dict, got int"):
        Checkpointer(tmp_path, extra=dict(n=3))
    train("", Checkpointer(tmp_path, extra=dict(strength=other)), epochs=1)
    assert other.strength == kept.strength < 1


class Arrays:
    def __init__(self):
        self.a, self.b = np.zeros(1000), np.zeros(1200)

    def state_dict(self):
        return dict(a=self.a, b=self.b)

    def load_state_dict(self, kept):
        self.a, self.b = kept["a"], kept["b"]


def test_large_arrays_stay_apart(tmp_path):
    kept, again = Arrays(), Arrays()
    kept.a, kept.b = np.full(1000, 1.0), np.full(1200, 2.0)
    train("", Checkpointer(tmp_path, extra=dict(e=kept)), epochs=1)
    train("", Checkpointer(tmp_path, extra=dict(e=again)), epochs=1)
    assert (again.a == 1).all() and (again.b == 2).all() and len(again.b) == 1200


class Holds:
    "An observer that looks at the optimizer, and at its groups."

    def on_start(self, run):
        self.optimizer, self.groups = run.optimizer, run.optimizer.param_groups

    def on_step(self, run, step):
        self.rate = self.optimizer.param_groups[0]["lr"]


class StopSoon(Stop):
    def on_step(self, run, step):
        if step.iteration == 4:
            run.stop()


def test_an_observer_with_the_optimizer_does_not_undo_an_override(tmp_path):
    def run(rate, **how):
        torch.manual_seed(0)
        model, holds = Model(), Holds()
        optimizer = torch.optim.AdamW(model.parameters(), torch.tensor(rate))
        history = fit(model, DataLoader(DATA, 8), epochs=1, optimizer=optimizer, device="cpu", progress=False,
                      observers=[Checkpointer(tmp_path, **how.pop("keep", {})), holds, *how.pop("more", ())])
        return holds.rate, history

    run(0.1, more=[StopSoon()])
    assert float(run(0.001, keep=dict(override="lr"))[0]) == pytest.approx(0.001)


def test_a_finished_run_gives_observers_what_they_held(tmp_path):
    first, again = Average("tensors"), Average("tensors")
    train("", Checkpointer(tmp_path), first)
    train("", Checkpointer(tmp_path), again)
    assert all(torch.equal(value, again.shadow[name]) for name, value in first.shadow.items())


def test_a_state_dict_that_raises_costs_one_checkpoint(tmp_path):
    class Raising(Asked):
        def state_dict(self):
            if self.strength < 0.5:
                raise RuntimeError("dictionary changed size during iteration")
            return super().state_dict()

    with pytest.warns(UserWarning, match="was not saved: RuntimeError: dictionary changed size"):
        history = train("", Checkpointer(tmp_path, 5), Raising())
    assert len(history.steps) == 24


class Named(Asked):
    def __init__(self, strength, name=""):
        super().__init__()
        self.strength, self.name = strength, name

    def on_backward(self, run):
        pass


def test_observers_of_one_class_are_not_exchanged(tmp_path):
    train("", Checkpointer(tmp_path), Named(1, "a"), Named(2, "b"), Named(3), Named(4), epochs=1)
    b, a, first, second = Named(0, "b"), Named(0, "a"), Named(0), Named(0)
    train("", Checkpointer(tmp_path), b, a, first, second, epochs=1)
    assert (a.strength, b.strength, first.strength, second.strength) == (1, 2, 3, 4)
    alone, a = Named(0), Named(0, "a")
    with pytest.warns(UserWarning, match="run had 2 observers Named, and this one has 1; an attribute `name`"):
        train("", Checkpointer(tmp_path), alone, a, epochs=1)
    assert (alone.strength, a.strength) == (0, 1)


def test_an_override_is_said_with_its_step_when_the_run_goes_on_again(tmp_path):
    def run(rate, epochs, **how):
        torch.manual_seed(0)
        model = Model()
        return fit(model, DataLoader(DATA, 8), epochs=epochs, optimizer=torch.optim.SGD(model.parameters(), rate),
                   observers=[Checkpointer(tmp_path, **how)], device="cpu", progress=False, keep_memory=False).remarks

    run(0.1, 1)
    words = "from step 8 on, by override this run's settings count: lr 0.001 (was 0.1)"
    with pytest.warns(UserWarning, match="from step 8 on, by override"):
        assert run(0.001, 2, override="lr") == [words]
    assert run(0.001, 3) == [words]
