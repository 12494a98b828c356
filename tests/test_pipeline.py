"""Pipeline: the best cut against all cuts, schedules against their laws and formulas, real ranks against one
process."""
import itertools
import socket
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from mlinfra import pipeline
from mlinfra.data import BatchLoader
from mlinfra.engine.base import timing
from mlinfra.lab import pipeline_runs
from mlinfra.engine.pipeline.sequential_split import chain, check_untied
from mlinfra.engine.pipeline.layer_costs import profile_layers, stage_times
from mlinfra.lab.pipeline_runs import (
    PipelineExample, PipelineRun, PipelineTask, RankPart, SleepingLayer, blocks_example, gradient_error, manual_step,
    merge_parts, reference_gradients, build_task, run_pipelines, run_rank)
from mlinfra.engine.dist.rank_data import first_digits, train_digits
from mlinfra.engine.dist.process_group import rank_and_world_size
from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.train.saved_tensors import saved_bytes
from mlinfra.engine.pipeline.stages import OperationRecorder
from mlinfra.engine.pipeline.timeline import (
    BACKWARD, FORWARD, INPUTS, WEIGHTS, Operation, StageTimes, TimedOperation, Timeline, check_timeline)
from mlinfra.engine.train.transformer import Tokens
from mlinfra.models import BasicBlock, GluonCNN, count_parameters, resnet18, resnet50
from mlinfra.pipeline import SCHEDULES, SEVERAL_STAGES, bubble, partition, schedule, simulate_schedule
from mlinfra.training import evaluate, fit
from mlinfra.views import pipeline as view
from mlinfra.views.pipeline import PipelineSetup


def task_of(example, bounds, name, micro_batches, stages_per_rank=1, engine="torch", repeats=1):
    "A task whose lists are the schedule's."
    ranks = (len(bounds) - 1) // stages_per_rank
    return PipelineTask(example, bounds, name, schedule(name, ranks, micro_batches, stages_per_rank), engine, repeats)


# ---- the best cut

def cuts(layers, stages):
    for inner in itertools.combinations(range(1, layers), stages - 1): yield (0, *inner, layers)


def worst(costs, bounds): return max(sum(costs[i:j]) for i, j in itertools.pairwise(bounds))


rows = st.lists(st.integers(0, 30), min_size=1, max_size=9)


@settings(deadline=None)
@given(costs=rows, data=st.data())
def test_no_cut_is_better(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    found = partition(costs, stages)
    assert found.load == worst(costs, found.bounds) == min(worst(costs, bounds) for bounds in cuts(len(costs), stages))
    assert (
        found.loads == tuple(sum(costs[i:j]) for i, j in itertools.pairwise(found.bounds))
        and len(found.loads) == stages
        and min(b - a for a, b in itertools.pairwise(found.bounds)) >= 1
    )


@settings(deadline=None)
@given(
    layers=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8),
    limit=st.integers(0, 120),
    data=st.data(),
)
def test_no_cut_under_the_limit_is_better(layers, limit, data):
    costs, memory = zip(*layers)
    stages = data.draw(st.integers(1, len(costs)))
    table = [[size * factor for size in memory] for factor in range(stages, 0, -1)]  # the first stages keep more
    sizes = lambda bounds: max(sum(table[s][i:j]) for s, (i, j) in enumerate(itertools.pairwise(bounds)))
    possible = [bounds for bounds in cuts(len(costs), stages) if sizes(bounds) <= limit]
    assert pipeline.least_limit(table, stages, len(costs)) == min(map(sizes, cuts(len(costs), stages)))
    if not possible:
        with pytest.raises(ValueError, match="the limit must be at least"): partition(costs, stages, table, limit)
        return
    found = partition(costs, stages, table, limit)
    assert (
        found.load == min(worst(costs, bounds) for bounds in possible)
        and max(found.memory) == sizes(found.bounds) <= limit
    )


@settings(deadline=None)
@given(costs=rows, data=st.data())
def test_more_stages_are_never_slower(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    assert (
        partition(costs, len(costs)).load
        == max(costs)
        <= partition(costs, stages).load
        <= partition(costs, 1).load
        == sum(costs)
    )


@settings(deadline=None)
@given(layers=st.integers(1, 60), data=st.data())
def test_equal_counts_differ_by_one_at_most(layers, data):
    stages = data.draw(st.integers(1, layers))
    counts = [b - a for a, b in itertools.pairwise(pipeline.equal_counts(layers, stages))]
    assert sum(counts) == layers and len(counts) == stages and max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    "how, says",
    [
        (dict(costs=[1, 2], stages=3), "at most the 2 layers, got 3"),
        (dict(costs=[1, -1], stages=1), "costs must be a finite number of at least 0, got -1"),
        (dict(costs=[1, float("nan")], stages=1), "got nan"),
        (dict(costs=[1], stages=0), "stages must be at least 1, got 0"),
        (dict(costs=[1, 2], stages=1, memory=[1, 2]), "got no limit"),
        (dict(costs=[1, 2], stages=1, limit=3), "got no memory"),
        (
            dict(costs=[1, 2], stages=2, memory=[1], limit=3),
            r"memory must have 2 values, or 2 rows of them, got \[1, 1\]",
        ),
        (dict(costs=[1, 2], stages=1, memory=[3, 4], limit=6), "the limit must be at least 7 B"),
    ],
)
def test_partition_refuses(how, says):
    with pytest.raises(ValueError, match=says): partition(**how)


