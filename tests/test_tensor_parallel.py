"""Tensor parallelism: every split equals one process at 2 and 4 ranks, says what it should, and the cost model keeps
its laws."""
import ast
import copy
import functools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mlinfra import tensor_parallel as tp
from mlinfra.engine.base.checks import refusal
from mlinfra.engine.dist.collectives import CollectiveLog, Group, all_reduce_seconds
from mlinfra.engine.base.hardware import NETWORKS, ROOFLINES, Network, Roofline, ring_bytes
from mlinfra.engine.tensor.layer_plans import (
    BLOCK_PLAN, JOIN, ROW, SLICE, ParallelStyle, block_plan, cuts_tokens, dtensor_styles, parallelize_dtensor)
from mlinfra.engine.dist.process_group import rank_and_world_size
from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.train.saved_tensors import saved_bytes
from mlinfra.engine.tensor.split_checks import CASES, compare_split, cut_dims, gradient_difference
from mlinfra.lab.tensor_costs import BLOCK_WORK, MLP_WORK, TensorParallelCost, crossover_width, fit_device, kept_values
from mlinfra.lab.tensor_timing import CONTEXT, BlockSeconds, block_seconds
from mlinfra.engine.dist.rank_trials import run_trial
from mlinfra.lab.tensor_training import TensorTrial
from mlinfra.engine.train.transformer import Attention, Block, RowReader, Stack
from mlinfra.views import tensor_parallel as view

# float64: sums of at most 12,800 products in 2 steps there and back, 10^5 roundings of 1e-16, at worst 1e-11; they
# do not all point one way. A lost part of a sum changes a value by a half
ROUNDING = 1e-12
NBS = Path(__file__).resolve().parent.parent / "nbs"
OURS, THEIRS = tp.parallelize_layers, parallelize_dtensor
LIBRARY = {2: ["mlp", "attention, three ways in", "block", "block, tokens cut"], 4: ["block, tokens cut"]}
TRIAL = TensorTrial(divide=OURS, double=True, samples=50)
TRIALS = {
    2: {
        "by hand": TRIAL,
        "tokens cut": replace(TRIAL, sequence=True),
        "DTensor": replace(TRIAL, divide=THEIRS),
        "DTensor, tokens cut": replace(TRIAL, divide=THEIRS, sequence=True),
        "CNN": replace(TRIAL, model="cnn"),
        "float32": replace(TRIAL, double=False),
    },
    4: {
        "by hand": replace(TRIAL, groups=2),
        "tokens cut": replace(TRIAL, sequence=True),
        "CNN": replace(TRIAL, model="cnn", groups=2),
        "DTensor and fully_shard": replace(TRIAL, divide=THEIRS, sequence=True, groups=2),
    },
}


# ---- what ranks do in these tests

def said_of_nonsense():
    "What the ranks refuse, and with which words."
    n = rank_and_world_size()[1]
    return [
        refusal(tp.ColumnLinear, nn.Linear(4, n + 1)),
        refusal(tp.RowLinear, nn.Linear(n + 1, 4)),
        refusal(Group.of().reduce_scatter, torch.zeros(2, n + 1), 1),
        refusal(run_trial, replace(TRIAL, groups=3)),
    ]


def collectives(dim):
    "Whether each of the four equals what one process computes from all ranks' tensors, and what was counted."
    rank, n = rank_and_world_size()
    everyone = [torch.arange(24, dtype=torch.float64).view(4, 6).roll(r) for r in range(n)]
    everyone, group = [torch.cat([t] * n, dim) for t in everyone], Group.of()
    total = sum(everyone)
    with CollectiveLog() as log:
        equal = [
            torch.equal(group.all_reduce(everyone[rank]), total),
            torch.equal(group.all_gather(everyone[rank], dim), torch.cat(everyone, dim)),
            torch.equal(group.reduce_scatter(everyone[rank], dim), total.chunk(n, dim)[rank]),
            torch.equal(group.own_slice(total, dim), total.chunk(n, dim)[rank]),
        ]
    size = total.nbytes
    return (
        equal,
        dict(log.counts),
        {call.kind: call.bytes for call in log.calls}
        == {"all-reduce": size, "all-gather": n * size, "reduce-scatter": size}
        and {call.ranks for call in log.calls} == {n},
    )


