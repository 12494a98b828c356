"""The sweep over workers with what users bring: batches of any form, wrong arguments before anything runs, an
unmeasured warm-up."""
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from mlinfra.data import Images
from mlinfra.engine.workers import worker_sweep as sweeps
from mlinfra.models import GluonCNN
from mlinfra.workers import WorkerCurve, fit_curve, sweep_workers

DIGITS = Images(torch.randint(0, 256, (64, 1, 28, 28), dtype=torch.uint8), torch.arange(64) % 10)


class Tokens(Dataset):
    "A language model's samples: a dictionary in a dictionary."
    def __len__(self): return 24

    def __getitem__(self, i):
        return {"inputs": {"ids": torch.arange(i, i + 5) % 11, "mask": torch.ones(5)}, "length": 5}


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, ids, mask): return self.out(self.embed(ids)) * mask[..., None]


def next_token(model, batch):
    ids = batch["inputs"]["ids"]
    return nn.functional.cross_entropy(model(**batch["inputs"])[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def quiet(*args, **kw): return sweep_workers(*args, progress=False, **kw)


def test_batches_of_any_form_through_a_step():
    frame = quiet(Tokens(), np.array([0]), batch_size=8, model=TinyLM, step=next_token, optimizer="adam")
    assert (
        list(frame.workers) == [0]
        and frame.iterations[0] == 3
        and math.isnan(frame.accuracy[0])
        and frame.eval_loss[0] > 0
    )


def test_targets_that_are_no_classes_have_a_loss_and_no_accuracy():
    data = TensorDataset(torch.rand(30, 3), torch.rand(30, 1))
    frame = quiet(data, (0,), batch_size=np.int64(10), model=lambda: nn.Linear(3, 1), loss_fn=nn.functional.mse_loss)
    assert math.isnan(frame.accuracy[0]) and 0 < frame.eval_loss[0] < 100


def test_a_collate_function_of_ones_own():
    def collate(samples):
        return torch.stack([x.float().flatten() for x, _ in samples]), torch.tensor([y for _, y in samples])
    frame = quiet(DIGITS, (0,), batch_size=16, model=lambda: nn.Linear(784, 10), collate_fn=collate)
    assert 0 <= frame.accuracy[0] <= 1


class Endless(IterableDataset):
    def __iter__(self): yield from DIGITS


@pytest.mark.parametrize(
    "wrong, says",
    [
        (dict(batch_size=0), "batch_size must be at least 1, got 0"),
        (dict(batch_size=2.5), "batch_size must be a whole number"),
        (dict(workers=()), "workers must be whole numbers"),
        (dict(workers=(-1,)), "each of workers must be at least 0, got -1"),
        (dict(workers=(0, 0)), "workers must be distinct"),
        (dict(workers=(257,)), "at most 256"),
        (dict(workers="02"), "workers must be whole numbers"),
        (dict(model=GluonCNN()), "makes a fresh model for each run, got a GluonCNN"),
        (dict(model=None), "makes a fresh model"),
        (dict(dataset=DataLoader(DIGITS)), "got a DataLoader: pass its .dataset"),
        (dict(dataset=Endless()), "map-style data set"),
        (dict(test=Images(DIGITS.images[:0], DIGITS.labels[:0])), "test must hold samples, got none"),
        (dict(optimizer=torch.optim.SGD([nn.Parameter(torch.zeros(1))])), "a function of the parameters"),
        (dict(epochs=0), "epochs must be at least 1"),
        (dict(repeats=0), "repeats must be at least 1"),
        (dict(device="tpu"), "device must be cpu or cuda"),
        (dict(dataset=Tokens(), transform=abs), "needs samples of (image, label)"),
        (dict(seed=-1), "seed must be at least 0"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(wrong, says, monkeypatch):
    monkeypatch.setattr(sweeps, "fit", lambda *args, **kw: pytest.fail("something ran"))
    with pytest.raises(ValueError) as refused: quiet(**dict(dataset=DIGITS, workers=(0, 1)) | wrong)
    assert says in str(refused.value)


def test_batches_that_need_a_step_say_so_before_the_first_run(monkeypatch):
    monkeypatch.setattr(sweeps, "measure_workers", lambda *args: pytest.fail("a run began"))
    with pytest.raises(ValueError, match=r"pass step=, a function of \(model, batch\)"):
        quiet(Tokens(), (0,), model=TinyLM)


def test_numbers_of_workers_may_be_arrays_and_tensors():
    for workers in (
        np.array([0, 2]),
        torch.tensor([0, 2]),
        range(0, 3, 2),
        [np.int64(0), torch.tensor(2)],
        iter((0, 2)),
    ):
        assert sweeps.check_workers(workers, warn=False) == (0, 2)


@pytest.mark.parametrize(
    "wrong",
    [dict(load_seconds=-1), dict(compute_seconds=math.nan), dict(contention=2), dict(iterations=0), dict(cores=0)],
)
def test_a_curve_refuses_nonsense(wrong):
    right = dict(
        load_seconds=1,
        compute_seconds=1,
        compute_cpu_seconds=1,
        worker_transfer_seconds=0,
        contention=0,
        startup_seconds=0,
        iterations=1,
        cores=1,
    )
    with pytest.raises(ValueError, match=next(iter(wrong))): WorkerCurve(**right | wrong)


def test_a_curve_needs_a_row_without_workers():
    frame = quiet(DIGITS, (0,), batch_size=16, model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))
    with pytest.raises(ValueError, match="a row for 0 workers and one for more"): fit_curve(frame, 2)


def test_data_that_the_default_model_does_not_take_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="without model= a GluonCNN is trained.*pass model="):
        sweep_workers(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), workers=(0, 1))
