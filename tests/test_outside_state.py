"""State outside of model and optimizer: each kind is kept on a resume, or named before the loss."""

import functools
import io
import pickle
import time
import warnings
from datetime import datetime
from queue import Queue
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
import torch
from outside_cases import DATA, KINDS, Asked, Average, Model, Noisy, Stop, losses, train
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from mlinfra.engine.checkpoint.checkpoint_files import latest
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.checkpoint.held_state import Found, HeldState
from mlinfra.engine.checkpoint.kept_values import odd_mark
from mlinfra.training import fit

pytestmark = pytest.mark.filterwarnings("error:checkpoints leave out:UserWarning")


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
    patience.orders, patience.ahead = iter(range(9)), Queue()  # its thread fills it anew

    class Look:
        def on_step(self, run, step):
            seen.append([words for words in run.history.remarks if words.startswith("checkpoints leave out")])

    def step(model, batch):
        return cross_entropy(model(next(box[0])[0]), batch[1])

    with pytest.warns(UserWarning, match="leave out observers.*.ahead, observers.*.orders, step.box.0.: a resumed"):
        train("", Checkpointer(tmp_path), patience, Look(), step=step, epochs=1)
    assert len(seen[0]) == 1 and seen[-1] == seen[0]


def frame(model):
    table = pd.DataFrame(dict(a=[0]))
    return table, lambda: table.__setitem__("a", table["a"] + 1)


def by_number(model):
    sums = {id(p): 0 for p in model.parameters()}
    return sums, lambda: sums.update({key: value + 1 for key, value in sums.items()})


def by_module(model):
    sums = {}
    return sums, lambda: sums.update({module: sums.get(module, 0) + 1 for module in model})


def by_dtype(model):
    sums = {}
    return sums, lambda: sums.update({torch.float32: len(sums) + 1})