# ---- schedules and the simulator

@st.composite
def setups(draw, names=SCHEDULES):
    "A schedule that can be: name, ranks, micro-batches, stages on a rank."
    name, ranks = draw(st.sampled_from(names)), draw(st.integers(1, 5))
    stages = draw(st.integers(1, 3)) if name in SEVERAL_STAGES else 1
    micro_batches = draw(st.integers(1, 12))
    assume(name not in SEVERAL_STAGES or micro_batches % max(1, micro_batches // ranks) == 0)
    return name, ranks, micro_batches, stages


seconds = st.floats(0.01, 10)


@settings(deadline=None)
@given(setup=setups(), data=st.data())
def test_a_simulated_timeline_can_be(setup, data):
    name, ranks, micro_batches, stages_per_rank = setup
    stages = ranks * stages_per_rank
    times = StageTimes(*(tuple(data.draw(st.lists(seconds, min_size=stages, max_size=stages))) for _ in range(3)))
    transfer = data.draw(st.floats(0, 5))
    timeline, slower = simulate_schedule(schedule(*setup), times), simulate_schedule(schedule(*setup), times, transfer)
    for found in (timeline, slower):
        check_timeline(found, slack=1e-9)
        done = {event.operation for event in found.events}
        kinds = (FORWARD, INPUTS, WEIGHTS) if name == "zero-bubble" else (FORWARD, BACKWARD)
        assert done == {(kind, s, i) for kind in kinds for s in range(stages) for i in range(micro_batches)} and len(
            found.events
        ) == len(done)
        assert all(event.rank == event.operation.stage % ranks for event in found.events)
    assert (
        slower.seconds >= timeline.seconds - 1e-9
        and simulate_schedule(schedule(*setup), times, [transfer] * (stages - 1)) == slower
    )
    work = [
        sum(times.of(Operation(kind, s, 0)) for kind in (FORWARD, BACKWARD) for s in range(rank, stages, ranks))
        * micro_batches
        for rank in range(ranks)
    ]
    through = sum(times.forward) + sum(times.inputs)
    assert timeline.seconds >= max(*work, through) - 1e-6 and 0 <= timeline.bubble + 1e-9 and timeline.bubble < 1
    assert abs(timeline.bubble - (1 - sum(work) / ranks / timeline.seconds)) < 1e-6


@settings(deadline=None)
@given(setup=setups(), times=st.tuples(*[st.integers(1, 8)] * 3))
def test_the_formula_is_what_the_simulator_finds(setup, times):
    name, ranks, micro_batches, stages = setup
    assume(name not in SEVERAL_STAGES or micro_batches >= ranks)
    even = StageTimes.even(ranks * stages, *(t / stages for t in times))
    assert simulate_schedule(schedule(*setup), even).bubble == pytest.approx(bubble(*setup, *times), abs=1e-9)


@settings(deadline=None)
@given(ranks=st.integers(1, 9), micro_batches=st.integers(1, 40), times=st.tuples(*[st.integers(1, 8)] * 3))
def test_the_published_bubble(ranks, micro_batches, times):
    for name in ("GPipe", "1F1B"):
        assert bubble(name, ranks, micro_batches, 1, *times) == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))
    assert bubble("naive", ranks, micro_batches, 1, *times) == pytest.approx(1 - 1 / ranks)


@pytest.mark.parametrize("ranks, micro_batches", [(1, 1), (2, 2), (4, 4), (4, 12), (3, 2), (8, 16)])
def test_activations_kept(ranks, micro_batches):
    peaks = lambda name: [
        simulate_schedule(schedule(name, ranks, micro_batches), StageTimes.even(ranks)).peak(rank)
        for rank in range(ranks)
    ]
    assert peaks("naive") == [1] * ranks and peaks("GPipe") == [micro_batches] * ranks
    assert peaks("1F1B") == [min(micro_batches, ranks - rank) for rank in range(ranks)]
    if micro_batches >= ranks: assert peaks("zero-bubble") == [ranks] * ranks, "as many as the first rank of 1F1B"


