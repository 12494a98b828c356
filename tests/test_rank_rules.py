"""Faults between ranks: each is found within 100 steps, its cause is named, and its healthy twin is silent.

All trainings run in two processes that are forked once for this file."""
import re
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from mlinfra.engine.dist.process_group import process_group, rank_and_world_size
from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.parallel.parallelize import parallelize
from mlinfra.engine.preflight.checked_rank import rank_findings
from mlinfra.engine.record.run_folder import Run
from mlinfra.engine.record.watch import watch
from mlinfra.engine.rules.default_rules import LOOP_RULES, RANK_RULES, TENSOR_RULES
from mlinfra.engine.rules.inspection import Inspector
from mlinfra.engine.rules.loss_rules import StalledTraining
from mlinfra.engine.rules.rank_history import rules_told


def samples(n=1280):
    make = torch.Generator().manual_seed(0)
    x = torch.randn(n, 20, generator=make)
    return x, x[:, :5].argmax(1)


def net(*more, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 16), *more, nn.ReLU(), nn.Linear(16, 5))


def batches(rank, size=8, n=1280, world=2):
    x, y = samples(n)
    return list(zip(x[rank::world].split(size), y[rank::world].split(size)))


def average(model):
    for p in model.parameters():
        if p.grad is None: continue
        dist.all_reduce(p.grad)
        p.grad /= 2


def train(folder, rank, model, optimizer, loader=None, *, epochs=1, given=None, forward=None, between=None, after=None,
          begin=None, context=nullcontext, size=8):
    "A loop under watch; what this rank found, and the steps at which."
    inspector, i, loader = Inspector([r() for r in TENSOR_RULES + LOOP_RULES + RANK_RULES]), 0, loader or batches(rank)
    with watch(folder, given or model, optimizer, rules=[inspector]) as w:
        for epoch in range(epochs):
            if begin: begin(epoch)
            with context():
                for x, y in w(loader):
                    optimizer.zero_grad()
                    loss = F.cross_entropy((forward or model)(x), y)
                    loss.backward()
                    if between: between(i)
                    optimizer.step()
                    if after: after(i)
                    w.loss(loss)
                    i += 1
    assert not inspector.remarks, inspector.remarks
    return [(f.rule, f.step, f.message) for f in inspector.findings]


def sgd(model, lr=0.05, **how): return torch.optim.SGD(model.parameters(), lr, **how)


# ---- each case: (folder, rank, fault) -> what was found; with fault=False it is the healthy twin

def clipped_on_one_rank(folder, rank, fault):
    model = net()
    def between(i):
        average(model)
        if rank == 0 or not fault: nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    return train(folder, rank, model, torch.optim.AdamW(model.parameters(), 1e-3), between=between)


def moved_after_wrapping(folder, rank, fault):
    ddp = DDP(net())
    if fault: ddp.double().float()
    return train(folder, rank, ddp, sgd(ddp))


def past_the_wrapper(folder, rank, fault):
    ddp = DDP(net())
    return train(folder, rank, ddp, sgd(ddp), forward=ddp.module if fault else ddp)


def past_a_wrapper_that_watch_does_not_know(folder, rank, fault):
    ddp = DDP(net())
    return train(folder, rank, ddp, sgd(ddp), given=ddp.module, forward=ddp.module if fault else ddp)


def lost_reduction(folder, rank, fault):
    "Once, in step 61, between two looks."
    model = net()
    def between(i):
        average(model)
        if fault and rank == 1 and i == 61: model[2].weight.grad.zero_()
    return train(folder, rank, model, sgd(model), between=between, epochs=2)


def lost_reduction_early(folder, rank, fault):
    model = net()
    def between(i):
        average(model)
        if fault and rank == 1 and i == 5: model[2].weight.grad.zero_()
    return train(folder, rank, model, sgd(model), between=between)


def never_averaged(folder, rank, fault):
    model = net()
    return train(folder, rank, model, sgd(model), between=lambda i: fault or average(model))


