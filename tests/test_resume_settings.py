"""A setting that changes on a resume: it is said which one counts, and `override` decides, before the first step."""

import os
from argparse import Namespace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as rates
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

from mlinfra.engine.checkpoint.checkpoint_files import latest, read_state
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.checkpoint.loop_checkpoints import LoopCheckpoints
from mlinfra.monitor import Monitor, Run
from mlinfra.training import fit

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(X, (X.sum(1) > 0).long())
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Stop:
    guard = True

    def __init__(self, at):
        self.at = at

    def on_step(self, run, step):
        if step.iteration + 1 == self.at:
            run.stop()


def train(root, epochs=3, lr=0.1, schedule=None, batch=8, stop=None, wrap=lambda model: model, interval="step",
          groups=nn.Module.parameters, shuffle=True, watchers=(), kind=partial(torch.optim.SGD, momentum=0.9),
          loss_fn=None, data=DATA, **keep):  # fmt: skip
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = kind(groups(model), lr)
    observers = ([] if root is None else [Checkpointer(root, **keep)]) + ([Stop(stop)] if stop else []) + [*watchers]
    history = fit(model, DataLoader(data, batch, shuffle), epochs=epochs, optimizer=optimizer, interval=interval,
                  scheduler=schedule and schedule(optimizer), observers=observers, progress=False, device="cpu",
                  keep_memory=False, loss_fn=loss_fn)  # fmt: skip
    return history, optimizer.param_groups[0]["lr"]


def cosine(steps):
    return lambda optimizer: rates.CosineAnnealingLR(optimizer, steps)


def one_cycle(steps):
    return lambda optimizer: rates.OneCycleLR(optimizer, 0.1, steps)


def test_the_saved_rate_counts_and_is_recorded_until_it_is_overridden(tmp_path):
    recorded = lambda: read_state(latest(tmp_path).path).parts["identity"]["config"]["lr"]
    train(tmp_path, config=dict(lr=0.1))
    history, lr = train(tmp_path, 4, lr=0.01, config=dict(lr=0.01))
    assert lr == recorded() == 0.1 and "lr 0.1 (not 0.01); override=['lr'] takes" in history.remarks[-1]
    history, lr = train(tmp_path, 5, lr=0.01, config=dict(lr=0.01), override="lr")
    assert lr == recorded() == 0.01 and "lr 0.01 (was 0.1)" in history.remarks[-1]
    history, lr = train(tmp_path, 6, lr=0.01, config=dict(lr=0.01))
    assert lr == recorded() == 0.01, "what was overridden is the saved one now"


@pytest.mark.parametrize("interval, make, length", [("step", cosine, 8), ("step", one_cycle, 8), ("epoch", cosine, 1)])
def test_a_longer_schedule_goes_on_at_its_place(interval, make, length, tmp_path):
    train(tmp_path, 3, schedule=make(3 * length), interval=interval)
    _, lr = train(tmp_path, 6, schedule=make(6 * length), interval=interval, override="scheduler")
    _, whole = train(None, 6, schedule=make(6 * length), interval=interval)
    assert lr == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize("first, second, says", [
    (dict(schedule=cosine(24)), dict(), "had the scheduler CosineAnnealingLR, and this one has none"),
    (dict(), dict(schedule=cosine(48)), "had the scheduler none, and this one has CosineAnnealingLR"),
    (dict(schedule=one_cycle(24)), dict(schedule=one_cycle(48)), "override=\"scheduler\" takes the schedule"),
    (dict(schedule=cosine(24)), dict(schedule=cosine(48), lr=1.0, override="lr"), "take both"),
    (dict(stop=12), dict(batch=16), "batch_size 8 -> 16.*override=\"next_epoch\""),
    (dict(stop=12), dict(shuffle=False), "order RandomSampler -> SequentialSampler: the rest of the epoch"),
    (dict(), dict(override="rate"), "override names rate, and there are dampening, lr,"),
])  # fmt: skip
def test_what_cannot_go_on_is_refused_before_the_first_step(first, second, says, tmp_path):
    train(tmp_path, **first)
    step = latest(tmp_path).step
    with pytest.raises(ValueError, match=says):
        train(tmp_path, 6, **second)
    assert latest(tmp_path).step == step


@pytest.mark.parametrize("wrong, says", [
    (dict(override=3), "override must be a list"), (dict(override=["lr", 3]), "override must name settings.* got 3"),
    (dict(extra=[1]), "extra must give each object a name"), (dict(skip=2), "skip must be True or False, got 2"),
])
def test_nonsense_is_refused_where_it_is_given(wrong, says, tmp_path):
    for kind in (Checkpointer, LoopCheckpoints)[:1 if "extra" in wrong else 2]:
        with pytest.raises(ValueError, match=says): kind(tmp_path, **wrong)


def test_the_next_epoch_begins_with_other_batches_and_weights_alone_with_all_else_new(tmp_path):
    train(tmp_path / "a", stop=12)
    history, _ = train(tmp_path / "a", batch=16, override="next_epoch")
    assert [epoch.iterations for epoch in history.epochs] == [8, 4, 4]
    assert "epoch 1 was left after 4 steps, and the next one begins" in history.remarks
    train(tmp_path / "b", stop=12)
    _, lr = train(tmp_path / "b", lr=0.3, schedule=cosine(8), override="weights_only")
    assert lr == pytest.approx(0, abs=1e-9), "a schedule from its beginning"


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
def test_wrapped_models_and_plain_ones_go_on_with_each_other(wrap, tmp_path):
    losses = lambda history: [step.loss for step in history.steps]
    whole = losses(train(None)[0])
    for one, other in ((wrap, lambda model: model), (lambda model: model, wrap)):
        root = tmp_path / str(one is wrap)
        train(root, wrap=one, stop=12)
        assert losses(train(root, wrap=other)[0]) == whole


