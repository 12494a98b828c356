"""The callbacks in the real frameworks; skipped where these are not installed."""
import math
import time
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from mlinfra.engine.record import callbacks
from mlinfra.engine.record.run_folder import PARTS, Run
from mlinfra.engine.record.watch import Watch
from mlinfra.engine.rules.default_rules import LOOP_RULES, SPEED_RULES, TENSOR_RULES
from mlinfra.engine.rules.inspection import Inspector

SPEED = {rule.__name__ for rule in SPEED_RULES}
WAIT, EVALUATION = 0.02, 0.015  # seconds of a batch


class Slow(Dataset):
    "Samples of which one in eight comes late."
    def __init__(self, samples, seconds): self.samples, self.seconds = samples, seconds
    def __len__(self): return self.samples

    def __getitem__(self, i):
        if i % 8 == 0: time.sleep(self.seconds)
        return dict(x=torch.full((4,), float(i)), labels=i % 2)


class Model(nn.Module):
    "As Hugging Face's Trainer wants it."
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, labels):
        loss = nn.functional.cross_entropy(self.layer(x), labels)
        return dict(loss=loss, logits=self.layer(x))


def holds(run, steps, evaluations):
    "What is true of every run here."
    frame = run.steps
    assert list(frame.iteration) == list(range(steps)) and run.killed is False and run.ended
    assert (frame[["forward", "backward", "update"]] > 0).all(axis=None) and (frame.other == 0).all()
    assert (frame.groupby("epoch").wait.sum() >= 5 * WAIT).all() and (frame.samples == 8).all()
    ends = (frame.start + frame.seconds).to_numpy()[:-1] + frame.between.to_numpy()[1:]
    assert abs(ends - frame.start.to_numpy()[1:]).max() < 1e-6
    seconds, wall = run.seconds(), run.events("end")[0].at
    assert seconds["evaluation"] >= evaluations * EVALUATION
    assert math.isclose(sum(seconds[part] for part in PARTS), wall, abs_tol=0.1)
    assert (run.table("evaluation").seconds >= 2 * EVALUATION).all() and len(run.table("evaluation")) == evaluations / 2
    assert run.config["loop"] in ("lightning", "transformers")
    return frame


@pytest.fixture
def lightning():
    module = pytest.importorskip("lightning.pytorch", reason="needs lightning: pip install mlinfra[callbacks]")
    warnings.filterwarnings("ignore", module="lightning")
    return module


def lit(lightning, fails=False):
    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Model()

        def training_step(self, batch, batch_idx):
            if fails and batch_idx == 2: raise ArithmeticError("so it is")
            return self.net(**batch)["loss"]

        def validation_step(self, batch, batch_idx): self.net(**batch)
        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.01)
    return Lit()


def trainer(lightning, folder, callback, **how):
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
    return lightning.Trainer(callbacks=[callback], default_root_dir=folder, enable_checkpointing=False, **quiet, **how)


def loaders(): return DataLoader(Slow(40, WAIT), 8), DataLoader(Slow(16, EVALUATION), 8)


def test_lightning(lightning, tmp_path):
    watch, seen = callbacks.LightningWatch(tmp_path / "run", config=dict(name="mine")), []

    class Other(lightning.Callback):
        def on_train_batch_end(self, trainer, *_): seen.append(type(trainer.profiler).__name__)

    runner = trainer(lightning, tmp_path, watch, max_epochs=2, num_sanity_val_steps=1)
    runner.callbacks.append(Other())
    profiler = runner.profiler
    runner.fit(lit(lightning), *loaders())
    run = Run(tmp_path / "run")
    frame = holds(run, 10, 4)
    assert (frame.wait >= WAIT).all() and run.config["name"] == "mine"
    assert frame.loss.notna().all() and list(run.epochs.iterations) == [5, 5]
    assert runner.profiler is profiler and seen, "the tap is taken off"
    runner.save_checkpoint(tmp_path / "checkpoint")
    again = trainer(lightning, tmp_path, callbacks.LightningWatch(tmp_path / "run"), max_epochs=3)
    again.fit(lit(lightning), *loaders(), ckpt_path=tmp_path / "checkpoint")
    assert list(Run(tmp_path / "run").steps.iteration) == [10, 11, 12, 13, 14], "it goes on at its step"


def test_lightning_with_accumulation_tells_the_losses_of_the_module(lightning, tmp_path):
    module, told = lit(lightning), []
    module.net.register_forward_hook(lambda net, args, output: told.append(output["loss"].item()))
    watch = callbacks.LightningWatch(tmp_path / "run")
    trainer(lightning, tmp_path, watch, max_epochs=1, accumulate_grad_batches=2).fit(module, loaders()[0])
    assert Run(tmp_path / "run").steps.loss.tolist() == pytest.approx(told) and len(told) == 5


def test_lightning_counts_a_checkpoint_as_between(lightning, tmp_path):
    class SlowSave(lightning.Callback):
        def on_train_batch_end(self, *_): time.sleep(0.05)

    runner = trainer(lightning, tmp_path, callbacks.LightningWatch(tmp_path / "run"), max_epochs=1)
    runner.callbacks.append(SlowSave())
    runner.fit(lit(lightning), *loaders())
    frame = Run(tmp_path / "run").steps
    assert (frame.between[1:] >= 0.05).all() and (frame.wait < WAIT + 0.05).all()