def another_seed(folder, rank, fault):
    model = net(seed=rank if fault else 0)
    return train(folder, rank, model, sgd(model), between=lambda i: average(model))


def loaded_on_rank_0(folder, rank, fault):
    ddp = DDP(net())
    if rank == 0 or not fault: ddp.module.load_state_dict(net(seed=3).state_dict())
    return train(folder, rank, ddp, sgd(ddp))


def layer_added_after_wrapping(folder, rank, fault):
    model = net()
    if fault: ddp = DDP(model)
    model.append(nn.Linear(5, 5))
    if not fault: ddp = DDP(model)
    return train(folder, rank, ddp, sgd(ddp))


def rate_of_its_own(folder, rank, fault):
    ddp = DDP(net())
    return train(folder, rank, ddp, sgd(ddp, 0.05 * (1 + rank) if fault else 0.05))


def scaled_on_one_rank(folder, rank, fault):
    model = net()
    def between(i):
        average(model)
        if fault and rank == 1 and i > 30:
            for p in model.parameters(): p.grad += p.grad
    return train(folder, rank, model, sgd(model), between=between, epochs=2)


def step_left_out(folder, rank, fault):
    ddp = DDP(net())
    optimizer, inspector = sgd(ddp), Inspector([r() for r in TENSOR_RULES + LOOP_RULES + RANK_RULES])
    with watch(folder, ddp, optimizer, rules=[inspector]) as w:
        for i, (x, y) in enumerate(w(batches(rank))):
            optimizer.zero_grad()
            F.cross_entropy(ddp(x), y).backward()
            if not (fault and rank == 1 and i == 7): optimizer.step()
    return [(f.rule, f.step, f.message) for f in inspector.findings]


def two_passes_on_one_rank(folder, rank, fault):
    model = net()
    def between(i): average(model)
    def forward(x):
        out = model(x)
        if fault and rank == 1: F.cross_entropy(out, out.detach().argmax(1)).backward(retain_graph=True)
        return out
    return train(folder, rank, model, sgd(model), between=between, forward=forward)


def random_features(folder, rank, fault):
    model = net()
    torch.manual_seed(rank if fault else 0)
    model.register_buffer("table", torch.randn(7))
    return train(folder, rank, model, sgd(model), between=lambda i: average(model))


def same_batches(folder, rank, fault):
    ddp = DDP(net())
    return train(folder, rank, ddp, sgd(ddp), batches(0 if fault else rank))


def no_sampler(folder, rank, fault):
    ddp, data = DDP(net()), TensorDataset(*samples(640))
    torch.manual_seed(0)
    sampler = None if fault else DistributedSampler(data)
    return train(folder, rank, ddp, sgd(ddp), DataLoader(data, 8, shuffle=fault, sampler=sampler))


def set_epoch_on_one_rank(folder, rank, fault):
    ddp, data = DDP(net()), TensorDataset(*samples(320))
    sampler = DistributedSampler(data)
    def begin(epoch):
        if not fault or rank == 0: sampler.set_epoch(epoch)
    return train(folder, rank, ddp, sgd(ddp), DataLoader(data, 8, sampler=sampler), epochs=3, begin=begin)


def uneven_loaders(folder, rank, fault):
    "The loop ends before the ranks would wait for each other."
    model, loader = net(), batches(rank)[:40 if rank == 0 else 23 if fault else 40]
    stop = 20
    def between(i): average(model) if i < stop else None
    optimizer = sgd(model)
    inspector = Inspector([r() for r in RANK_RULES])
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for i, (x, y) in enumerate(w(loader)):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            between(i)
            optimizer.step()
            if i == stop - 1: break
    return [(f.rule, f.step, f.message) for f in inspector.findings]