def forgotten_sum():
    "The worst difference of a block whose norms do not add up their gradients over slices, and of the right one."
    def difference():
        case = CASES["block, tokens cut"]
        torch.manual_seed(0)
        whole = case.make().double()
        split = OURS(copy.deepcopy(whole), case.plan)
        x = torch.randn(case.batch_size, *case.input_shape, dtype=torch.float64)
        for model in (whole, split): model(x).pow(2).sum().backward()
        return gradient_difference(split, whole)
    right, forward = difference(), tp.SequenceParallelNorm.forward
    tp.SequenceParallelNorm.forward = nn.LayerNorm.forward
    try: return right, difference()
    finally: tp.SequenceParallelNorm.forward = forward


def torch_plan():
    "The plan for `parallelize_module` as it stands in the script of the lesson."
    cells = json.loads((NBS / "14_tensor_parallel.ipynb").read_text(encoding="utf-8"))["cells"]
    text = next(text for text in ("".join(cell["source"]) for cell in cells) if "## At work" in text)
    tree, names = ast.parse(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]), {}
    wanted = "same, cut", "(same, cut)", "plan"
    tree.body = [line for line in tree.body if isinstance(line, ast.ImportFrom)
                 or isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) in wanted]
    exec(compile(tree, "<the script>", "exec"), names)
    return names["plan"]


def group(world_size):
    calls = {("by hand", case): (compare_split, case, OURS) for case in CASES} | {
        ("dtensor", case): (compare_split, case, THEIRS) for case in LIBRARY[world_size]
    }
    calls |= {("trial", name): (run_trial, trial) for name, trial in TRIALS[world_size].items()}
    calls |= {
        ("said",): (said_of_nonsense,),
        ("collectives", 0): (collectives, 0),
        ("collectives", 1): (collectives, 1),
        ("forgotten",): (forgotten_sum,),
        ("mesh",): (tp.try_mesh,),
        ("seconds",): (block_seconds, OURS, (64, 128), 64, 2, 1),
    }
    found = run_ranks(call_each, world_size, list(calls.values()), share_cores=True, timeout_seconds=200)
    return {rank: dict(zip(calls, values)) for rank, values in found.items()}


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.rarely), 4])
def ranks(request): return group(request.param)


# ---- equal to one process

def test_every_split_equals_one_process(ranks):
    for rank, found in ranks.items():
        for key, compared in found.items():
            if key[0] in ("by hand", "dtensor"): assert compared.worst < ROUNDING, (rank, key, compared)


def test_messages_are_those_of_the_lesson(ranks):
    found, n = ranks[0], len(ranks)
    one, two = {"all-reduce": 1}, {"all-reduce": 2}
    for how in ("by hand", "dtensor") if n == 2 else ("by hand",):
        assert (found[how, "mlp"].forward, found[how, "mlp"].backward) == (one, one)
        assert (found[how, "attention, three ways in"].forward, found[how, "attention, three ways in"].backward) == (
            one,
            {"all-reduce": 3},
        )
        assert (found[how, "block"].forward, found[how, "block"].backward) == (two, two)
        assert found[how, "mlp"].sent_bytes == pytest.approx(2 * ring_bytes(2 * 8 * 16 * 8, n)) and found[
            how, "block"
        ].sent_bytes == pytest.approx(4 * ring_bytes(2 * 8 * 16 * 8, n))
    assert (found["by hand", "convolutions"].forward, found["by hand", "convolutions"].backward) == (one, one)
    assert (found["by hand", "column"].forward, found["by hand", "column"].backward) == ({"all-gather": 1}, one)
    assert (found["by hand", "row"].forward, found["by hand", "row"].backward) == (one, {"all-gather": 1})


def test_comm_debug_mode_agrees_with_our_counter(ranks):
    for key, compared in ranks[0].items():
        if key[0] in ("by hand", "dtensor"):
            assert compared.debug == sum(compared.forward.values()) + sum(compared.backward.values()) > 0, key


def test_cut_tokens_send_no_more_inside_of_the_block(ranks):
    n, size = len(ranks), 2 * 8 * 16 * 8
    mine, other, plain = (
        ranks[0]["by hand", "block, tokens cut"],
        ranks[0]["dtensor", "block, tokens cut"],
        ranks[0]["by hand", "block"],
    )
    assert other.sent_bytes == pytest.approx(
        plain.sent_bytes + 2 * (n - 1) / n * size
    ) and mine.sent_bytes == pytest.approx(other.sent_bytes + 6 * ring_bytes(16 * 8, n))
    assert other.forward == mine.forward == {"all-gather": 3, "reduce-scatter": 2} and other.backward == {
        "all-gather": 3,
        "reduce-scatter": 2,
    }
    assert mine.backward == other.backward | {"all-reduce": 6}, (
        "two norms' weights and biases, two biases of row layers"
    )
    assert other.unfinished == 4 and mine.unfinished == plain.unfinished == 0