def test_interleaving_shortens_the_bubble_and_keeps_more():
    one, two = (PipelineSetup("interleaved 1F1B", 4, 8, stages).timeline() for stages in (1, 2))
    assert two.bubble < one.bubble and two.peak(0) == 5.5, "eleven stages of half a rank"


def test_each_border_has_its_message():
    timeline = simulate_schedule(schedule("GPipe", 3, 2), StageTimes.even(3, 1, 1, 0), [0.25, 2])
    starts = {str(event): event.start for event in timeline.events}
    assert [starts[f"F0 of stage {s}"] for s in range(3)] == [0, 1.25, 4.25]
    assert (
        starts["B0 of stage 1"] == starts["B0 of stage 2"] + 3
        and starts["B0 of stage 0"] == starts["B0 of stage 1"] + 1.25
    )
    around = simulate_schedule(schedule("interleaved 1F1B", 2, 2, 2), StageTimes.even(4), [0, 5, 0])
    assert {str(event): event.start for event in around.events}["F0 of stage 2"] == 2 + 5, (
        "from the last rank back to the first"
    )


def test_stages_of_one_rank_hand_over_for_nothing():
    assert simulate_schedule(schedule("interleaved 1F1B", 1, 2, 2), StageTimes.even(2), 9.0).seconds == 2 * 2 * 3


def test_lists_that_wait_for_each_other_are_refused():
    lists = [[op for op in ops if op.kind is not FORWARD or op.stage] for ops in schedule("1F1B", 2, 2)]
    with pytest.raises(ValueError, match="rank 0 before B0 of stage 0, rank 1 before F0 of stage 1 waits"):
        simulate_schedule(lists, StageTimes.even(2))


def waits(event):
    "Whether an operation needs another one: for the first forward the data are there."
    return event.operation.kind is not FORWARD or event.operation.stage > 0


@settings(deadline=None)
@given(setup=setups(), data=st.data())
def test_an_impossible_timeline_is_found(setup, data):
    timeline = simulate_schedule(schedule(*setup), StageTimes.even(setup[1] * setup[3]))
    victim = data.draw(st.sampled_from([event for event in timeline.events if waits(event)]))
    early = replace(victim, start=-3.0, end=victim.seconds - 3.0)  # before everything else
    with pytest.raises(ValueError, match="started before"):
        check_timeline(Timeline(tuple(early if event is victim else event for event in timeline.events)))
    with pytest.raises(ValueError, match="ran twice"): check_timeline(Timeline((*timeline.events, victim)))


@pytest.mark.parametrize("name", ["1F1B", "zero-bubble"])
def test_every_operation_waits_for_its_input(name):
    timeline = simulate_schedule(schedule(name, 2, 3), StageTimes.even(2))
    for event in filter(waits, timeline.events):
        with pytest.raises(ValueError, match=f"{event} started before"):
            check_timeline(
                Timeline(tuple(replace(e, start=-3.0, end=-2.0) if e is event else e for e in timeline.events))
            )


def test_two_at_once_are_found():
    both = [TimedOperation(Operation(FORWARD, 0, i), 0, 0.5 * i, 1) for i in range(2)]
    with pytest.raises(ValueError, match="rank 0 ran F0 of stage 0 and F1 of stage 0 at once"):
        check_timeline(Timeline(tuple(both)))


NAN, INF = float("nan"), float("inf")
# float32: at most 8 layers of 72 products, there and back, with sums over 16 samples: 2,000 roundings of 6e-8, times 8
# for what norms and softmax may amplify. A micro-batch that is lost or counted twice changes a gradient by an eighth
ROUNDING = 1e-3
# float64: the CNN's longest sum has 12,800 products, in 5 steps, there and back: 130,000 roundings of 1e-16, times 8
DOUBLE = 1e-10