WORDS = dict(
    clipped_on_one_rank=r"differs from rank 0.*since the update of step 0.*times those of rank 0",
    moved_after_wrapping=r"differ at each update.*although DistributedDataParallel is called",
    past_the_wrapper=r"wraps the model is never called",
    past_a_wrapper_that_watch_does_not_know=r"wraps the model is never called",
    lost_reduction=r"between steps 50 and 63, in 2\.weight: .*a reduction that was lost",
    lost_reduction_early=r"since the update of step 5, in 2\.weight: .*gradients of rank 1 are zero in 2\.weight",
    never_averaged=r"differ at each update.*not averaged",
    another_seed=r"began with different weights",
    loaded_on_rank_0=r"makes weights equal only when it wraps",
    layer_added_after_wrapping=r"does not know these parameters",
    rate_of_its_own=r"lr is 0\.05 on rank 0 and 0\.1 on rank 1",
    scaled_on_one_rank=r"gradients of rank 1 are 2 times those of rank 0",
    step_left_out=r"rank 1 made no update in this step",
    two_passes_on_one_rank=r"backward passes, 1 on rank 0 and 2 on rank 1",
    random_features=r"not trained differs between them.*table",
    same_batches=r"ranks 0 and 1 train on the same batches",
    no_sampler=r"ranks 0 and 1 train on the same batches",
    set_epoch_on_one_rank=r"shuffle differently, their epoch is 1 on rank 0 and 0 on rank 1",
    uneven_loaders=r"40 on rank 0 and 23 on rank 1: after 23 of them rank 1",
)
BEGINS = dict(lost_reduction=61, lost_reduction_early=5, scaled_on_one_rank=31, step_left_out=7,
              set_epoch_on_one_rank=20)
NOT_IN_STEP = {   # no collective holds the ranks together: one may have ended before the other has written
    "never_averaged", "moved_after_wrapping", "past_the_wrapper", "past_a_wrapper_that_watch_does_not_know"}
SAID_ELSEWHERE = dict(set_epoch_on_one_rank={"SameOrderEachEpoch"})   # by rules of one process, on one of the ranks


# ---- healthy trainings

def batch_norm(folder, rank):
    ddp = DDP(net(nn.BatchNorm1d(16)))
    return train(folder, rank, ddp, sgd(ddp))


def batch_norm_without_broadcast(folder, rank):
    ddp = DDP(net(nn.BatchNorm1d(16)), broadcast_buffers=False)
    return train(folder, rank, ddp, sgd(ddp))


def accumulates(folder, rank):
    "Each second micro-batch is in no_sync: gradients differ in between."
    ddp = DDP(net())
    optimizer, inspector = sgd(ddp), Inspector([r() for r in TENSOR_RULES + LOOP_RULES + RANK_RULES])
    with watch(folder, ddp, optimizer, rules=[inspector]) as w:
        for i, (x, y) in enumerate(w(batches(rank))):
            last = i % 4 == 3
            with nullcontext() if last else ddp.no_sync(): (F.cross_entropy(ddp(x), y) / 4).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
    return [(f.rule, f.step, f.message) for f in inspector.findings]


def clipped_everywhere(folder, rank):
    ddp = DDP(net())
    return train(folder, rank, ddp, sgd(ddp), between=lambda i: nn.utils.clip_grad_norm_(ddp.parameters(), 0.1))


def frozen_and_unused(folder, rank):
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.spare = net(), nn.Linear(20, 5)
            self.body[0].requires_grad_(False)
            self.calls = 0
        def forward(self, x):
            self.calls += 1
            return self.body(x) + (self.spare(x) if (self.calls + rank) % 3 == 0 else 0)
    torch.manual_seed(0)
    ddp = DDP(Parts(), find_unused_parameters=True)
    return train(folder, rank, ddp, torch.optim.SGD([p for p in ddp.parameters() if p.requires_grad], 0.05))


def static_graph(folder, rank):
    ddp = DDP(net(), static_graph=True)
    return train(folder, rank, ddp, torch.optim.Adam(ddp.parameters(), 1e-3))


def sharded(folder, rank):
    from torch.distributed.fsdp import fully_shard
    model = net()
    for layer in (model[0], model[2]): fully_shard(layer)
    fully_shard(model)
    return train(folder, rank, model, torch.optim.AdamW(model.parameters(), 1e-3))