def test_kept_activations_are_those_of_the_formula(ranks):
    n = len(ranks)
    assert ranks[0]["by hand", "block"].kept_bytes == 8 * kept_values(16, 16, 4, n)
    assert (
        ranks[0]["by hand", "block, tokens cut"].kept_bytes
        == 8 * kept_values(16, 16, 4, n, sequence=True)
        < ranks[0]["by hand", "block"].kept_bytes
    )


one_process = functools.cache(run_trial)  # many trials differ in how they are divided only


def test_training_equals_one_process(ranks):
    for name, trial in TRIALS[len(ranks)].items():
        alone = one_process(replace(trial, divide=None, sequence=False, groups=1))
        for rank in ranks:
            found = ranks[rank]["trial", name]
            assert found.differs(ranks[0]["trial", name]) == 0, f"{name}: the ranks differ"
            if not trial.double: continue
            assert found.differs(alone) < ROUNDING, (name, rank)
            torch.testing.assert_close(found.losses, alone.losses, rtol=ROUNDING, atol=0)
        assert not alone.collectives and ranks[0]["trial", name].collectives


def test_a_forgotten_sum_would_be_seen(ranks):
    for rank in ranks:
        right, wrong = ranks[rank]["forgotten",]
        assert right < ROUNDING and wrong > 1e-3


def test_a_model_on_the_mesh_of_the_lesson_equals_one_process(ranks):
    for rank in ranks: assert ranks[rank]["mesh",] < ROUNDING, rank


def test_the_plan_of_the_lesson_is_the_one_that_ran():
    def settings(plan): return {name: (type(style), vars(style)) for name, style in plan.items()}
    whole = dtensor_styles(block_plan(Stack(16, 4), sequence=True))
    inside = {name.removeprefix("block0."): style for name, style in whole.items() if name not in ("start", "end")}
    assert settings(torch_plan()) == settings(inside), "with tokens cut"


def test_collectives_are_right_and_counted(ranks):
    for rank in ranks:
        for dim in (0, 1):
            assert ranks[rank]["collectives", dim] == (
                [True] * 4,
                {"all-reduce": 1, "all-gather": 1, "reduce-scatter": 1},
                True,
            )


def test_what_cannot_be_cut_is_refused_on_every_rank(ranks):
    n = len(ranks)
    for rank in ranks:
        column, row, scatter, mesh = ranks[rank]["said",]
        for words, shape in ((column, (n + 1, 4)), (row, (4, n + 1)), (scatter, (2, n + 1))):
            assert f"{shape} must be divisible by the {n} ranks that share it, got {n + 1}" in words
        assert mesh == f"groups must divide the {n} ranks, got 3"


def test_timing_has_a_figure_for_each_round(ranks):
    for rank in ranks:
        seconds = ranks[rank]["seconds",]
        assert [len(times) for times in seconds.split.values()] == [2, 2] and [
            len(times) for times in seconds.whole.values()
        ] == ([2, 2] if rank == 0 else [])


# ---- on one process

