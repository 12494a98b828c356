"""parallelize: each strategy against one process, from a plain script to many ranks; and what it refuses."""
import difflib
import gc
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from copies import PYTHON
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.data import BatchLoader
from mlinfra.engine.dist.collectives import CollectiveLog
from mlinfra.engine.parallel.parallelize import parallelize
from mlinfra.engine.dist.process_group import rank_and_world_size
from mlinfra.engine.dist.ranks import RankError, call_each, run_ranks
from mlinfra.lab.rendezvous import run_together
from parallel_loops import difference, loops, outcome

SCRIPTS = Path(__file__).parent / "bench" / "scripts"
EPSILON = torch.finfo(torch.float64).eps
SAMPLES, BATCH = 23, 7  # batches of 7, 7, 7 and 2: shares are uneven, and of the last a third rank has nothing


# ---- a training that every rank can run, and one process too

def chain_of_layers():
    "In float64: a difference is a mistake, not rounding. Without a norm, so that shares do not matter."
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)).double()


def samples(seed=0):
    made = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, 6, generator=made, dtype=torch.float64)
    return TensorDataset(inputs, torch.randint(0, 4, (SAMPLES,), generator=made))


def loader_of(kind):
    if kind == "BatchLoader": return BatchLoader(samples(), BATCH, shuffle=True, seed=3)
    workers = 1 if kind == "workers" else 0
    return DataLoader(samples(), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


def train(how, kind="DataLoader", accumulation=1, optimizer="adam", max_norm=None, save=None, epochs=2):
    "What the plain loop does: losses of all samples, the evaluation, whole weights, norms, collectives of each batch."
    torch.manual_seed(rank_and_world_size()[0] if how in ("ddp", "fsdp") else 0)  # weights of rank 0 are everybody's
    model, loader = chain_of_layers(), loader_of(kind)
    make = dict(adam=torch.optim.AdamW, sgd=torch.optim.SGD)[optimizer]
    made = make(model.parameters(), 0.05)
    run = parallelize(model, loader, how, made, accumulation=accumulation, device="cpu")
    model, loader, optimizer = run
    losses, norms, sent = [], [], []
    for _ in range(epochs):
        for i, (x, y) in enumerate(loader):
            with CollectiveLog() as log:
                loss = nn.functional.cross_entropy(model(x), y)
                (loss / accumulation).backward()
            sent.append(dict(log.counts))
            losses.append(run.mean(loss))
            if (i + 1) % accumulation and i + 1 < len(loader): continue
            if max_norm is not None: norms.append(run.clip(max_norm))
            optimizer.step()
            optimizer.zero_grad()
    assert run.mean(loss) == losses[-1], "after the epoch, too"
    right = run.evaluate(BatchLoader(samples(1), BATCH))
    valid = run.evaluate(DataLoader(samples(1), 7), nn.functional.cross_entropy)
    if save is not None: run.save(save)
    weights = {name: tensor.numpy() for name, tensor in run.state_dict().items()}
    return dict(losses=losses, right=right, valid=valid, weights=weights, norms=norms, sent=sent)


def check_equal(found, one):
    """Sums of a few dozen numbers are rounded anew in each step, so gradients differ by 100 epsilon. Adam divides them
    by at least its own eps, 1e-8, and moves by its rate of 0.05: at most 1.1e-7 a step, in eight steps."""
    tolerance = dict(rtol=0, atol=8 * 0.05 * 100 * EPSILON / 1e-8)
    for name in ("losses", "valid", "norms"): np.testing.assert_allclose(found[name], one[name], **tolerance)
    assert found["right"] == one["right"] and list(found["weights"]) == list(one["weights"])
    for name, values in one["weights"].items(): np.testing.assert_allclose(found["weights"][name], values, **tolerance)


def on_ranks(world_size, *calls): return run_ranks(call_each, world_size, calls, share_cores=True, timeout_seconds=120)


CASES = [(how, *rest) for how in ("ddp", "fsdp", "pipeline", "tensor")
         for rest in ((), ("BatchLoader", 1, "sgd", 0.05), ("DataLoader", 3, "adam", 0.05))]


@pytest.fixture(scope="module")
def two():
    "All cases on two ranks, started once: case -> what rank 0 and rank 1 found."
    found = on_ranks(2, *((train, *case) for case in CASES))
    return {case: [found[rank][i] for rank in (0, 1)] for i, case in enumerate(CASES)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: ", ".join(map(str, case)))
def test_two_ranks_are_one_process(case, two):
    one = train("auto", *case[1:])
    for found in two[case]: check_equal(found, one)
    assert two[case][0]["losses"] == two[case][1]["losses"], "every rank is told the same"


def test_three_ranks_are_one_process():
    calls = [(train, how) for how in ("ddp", "fsdp", "pipeline")]
    found, one = on_ranks(3, *calls), train("auto")
    for rank in range(3):
        for result in found[rank]: check_equal(result, one)


def test_workers_and_saved_weights(tmp_path):
    hows = "ddp", "fsdp", "pipeline"
    calls = [(train, how, "workers", 1, "adam", None, str(tmp_path / f"{how}.pt")) for how in hows]
    found, one = on_ranks(2, *calls), train("auto", "workers")
    for how, result in zip(hows, found[0]):
        check_equal(result, one)
        plain = chain_of_layers()
        plain.load_state_dict(torch.load(tmp_path / f"{how}.pt"))
        for name, tensor in plain.state_dict().items(): assert np.array_equal(tensor.numpy(), result["weights"][name])
    assert sorted(path.stem for path in tmp_path.iterdir()) == [*hows], "nothing half written"


def ddp_averages(accumulation):
    "How often gradients are averaged in an epoch."
    from mlinfra.engine.dist.gradient_average import GradientAverage
    seen, average = [], GradientAverage.average
    def counted(self):
        seen.append(self)
        average(self)
    GradientAverage.average = counted
    try: train("ddp", accumulation=accumulation, epochs=1)
    finally: GradientAverage.average = average
    return len(seen)


def test_ddp_averages_once_a_step(several):
    assert several[0][:2] == [4, 2]


def rng_of_ranks():
    run = parallelize(chain_of_layers(), loader_of("DataLoader"), "ddp")
    return torch.rand(1).item(), run.is_main, run.rank


def auto():
    torch.manual_seed(0)
    model = chain_of_layers()
    run = parallelize(model, loader_of("DataLoader"), optimizer=torch.optim.SGD(model.parameters(), 0.1))
    for x, y in run.loader:
        nn.functional.cross_entropy(run.model(x), y).backward()
        run.optimizer.step(), run.optimizer.zero_grad()
    report = run.report()
    return run.how, run.why, report.predicted_seconds, report.measured_seconds, report.steps, str(report)


def test_auto_chooses_and_says_why(several):
    found = {rank: several[rank][2:4] for rank in (0, 1)}
    for rank in (0, 1):
        how, why, predicted, measured, steps, said = found[rank][0]
        assert how in ("ddp", "fsdp")
        assert re.match(rf"Does it fit\? .* What is sent\? .* How long\? .* So it is {how}", why)
        assert predicted > 0 and measured > 0 and steps == 2 and "was predicted to take" in said
    assert found[0][0] == found[1][0], "the ranks agree"
    assert found[0][1][0] != found[1][1][0] and [found[rank][1][1] for rank in (0, 1)] == [True, False]


# ---- what is refused, in a sentence

def refused(case):
    rank, model, loader = rank_and_world_size()[0], chain_of_layers(), loader_of("DataLoader")
    if case == "another model": model = nn.Sequential(nn.Linear(6, 8 + rank))
    if case == "another loader": loader = DataLoader(samples(), BATCH + rank)
    if case == "small batch": loader = DataLoader(samples(), 1)
    if case == "no chain": model = nn.TransformerEncoderLayer(6, 2)
    if case in ("too short a chain", "no plan"): model = nn.Sequential(nn.Linear(6, 4))
    if case == "no GPU": return parallelize(model, loader, "ddp", device="cuda")
    how = {"no chain": "pipeline", "too short a chain": "pipeline", "no plan": "tensor"}.get(case, "ddp")
    made = torch.optim.SGD(model.parameters(), 0.1)
    parallelize(model, loader, how, made)


def words_of(case):
    try: refused(case)
    except (ValueError, TypeError) as error: return str(error)


REFUSED = {"another model": "rank 1 has another model than rank 0: 0.weight is (9, 6) there and 0.weight is (8, 6)",
           "another loader": "rank 1 has batch_size=8, rank 0 has batch_size=7: all must run the same",
           "small batch": "batch_size must be at least the 2 ranks that divide each batch, got 1",
           "no chain": "write it as an nn.Sequential", "too short a chain": "can be cut into 1 piece with parameters",
           "no plan": "no known way to divide the layers of Sequential among 2 ranks"}
if not torch.cuda.is_available(): REFUSED["no GPU"] = "device cuda was asked for, but PyTorch sees no GPU"


@pytest.fixture(scope="module")
def several():
    "Small things that two ranks do, started once."
    small = (ddp_averages, 1), (ddp_averages, 3), (auto,), (rng_of_ranks,)
    return on_ranks(2, *small, *((words_of, case) for case in REFUSED))


def test_what_cannot_be_is_refused_on_every_rank(several):
    found = {rank: several[rank][4:] for rank in (0, 1)}
    for i, (case, words) in enumerate(REFUSED.items()):
        for rank in (0, 1): assert words in (found[rank][i] or "accepted"), f"{case}, rank {rank}: {found[rank][i]}"


def early_step():
    "A step in the middle of an accumulation."
    model = chain_of_layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = parallelize(model, loader_of("DataLoader"), "ddp", optimizer, accumulation=2)
    for x, y in run.loader:
        nn.functional.cross_entropy(run.model(x), y).backward()
        optimizer.step()


def test_a_step_with_gradients_of_one_rank_is_refused():
    with pytest.raises(RankError, match="after 1 of 2 micro-batches: their gradients are still on their ranks"):
        run_ranks(early_step, 2, share_cores=True)


def loop_let_go_in_a_step():
    "A loop that nobody has any more, which the garbage collector finds while an optimizer goes through its hooks."
    runs = [parallelize(chain_of_layers(), loader_of("DataLoader"), "ddp")]
    def collect(*_step):
        runs.clear()
        gc.collect()
    handle = register_optimizer_step_pre_hook(collect)
    try: return train("ddp", epochs=1) and len(runs)
    finally: handle.remove()


def test_a_loop_may_be_let_go_in_a_step_of_another():
    assert run_ranks(loop_let_go_in_a_step, 2, share_cores=True) == {0: 0, 1: 0}


# ---- loops of all kinds

def test_every_loop_is_one_process_or_refused():
    """Each loop that runs in one process gives the same losses and weights on two ranks, or is refused in a sentence.
    In float64, where what is rounded differently grows by Adam's 1 / 1e-8 at most (see `check_equal`)."""
    drawn = [loop for loop in loops(seed=2, many=300)]
    alone = [outcome(replace(loop, how="auto")) for loop in drawn]
    runs = [loop for loop, one in zip(drawn, alone) if not isinstance(one, str)]
    found = on_ranks(2, *((outcome, loop) for loop in runs))
    alone, wrong, equal = [one for one in alone if not isinstance(one, str)], [], Counter()
    for loop, one, *ranks in zip(runs, alone, found[0], found[1]):
        if refusals := [words for words in ranks if isinstance(words, str)]:
            if "FAULT" in refusals[0] or len(refusals) == 1: wrong.append(f"{loop}: {ranks}")
        elif max(difference(one, other) for other in ranks) > 1e-6: wrong.append(str(loop))
        else: equal[loop.how] += 1
    assert not wrong, "\n".join(wrong)
    assert equal["ddp"] > 50 and equal["fsdp"] > 40 and equal["pipeline"] > 20 and equal["tensor"] > 10, equal


# ---- what a loop must say

def contrast(how):
    "Each sample against all others of the batch; shares of 4 and 3, and of 1 and 1."
    torch.manual_seed(0)
    model = chain_of_layers()
    run = parallelize(model, loader_of("DataLoader"), how, torch.optim.SGD(model.parameters(), 0.5), device="cpu")
    losses = []
    for x, y in run.loader:
        scores, classes = run.gather(run.model(x)), run.gather(y)
        same = (classes[:, None] == classes).double()
        loss = nn.functional.binary_cross_entropy_with_logits(scores @ scores.T, same)
        loss.backward()
        losses.append(run.mean(loss))
        run.optimizer.step(), run.optimizer.zero_grad()
    run.close()
    return losses, run.state_dict()


def masked(how):
    "A mean over a mask, which only the loop knows."
    torch.manual_seed(0)
    model = chain_of_layers()
    run = parallelize(model, loader_of("DataLoader"), how, torch.optim.SGD(model.parameters(), 0.5), device="cpu",
                      weight=lambda batch: (batch[1] > 0).sum())
    losses = []
    for x, y in run.loader:
        each, mask = nn.functional.cross_entropy(run.model(x), y, reduction="none"), y > 0
        loss = (each * mask).sum() / mask.sum().clamp(min=1)
        loss.backward()
        losses.append(run.mean(loss))
        run.optimizer.step(), run.optimizer.zero_grad()
    run.close()
    return losses, run.state_dict()


def test_a_loss_of_the_whole_batch_and_a_mean_over_a_mask():
    cases = [(loop, how) for loop in (contrast, masked) for how in ("ddp", "fsdp")]
    found = on_ranks(2, *cases)
    for i, (loop, _how) in enumerate(cases):
        one = loop("auto")
        for rank in (0, 1): assert difference(one, found[rank][i]) < 1e-12


# ---- the script

def started(script, folder, *torchrun):
    "Run a script in its folder, in a copy of a process that has PyTorch; torchrun starts its ranks so too."
    launcher = ["-m", "torch.distributed.run", "--standalone", *torchrun] if torchrun else []
    cable = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    env = cable | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1", "PYTHON_EXEC": PYTHON}
    (told,) = run_together([[sys.executable, *launcher, str(script)]], folder=folder, environment=env, forked=True,
                           timeout_seconds=120)
    assert told.code == 0, told.output
    return told.output, torch.load(folder / "model.pt")


def test_the_script_runs_alone_and_on_two_ranks(tmp_path):
    plain, ours = SCRIPTS / "plain.py", SCRIPTS / "with_parallelize.py"
    old, new = (path.read_text().splitlines()[1:] for path in (plain, ours))
    changed = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
    assert len(changed) == 2, "the import and the call; the third is how it is started"
    folders = [tmp_path / name for name in ("plain", "alone", "two")]
    for folder in folders: folder.mkdir()
    (said, weights), (alone, same) = started(plain, folders[0]), started(ours, folders[1])
    assert said == alone and all(torch.equal(same[name], tensor) for name, tensor in weights.items()), "bit for bit"
    told, close = started(ours, folders[2], "--nproc_per_node", "2")
    assert told.count("epoch 1") == 1 and list(close) == list(weights), "rank 0 speaks for all"
    for name, tensor in weights.items():  # float32, 34 steps, each sum rounded anew
        torch.testing.assert_close(close[name], tensor, rtol=0, atol=34 * torch.finfo(torch.float32).eps)


FAILING = """
import os, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
from mlinfra.engine.parallel.parallelize import parallelize
run = parallelize(torch.nn.Linear(2, 2), DataLoader(TensorDataset(torch.rand(8, 2)), 4), "ddp")
if run.rank == 1: raise KeyError("rank 1 has lost its way")
for x, in run.loader: run.model(x).sum().backward()
"""


def test_a_rank_that_fails_does_not_keep_the_others(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    with pytest.raises(AssertionError, match="rank 1 has lost its way"):
        started(tmp_path / "failing.py", tmp_path, "--nproc_per_node", "2")
