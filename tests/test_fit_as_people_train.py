"""Trainings as people write them: several optimizers, schedules by epoch, losses with weights, averaged weights."""

import torch
import pytest
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as rates
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from mlinfra.engine.checkpoint.checkpoint_files import latest, read_state
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.debugger import Debugger
from mlinfra.engine.base.checks import refusal
from mlinfra.engine.record.watch import watch
from mlinfra.engine.train.builtin_observers import EarlyStopping, _on_host, _put_back
from mlinfra.engine.train.counted_means import loss_value
from mlinfra.engine.train.evaluation import set_training
from mlinfra.training import evaluate, fit

QUIET = dict(progress=False, device="cpu", keep_memory=False)
INPUTS = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
LOADER = DataLoader(TensorDataset(INPUTS, INPUTS[:, :4].argmax(1)), 16)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def same(one, other):
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


class CenterLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(4, 4))

    def forward(self, outputs, targets):
        return F.cross_entropy(outputs, targets) + 0.1 * (outputs - self.centers[targets]).square().mean()


class Averaged(torch.optim.SGD):
    "Like schedulefree: steps in training mode only; its other mode holds what is to be used, here the weights plus 1."

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr)
        self.param_groups[0]["train_mode"] = False

    @torch.no_grad()
    def _switch(self, train):
        for group in self.param_groups:
            if group["train_mode"] != train:
                for p in group["params"]:
                    p.add_(-1.0 if train else 1.0)
            group["train_mode"] = train

    def train(self):
        self._switch(True)

    def eval(self):
        self._switch(False)

    def step(self, closure=None):
        assert self.param_groups[0]["train_mode"]
        super().step()


def plain(model, optimizers, after_epoch=lambda: None, loss=F.cross_entropy, epochs=3):
    "The loop that people write."
    for _ in range(epochs):
        for inputs, targets in LOADER:
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            for optimizer in optimizers:
                optimizer.step()
        after_epoch()
    return model


def test_several_optimizers_are_those_of_the_loop():
    def split(model):
        matrices = [p for p in model.parameters() if p.ndim == 2]
        return [torch.optim.Muon(matrices, 0.05), torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2])]

    mine, theirs = network(), network()
    fit(mine, LOADER, optimizer=split(mine), epochs=3, **QUIET)
    same(mine, plain(theirs, split(theirs)))


def test_several_optimizers_resume(tmp_path):
    def run(epochs, observers=()):
        model = network()
        parts = [torch.optim.Adam(model[0].parameters(), 0.01), torch.optim.SGD(model[2].parameters(), 0.1, 0.9)]
        speeds = [rates.ExponentialLR(part, 0.9) for part in parts]
        fit(model, LOADER, optimizer=parts, scheduler=speeds, epochs=epochs, observers=observers, **QUIET)
        return model

    run(2, [Checkpointer(tmp_path)])
    same(run(3, [Checkpointer(tmp_path)]), run(3))


@pytest.mark.parametrize(
    "make",
    [
        lambda o: rates.StepLR(o, 1, 0.1),
        lambda o: rates.CosineAnnealingLR(o, 3),
        lambda o: rates.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
        lambda o: rates.OneCycleLR(o, 0.5, total_steps=3),
        lambda o: rates.SequentialLR(o, [rates.LinearLR(o, 0.1, 1, 1), rates.ExponentialLR(o, 0.5)], [1]),
    ],
)
def test_a_schedule_by_epoch_is_that_of_the_loop(make):
    mine, theirs = network(), network()
    own = torch.optim.SGD(mine.parameters(), 0.5, 0.9)
    history = fit(mine, LOADER, optimizer=own, scheduler=make, interval="epoch", epochs=3, **QUIET)
    other = torch.optim.SGD(theirs.parameters(), 0.5, 0.9)
    same(mine, plain(theirs, [other], make(other).step))
    assert history.remarks == []


def test_a_schedule_for_epochs_that_is_stepped_after_each_update_is_remarked():
    history = fit(network(), LOADER, scheduler=lambda o: rates.StepLR(o, 1), epochs=3, **QUIET)
    assert 'interval="epoch"' in history.remarks[0]