def in_groups(model, *numbers):
    named = [*model.named_parameters()]
    return [dict(params=[named[n] for n in group]) for group in numbers]


def test_parameters_in_another_order_are_found_by_their_names(tmp_path):
    losses = lambda history: [step.loss for step in history.steps]
    square = lambda model: nn.utils.spectral_norm(model[0]) and model  # whose vectors have a version
    whole = losses(train(None, wrap=square)[0])
    train(tmp_path, wrap=square, stop=12, groups=lambda model: in_groups(model, (0, 1), (2, 3)))
    again = train(tmp_path, wrap=square, groups=lambda model: in_groups(model, (1, 0), (3, 2)))
    assert losses(again[0]) == whole
    with pytest.raises(ValueError, match="trained 0.weight_orig and others, and now it trains 2.bias"):
        train(tmp_path, wrap=square, epochs=4, groups=lambda model: in_groups(model, (3, 2), (1, 0)))


def test_a_setting_that_is_the_same_is_not_said_to_have_changed(tmp_path):
    make = lambda: dict(sizes=(8, 2), table=np.arange(3), rate=float("nan"), named=dict(a=[1]))
    train(tmp_path, config=make())
    history, _ = train(tmp_path, 4, config=Namespace(**make()))
    assert not [words for words in history.remarks if "settings" in words]
    history, _ = train(tmp_path, 5, config=make() | dict(sizes=(8, 3)))
    assert "not those of the saved run: sizes (8, 2) -> (8, 3)" in history.remarks[-1]


def test_a_script_that_changes_its_folder_goes_on_in_the_first(tmp_path, monkeypatch):
    class Leave:
        def on_step(self, run, step):
            os.chdir(tmp_path / "other")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    train("kept", every=3, watchers=[Leave(), Monitor("run")])
    assert latest(tmp_path / "kept").step == 24 and not [*(tmp_path / "other").iterdir()]


def test_the_record_of_a_run_that_went_on_has_the_settings_of_the_whole(tmp_path):
    train(None, watchers=[Monitor(tmp_path / "whole")])
    for stop in (12, None):
        train(tmp_path / "kept", stop=stop, watchers=[Monitor(tmp_path / "cut")])
    whole, cut = (Run(tmp_path / name).config for name in ("whole", "cut"))
    assert cut == whole and cut["epochs"] == 3 and cut["iterations"] == 24


def falling(steps):
    return lambda optimizer: rates.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / steps))


def test_a_schedule_that_is_a_function_is_this_runs_and_that_is_said(tmp_path):
    train(tmp_path, schedule=falling(24), stop=12)
    history, _ = train(tmp_path, schedule=falling(24))
    assert not [words for words in history.remarks if "schedule" in words or "settings" in words]
    history, lr = train(tmp_path, 6, schedule=falling(48), watchers=[Stop(36)])
    assert lr == pytest.approx(0.025)
    assert "after 24 calls of LambdaLR the learning rate was 0, and from here it follows 0.05" in history.remarks[-1]


@pytest.mark.parametrize("kind, name, kept", [(torch.optim.Adam, "amsgrad", "max_exp_avg_sq"),
                                              (torch.optim.RMSprop, "centered", "grad_avg")])
def test_what_an_overridden_setting_needs_begins_with_it(kind, name, kept, tmp_path):
    train(tmp_path, kind=kind, stop=12)
    history, _ = train(tmp_path, kind=partial(kind, **{name: True}), override=name)
    states = read_state(latest(tmp_path).path).parts["optimizer"]["state"].values()
    assert len(history.steps) == 24 and all(kept in state for state in states)


def test_weights_of_classes_that_count_on_a_resume_are_named(tmp_path):
    balanced = lambda share: nn.CrossEntropyLoss(weight=torch.tensor([1.0, share]))
    train(tmp_path, loss_fn=balanced(1.0), stop=12)
    history, _ = train(tmp_path, loss_fn=balanced(1.0))
    assert not [words for words in history.remarks if "others" in words]
    history, _ = train(tmp_path, 4, loss_fn=(mine := balanced(5.0)))
    assert mine.weight[1] == 1 and "this one has others: step.loss_fn.weight" in history.remarks[-1]


def test_a_subset_that_is_drawn_anew_is_noticed(tmp_path):
    part = lambda seed: random_split(DATA, [32, 32], torch.Generator().manual_seed(seed))[0]
    train(tmp_path / "a", data=part(0), stop=6)
    with pytest.raises(ValueError, match="subset #.* -> #.*unless its generator is seeded.: the rest of the epoch"):
        train(tmp_path / "a", data=part(1))
    history, _ = train(tmp_path / "a", data=part(0))
    assert not [words for words in history.remarks if "subset" in words]
    train(tmp_path / "b", 1, data=part(0))
    history, _ = train(tmp_path / "b", 2, data=part(1))
    assert [words for words in history.remarks if "unless its generator is seeded): later steps may differ" in words]


def test_a_subset_that_grows_as_it_trains_is_the_same(tmp_path):
    class Grow:
        def __init__(self, subset):
            self.subset = subset

        def on_epoch(self, run, epoch):
            self.subset.indices = [*range(4 * epoch.epoch + 4, 4 * epoch.epoch + 20)]
    for stop in (10, None):
        subset = Subset(DATA, [*range(16)])
        history, _ = train(tmp_path, 8, data=subset, stop=stop, watchers=[Grow(subset)])
    assert len(history.steps) == 16 and not [words for words in history.remarks if "subset" in words]