def blocks_task(*bounds, name="1F1B", micro_batches=2, **how):
    return task_of(blocks_example, bounds, name, micro_batches, **how)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: schedule("2F2B", 2, 2), "schedule must be one of naive, .*got '2F2B'"),
        (lambda: schedule("1F1B", 0, 2), "world_size must be at least 1, got 0"),
        (lambda: schedule("1F1B", 2, 2.5), "micro_batches must be a whole number, got 2.5"),
        (lambda: schedule("naive", 2, 2, 2), "stages_per_rank must be 1 for naive, got 2"),
        (lambda: schedule("interleaved 1F1B", 2, 5), "must make 2 equal rounds for interleaved 1F1B on 2 ranks, got 5"),
        (lambda: schedule("GPipe", 10**4, 10**4), "at most 10,000,000 forwards, got 100,000,000"),
        (lambda: StageTimes((1,), (1, 2), (1,)), "got 1, 2, 1 times"),
        (lambda: StageTimes((), (), ()), "got 0, 0, 0"),
        (lambda: StageTimes((-1,), (1,), (1,)), "stage times must be"),
        (lambda: StageTimes.even(0), "stages must be at least 1"),
        (lambda: StageTimes.even(2).scaled(NAN), "factor must be"),
        (lambda: bubble("GPipe", 2, -1), "micro_batches must be at least 1, got -1"),
        (lambda: bubble("GPipe", 2, 2, 1, -1.0), "forward must be a finite number of at least 0, got -1"),
        (lambda: bubble("GPipe", 2, 2, 1, 0, 0, 0), r"forward \+ inputs \+ weights must be"),
        (lambda: bubble("GPipe", 2, 2, 1, INF), "got inf"),
        (lambda: bubble("zero-bubble", 4, 2), "at least the 4 ranks for zero-bubble's formula, got 2"),
        (lambda: pipeline.equal_counts(2, 3), "stages must be at most the 2 layers, got 3"),
        (lambda: pipeline.equal_counts(2, 0), "stages must be at least 1"),
        (lambda: pipeline.least_limit([1.0], 2, 1), "stages must be at most the 1 layer, got 2"),
        (lambda: check_timeline(Timeline(()), slack=-1), "slack must be"),
        (lambda: profile_layers(GluonCNN(), torch.rand(2, 1, 28, 28), repeats=0), "repeats must be at least 1, got 0"),
        (
            lambda: profile_layers(GluonCNN(), torch.rand(2, 1, 28, 28), threads=-1),
            "threads must be at least 1, got -1",
        ),
        (lambda: blocks_task(0, 8, engine="mpi"), "engine must be one of hand, torch, got 'mpi'"),
        (lambda: blocks_task(0, 8, repeats=0), "repeats must be"),
        (
            lambda: PipelineTask(blocks_example, (0, 4, 6, 8), "1F1B", schedule("1F1B", 2, 2)),
            "a multiple of the 2 ranks, got 3",
        ),
        (lambda: blocks_task(0, 4, 8, name="naive"), "torch has none"),
        (lambda: blocks_task(0, 4, 8, micro_batches=1), "at least the 2 ranks for torch"),
        (
            lambda: simulate_schedule(schedule("naive", 3, 1), StageTimes.even(3), [1]),
            "one for each of the 2 borders, got 1",
        ),
        (lambda: simulate_schedule(schedule("naive", 2, 1), StageTimes.even(2), -1), "transfer must be"),
        (lambda: PipelineSetup("GPipe", 2, 2, slow=0), "slow must be"),
        (lambda: PipelineSetup("GPipe", 2, 2, backward=NAN), "backward must be"),
        (lambda: run_pipelines([]), "at least one task"),
        (lambda: run_pipelines([task_of(lambda: None, (0, 8), "1F1B", 2)]), "define it in a module"),
        (lambda: pipeline.train_pipeline(GluonCNN(), first_digits(10), device="cpu"), "no process group"),
        (
            lambda: pipeline.train_pipeline(GluonCNN(), first_digits(10), precision="bf16"),
            "precision of a pipeline must be one of fp32, tf32, got 'bf16'",
        ),
        (lambda: run_pipelines([blocks_task(0, 4, 9)]), "bounds must rise from 0 to the number of pieces, 8"),
        (
            lambda: run_pipelines([blocks_task(0, 4, 8, micro_batches=5)]),
            "a multiple of 5 micro-batches, got 16 samples",
        ),
    ],
)
def test_nonsense_is_refused_before_anything_starts(call, says):
    with pytest.raises(ValueError, match=says): call()


@pytest.mark.parametrize("number", [np.int64, np.int8, torch.tensor])
def test_whole_numbers_of_other_libraries_are_numbers(number):
    assert schedule("interleaved 1F1B", number(2), number(4), number(2)) == schedule("interleaved 1F1B", 2, 4, 2)
    assert bubble("GPipe", number(4), number(8)) == 3 / 11 and pipeline.equal_counts(number(10), number(4)) == (
        0,
        2,
        5,
        7,
        10,
    )
    assert (
        partition([1, 2, 3], number(2)).bounds == (0, 2, 3)
        and PipelineSetup("1F1B", number(2), number(4)).timeline().seconds == 15
    )


# ---- a model as a row of pieces

class Skip(nn.Module):
    "One tensor alive before and after, two within."
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x): return self.d((y := self.a(x)) + self.c(torch.relu(self.b(y))))