def joins(folder, rank):
    "Rank 1 has fewer batches, and Join stands in for it."
    ddp = DDP(net())
    loader = batches(rank)[:60 if rank == 0 else 40]
    return train(folder, rank, ddp, sgd(ddp), loader, epochs=3, context=ddp.join)


def local_sgd(folder, rank):
    model = net()
    def after(i):
        if i % 8 == 7:
            with torch.no_grad():
                for p in model.parameters():
                    dist.all_reduce(p)
                    p /= 2
    return train(folder, rank, model, sgd(model), after=after, epochs=2)


def two_models(folder, rank):
    "An ensemble, and pipelines, have no weights in common."
    model = net(seed=rank)
    return train(folder, rank, model, sgd(model))


def moving_average_on_rank_0(folder, rank):
    class Averaged(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.mean = nn.Parameter(torch.zeros(16, 20), requires_grad=False)
        def forward(self, x): return self.net(x)
    model = Averaged()
    def after(i):
        if rank == 0: model.mean.data.lerp_(model.net[0].weight.data, 0.1)
    return train(folder, rank, model, torch.optim.SGD(model.net.parameters(), 0.05), after=after,
                 between=lambda i: average(model))


def slices_of_one_batch(folder, rank):
    "The loader gives the global batch on each rank, and the loop takes its share."
    model = net()
    optimizer, inspector = sgd(model), Inspector([r() for r in RANK_RULES])
    with watch(folder, model, optimizer, rules=[inspector]) as w:
        for x, y in w(list(zip(*(part.split(16) for part in samples())))):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rank::2]), y[rank::2]).backward()
            average(model)
            optimizer.step()
    return [(f.rule, f.step, f.message) for f in inspector.findings]


def evaluates_on_rank_0(folder, rank):
    ddp = DDP(net())
    optimizer, inspector = sgd(ddp), Inspector([r() for r in TENSOR_RULES + LOOP_RULES + RANK_RULES])
    with watch(folder, ddp, optimizer, rules=[inspector]) as w:
        for epoch in range(4):
            for x, y in w(batches(rank, n=400)):
                optimizer.zero_grad()
                F.cross_entropy(ddp(x), y).backward()
                optimizer.step()
            if rank: continue
            ddp.eval()
            with w.evaluation(), torch.no_grad():
                for x, y in w([(x + 1, y) for x, y in batches(0, n=64)]): ddp.module(x)
            ddp.train()
    return [(f.rule, f.step, f.message) for f in inspector.findings]


def resumed(folder, rank):
    "The second attempt in a folder."
    ddp = DDP(net())
    optimizer = sgd(ddp, momentum=0.9)
    return train(folder, rank, ddp, optimizer) + train(folder, rank, ddp, optimizer, batches(rank)[::-1])


def parallelized(folder, rank):
    "Its own hooks on gradients, and ours, which it lets be."
    made = net()
    model, loader, optimizer = parallelize(made, DataLoader(TensorDataset(*samples(480)), 16), "ddp", sgd(made))
    return train(folder, rank, model, optimizer, loader)


FAULTS = [globals()[name] for name in WORDS]
HEALTHY = [batch_norm, batch_norm_without_broadcast, accumulates, clipped_everywhere, frozen_and_unused, static_graph,
           sharded, joins, local_sgd, two_models, moving_average_on_rank_0, slices_of_one_batch, evaluates_on_rank_0,
           resumed, parallelized]


def on_rank(case, folder, *fault):
    with process_group():
        rank = rank_and_world_size()[0]
        return case(folder, rank, *fault)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    "What was said of each training: live by each rank, and of its folder."
    root = tmp_path_factory.mktemp("ranks")
    cases = [(case, True) for case in FAULTS] + [(case, False) for case in FAULTS] + [(case,) for case in HEALTHY]
    cases += [(waiting, where) for where in PLACES]
    names = ["-".join(map(str, (case.__name__, *fault))) for case, *fault in cases]
    calls = [(on_rank, case, str(root / name), *fault) for name, (case, *fault) in zip(names, cases)]
    found = run_ranks(call_each, 2, calls, share_cores=True, timeout_seconds=240)
    return {name: ({rank: said[at] for rank, said in found.items()}, root / name) for at, name in enumerate(names)}