def test_lightning_that_raises_ends_its_run(lightning, tmp_path):
    watch = callbacks.LightningWatch(tmp_path / "run")
    runner = trainer(lightning, tmp_path, watch, max_epochs=1)
    with pytest.raises(ArithmeticError): runner.fit(lit(lightning, fails=True), *loaders())
    end = Run(tmp_path / "run").events("end")[0].data
    assert end["how"] == "raised" and "so it is" in end["error"] and len(Run(tmp_path / "run").steps) == 2


def test_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install mlinfra[callbacks]")
    pytest.importorskip("accelerate", reason="needs accelerate: pip install mlinfra[callbacks]")
    how = dict(output_dir=tmp_path / "out", per_device_train_batch_size=8, per_device_eval_batch_size=8, use_cpu=True,
               num_train_epochs=2, eval_strategy="epoch", logging_steps=2, save_steps=4, report_to="none",
               disable_tqdm=True)
    watch = callbacks.TransformersWatch(tmp_path / "run")
    runner = transformers.Trainer(
        Model(), transformers.TrainingArguments(**how), callbacks=[watch],
        train_dataset=Slow(40, WAIT), eval_dataset=Slow(16, EVALUATION))
    model = runner.model
    runner.train()
    run = Run(tmp_path / "run")
    holds(run, 10, 4)
    assert len(run.events("log")) >= 5 and list(run.epochs.iterations) == [5, 5] and run.config["model"] == "Model"
    assert not model._forward_hooks and not model._forward_pre_hooks
    runner.evaluate()  # outside of the training: nobody listens
    assert watch.findings == []
    runner.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-8"))
    assert list(Run(tmp_path / "run").steps.iteration) == [8, 9], "it goes on at its step"


def watched(kind, folder):
    return kind(folder, rules=[inspector := Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])]), inspector


class Classes(Dataset):
    "Which of two numbers is the larger."
    def __init__(self, first=0, samples=320): self.first, self.samples = first, samples
    def __len__(self): return self.samples

    def __getitem__(self, i):
        x = torch.randn(4, generator=torch.Generator().manual_seed(self.first + i))
        return dict(x=x, labels=int(x[0] > x[1]))


class Head(nn.Module):
    "A classifier, which may give probabilities to a loss that takes logits."
    def __init__(self, sick):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 2), *[nn.Softmax(1)] * sick)

    def forward(self, x, labels):
        logits = self.layers(x)
        return dict(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


@pytest.mark.parametrize("sick", [True, False])
def test_lightning_tells_rules_of_batches_losses_and_validations(lightning, tmp_path, sick):
    torch.manual_seed(0)
    watch, inspector = watched(callbacks.LightningWatch, tmp_path / "run")

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Head(sick)

        def training_step(self, batch, i): return self.net(**batch)["loss"]
        def validation_step(self, batch, i): self.log("val_loss", self.net(**batch)["loss"])
        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.3)

    runner = trainer(lightning, tmp_path, watch, max_epochs=3, num_sanity_val_steps=1)
    runner.fit(Lit(), DataLoader(Classes(), 8, shuffle=True), DataLoader(Classes(1000, 64), 8))
    assert [f.rule for f in inspector.findings if f.rule not in SPEED] == ["ProbabilitiesAsLogits"] * sick
    heard = {"on_batch", "on_update", "on_loss_graph", "on_tensors", "evaluation"}
    assert heard <= inspector.facts.heard and inspector.facts.validations == 3 and not inspector.remarks


@pytest.mark.parametrize("how, stops", [
    (dict(max_steps=3, max_epochs=2), False), (dict(max_epochs=2, limit_train_batches=2), False),
    (dict(fast_dev_run=True), False),
    (dict(max_steps=1, max_epochs=2, accumulate_grad_batches=2), False), (dict(max_epochs=2), True)],
    ids=["steps", "batches", "dev", "accumulation", "callback"])
def test_a_lightning_run_that_is_as_long_as_was_asked_for_has_not_stopped_early(lightning, tmp_path, how, stops):
    watch, inspector = watched(callbacks.LightningWatch, tmp_path / "run")

    class Stop(lightning.Callback):
        def on_train_batch_end(self, trainer, *_): trainer.should_stop = stops

    runner = trainer(lightning, tmp_path, watch, **how)
    runner.callbacks.append(Stop())
    runner.fit(lit(lightning), DataLoader(Slow(64, 0), 8))
    assert 0 < len(Run(tmp_path / "run").steps) <= 8
    assert "StoppedEarly" not in [f.rule for f in inspector.findings]