class Decides(nn.Module):
    def forward(self, x): return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    "make, x, count",
    [
        (lambda: resnet18(10, "small"), torch.rand(2, 1, 28, 28), 11),
        (lambda: resnet50(10), torch.rand(1, 3, 64, 64), 19),
        (GluonCNN, torch.rand(2, 1, 28, 28), 4),
        (Skip, torch.rand(3, 4), 3),
        (
            lambda: nn.Sequential(
                nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), nn.Dropout(0.5), nn.Linear(4, 2)
            ),
            torch.rand(3, 4),
            2,
        ),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.rand(3, 2, 2), 2),
        (nn.ReLU, torch.rand(3), 1),
        (lambda: Tokens(2, 16, 50), torch.randint(0, 50, (2, 5)), 4),
    ],
    ids=["resnet18", "resnet50", "cnn", "skip", "nested", "flat first", "no parameters", "tokens"],
)
def test_a_chain_computes_the_same(make, x, count):
    model = make().eval()
    pieces = chain(model)
    assert (
        len(pieces) == count
        and torch.equal(pieces(x), model(x))
        and count_parameters(pieces) == count_parameters(model)
    )
    assert {id(p) for p in pieces.parameters()} == {id(p) for p in model.parameters()}, "shared, not copied"
    assert len(chain(pieces)) == count, "a chain is its own chain"


def test_a_model_that_decides_by_values_is_refused():
    with pytest.raises(ValueError, match="Decides cannot be traced .*write it as an nn.Sequential"): chain(Decides())
    with pytest.raises(ValueError, match="one tensor, Bilinear takes input1 and input2"): chain(nn.Bilinear(2, 2, 2))


class Bare(nn.Module):
    "A parameter, or a buffer, that no layer owns."
    def __init__(self, what):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), what

    def forward(self, x): return self.layer(x) * self.scale


class Nothing(nn.Module):
    def forward(self, x): return x


@pytest.mark.parametrize(
    "model, says",
    [
        (Bare(nn.Parameter(torch.ones(4))), "Bare uses scale outside of a layer: put it into a module"),
        (Bare(nn.Buffer(torch.ones(4))), "Bare uses scale outside of a layer"),
        (Nothing(), "must compute something, Nothing calls no layer"),
        (nn.Sequential(), "Sequential calls no layer"),
    ],
)
def test_a_model_that_cannot_be_cut_is_refused(model, says):
    with pytest.raises(ValueError, match=says): chain(model)


def tied():
    "The first and the last layer have the same weights."
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    return PipelineExample(model, torch.rand(4, 6), torch.randint(0, 6, (4,)))


def called_twice():
    "The same layer at two places."
    model = nn.Sequential(layer := nn.Linear(6, 6), nn.Linear(6, 6), layer)
    return PipelineExample(model, torch.rand(4, 6), torch.randint(0, 6, (4,)))


@pytest.mark.parametrize("example", [tied, called_twice])
def test_tied_weights_stay_in_one_stage(example):
    whole, cut = task_of(example, (0, 3), "1F1B", 2), task_of(example, (0, 1, 3), "1F1B", 2)
    loss, gradients = reference_gradients(whole)
    plain = example().model
    assert (
        len(gradients) == len(list(plain.parameters()))
        and gradient_error(PipelineRun(whole, None, (), loss, gradients)) == 0
    )
    with pytest.raises(ValueError, match=r"belongs to two of the stages \(0, 1, 3\) \(tied weights\): untie it"):
        run_pipelines([cut])
    check_untied(chain(nn.Sequential(*[nn.Linear(2, 2) for _ in range(3)])), (0, 1, 2, 3))


class FakeTime:
    "A clock that only sleep moves."
    now = 0.0
    def perf_counter(self): return self.now
    def sleep(self, seconds): self.now += seconds


def test_profiled_times_are_those_of_the_layers(monkeypatch):
    clock = FakeTime()
    for room in (timing, pipeline_runs): monkeypatch.setattr(room, "time", clock)
    model = nn.Sequential(SleepingLayer(1, 9, 2), SleepingLayer(3, 4, 5), SleepingLayer(6, 7, 8))
    found = profile_layers(model, torch.rand(2, 3), repeats=3)
    assert [(c.forward_seconds, c.input_seconds, c.weight_seconds) for c in found] == [
        (1, 0, 2),
        (3, 4, 5),
        (6, 7, 8),
    ], "the first piece has no gradient of its input"
    assert (
        [c.seconds for c in found] == [3, 12, 21]
        and [c.spread for c in found] == [0, 0, 0]
        and all(p.grad is None for p in model.parameters())
    )
    assert stage_times(found, (0, 1, 3)) == StageTimes((1, 9), (0, 11), (2, 13))
    assert [c.output_bytes for c in found] == [4 * 2 * 3] * 3