@pytest.mark.parametrize("optimizer", [None, "adam", torch.optim.SGD], ids=["default", "word", "class"])
def test_a_loss_with_weights_is_trained_with_the_model(optimizer):
    loss = CenterLoss()
    history = fit(network(), LOADER, loss_fn=loss, optimizer=optimizer, epochs=2, **QUIET)
    assert loss.centers.count_nonzero() == 16 and history.remarks == []


def test_what_no_optimizer_trains_is_told_and_its_gradients_do_not_grow():
    model, loss = network(), CenterLoss()
    own = torch.optim.SGD(model[2].parameters(), 0.1)
    history = fit(model, LOADER, loss_fn=loss, optimizer=own, epochs=3, **QUIET)
    assert "no optimizer trains 3 tensors" in history.remarks[0] and "0.weight" in history.remarks[0]
    assert loss.centers.count_nonzero() == 0 and loss.centers.grad.count_nonzero() == 0
    assert model[0].weight.grad.count_nonzero() == 0


def test_an_optimizer_with_modes_is_in_the_right_one(tmp_path):
    model, twin = network(), network()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)  # what is to be used of the same weights
    seen = []

    class Look:
        guard = True

        def on_epoch(self, run, epoch):
            seen.append(epoch.valid_loss)

    keeper = Checkpointer(tmp_path, every=2, background=False)
    own, before = Averaged(model.parameters(), 0.1), []
    fit(model, LOADER, optimizer=own, valid=LOADER, epochs=2, observers=[keeper, Look()], **QUIET)
    plain(twin, [torch.optim.SGD(twin.parameters(), 0.1)], lambda: before.append(used_loss(twin)), epochs=2)
    assert seen == pytest.approx(before, rel=1e-5)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b + 1.0, rtol=1e-5, atol=1e-5)
    assert not own.param_groups[0]["train_mode"]


@torch.no_grad()
def used_loss(model):
    for p in model.parameters():
        p.add_(1.0)
    loss = F.cross_entropy(model(INPUTS), INPUTS[:, :4].argmax(1)).item()
    for p in model.parameters():
        p.sub_(1.0)
    return loss


def test_a_checkpoint_within_an_epoch_holds_the_weights_to_be_used(tmp_path):
    class Stop:
        guard = True

        def on_step(self, run, step):
            if step.iteration == 1:
                run.stop()

    model = network()
    fit(model, LOADER, optimizer=Averaged(model.parameters(), 0.1), epochs=1, **QUIET,
        observers=[Checkpointer(tmp_path), Stop()])  # fmt: skip
    kept = read_state(latest(tmp_path).path).parts["model"]["weights"]
    torch.testing.assert_close(kept["0.weight"], model[0].weight.detach())