def of_zone(model):
    box = [datetime.min]
    return box, lambda: box.__setitem__(0, datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC")))


@pytest.mark.filterwarnings("default:checkpoints leave out:UserWarning")
def sparse(model):
    box = [torch.eye(2).to_sparse()]
    return box, lambda: box.__setitem__(0, 2 * box[0])


class Marked(torch.Tensor):
    pass


def subclass(model):
    own = torch.ones(1).as_subclass(Marked)
    return own, lambda: own.add_(1)


def words(model):
    log = io.StringIO()
    return log, lambda: log.write("step\n")


@pytest.mark.parametrize("make", [frame, by_number, by_module, by_dtype, of_zone, sparse, subclass, words])
def test_what_changes_and_cannot_be_kept_costs_no_checkpoint_and_is_named(make, tmp_path):
    class Early:
        def on_start(self, run): self.held, self.add = make(run.model)
        def on_step(self, run, step): self.add()

    with pytest.warns(UserWarning, match="checkpoints leave out observers.Early.held.*: these have changed"):
        train("", Checkpointer(tmp_path, 3), Early(), epochs=1)
    assert latest(tmp_path).step == 8


@functools.cache
def drawn(number): return float(torch.rand(())) + number


@functools.cache
def factory(std):
    def noise(x): return x + std * torch.randn_like(x)
    return noise


@functools.cache
def scaled(number): return np.random.default_rng(number).random() + number


@pytest.mark.filterwarnings("default:checkpoints leave out:UserWarning")
def test_what_a_cache_has_drawn_is_named_and_what_it_computes_is_not(tmp_path):
    def step_of(factor): return lambda model, batch: cross_entropy(model(batch[0]), batch[1]) * factor(len(batch[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train("", Checkpointer(tmp_path / "a"), step=step_of(scaled), epochs=1)
        average = torch.nn.Linear(1, 1)
        average.noise, average.drawn = factory, drawn  # which the training does not call
        train("", Checkpointer(tmp_path / "c", extra=[("average", average)]), epochs=1)
        def noisy(model, batch): return cross_entropy(model(factory(0.1)(batch[0])), batch[1])
        train("", Checkpointer(tmp_path / "d"), step=noisy, epochs=1)
    with pytest.warns(UserWarning, match="leave out step.factor .it remembers what it has drawn.: these have changed"):
        train("", Checkpointer(tmp_path / "b", every=2), step=step_of(drawn), epochs=1)


class Exchange:
    guard = True

    def on_epoch(self, run, epoch): run.model[1] = torch.nn.Tanh()


def test_an_activation_that_was_exchanged_is_told(tmp_path):
    train("", Checkpointer(tmp_path), Exchange(), Stop())
    with pytest.warns(UserWarning, match="had other layers: 1 is a ReLU and was a Tanh"):
        train("", Checkpointer(tmp_path), Exchange())


@pytest.mark.parametrize("shape", [(4000, 20), (1000, 200), (100, 70_000)])
@pytest.mark.parametrize("kind", ["float64", "bool", "datetime64[ns]", "mixed", "object"])
def test_one_cell_of_a_frame_is_marked_and_its_names_and_order(shape, kind):
    rows, wide = shape if kind != "object" else (1000, min(shape[1], 200))  # of more objects some are compared
    table = pd.DataFrame(np.zeros((rows, wide)).astype("float64" if kind == "mixed" else kind))
    if kind == "mixed": table["words"] = "a"
    marks = [odd_mark(table)]
    assert marks == [odd_mark(table.copy())]
    table.iloc[1, 1] = {"bool": True, "datetime64[ns]": pd.Timestamp(2020, 1, 1)}.get(kind, 2.0)
    marks.append(odd_mark(table))
    for other in (table.set_axis(table.index + 1), table.rename(columns={1: "one"}), table.iloc[::-1]):
        marks.append(odd_mark(other))
    assert len({0, *marks}) == 6


def test_a_wide_frame_is_marked_by_sums_or_some_of_its_cells():
    wide, cells = pd.DataFrame(np.zeros((100, 70_000))), np.full((2, 70_000), "a", dtype=object)
    before = odd_mark(wide), odd_mark(cells)
    wide += 1
    cells[:] = "b"
    assert len({*before, odd_mark(wide), odd_mark(cells)}) == 4
    size = []
    with pytest.MonkeyPatch.context() as patch:
        dumps = pickle.dumps
        patch.setattr(pickle, "dumps", lambda value: size.append(len(raw := dumps(value))) or raw)
        odd_mark(wide)
    assert size[0] < 1e6


class Log:
    def __init__(self):
        self.rows = {n: [n] for n in range(21_000)}

    def on_step(self, run, step):
        self.rows[len(self.rows)] = [step.loss]


@pytest.mark.filterwarnings("default:checkpoints leave out:UserWarning")
def test_what_every_save_leaves_out_is_said_once(tmp_path):
    with pytest.warns(UserWarning) as caught:
        remarks = train("", Checkpointer(tmp_path, 1), Log(), epochs=1).remarks
    for said in ([str(one.message) for one in caught], remarks):
        assert sum("checkpoints leave out observers.Log.rows: these have changed" in words for words in said) == 1


def test_an_observers_count_goes_on_and_its_clock_does_not(tmp_path):
    train("", Checkpointer(tmp_path, every=3), first := Patience(), Stop())
    train("", Checkpointer(tmp_path), again := Patience())
    assert again.waited == 3  # one for each epoch of both runs
    held = HeldState(dict(one=first))
    first.on_epoch(None, None)
    assert held.state()["values"].keys() == {"one.waited"}


class Read(io.BytesIO):
    far = False

    def writable(self): return False

    def seek(self, *place):
        if self.far: raise OSError("away")
        return super().seek(*place)


def test_a_file_that_is_opened_later_is_no_other_one_and_one_without_a_way_back_is_named():
    data = Noisy()
    data.file = Read(b"abcd")
    data.file.read(3)
    held = HeldState(dict(data=data))
    kept = held.state()
    data.file.seek(0)
    assert held.load(kept) == [] and data.file.tell() == 3
    data.file.far = True
    assert held.load(kept) == ["data.file"]
    data.file = None
    assert held.load(kept) == []


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
    assert "file" not in Found({"": data}).values and not held.state()["values"]
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
    with pytest.warns(UserWarning, match="2 observers Named were told apart by their order; an attribute `name`"):
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