@pytest.mark.parametrize(
    "make, x", [(lambda: resnet18(10, "small"), torch.rand(2, 1, 28, 28)), (GluonCNN, torch.rand(5, 1, 28, 28))]
)
def test_the_pieces_keep_what_the_model_keeps(make, x):
    threads, model = torch.get_num_threads(), make()
    found = profile_layers(model, x, repeats=1)
    assert sum(c.kept_bytes for c in found) == saved_bytes(model, x) and torch.get_num_threads() == threads
    weights = sum(p.nbytes for p in model.parameters())
    assert sum(c.fixed_bytes for c in found) == 4 * weights + 4 * len(list(model.parameters())) + sum(
        b.nbytes for b in model.buffers()
    )


# ---- one process

@pytest.mark.parametrize(
    "name, stages", [(name, stages) for name in SCHEDULES for stages in ((1, 2, 4) if name in SEVERAL_STAGES else (1,))]
)
def test_by_hand_on_one_rank(name, stages):
    task = task_of(blocks_example, pipeline.equal_counts(8, stages), name, 8, stages, "hand")
    record, pieces = OperationRecorder(0), build_task(task)[1]
    step = manual_step(task, {s: pieces[i:j] for s, (i, j) in enumerate(itertools.pairwise(task.bounds))}, record)
    loss = sum(step())
    run = PipelineRun(
        task, Timeline(tuple(record.events)), (), loss, {n: p.grad.numpy() for n, p in pieces.named_parameters()}
    )
    assert gradient_error(run) < ROUNDING and loss == pytest.approx(reference_gradients(task)[0], rel=ROUNDING)
    assert [event.operation for event in record.events] == task.operations[0]
    check_timeline(run.timeline)


def before_norm():
    "A bias whose true gradient is zero: batch norm takes the mean away."
    return PipelineExample(
        nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6)),
        torch.rand(16, 6),
        torch.randint(0, 6, (16,)),
    )


def test_noise_in_a_gradient_of_zero_is_no_error():
    task = task_of(before_norm, (0, 3), "naive", 2, engine="hand")
    loss, grads = reference_gradients(task)
    top = max(abs(grad).max() for grad in grads.values())
    noise = min(grads, key=lambda name: abs(grads[name]).max())
    assert abs(grads[noise]).max() < ROUNDING * top
    assert gradient_error(PipelineRun(task, None, (), loss, grads | {noise: -grads[noise]})) < 1e-2
    assert gradient_error(PipelineRun(task, None, (), loss, grads | {noise: grads[noise] + 0.01 * top})) > 1


def test_a_wrong_gradient_is_noticed():
    task = task_of(blocks_example, (0, 8), "naive", 8, engine="hand")
    loss, grads = reference_gradients(task)
    assert gradient_error(PipelineRun(task, None, (), loss, grads)) == 0
    assert (
        gradient_error(
            PipelineRun(task, None, (), loss, grads | {name: 1.01 * grad for name, grad in list(grads.items())[:1]})
        )
        > 0.009
    )
    with pytest.raises(ValueError, match="in one of the two only"):
        gradient_error(PipelineRun(task, None, (), loss, dict(list(grads.items())[1:])))


# ---- several processes

TRAINING = (partial(train_digits, pipeline.train_pipeline, 100, True, batch_size=48),)  # its last batch is smaller
ENGINES = [(name, engine) for engine in ("hand", "torch") for name in SCHEDULES if (engine, name) != ("torch", "naive")]


def sentences():
    "A small transformer that classifies sentences of 6 tokens."
    blocks = [nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(3)]
    return PipelineExample(
        nn.Sequential(nn.Embedding(50, 16), *blocks, nn.Flatten(), nn.Linear(6 * 16, 5)),
        torch.randint(0, 50, (8, 6)),
        torch.randint(0, 5, (8,)),
    )


def doubles():
    "Blocks in double precision: messages are as wide as the tensors."
    example = blocks_example()
    return PipelineExample(example.model.double(), example.x.double(), example.y)


def residual():
    "A small ResNet: batch norms and shortcuts."
    blocks = [BasicBlock(4, 4), BasicBlock(4, 8, 2), BasicBlock(8, 8)]
    return PipelineExample(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        ),
        torch.rand(8, 1, 12, 12),
        torch.randint(0, 5, (8,)),
    )


def tasks(ranks):
    "Every schedule by both engines, a transformer and a ResNet."
    for name, engine in ENGINES:
        stages = 2 if name in SEVERAL_STAGES else 1
        yield task_of(blocks_example, pipeline.equal_counts(8, ranks * stages), name, 8, stages, engine)
    for example, pieces, name, engine in (
        (sentences, 5, "1F1B", "torch"),
        (sentences, 5, "zero-bubble", "hand"),
        (residual, 6, "zero-bubble", "torch"),
        (residual, 6, "1F1B", "hand"),
    ):
        yield task_of(example, pipeline.equal_counts(pieces, ranks), name, 4, 1, engine)
    yield task_of(doubles, pipeline.equal_counts(8, ranks), "1F1B", 8, 1, "hand")