LINK, H100 = Network("toy", 1e9, 1e-5), ROOFLINES["H100 80 GB"]
COST = TensorParallelCost(64, 64, 2, H100, LINK)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: OURS(Attention(8, 2), {"query": "diagonal"}), "the plan for query must be one of column"),
        (lambda: OURS(Attention(8, 2), {"nobody": ROW}), "names 'nobody', and Attention has no such layer"),
        (lambda: compare_split("moe", OURS), "case must be one of column, row, mlp.*got 'moe'"),
        (lambda: TensorTrial("vgg"), "model must be one of transformer, cnn"),
        (lambda: TensorTrial("cnn", divide=THEIRS), "the CNN is split by hand only"),
        (lambda: TensorTrial("cnn", sequence=True), "has no tokens"),
        (lambda: TensorTrial(samples=0), "samples must be at least 1, got 0"),
        (lambda: TensorTrial(groups=-1), "groups must be at least 1, got -1"),
        (lambda: block_seconds(OURS, [100], 64), "divisible by 16 and tokens by 64, got 100 and 64"),
        (lambda: block_seconds(OURS, [64], 0), "tokens must be at least 1, got 0"),
        (lambda: block_seconds(OURS, [64], 64, steps=0), "steps must be at least 1, got 0"),
        (lambda: block_seconds(OURS, [64], 64, repeats=-1), "repeats must be at least 1, got -1"),
        (lambda: replace(COST, device=ROOFLINES["V100 32 GB"]), "precision must be one of fp32, fp16"),
        (lambda: replace(COST, world_size=0), "world_size must be at least 1, got 0"),
        (lambda: replace(COST, width=2.5), "width must be a whole number, got 2.5"),
        (lambda: replace(COST, context=-1), "context must be at least 1, got -1"),
        (lambda: crossover_width(COST, float("nan")), "efficiency must be"),
        (lambda: fit_device({64: 1.0}, 64, 64), "two widths, got 1"),
        (lambda: fit_device({64: 1.0, 128: 2.0, 256: 9.0}, 64, 64), "two widths, got 3"),
        (lambda: fit_device({64: 1.0, 128: 2.0}, 0, 64), "tokens must be at least 1"),
        (lambda: fit_device({64: -1.0, 128: 2.0}, 64, 64), "above 0"),
        (lambda: kept_values(0, 1, 1), "width must be at least 1, got 0"),
        (lambda: kept_values(16, 1, 4, 0), "world_size must be at least 1"),
        *((lambda e=e: crossover_width(COST, e), "efficiency must be between 0 and 1") for e in (0, 1, -1, 2)),
    ],
)
def test_nonsense_is_refused(call, says):
    with pytest.raises(ValueError, match=says): call()


