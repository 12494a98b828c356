"""parallelize on data sets without numbers: read by rank 0, or divided by themselves with uneven ends."""
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from mlinfra.engine.dist.process_group import rank_and_world_size
from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.parallel.parallelize import parallelize

SAMPLES, BATCH, TOLERANCE = 23, 7, 1e-12
ENDS = 14, 9  # samples of a rank that has more than another


def rows(many=SAMPLES):
    made = torch.Generator().manual_seed(0)
    x = torch.randn(many, 6, generator=made, dtype=torch.float64)
    return [*zip(x, torch.randint(0, 4, (many,), generator=made))]


class Stream(IterableDataset):
    "Shuffled by Python's global generator, anew in each epoch; in batches if a size is given."
    def __init__(self, size=None): self.size = size

    def __iter__(self):
        found = rows()
        random.shuffle(found)
        if self.size is None: yield from found
        for i in range(0, SAMPLES, self.size or SAMPLES + 1):
            if self.size: yield tuple(map(torch.stack, zip(*found[i:i + self.size])))


class Parted(IterableDataset):
    "Looks up its rank, as streams of several libraries do, and gives that part only."
    def __iter__(self): return iter(part(*rank_and_world_size()))


class Once(IterableDataset):
    "Can be read once and not be copied, as a socket."
    def __init__(self): self.rows = iter(rows())
    def __iter__(self): return self.rows
    def __reduce__(self): raise TypeError("cannot be copied")


def part(rank, ranks):
    begin = sum(ENDS[:rank])
    return rows()[begin:begin + ENDS[rank]] if ranks > 1 else rows()


LOADERS = dict(samples=lambda: DataLoader(Stream(), BATCH), rows=lambda: DataLoader(Stream(BATCH), None),
               workers=lambda: DataLoader(Stream(), BATCH, num_workers=1), once=lambda: DataLoader(Once(), BATCH))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)).double()


def train(kind, how, accumulation=1, epochs=2):
    "Losses of all ranks and whole weights; the leftover of an epoch makes a step, too."
    random.seed(5)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    run = parallelize(model, LOADERS[kind](), how, optimizer, device="cpu", accumulation=accumulation)
    return [*steps(run, accumulation, epochs), random.random()]


def steps(run, accumulation=1, epochs=2):
    losses, (model, loader, optimizer) = [], run
    for _ in range(epochs):
        taken = 0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            (loss / accumulation).backward()
            losses.append(run.mean(loss))
            taken += 1
            if taken % accumulation: continue
            optimizer.step()
            optimizer.zero_grad()
        if taken % accumulation:
            optimizer.step()
            optimizer.zero_grad()
    return losses, {name: tensor.clone() for name, tensor in run.state_dict().items()}


def divided(kind, epochs=2, accumulation=1):
    "The same, each rank with a part of its own."
    model = network()
    if kind == "sampler":
        data = TensorDataset(*map(torch.stack, zip(*rows())))
        loader = DataLoader(data, 3, sampler=DistributedSampler(data, shuffle=False, drop_last=True))
    else: loader = DataLoader(Parted(), 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return steps(parallelize(model, loader, "ddp", optimizer, device="cpu", divided=True, accumulation=accumulation),
                 accumulation, epochs)


def by_hand(parts, epochs=2):
    "One process on batches that are made of those of the ranks."
    parts = [[part[i:i + 3] for i in range(0, len(part), 3)] for part in parts]
    batches = [[row for part in parts for row in part[i:i + 1] for row in row] for i in range(max(map(len, parts)))]
    model, losses = network(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for batch in batches * epochs:
        x, y = map(torch.stack, zip(*batch))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def words_of(make):
    model = network()
    loader, more = make()
    try: steps(parallelize(model, loader, device="cpu", optimizer=torch.optim.SGD(model.parameters(), 0.1), **more))
    except (ValueError, TypeError, RuntimeError) as error: return str(error)
    return "nothing was refused"


def parted_untold(): return DataLoader(Parted(), 3), dict(how="ddp")
def nobody_has_any():
    return DataLoader(Empty() if rank_and_world_size()[0] else Parted(), 3), dict(how="ddp", divided=True)
def divided_map(): return DataLoader(rows(), 3), dict(how="ddp", divided=True)
def divided_pipeline(): return DataLoader(Parted(), 3), dict(how="pipeline", divided=True)
def uncopied_pipeline(): return DataLoader(Once(), 3), dict(how="pipeline")
def words_in_rows(): return DataLoader(Words(), None), dict(how="ddp")


class Empty(IterableDataset):
    def __iter__(self): return iter(())


class Words(IterableDataset):
    def __iter__(self): return iter([(torch.ones(2, 6), ["a", "b"])])


CASES = [(kind, how, 1) for kind in ("samples", "rows") for how in ("auto", "ddp", "fsdp", "pipeline", "tensor")]
CASES += [("samples", how, 3) for how in ("ddp", "fsdp", "pipeline")] + [("workers", "ddp", 1), ("once", "ddp", 1)]
REFUSED = {parted_untold: "Parted gives rank 1 other samples than rank 0. If it divides itself",
           nobody_has_any: "1 rank has no batch at all", divided_map: "its sampler is a SequentialSampler",
           divided_pipeline: "in a pipeline and in tensor parallelism all ranks need the same",
           uncopied_pipeline: "Once cannot be copied", words_in_rows: "has a str in it"}


@pytest.fixture(scope="module")
def two():
    calls = [(train, *case) for case in CASES] + [(divided, "stream"), (divided, "sampler"), (divided, "stream", 2, 2)]
    calls += [(words_of, case) for case in REFUSED]
    return run_ranks(call_each, 2, calls, share_cores=True, timeout_seconds=120)


def check_equal(found, one):
    assert found[0] == pytest.approx(one[0], abs=TOLERANCE)
    for name, tensor in one[1].items(): torch.testing.assert_close(found[1][name], tensor, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: ", ".join(map(str, case)))
def test_a_stream_on_two_ranks_is_one_process(case, two):
    one = train(case[0], *case[1:])
    for rank in (0, 1): check_equal(two[rank][CASES.index(case)], one)
    assert two[0][CASES.index(case)][2] == one[2], "rank 0 draws what one process draws"


def test_parts_that_end_at_different_times_are_their_sum(two):
    one = by_hand([part(0, 2), part(1, 2)])
    for rank in (0, 1): check_equal(two[rank][len(CASES)], one)
    assert len(one[0]) == 2 * 5, "the longer part has five batches"
    both = [rows()[rank:SAMPLES - 1:2] for rank in (0, 1)]
    for rank in (0, 1): check_equal(two[rank][len(CASES) + 1], by_hand(both))
    assert two[0][len(CASES) + 2][0] == two[1][len(CASES) + 2][0], "with two batches a step, too"


def test_what_cannot_be_divided_is_refused_on_every_rank(two):
    for rank in (0, 1):
        for says, words in zip(REFUSED.values(), two[rank][len(CASES) + 3:]): assert says in words