def refusals():
    "What `train_pipeline` says of too few pieces, of too few micro-batches, of different models, of tied weights."
    says, layers = [], [nn.Linear(784, 784, bias=False) for _ in range(4)]
    layers[3].weight = layers[0].weight
    mixed = GluonCNN(hidden=100 if rank_and_world_size()[0] else 512)
    for model, how in (
        (nn.Sequential(nn.Flatten(), *layers), {}),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), {}),
        (GluonCNN(), dict(micro_batches=2)),
        (mixed, {}),
    ):
        try: pipeline.train_pipeline(model, first_digits(10), device="cpu", **how)
        except ValueError as error: says.append(str(error))
    return says


PLACE = "cpu:0"  # the processor by the name of a device, so that moves to it differ from moves to host memory, "cpu"


@contextmanager
def placed_parameters():
    "A list of how many parameters were on PLACE after each move to it; what stays in host memory does not count."
    on_device, counts, to = {}, [0], nn.Module.to

    def watched(module, device, *rest, **how):
        own = {id(p): p.numel() for p in module.parameters()}
        if str(device) == PLACE: on_device.update(own)
        elif str(device) == "cpu":
            for number in own: on_device.pop(number, None)
        counts.append(sum(on_device.values()))
        return to(module, device, *rest, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Module, "to", watched)
        yield counts


def most_on_device():
    "The most parameters that `train_pipeline` had on this rank's device, those of its model, and how it ended."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), *[nn.Linear(784, 784) for _ in range(7)], nn.Linear(784, 10))
    with placed_parameters() as counts:
        _history, accuracy = pipeline.train_pipeline(
            model, first_digits(64), valid=first_digits(100, train=False), device=PLACE
        )
    whole = sum(p.numel() for p in model.parameters())
    return max(counts), whole, accuracy, evaluate(model, first_digits(100, train=False))


@pytest.fixture(scope="module")
def four():
    "All runs of two and of four ranks, the training run, the refusals and a watched training, in one start."
    todo = [*tasks(2), *tasks(4)]
    calls = [(run_rank, todo), TRAINING, (refusals,), (most_on_device,)]
    found = run_ranks(call_each, 4, calls, share_cores=True, timeout_seconds=600)
    return merge_parts(todo, [calls[0] for calls in found.values()]), found


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.rarely), 4], ids=["world 2", "world 4"])
def runs(request, four): return [run for run in four[0] if run.task.world_size == request.param]


def test_gradients_are_those_of_one_process(runs):
    for run in runs:
        assert gradient_error(run) < ROUNDING, run.task
        if run.task.example is blocks_example: assert gradient_error(run, 1) < ROUNDING, "the whole batch at once"
        assert run.loss == pytest.approx(reference_gradients(run.task)[0], rel=ROUNDING), run.task


def test_messages_have_the_type_of_their_tensors(runs):
    run, = (run for run in runs if run.task.example is doubles)
    assert all(grad.dtype == "float64" for grad in run.gradients.values()) and gradient_error(run) < DOUBLE


def test_every_rank_did_what_its_list_says(runs):
    for run in runs:
        assert len(run.seconds) == run.task.repeats and run.timeline.world_size == run.task.world_size
        for rank, todo in enumerate(run.task.operations):
            assert [event.operation for event in run.timeline.of(rank)] == todo, (run.task, rank)


def test_nothing_started_before_its_input_was_there(runs):
    for run in runs: check_timeline(run.timeline)


def test_ranks_without_a_stage_have_nothing_to_tell(four):
    runs, found = four
    assert all(found[3][0][number] == RankPart() for number, run in enumerate(runs) if run.task.world_size == 2)


def one_process(samples, batch_size=48):
    "The same training by one process that takes whole batches: losses and weights."
    torch.manual_seed(0)
    model = GluonCNN().double()
    history = fit(
        model,
        BatchLoader(first_digits(samples, double=True), batch_size, shuffle=True, seed=0),
        device="cpu",
        progress=False,
    )
    return [step.loss for step in history.steps], model.state_dict()


def same_run(found, losses, weights):
    torch.testing.assert_close(found.losses, losses, rtol=DOUBLE, atol=0)
    torch.testing.assert_close(found.weights, {name: weights[name] for name in found.weights}, rtol=DOUBLE, atol=DOUBLE)
    assert len(found.weights) == len(weights) and 0 < found.accuracy <= 1