def test_early_stopping_restores_the_best_weights():
    model, best = network(), {}

    class Worse:
        guard = True

        def on_epoch(self, run, epoch):
            if epoch.epoch == 1:
                best.update({name: value.clone() for name, value in model.state_dict().items()})
                run.optimizer.param_groups[0]["lr"] = 30.0

    stop = EarlyStopping(2, restore_best=True)
    own = torch.optim.SGD(model.parameters(), 0.1)
    fit(model, LOADER, optimizer=own, valid=LOADER, epochs=9, observers=[stop, Worse()], **QUIET)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, best[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    "words, how",
    [
        ("updated twice", lambda m: dict(optimizer=[torch.optim.SGD(m.parameters(), 0.1) for _ in range(2)])),
        ("computes the loss several times", lambda m: dict(optimizer=torch.optim.LBFGS(m.parameters()))),
        ("total_steps=12", lambda m: dict(epochs=3, scheduler=lambda o: rates.OneCycleLR(o, 1.0, total_steps=5))),
        ("needs an accuracy", lambda m: dict(scheduler=lambda o: rates.ReduceLROnPlateau(o, "max"))),
        ("interval must be", lambda m: dict(interval="batch", scheduler=lambda o: rates.StepLR(o, 1))),
        ("does not measure", lambda m: dict(observers=[EarlyStopping()])),
        ("has no gradient", lambda m: dict(step=lambda m, batch: m(batch[0]).detach().mean())),
        ("must be real", lambda m: dict(step=lambda m, batch: m(batch[0]).mean() * 1j)),
        ("the count of .* is 0 and the sum is", lambda m: dict(step=lambda m, batch: (m(batch[0]).square().sum(), 0))),
        ("progress must be", lambda m: dict(progress="no")),
        ("requires_grad=False", lambda m: dict(optimizer=torch.optim.SGD(m.requires_grad_(False).parameters()))),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_weights_move(words, how):
    model = network()
    with pytest.raises(ValueError, match=words):
        fit(model, LOADER, **QUIET | how(model))
    same(model, network())


@pytest.mark.parametrize("once", [lambda: (batch for batch in LOADER), lambda: iter(LOADER), lambda: map(list, LOADER)])
def test_what_yields_one_epoch_is_refused_for_several_before_the_first(once):
    model = network()
    with pytest.raises(ValueError, match="can be iterated only once"): fit(model, once(), epochs=2, **QUIET)
    same(model, network())
    assert len(fit(model, once(), **QUIET).steps) == 4


class Once:
    "The usual iterator of a class: `__iter__` returns it and begins nothing."
    def __init__(self): self.rest = iter(LOADER)
    def __iter__(self): return self
    def __next__(self): return next(self.rest)


class OnceUntold(Once):
    "Whether it begins anew cannot be told from its code."
    def __iter__(self): return self if self.rest else iter(())


def test_validation_data_that_can_be_read_once_are_refused_for_several_epochs():
    model = network()
    with pytest.raises(ValueError, match="valid can be iterated only once"):
        fit(model, LOADER, valid=Once(), epochs=2, **QUIET)
    same(model, network())
    with pytest.raises(ValueError, match="the data have no samples, or can be iterated only once"):
        fit(model, LOADER, valid=OnceUntold(), epochs=2, **QUIET)
    assert fit(model, LOADER, valid=Once(), **QUIET).epochs[0].valid_loss is not None


class BeginsAnew:
    "A loader as people write it: its `__iter__` begins anew and returns itself."
    def __iter__(self):
        self.rest = iter(LOADER)
        return self

    def __next__(self): return next(self.rest)


def test_a_loader_that_is_its_own_iterator_is_read_as_a_loop_reads_it():
    one, other = network(), network()
    stopped = []

    def stop(step):
        stopped.append(step)
        if len(stopped) > 8: raise KeyboardInterrupt  # it began anew with each step, without an end
    fit(one, BeginsAnew(), epochs=2, valid=BeginsAnew(), observers=[stop], **QUIET)
    fit(other, LOADER, epochs=2, **QUIET)
    same(one, other)


@pytest.mark.parametrize("name", ["loss_fn", "step", "weight"])
def test_what_cannot_be_called_is_refused_at_once(name):
    with pytest.raises(TypeError, match=f"{name} must be a function"): fit(network(), LOADER, **{name: 3}, **QUIET)


def test_a_layer_in_evaluation_that_is_trained_is_remarked():
    def remarks(change):
        model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 4))
        change(model)
        return [one for one in fit(model, LOADER, **QUIET).remarks if "evaluation mode" in one]
    assert remarks(lambda m: m[0].eval())[0].startswith("layer 0 was in evaluation mode")
    assert remarks(lambda m: m.eval()) == remarks(lambda m: setattr(m[0].eval(), "train", lambda mode: m[0])) == []
    same_in_both = nn.BatchNorm1d(2, track_running_stats=False), nn.InstanceNorm1d(2), nn.Dropout(0.0)
    assert set_training(nn.Sequential(*(layer.eval() for layer in same_in_both))) == []


def test_the_best_weights_come_with_buffers_that_no_checkpoint_keeps():
    class Counts(nn.Linear):
        def __init__(self):
            super().__init__(8, 4)
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, x):
            if self.training: self.calls += 1
            return super().forward(x) * (1 + self.calls)
    model = Counts()
    found = fit(model, LOADER, epochs=5, valid=LOADER, optimizer=torch.optim.SGD(model.parameters(), 0.3),
                observers=[EarlyStopping(1, restore_best=True)], **QUIET)
    best = min(found.epochs, key=lambda epoch: epoch.valid_loss)
    assert model.calls == 4 * (best.epoch + 1) < 4 * len(found.epochs)