def test_other_convolutions_are_refused():
    for conv in (nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")):
        for part in (tp.ColumnConv, tp.RowConv): assert "only a convolution with groups=1" in refusal(part, conv)


@pytest.mark.parametrize("number", [np.int64, torch.tensor])
def test_whole_numbers_of_other_libraries_are_numbers(number):
    same = replace(COST, width=number(64), tokens=number(64), world_size=number(2), context=number(1024))
    assert (
        same == COST
        and same.seconds == COST.seconds
        and type(same.seconds) is float
        and crossover_width(same) == crossover_width(COST)
    )
    assert kept_values(number(16), number(8), number(4), number(2)) == kept_values(16, 8, 4, 2)


@settings(max_examples=15, deadline=None)
@given(stride=st.integers(1, 2), padding=st.integers(0, 2), dilation=st.integers(1, 2), bias=st.booleans())
def test_parts_of_one_rank_are_the_whole(stride, padding, dilation, bias):
    conv, x = nn.Conv2d(2, 4, 3, stride, padding, dilation, bias=bias), torch.randn(2, 2, 9, 9)
    for part in (tp.ColumnConv, tp.RowConv): torch.testing.assert_close(part(conv)(x), conv(x))
    linear, y = nn.Linear(3, 5, bias=bias), torch.randn(4, 3)
    for part in (tp.ColumnLinear, tp.RowLinear): torch.testing.assert_close(part(linear)(y), linear(y))


def test_plans_find_every_block():
    reader = RowReader(16, 2, 3)
    plan = block_plan(reader, sequence=True)
    assert len(plan) == 3 * len(BLOCK_PLAN) + 2 and (
        plan["stack.start"],
        plan["stack.end"],
        plan["stack.block2.mlp.2"],
    ) == (SLICE, JOIN, ROW)
    assert "stack.start" not in block_plan(reader) and CASES["block, tokens cut"].plan == block_plan(
        Stack(16, 4), sequence=True
    )
    assert cuts_tokens(plan) and not cuts_tokens(block_plan(reader))
    split = OURS(copy.deepcopy(reader), plan)
    x = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(split(x), reader(x))
    assert {name for name, _ in split.named_parameters()} == {name for name, _ in reader.named_parameters()}
    assert len(cut_dims(split)) == 3 * (3 * 2 + 1 + 2 + 1)


def test_styles_may_be_words():
    words = {name: style.value for name, style in block_plan(Block(16, 4)).items()}
    x = torch.rand(2, 5, 16)
    block = Block(16, 4)
    torch.testing.assert_close(OURS(copy.deepcopy(block), words)(x), block(x))
    assert {ParallelStyle(word) for word in words.values()} <= set(ParallelStyle)


@settings(max_examples=20, deadline=None)
@given(heads=st.integers(1, 4), head=st.integers(1, 8), samples=st.integers(1, 3), length=st.integers(1, 12))
def test_what_a_block_keeps(heads, head, samples, length):
    width = heads * head
    assert saved_bytes(Block(width, heads), torch.randn(samples, length, width)) == 4 * kept_values(
        width, samples * length, heads
    )


# ---- costs: laws

costs = st.builds(
    lambda width, tokens, ranks, rate, memory, link, latency, layer, sequence, context: TensorParallelCost(
        width,
        tokens,
        ranks,
        Roofline("x", memory, {"fp32": rate}, 0.0, "x"),
        Network("x", link, latency),
        "fp32",
        layer,
        context,
        sequence,
    ),
    st.integers(16, 20_000),
    st.integers(1, 100_000),
    st.integers(2, 64),
    st.floats(1e9, 1e15),
    st.floats(1e9, 1e13),
    st.floats(1e6, 1e12),
    st.floats(0, 1e-3),
    st.sampled_from([MLP_WORK, BLOCK_WORK]),
    st.booleans(),
    st.integers(1, 8192),
)


@settings(max_examples=100, deadline=None)
@given(cost=costs)
def test_laws_of_splitting(cost):
    efficiency, alone = cost.efficiency, replace(cost, world_size=1)
    assert 0 < efficiency <= 1 + 1e-9 and cost.speedup == pytest.approx(efficiency * cost.world_size)
    assert alone.efficiency == 1 and alone.communication_seconds == 0
    assert replace(cost, width=2 * cost.width).efficiency >= efficiency - 1e-9, "wider is better"
    assert replace(cost, tokens=2 * cost.tokens).efficiency >= efficiency - 1e-9, "more tokens pay the latency once"
    assert replace(cost, world_size=2 * cost.world_size).efficiency <= efficiency + 1e-9
    assert (
        replace(cost, network=replace(cost.network, bytes_per_s=2 * cost.network.bytes_per_s)).efficiency
        >= efficiency - 1e-9
    )
    assert replace(cost, sequence=True).seconds <= cost.seconds * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(cost=costs, efficiency=st.floats(0.05, 0.6))
def test_at_the_crossover_the_efficiency_is_reached(cost, efficiency):
    width = crossover_width(cost, efficiency)
    if width > 1000: assert replace(cost, width=round(width)).efficiency == pytest.approx(efficiency, rel=2e-2)
    else: assert width >= 0 and replace(cost, width=int(width) + 1).efficiency >= efficiency - 1e-9


@settings(max_examples=60, deadline=None)
@given(rate=st.floats(1e9, 1e14), memory=st.floats(1e9, 1e12), tokens=st.integers(1, 10_000))
def test_fitting_finds_the_device(rate, memory, tokens):
    device = Roofline("x", memory, {"fp32": rate}, 0.0, "x")
    at = {width: TensorParallelCost(width, tokens, 1, device, LINK, "fp32", context=64).seconds for width in (64, 512)}
    found = fit_device(at, tokens, 64)
    assert found.flops_per_s["fp32"] == pytest.approx(rate, rel=1e-3) and found.bytes_per_s == pytest.approx(
        memory, rel=1e-3
    )


@settings(max_examples=60, deadline=None)
@given(fast=st.floats(1e-2, 10.0), ratio=st.floats(0.5, 1000), tokens=st.integers(1, 10_000))
def test_fitting_always_finds_a_device_that_takes_the_longer_time(fast, ratio, tokens):
    found = fit_device({64: fast, 512: fast * ratio}, tokens, 64)
    assert found.flops_per_s["fp32"] > 0 and found.bytes_per_s > 0
    assert TensorParallelCost(512, tokens, 1, found, LINK, "fp32", context=64).seconds == pytest.approx(
        fast * ratio, rel=1e-3
    )


@pytest.mark.parametrize("tokens, enough", [(64, 256), (512, 512)])
def test_a_run_here_is_fitted_from_enough_work_at_other_widths(monkeypatch, tokens, enough):
    device, asked = Roofline("x", 1e10, {"fp32": 1e11}, 0.0, "x"), []

    def at(width, tokens, ranks):
        return TensorParallelCost(width, tokens, ranks, device, LINK, "fp32", context=CONTEXT).seconds

    def timed(call, *arguments):
        if call is all_reduce_seconds: return {size: [LINK.all_reduce(size, 2)] for size in arguments[0]}
        widths, tokens = arguments[1:3]
        asked.append((list(widths), tokens))
        return BlockSeconds(*({width: [at(width, tokens, ranks)] for width in widths} for ranks in (1, 2)))

    def here(_in_turn, ranks, calls, **how):
        done = [timed(*call) for call in calls]
        return {rank: done for rank in range(ranks)}

    monkeypatch.setattr(view, "run_ranks", here)
    found = view.measure_block(512, tokens)
    assert asked[0] == ([512], tokens) and asked[1][1] == enough and not set(asked[1][0]) & {2**n for n in range(16)}, (
        "the panel's widths are powers of two"
    )
    assert max(asked[1][0]) >= 512 and all(width % 32 == 0 for width in asked[1][0]), "two ranks share the heads"
    assert found.device.flops_per_s["fp32"] == pytest.approx(
        1e11, rel=1e-3
    ) and found.device.bytes_per_s == pytest.approx(1e10, rel=1e-3)
    assert found.network.bytes_per_s == pytest.approx(LINK.bytes_per_s, rel=1e-3) and found.seconds == {
        1: at(512, tokens, 1),
        2: at(512, tokens, 2),
    }


def test_weak_scaling_is_above_the_published_figure():
    v100 = replace(ROOFLINES["V100 32 GB"], flops_per_s={"fp16": 39e12})
    eight = TensorParallelCost(3072, 8 * 1024, 8, v100, NETWORKS["NVLink 2 (V100)"], "fp16")
    def rate(cost): return cost.layer.flops(cost.width, cost.tokens, cost.context) / cost.world_size / cost.seconds

    assert 0.77 < rate(eight) / rate(replace(eight, width=1536, world_size=1)) < 0.9, (
        "Shoeybi and others 2019: 77% of the arithmetic per device"
    )


def test_known_answers():
    mlp = TensorParallelCost(
        1000, 500, 4, Roofline("x", 1e25, {"fp32": 1e12}, 0.0, "x"), Network("x", 1e9, 0.0), "fp32", MLP_WORK
    )
    assert mlp.compute_seconds == pytest.approx(
        6 * 500 * 8e6 / 4 / 1e12
    ) and mlp.communication_seconds == pytest.approx(2 * 1.5 * 500 * 1000 * 4 / 1e9)
    assert crossover_width(mlp) == pytest.approx(3 * 4 * 1e12 / (12 * 1e9)), "(n - 1) b F / 12 B"
    block = replace(mlp, layer=BLOCK_WORK, context=250)
    assert block.compute_seconds == pytest.approx(
        6 * 500 * (12e6 + 2 * 250 * 1000) / 4 / 1e12
    ) and block.communication_seconds == pytest.approx(2 * mlp.communication_seconds)
    assert (
        replace(block, device=Roofline("x", 1e25, {"bf16": 1e12}, 0.0, "x"), precision="bf16").message_bytes
        == block.message_bytes / 2
    )
    memory = replace(mlp, device=Roofline("x", 1e9, {"fp32": 1e25}, 0.0, "x"))
    assert memory.compute_seconds == pytest.approx((20 / 4 + 3) * 500 * 1000 * 4 / 1e9) and replace(
        memory, sequence=True
    ).compute_seconds == pytest.approx(23 / 4 * 500 * 1000 * 4 / 1e9)
    assert crossover_width(replace(mlp, world_size=1)) == 0 and NETWORKS["NVLink 3 (A100)"].bytes_per_s == 300e9


def test_words_and_picture_follow_the_model():
    cost = TensorParallelCost(4096, 8192, 8, H100, NETWORKS["NVLink 4 (H100)"])
    words = str(view.describe_cost(cost))
    assert (
        f"efficiency of {cost.efficiency:.0%}" in words
        and f"width {crossover_width(cost):,.0f}." in words
        and "nobody to talk with" in str(view.describe_cost(replace(cost, world_size=1)))
    )
    drawing, measured = str(view.draw_cost(cost)), str(view.draw_cost(cost, {1: 1.0, 2: 0.7}))
    parts = 2 * len(view.SIZES) - 1  # one rank sends no messages
    assert drawing.count("<rect") == drawing.count("fill-opacity") == parts
    assert (
        measured.count("<rect") == parts + 2 and "measured 700 ms" in measured and "▶ 8 ranks" in drawing
    )
    assert f"8,192 tokens, bf16; {H100.name}; link: NVLink 4 (H100)" in drawing, "the picture says what it is about"
    assert "measured here" in measured and "measured here" not in drawing, "no key for what is not drawn"