@pytest.mark.parametrize("sick", [True, False])
def test_transformers_tells_rules_of_batches_losses_and_validations(tmp_path, sick):
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install mlinfra[callbacks]")
    pytest.importorskip("accelerate", reason="needs accelerate: pip install mlinfra[callbacks]")
    watch, inspector = watched(callbacks.TransformersWatch, tmp_path / "run")
    how = dict(output_dir=tmp_path / "out", per_device_train_batch_size=8, use_cpu=True, num_train_epochs=2,
               eval_strategy="epoch", save_strategy="no", report_to="none", disable_tqdm=True, learning_rate=0.1)
    runner = transformers.Trainer(Head(sick), transformers.TrainingArguments(**how), callbacks=[watch],
                                  train_dataset=Classes(), eval_dataset=Classes(1000, 64))
    runner.train()
    assert [f.rule for f in inspector.findings if f.rule not in SPEED] == ["ProbabilitiesAsLogits"] * sick
    heard = {"on_batch", "on_update", "on_loss_graph", "on_tensors", "on_forward", "evaluation"}
    assert heard <= inspector.facts.heard and inspector.facts.validations == 2 and not inspector.remarks
    assert Run(tmp_path / "run").steps.loss.notna().all(), "the loss of each step is that of the model"
    assert not runner.model._forward_hooks and not runner.model._forward_pre_hooks


def trains(folder, **how):
    "A model with dropout, a watch, its inspector, and a Trainer for three steps."
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install mlinfra[callbacks]")
    pytest.importorskip("accelerate", reason="needs accelerate: pip install mlinfra[callbacks]")
    model, (watch, inspector) = Head(False), watched(callbacks.TransformersWatch, folder / "run")
    model.layers.append(nn.Dropout(0.1))
    arguments = transformers.TrainingArguments(folder / "out", max_steps=3, use_cpu=True, save_strategy="no",
                                               report_to="none", disable_tqdm=True, **how)
    return transformers.Trainer(model, arguments, callbacks=[watch], train_dataset=Classes(),
                                eval_dataset=Classes(1000, 24)), inspector


def test_a_transformers_run_that_a_callback_stops_has_not_stopped_early(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install mlinfra[callbacks]")
    runner, inspector = trains(tmp_path)

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_): control.should_training_stop = True

    runner.add_callback(Stop())
    runner.train()
    assert len(Run(tmp_path / "run").steps) == 1 and "StoppedEarly" not in [f.rule for f in inspector.findings]


def test_transformers_hears_of_a_second_training_once_after_one_that_raised(tmp_path):
    runner, inspector = trains(tmp_path)
    model, own = runner.model, runner.compute_loss

    def fails(*given, **how): raise ArithmeticError("so it is")
    runner.compute_loss = fails
    with pytest.raises(ArithmeticError): runner.train()
    end = time.monotonic() + 60
    while model._forward_hooks or model._forward_pre_hooks or not Run(tmp_path / "run").ended:
        assert time.monotonic() < end, "nobody has noticed that it was left"
        time.sleep(0.02)
    assert "an error has ended the training" in Run(tmp_path / "run").events("end")[0].data["error"]
    runner.compute_loss = own
    runner.train()
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert len(Run(tmp_path / "run").steps) == 3 and not inspector.remarks
    watch, = (one for one in runner.callback_handler.callbacks if hasattr(one, "_left_loop"))
    assert watch._left_loop.loop is None, "nothing keeps the frame of train, and all that it held"


@pytest.mark.parametrize("validates", [True, False])
def test_transformers_takes_no_pass_of_a_loss_for_a_validation(validates, tmp_path):
    "The loss of a preference is computed with the model's own outputs of before, for which no gradient is kept."
    runner, inspector = trains(tmp_path, eval_strategy="steps" if validates else "no", eval_steps=2)
    own = runner.compute_loss

    def twice(model, inputs, *given, **how):
        with torch.no_grad(): model(**inputs)
        return own(model, inputs, *given, **how)
    runner.compute_loss = twice
    runner.train()
    assert not [f for f in inspector.findings if f.rule not in SPEED] and not inspector.remarks
    assert inspector.facts.validations == 2 * validates


def test_a_loop_with_accelerate_is_watched_as_any_other(tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate: pip install mlinfra[callbacks]")
    torch.manual_seed(0)
    run = accelerate.Accelerator(cpu=True)
    model = Head(True)
    model, optimizer, loader = run.prepare(model, torch.optim.SGD(model.parameters(), 0.3), DataLoader(Classes(), 8))
    inspector = Inspector([rule() for rule in TENSOR_RULES + LOOP_RULES])
    with Watch(tmp_path, model, optimizer, rules=[inspector]) as w:
        for batch in w(loader):
            optimizer.zero_grad()
            loss = model(**batch)["loss"]
            run.backward(loss)
            optimizer.step()
            w.loss(loss)
    assert [f.rule for f in inspector.findings] == ["ProbabilitiesAsLogits"] and not inspector.remarks


def test_nonsense_is_refused_before_the_training(tmp_path):
    for kind, package in ((callbacks.LightningWatch, "lightning"), (callbacks.TransformersWatch, "transformers")):
        pytest.importorskip(package, reason=f"needs {package}: pip install mlinfra[callbacks]")
        with pytest.raises(ValueError, match="every_seconds"): kind(tmp_path, every_seconds=0)
