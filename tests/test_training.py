"""fit where a notebook cannot show it: interrupts, broken observers, dead workers, other loaders, a script of one's own."""
import re
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.data import BatchLoader, Images
from mlinfra import training
from mlinfra.engine.autocast import check_precision
from mlinfra.engine.observers import EVENTS
from mlinfra.training import History, fit

QUIET = dict(progress=False, keep_memory=False, device="cpu")


def tiny(samples=64): return Images(torch.randint(0, 256, (samples, 1, 28, 28), dtype=torch.uint8), torch.randint(0, 10, (samples,)))
def linear(): return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


class Loud:
    "Remembers every event it hears."
    def __init__(self):
        self.heard = []
        for event in EVENTS: setattr(self, event, lambda *args, event=event: self.heard.append(event))


def test_observers_hear_everything_in_order():
    loud = Loud()
    fit(linear(), BatchLoader(tiny(), 32), epochs=2, observers=[loud], **QUIET)
    epoch = ["on_backward", "on_step"] * 2 + ["on_epoch"]
    assert loud.heard == ["on_start", *epoch, *epoch, "on_end"]


def test_gradients_are_there_on_backward_and_gone_after():
    norms = []
    class Look:
        def on_backward(self, run): norms.append(sum(float(p.grad.norm()) for p in run.model.parameters()))
    model = linear()
    fit(model, BatchLoader(tiny(), 32), observers=[Look()], **QUIET)
    assert len(norms) == 2 and all(n > 0 for n in norms) and all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("event", EVENTS)
def test_an_observer_that_raises_is_detached_and_training_goes_on(event):
    class Bad: pass
    calls = []
    def fail(*args):
        calls.append(event)
        raise OSError("disk full")
    bad = Bad()
    setattr(bad, event, fail)
    with pytest.warns(UserWarning, match=f"Bad was detached: {event} raised OSError: disk full"):
        history = fit(linear(), BatchLoader(tiny(), 16), epochs=2, observers=[bad], **QUIET)
    assert len(history.steps) == 8 and len(calls) == 1 and "disk full" in history.remarks[0]


def test_an_interrupt_reaches_the_caller_and_keeps_the_record():
    history, loud = History(), Loud()
    def loader():
        for i, batch in enumerate(BatchLoader(tiny(), 8)):
            if i == 3: raise KeyboardInterrupt
            yield batch
    with pytest.raises(KeyboardInterrupt): fit(linear(), loader(), history=history, observers=[loud], **QUIET)
    assert len(history.steps) == 3 and loud.heard[-1] == "on_end"


def test_a_history_can_be_continued():
    history, model = History(), linear()
    for _ in range(2): fit(model, BatchLoader(tiny(), 32), history=history, **QUIET)
    assert [s.iteration for s in history.steps] == [0, 1, 2, 3] and [e.epoch for e in history.epochs] == [0, 1]
    assert list(history.table().epoch) == [0, 1]


DEADLY = """
import os, signal, torch
from torch.utils.data import DataLoader, Dataset
from mlinfra.training import fit

class Deadly(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i == 40: os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(4), 0

if __name__ == "__main__": fit(torch.nn.Linear(4, 2), DataLoader(Deadly(), 8, num_workers=1), progress=False, device="cpu")
"""


def test_a_killed_worker_is_an_error_not_a_hang(tmp_path):
    script = tmp_path / "deadly.py"  # a process of its own: torch raises from a signal handler, wherever the main thread is
    script.write_text(DEADLY)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    # torch says "DataLoader worker (pid N) is killed", unless it was just fetching a batch from the dying worker: then the connection is what breaks
    assert done.returncode == 1 and re.search(r"DataLoader worker .*killed|Connection\w+Error|EOFError", done.stderr, re.IGNORECASE), done.stderr


class Replayed(training._Graphed):
    "Replays without a GPU: what was recorded is computed again, and its results land where the recorded ones lay."
    replays = 0
    def _record(self, x, y):
        self.x, self.y, self.graphs = x.clone(), y.clone(), (Again(self.again_forward), Again(self.again_backward))
        self.loss, self.gradients = torch.zeros(()), [torch.zeros_like(p) for p in self.parameters]

    def again_forward(self):
        Replayed.replays += 1
        self.live = self.run.loss_fn(self.run.model(self.x), self.y)
        self.loss.copy_(self.live.detach())

    def again_backward(self):
        for kept, new in zip(self.gradients, torch.autograd.grad(self.live, self.parameters), strict=True): kept.copy_(new)


class Again:
    def __init__(self, replay): self.replay = replay


def test_replayed_batches_train_like_eager_ones(monkeypatch):
    "What surrounds a CUDA graph: warm-up, the smaller last batch, gradients in place. The graphs themselves are in test_gpu.py."
    def trained():
        torch.manual_seed(0)
        data, model = tiny(200), linear()
        history = fit(model, BatchLoader(data, 64, shuffle=True, seed=1), epochs=2, optimizer=training.sgd(model, 0.1, 0.9), **QUIET)
        return [s.loss for s in history.steps], model[1].weight, model[1].weight.grad
    losses, weight, _ = trained()
    monkeypatch.setattr(training, "_Eager", Replayed)
    again, same, left = trained()
    assert again == losses and torch.equal(same, weight) and left is None
    assert Replayed.replays == 6 - 3, "two epochs of three full batches, less the warm-up"


def test_any_loader_and_any_loss():
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    history = fit(nn.Linear(4, 1), DataLoader(data, 8), loss_fn=nn.functional.mse_loss, epochs=20, **QUIET)
    assert history.epochs[-1].loss < history.epochs[0].loss


def test_a_model_without_trainable_parameters_is_refused():
    model = linear().requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter to train"): fit(model, BatchLoader(tiny(), 8), **QUIET)


@pytest.mark.parametrize("precision", ["tf32"])
def test_a_precision_that_this_device_lacks_is_named_before_training(precision):
    model = linear()
    before = model[1].weight.clone()
    with pytest.raises(ValueError, match=f"{precision} needs a CUDA device"): fit(model, BatchLoader(tiny(), 8), precision=precision, **QUIET)
    assert torch.equal(model[1].weight, before)


def test_bf16_is_what_autocast_gives():
    assert check_precision("bf16", torch.device("cpu")) == "bf16"
    kinds = []
    model = linear()
    model.register_forward_hook(lambda _m, _i, out: kinds.append(out.dtype))
    fit(model, BatchLoader(tiny(), 32), precision="bf16", **QUIET)
    assert set(kinds) == {torch.bfloat16}


SCRIPT = """
import sys
from mlinfra.training import fit
from mlinfra.data import BatchLoader, Images, mnist
from mlinfra.models import GluonCNN
digits = mnist()
history = fit(GluonCNN(), BatchLoader(Images(digits.images[:640], digits.labels[:640]), 64))
print(len(history.steps))
"""


def test_from_a_script_elsewhere(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "10"


def test_fixed_seed_fixed_losses():
    def losses():
        torch.manual_seed(0)
        data, model = tiny(), linear()
        return [s.loss for s in fit(model, BatchLoader(data, 16, shuffle=True, seed=1), epochs=2, **QUIET).steps]
    assert losses() == losses()
