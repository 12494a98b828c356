"""Checkpoints of a plain loop on ranks: cut off at any step, and gone on with by as many ranks as there are then."""
import random
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from mlinfra.data import BatchLoader
from mlinfra.engine.base.step_folders import step_folders
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.checkpoint.loop_checkpoints import LoopCheckpoints
from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.parallel.parallelize import parallelize
from mlinfra.training import fit

SAMPLES, BATCH, EPOCHS, EVERY, TOLERANCE = 23, 7, 3, 3, 1e-9  # four batches an epoch


def data():
    made = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(SAMPLES, 6, generator=made, dtype=torch.float64),
                         torch.randint(0, 4, (SAMPLES,), generator=made))


class Stream(IterableDataset):
    "Shuffled at the beginning of an epoch, or a sample at a time."
    def __init__(self, lazy=False): self.lazy = lazy
    def __iter__(self):
        left = [*data()]
        if not self.lazy: random.shuffle(left)
        while left: yield left.pop(random.randrange(len(left)) if self.lazy else -1)


LOADERS = dict(own=lambda: DataLoader(data(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(3)),
               plain=lambda: DataLoader(data(), BATCH, shuffle=True), rows=lambda: BatchLoader(data(), BATCH, True),
               workers=lambda: DataLoader(data(), BATCH, shuffle=True, num_workers=1),
               stream=lambda: DataLoader(Stream(), BATCH), lazy=lambda: DataLoader(Stream(lazy=True), BATCH))


def network(drop=0.0):
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(drop), nn.Linear(8, 8), nn.GELU(),
                         nn.Linear(8, 4)).double()