def test_a_buffer_of_another_shape_is_put_back_into_a_model_without_parameters():
    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.ones(2), persistent=False)
    model = Seen()
    best = _on_host(model)
    model.seen = torch.zeros(3)
    _put_back(model, *best)
    assert model.seen.tolist() == [1, 1]


def test_a_metric_that_is_said_to_be_neither_is_remarked():
    def remarks(**said):
        stop = EarlyStopping(watch="metric", **said)
        how = dict(valid=LOADER, metric=lambda o, t: o.mean(), observers=[stop])
        return str(fit(network(), LOADER, **how, **QUIET).remarks)
    assert "higher_is_better" in remarks() and "higher_is_better" not in remarks(higher_is_better=False)
    assert "higher_is_better must be True or False" in refusal(EarlyStopping, higher_is_better="no")


def test_outputs_that_are_not_a_number_are_no_right_answers():
    model = network()
    nn.init.constant_(model[2].bias, torch.nan)
    assert evaluate(model, LOADER) == 0


def test_a_best_figure_that_is_not_measured_is_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match="is not measured in this run"):
        fit(network(), LOADER, observers=[Checkpointer(tmp_path, best="accuracy")], **QUIET)
    with torch.no_grad(), pytest.raises(ValueError, match="gradients are off"):
        fit(network(), LOADER, **QUIET)


class Attributes(dict):
    "A dictionary whose values are attributes too, as people write it: any other name is a KeyError."
    __getattr__ = dict.__getitem__


def test_a_batch_whose_values_are_attributes_keeps_them():
    batches = [Attributes(inputs=x, targets=y) for x, y in LOADER]
    one, other = network(), network()
    fit(one, LOADER, **QUIET)
    fit(other, batches, step=lambda m, b: F.cross_entropy(m(b.inputs), b.targets), **QUIET)
    same(one, other)


def test_targets_without_an_output_are_an_error_and_not_left_out():
    data = TensorDataset(INPUTS, INPUTS[:, :4].argmax(1) + 2)
    with pytest.raises(ValueError, match="targets are classes for which the model has no output"):
        evaluate(network(), data)
    marked = torch.where(INPUTS[:, 0] > 0, 255, INPUTS[:, :4].argmax(1))  # of pixels that are not to be counted
    assert 0 <= evaluate(network(), TensorDataset(INPUTS, marked)) <= 1


@pytest.mark.parametrize("metric", [lambda outputs, targets: None, lambda outputs, targets: "good"])
def test_a_metric_that_returns_no_number_is_refused_in_a_sentence(metric):
    with pytest.raises(TypeError, match="must return a number, the mean over the batch"):
        evaluate(network(), LOADER, metric=metric)


def test_a_step_that_trains_by_itself_is_told_what_to_leave_to_fit():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(model, batch):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss
    with pytest.raises(ValueError, match=r"leave backward\(\) and the optimizer's step to fit"):
        fit(model, LOADER, step=step, optimizer=optimizer, **QUIET)


class Stream(IterableDataset):
    def __iter__(self): yield from ((x, x[:1]) for x in INPUTS)


class Both(Dataset):
    "A data set that can be iterated too, as those of the package datasets."
    def __len__(self): return len(INPUTS)
    def __getitem__(self, i): return INPUTS[i], INPUTS[i, :1]
    def __iter__(self): return (self[i] for i in range(len(self)))


@pytest.mark.parametrize("data", [Stream(), Both()], ids=["stream", "both"])
def test_samples_of_a_data_set_that_can_be_iterated_are_put_into_batches(data):
    how = dict(batch_size=16, loss_fn=F.mse_loss, **QUIET)
    assert [step.samples for step in fit(nn.Linear(8, 1), data, valid=data, **how).steps] == [16] * 4


def test_a_stream_without_a_batch_size_is_refused():
    assert "a stream of samples or of batches: pass DataLoader" in refusal(fit, nn.Linear(8, 1), Stream(), **QUIET)
    assert "a stream of samples or of batches" in refusal(fit, network(), LOADER, valid=Stream(), **QUIET)
    assert "a stream of samples or of batches" in refusal(evaluate, nn.Linear(8, 1), Stream(), metric=F.mse_loss)