def test_training_in_stages_is_training_by_one_process(four):
    trained = [found[1] for found in four[1].values()]
    assert all(each.losses == trained[0].losses and each.accuracy == trained[0].accuracy for each in trained)
    same_run(trained[0], *one_process(100))


def test_no_device_holds_the_whole_model(four):
    "Eight equal layers on four ranks: profiling, training, evaluating and gathering put at most a stage on a device."
    for most, whole, accuracy, of_whole in (found[3] for found in four[1].values()):
        assert 0 < most < 0.5 * whole, (most, whole)
        assert accuracy == pytest.approx(of_whole), "the stages together are the model that every rank has at the end"


def test_profiling_puts_a_piece_at_a_time_on_the_device():
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(5)])
    with placed_parameters() as counts: found = profile_layers(model, torch.rand(2, 8), repeats=1, device=PLACE)
    assert len(found) == 5 and max(counts) == 8 * 8 + 8 and counts[-1] == 0


def test_one_stage_under_torchrun_is_one_process(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    for name, value in dict(
        RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=port
    ).items():
        monkeypatch.setenv(name, str(value))
    same_run(train_digits(pipeline.train_pipeline, 50, True, batch_size=48), *one_process(50))
    assert rank_and_world_size() == (0, 1), "the group is gone"


def test_what_cannot_be_trained_is_refused_on_every_rank(four):
    for rank, found in four[1].items():
        ties, pieces, parts, models = found[2]
        assert ties.startswith("a parameter belongs to two of the stages (0, 1, 2, 3, 4) (tied weights)")
        assert (
            pieces == "stages must be at most the 1 layer, got 4"
            and parts == "micro_batches must be from the 4 ranks to the batch of 64, got 2"
        )
        assert models.startswith("rank 1 has another model than rank 0"), rank


def test_the_picture_shows_every_operation_twice(runs):
    run = runs[1]
    ax = view.plot_runs(simulate_schedule(run.task.operations, StageTimes.even(run.task.stages)), run.timeline)
    drawn = [len(collection.get_paths()) for collection in ax.collections]
    assert sum(drawn) == 2 * len(run.timeline.events) and "predicted" in ax.get_title(loc="left")


# ---- panel

def test_a_setup_runs_as_it_is_simulated(monkeypatch):
    plan = PipelineSetup("zero-bubble", 2, 4)
    task, predicted = plan.task(0.01)
    monkeypatch.setattr(
        "mlinfra.lab.pipeline_runs.run_pipelines",
        lambda tasks, report: [PipelineRun(tasks[0], predicted, (1.0,), 0.0, {})],
    )
    panel = view.pipeline_panel()
    for key, value in dict(
        schedule=plan.schedule, world_size=plan.world_size, micro_batches=plan.micro_batches
    ).items():
        panel.controls[key].value = value
    panel.button.start()
    assert (
        panel.button.job.join(60).error is None
        and "zero-bubble on 2 ranks with 4 micro-batches: measured 130 ms, predicted 130 ms"
        in panel.button.status.value
    )
    assert panel.picture.value.count("<title>measured: ") == len(predicted.events)
    for changes, says in (
        (dict(world_size=8), "at most 4 to be started here, got 8"),
        (dict(micro_batches=5000), "at most 5 s to be run here"),
    ):
        with pytest.raises(ValueError, match=says): view.run_setup(replace(plan, **changes))


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_box_for_each_operation(name):
    timeline = PipelineSetup(name, 3, 6).timeline()
    drawing = str(view.draw_schedule(timeline))
    kinds = len({event.operation.kind for event in timeline.events})
    idle = [gap for rank in range(3) for gap in timeline.gaps(rank)]
    assert drawing.count("<rect") == len(timeline.events) + len(idle) + kinds + 2, "the key has idle and kept, too"
    for rank in range(3): assert f">rank {rank}<" in drawing and f">at most {timeline.peak(rank):g} of 6<" in drawing
    assert sum(end - start for start, end in idle) == pytest.approx(timeline.bubble * 3 * timeline.seconds)


@given(setup=setups(), backward=st.sampled_from([1.0, 2.0, 3.0]), slow=st.sampled_from([0.5, 1.0, 3.0]))
@settings(deadline=None, max_examples=40)
def test_the_words_say_what_the_timeline_says(setup, backward, slow):
    plan = PipelineSetup(*setup, backward, slow)
    timeline, said = plan.timeline(), str(plan.describe())
    assert (
        f"{timeline.bubble:.1%} of the ranks' time is idle" in said
        and f"at most {timeline.peak(0):g} micro-batches, the last rank of {timeline.peak(plan.world_size - 1):g}"
        in said
    )
    assert (
        f"{plan.micro_batches * (1 + backward) * (plan.world_size - 1 + slow) / timeline.seconds:.2f} times as fast"
        in said
    )