def read(folder):
    "What somebody finds who reads the folder."
    rules = rules_told(Run(folder), [rule() for rule in RANK_RULES])
    return [(f.rule, f.step, f.message) for rule in rules for f in rule.findings]


@pytest.mark.parametrize("case", WORDS)
def test_a_fault_between_ranks_is_found_and_its_cause_is_named(told, case):
    live, folder = told[f"{case}-True"]
    mine = [row for rows in live.values() for row in rows if re.search(WORDS[case], row[2])]
    later = read(folder)
    assert len(mine) == 1 or case in NOT_IN_STEP, live
    assert [row[0] for row in later if re.search(WORDS[case], row[2])] == [row[0] for row in later] != [], later
    assert all(row[1] - BEGINS.get(case, 0) <= 100 for row in mine + later)
    others = {row[0] for rows in live.values() for row in rows} - {later[0][0]} - SAID_ELSEWHERE.get(case, set())
    assert not others, live


@pytest.mark.parametrize("case", [f"{case}-False" for case in WORDS] + [case.__name__ for case in HEALTHY])
def test_nothing_is_said_of_a_healthy_training(told, case):
    live, folder = told[case]
    assert live == {0: [], 1: []}
    assert read(folder) == []


def test_a_check_compares_ranks_of_which_one_was_killed(told):
    "It wrote its part of the folder, and no result."
    _, folder = told["same_batches-True"]
    (found,) = rank_findings(folder, [SimpleNamespace(rank=0, world_size=2, places={})])
    assert found.rule == "SameBatchesOnRanks" and found.fault


# ---- ranks that wait

def until_told(folder):
    "Until rank 0 has said that it waits."
    while not any(event.rank == 0 for event in Run(folder).findings): time.sleep(0.05)


class Impatient(StalledTraining):
    "One long step, such as the first on a busy machine, does not keep a rank from telling where it stands."
    name, _longest = "StalledTraining", property(lambda self: 0.1, lambda self, seconds: None)


def waiting(folder, rank, where):
    "In step 9 rank 0 waits for a message of rank 1, which it sends when that has been said."
    model, message, inspector = net(), torch.zeros(1), Inspector([Impatient(1.0)])
    optimizer = sgd(model)
    def answer():
        until_told(folder)
        dist.send(message.clone(), 1 - rank)
    with watch(folder, model, optimizer, rules=[inspector], every_seconds=0.1) as w:
        for i, (x, y) in enumerate(w(batches(rank))):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if i < 9: continue
            if where == "ended" and rank == 1: break
            if where == "computes" and rank == 1: answer()
            if where == "other":
                helper = threading.Thread(target=answer)
                helper.start()
                if rank == 1: dist.recv(message, 0)
            if rank == 0: dist.recv(message, 1)
            if where == "other": helper.join()
            break
    if where == "ended" and rank == 1: answer()
    return [(f.rule, f.step, f.message) for f in inspector.findings]


PLACES = dict(
    ended=r"rank 0 waits at test_rank_rules\.py:\d+ in recv of step 9; rank 1 has ended after 10 steps; the others "
          r"wait for rank 1",
    computes=r"rank 0 waits at test_rank_rules\.py:\d+ in recv of step 9; rank 1 is at test_rank_rules\.py:\d+ of "
             r"step 9; the others wait for rank 1",
    other=r"rank 0 waits at .* in recv of step 9; rank 1 waits at .* in recv of step 9; they wait for each other in "
          r"different collectives")


@pytest.mark.parametrize("where", PLACES)
def test_it_is_said_which_rank_waits_where_and_for_which_one(told, where):
    live, _ = told[f"waiting-{where}"]
    (found,) = live[0]
    assert found[:2] == ("StalledTraining", 9) and re.search(PLACES[where], found[2]), found