def train(root, how="auto", kind="plain", cut=None, drop=0.0):
    "Losses of all ranks by epoch and batch, whole weights, and the step it went on from."
    torch.manual_seed(0), random.seed(0)
    model = network(drop)
    optimizer = torch.optim.AdamW(model.parameters(), 0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    keeper = None if root is None else LoopCheckpoints(root, EVERY, scheduler=scheduler)
    run = parallelize(model, LOADERS[kind](), how, optimizer, device="cpu", checkpoints=keeper)
    losses, (model, loader, optimizer), start, step = {}, run, keeper and keeper.resumed_from, 0
    for epoch in range(run.epoch, EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[len(losses)] = run.mean(loss)
            random.random(), random.random(), torch.rand(1)  # as a transform may draw
            step += 1
            if step == cut: return keeper.folder.wait()  # and the process ends, without close
        scheduler.step()
    weights = {name: tensor.clone() for name, tensor in run.state_dict().items()}
    run.close()
    return list(losses.values()), weights, start


def words(*args, **how):
    try: return train(*args, **how)
    except ValueError as error: return str(error)


def check_end(found, whole, start, atol=TOLERANCE):
    "A run that was gone on with from a step ends as one that was not cut off."
    losses, weights, begun = found
    assert begun == start and losses == pytest.approx(whole[0][start or 0:], abs=atol)
    for name, tensor in whole[1].items(): torch.testing.assert_close(weights[name], tensor, rtol=0, atol=atol)


def on_ranks(many, calls): return run_ranks(call_each, many, calls, share_cores=True, timeout_seconds=120)


# who saves -> who goes on; every strategy on both sides, loaders of every kind
PATHS = [("ddp", "plain", 2, "fsdp"), ("fsdp", "own", 2, "pipeline"), ("pipeline", "rows", 2, "tensor"),
         ("tensor", "plain", 2, "ddp"), ("ddp", "workers", 2, "ddp"), ("ddp", "stream", 2, "ddp"),
         ("fsdp", "rows", 2, "fsdp")]


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory):
    "Runs that two ranks have begun, each in a folder of its own."
    roots = [str(tmp_path_factory.mktemp("run") / "checkpoints") for _ in PATHS]
    on_ranks(2, [(train, root, how, kind, cut) for root, (how, kind, *_), cut in zip(roots, PATHS, [8, 7] * 4)])
    for root in roots: assert max(step_folders(root)) == 6, "within the second epoch"
    return roots


def copies(roots, folder):
    return [shutil.copytree(root, folder / str(i)) for i, root in enumerate(roots)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_run_of_two_ranks_goes_on_on_any_number(ranks, cut_off, tmp_path):
    paths = PATHS[:2] + PATHS[5:] if ranks == 3 else PATHS
    roots = [root for root, path in zip(copies(cut_off, tmp_path), PATHS) if path in paths]
    calls = [(train, str(root), how, kind) for root, (_, kind, _, how) in zip(roots, paths)]
    found = [[train(*args) for _, *args in calls]] if ranks == 1 else on_ranks(ranks, calls).values()
    for of_rank in found:
        for result, (_, kind, *_) in zip(of_rank, paths): check_end(result, train(None, kind=kind), 6)


def test_one_process_goes_on_with_itself_to_the_bit(tmp_path):
    for drop, kind in ((0.5, "own"), (0.0, "workers"), (0.5, "stream")):
        whole, root = train(None, kind=kind, drop=drop), tmp_path / kind
        for cut in (4, 5):  # steps, counted anew
            assert run_ranks(call_each, 1, [(train, str(root), "ddp", kind, cut, drop)]) is not None
        found = train(str(root), kind=kind, drop=drop)
        assert found[2] and found[0] == whole[0][found[2]:]
        for name, tensor in whole[1].items(): assert torch.equal(found[1][name], tensor)
        again = train(str(root), kind=kind, drop=drop)
        assert again[0] == [] and again[2] == 12, "an ended run has nothing left to do"


def lazily(root, cut): return words(root, kind="lazy", how="ddp", cut=cut)


def test_what_cannot_go_on_is_refused_in_a_sentence(cut_off, tmp_path):
    first, *_ = copies(cut_off, tmp_path)
    def refused(**how):
        model = how.pop("model", nn.Sequential(nn.Linear(6, 4)))
        optimizer = how.pop("optimizer", torch.optim.AdamW)(model.parameters(), 0.1)
        with pytest.raises((ValueError, TypeError)) as caught:
            parallelize(model, LOADERS["plain"](), optimizer=optimizer, checkpoints=LoopCheckpoints(first, **how))
        return str(caught.value)
    assert "saved with the parts scheduler, and here are none" in refused()
    same = dict(scheduler=torch.optim.lr_scheduler.ExponentialLR(torch.optim.SGD([torch.ones(1)], 0.1), 0.9))
    assert "the model has changed since step 6" in refused(**same)
    assert "must have state_dict and load_state_dict, got int" in refused(epoch=3)
    adam = dict(model=network(), optimizer=torch.optim.Adam)
    assert "with the optimizer AdamW, and this run has Adam" in refused(**adam, **same)
    with pytest.raises(ValueError, match="pass optimizer="):
        parallelize(network(), LOADERS["plain"](), checkpoints=LoopCheckpoints(first, **same))
    check_end(train(str(first)), train(None), 6)  # none of them has kept the lock


def test_a_stream_that_gives_other_samples_is_refused(tmp_path):
    root = str(tmp_path / "checkpoints")
    on_ranks(2, [(lazily, root, 8)])
    for (said,) in on_ranks(2, [(lazily, root, None)]).values():
        assert "Stream gives other samples when it is read" in said


def test_damage_and_a_second_run_are_noticed(cut_off, tmp_path):
    first, second, *_ = copies(cut_off, tmp_path)
    (Path(first) / "step-00000006" / "state.json").write_text("{")
    check_end(train(str(first)), train(None), 3)
    keeper = LoopCheckpoints(second)
    keeper.folder.open()
    with pytest.raises(OSError, match="saves its checkpoints into"): train(str(second))
    keeper.folder.release()


def test_what_a_loop_would_lose_is_said(tmp_path):
    torch.manual_seed(0)
    def begun(shuffle=True):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 0.05)
        torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        loader = DataLoader(data(), BATCH, shuffle)
        keeper = LoopCheckpoints(tmp_path, EVERY)
        return parallelize(model, loader, optimizer=optimizer, device="cpu", checkpoints=keeper), keeper
    def left_at(run, cut):
        model, loader, optimizer = run
        for n, (x, y) in enumerate(loader):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if n == cut: break
    with pytest.warns(UserWarning, match="a learning-rate scheduler of the optimizer is not among the parts"):
        run, keeper = begun()
    left_at(run, 9)
    left_at(run, 1)
    with pytest.warns(UserWarning, match="epoch 1 was left after 2 batches, and a loop that goes on begins the next"):
        run.close()
    run, keeper = begun(shuffle=False)
    left_at(run, 9)
    assert [words for words in keeper.remarks if "order RandomSampler -> SequentialSampler" in words]
    run.close()
    with pytest.raises(ValueError, match="holds checkpoints of a loop, not of fit: give another folder"):
        fit(network(), data(), observers=[Checkpointer(tmp_path)], progress=False, device="cpu")


def test_a_loop_finds_the_state_of_parameters_in_another_order(tmp_path):
    def steps(root, turned, cut=None):
        torch.manual_seed(0)
        model = network()
        optimizer = torch.optim.AdamW([*model.parameters()][::-1 if turned else 1], 0.05)
        keeper = LoopCheckpoints(root, 1)
        run = parallelize(model, LOADERS["plain"](), optimizer=optimizer, device="cpu", checkpoints=keeper)
        for n, (x, y) in enumerate(run.loader):
            optimizer.zero_grad()
            F.cross_entropy(run.model(x), y).backward()
            if n == cut: return keeper.folder.wait(), keeper.folder.release()
            optimizer.step()
        run.close()
        return run.state_dict()
    whole = steps(tmp_path / "whole", False)
    steps(tmp_path / "cut", False, cut=2)
    again = steps(tmp_path / "cut", True)
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


class Slow(torch.optim.SGD):
    "Calls the step of another class, whose hooks are called within it."
    def step(self, closure=None):
        self.count = getattr(self, "count", 0) + 1
        self.param_groups[0]["lr"] = 0.1 / self.count
        return super().step(closure)


class Remembers(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.double()
        self.calls, self.past, self.drawn = 0, torch.zeros(4), random.Random(3)
        self[0].register_forward_hook(self.scaled)

    def scaled(self, layer, inputs, outputs):
        self.calls += 1
        return outputs * (1 + self.calls % 5)

    def forward(self, x):
        outputs = super().forward(x) + self.drawn.random() - self.past
        self.past = outputs.detach().mean(0)
        return outputs


def test_a_loop_goes_on_with_what_the_model_and_its_hooks_hold(tmp_path):
    def losses(root, cut=None):
        torch.manual_seed(0)
        model, found = Remembers(), []
        model[0].requires_grad_(False)
        keeper = LoopCheckpoints(root, EVERY)
        optimizer = Slow(model[2].parameters(), 0.1)
        run = parallelize(model, LOADERS["plain"](), optimizer=optimizer, device="cpu", checkpoints=keeper)
        for _epoch in range(run.epoch, EPOCHS):
            for x, y in run.loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if keeper.step == 2:
                    model[0].requires_grad_(True)
                    optimizer.add_param_group(dict(params=[*model[0].parameters()], lr=0.01))
                found.append(loss.item())
                if len(found) == cut: return keeper.folder.wait(), keeper.folder.release()
        run.close()
        return keeper.resumed_from, found
    _, whole = losses(tmp_path / "whole")
    losses(tmp_path / "cut", cut=7)
    with pytest.warns(UserWarning, match="1 group that the saved loop had added: add none twice"):
        assert losses(tmp_path / "cut") == (6, whole[6:])