@pytest.mark.parametrize("data, kind", [(LOADER, "DataLoader"), ([(x, x[:1]) for x in INPUTS], "list")],
                         ids=["loader", "samples"])
def test_a_batch_size_that_would_be_left_out_of_account_is_refused(data, kind):
    said = refusal(fit, network(), data, batch_size=4, **QUIET)
    assert f"batch_size is for a data set, and train is a {kind}" in said
    assert f"workers is for a data set, and train is a {kind}" in refusal(fit, network(), data, workers=2, **QUIET)
    if kind == "list": assert "batch_size is for a data set" in refusal(evaluate, network(), data, batch_size=4)


def test_a_batch_size_beside_a_loader_is_that_of_the_validation_or_its_own():
    assert len(fit(network(), LOADER, batch_size=16, **QUIET).steps) == 4
    assert len(fit(network(), LOADER, batch_size=4, valid=LOADER.dataset, **QUIET).steps) == 4


def test_epochs_have_orders_of_their_own_where_a_sampler_draws_them_by_number():
    def trained(epochs, start):
        sampler, seen = DistributedSampler(LOADER.dataset, 1, 0), []
        sampler.set_epoch(start)
        def step(model, batch):
            seen.append(batch[0][0, 0].item())
            return F.cross_entropy(model(batch[0]), batch[1])
        fit(network(), DataLoader(LOADER.dataset, 64, sampler=sampler), epochs=epochs, step=step, **QUIET)
        return seen

    drawn = trained(3, 0)
    assert len(set(drawn)) == 3 and drawn == [trained(1, epoch)[0] for epoch in range(3)]
    assert trained(2, 1) == drawn[1:], "it goes on from where the user has put it"


@pytest.mark.parametrize("targets", [(INPUTS[:, :4] > 0).float(), (INPUTS[:, :4] > 0).long(), INPUTS[:, 4:]],
                         ids=["several labels", "several labels, whole", "numbers"])
def test_targets_that_are_no_classes_have_no_accuracy(targets):
    data = DataLoader(TensorDataset(INPUTS, targets), 16)
    loss = lambda outputs, wanted: F.binary_cross_entropy_with_logits(outputs, wanted.float())
    assert fit(network(), data, loss_fn=loss, valid=data, **QUIET).epochs[0].accuracy is None
    assert "have no accuracy: pass metric=" in refusal(evaluate, network(), data)


def test_one_hot_targets_and_shares_have_an_accuracy():
    model, classes = network().eval(), LOADER.dataset.tensors[1]
    hot = F.one_hot(classes, 4)
    for targets in (hot, hot.float(), 0.9 * hot + 0.025, (0.9 * hot + 0.025).bfloat16()):
        assert evaluate(model, TensorDataset(INPUTS, targets)) == evaluate(model, LOADER)


@pytest.mark.parametrize("count", [-1, float("nan"), torch.tensor(-1)], ids=str)
def test_a_count_that_would_turn_the_gradient_round_is_refused(count):
    model = network()
    def step(model, batch): return F.cross_entropy(model(batch[0]), batch[1], reduction="sum"), count
    assert "(sum, count) must be a finite number of at least 0" in refusal(fit, model, LOADER, step=step, **QUIET)
    assert "the sum is a tensor of shape (3,)" in refusal(loss_value, (torch.ones(3), 0))
    same(model, network())


def test_weights_without_values_are_named():
    model = network()
    model[2].to("meta")
    assert "2.weight and 1 more of the model have no values" in refusal(fit, model, LOADER, **QUIET)
    assert "have no values" in refusal(evaluate, model, LOADER)


@pytest.mark.parametrize("words, how", [
    ("threads must be at most", dict(threads=10 ** 6)), ("executor must be an object", dict(executor=3)),
    ("channels_last must be True or False", dict(channels_last="yes")),
    ("observers must be a list", dict(observers=Debugger())), ("observers must be a list", dict(observers=None))])
def test_settings_of_another_kind_are_refused(words, how):
    assert words in refusal(fit, network(), LOADER, **how | dict(progress=False, device="cpu"))


def test_rules_are_a_list(tmp_path):
    assert "rules must be a list" in refusal(watch, tmp_path, rules=Debugger())
    assert "rules must be a list" in refusal(Debugger, "NonFinite")
