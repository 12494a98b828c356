"""Tensor parallelism: every split equals one process at 2 and 4 ranks, says what it should, and the cost model keeps its laws."""
import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mlinfra.engine import tensor_costs
from mlinfra.views import tensor_parallel as tensor_parallel_views
from mlinfra import tensor_parallel as tp
from mlinfra.engine.hardware import NETWORKS, Network, ring_bytes
from mlinfra.engine.ranks import in_turn, run_ranks, rank_and_world_size
from mlinfra.engine.saved import saved_bytes
from mlinfra.engine.hardware import ROOFLINES, Roofline
from mlinfra.engine.collectives import CollectiveLog

LIBRARY = {2: ["mlp", "attention, three ways in", "block", "block, tokens cut"], 4: ["block, tokens cut"]}
TRAININGS = {
    2: {"by hand": tp.Training(double=True), "tokens cut": tp.Training(sequence=True, double=True), "DTensor": tp.Training(how="dtensor", double=True),
        "DTensor, tokens cut": tp.Training(how="dtensor", sequence=True, double=True), "CNN": tp.Training("cnn", double=True), "float32": tp.Training()},
    4: {"by hand": tp.Training(data=2, double=True, samples=50), "tokens cut": tp.Training(sequence=True, double=True, samples=50), "CNN": tp.Training("cnn", data=2, double=True),
        "DTensor and fully_shard": tp.Training(how="dtensor", sequence=True, data=2, double=True, samples=50)},
}


# ---- what ranks do in these tests

def said_of_nonsense():
    "What the ranks refuse, and with which words."
    def refusal(f, *args):
        try: f(*args)
        except ValueError as error: return str(error)
    n = rank_and_world_size()[1]
    return [refusal(tp.ColumnLinear, nn.Linear(4, n + 1)), refusal(tp.RowLinear, nn.Linear(n + 1, 4)), refusal(tp.reduce_scattered, torch.zeros(2, n + 1), 1),
            refusal(tp.train_parts, tp.Training(data=3))]


def collectives(dim):
    "Whether each of the four equals what one process computes from all ranks' tensors, and what was counted."
    rank, n = rank_and_world_size()
    everyone = [torch.arange(24, dtype=torch.float64).view(4, 6).roll(r) for r in range(n)]
    everyone = [torch.cat([t] * n, dim) for t in everyone]
    total = sum(everyone)
    with CollectiveLog() as wire:
        equal = [torch.equal(tp.summed(everyone[rank]), total), torch.equal(tp.all_gathered(everyone[rank], dim), torch.cat(everyone, dim)),
                 torch.equal(tp.reduce_scattered(everyone[rank], dim), total.chunk(n, dim)[rank]), torch.equal(tp.own_slice(total, dim), total.chunk(n, dim)[rank])]
    size = total.nbytes
    return equal, dict(wire.counts), {call.kind: call.bytes for call in wire.calls} == {"all-reduce": size, "all-gather": n * size, "reduce-scatter": size} and {call.ranks for call in wire.calls} == {n}


def forgotten_sum():
    "The worst difference of a block whose norms do not add up their gradients over slices, and of the right one."
    def difference():
        make, plan, shape = tp.CASES["block, tokens cut"]
        torch.manual_seed(0)
        whole = make().double()
        split = tp.split_model(copy.deepcopy(whole), plan)
        x = torch.randn(shape, dtype=torch.float64)
        for model in (whole, split): model(x).pow(2).sum().backward()
        return tp._apart(tp._pairs(split, whole))
    right, forward = difference(), tp.SlicedNorm.forward
    tp.SlicedNorm.forward = nn.LayerNorm.forward
    try: return right, difference()
    finally: tp.SlicedNorm.forward = forward


def group(world_size):
    calls = {("by hand", case): (tp.compare, case) for case in tp.CASES} | {("dtensor", case): (tp.compare, case, "dtensor") for case in LIBRARY[world_size]}
    calls |= {("training", name): (tp.train_parts, training) for name, training in TRAININGS[world_size].items()}
    calls |= {("said",): (said_of_nonsense,), ("collectives", 0): (collectives, 0), ("collectives", 1): (collectives, 1), ("forgotten",): (forgotten_sum,),
              ("seconds",): (tp.layer_seconds, (64, 128), 64, 2, 1)}
    found = run_ranks(in_turn, world_size, list(calls.values()), share_cores=True, timeout_seconds=100)
    return {rank: dict(zip(calls, values)) for rank, values in found.items()}


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request): return group(request.param)


# ---- equal to one process

def test_every_split_equals_one_process(ranks):
    for rank, found in ranks.items():
        for key, compared in found.items():
            if key[0] in ("by hand", "dtensor"): assert compared.worst < 1e-12, (rank, key, compared)


def test_messages_are_those_of_the_lesson(ranks):
    found, n = ranks[0], len(ranks)
    one, two = {"all-reduce": 1}, {"all-reduce": 2}
    for how in ("by hand", "dtensor") if n == 2 else ("by hand",):
        assert (found[how, "mlp"].forward, found[how, "mlp"].backward) == (one, one)
        assert (found[how, "attention, three ways in"].forward, found[how, "attention, three ways in"].backward) == (one, {"all-reduce": 3})
        assert (found[how, "block"].forward, found[how, "block"].backward) == (two, two)
        assert found[how, "mlp"].sent == pytest.approx(2 * ring_bytes(2 * 4 * 8 * 8, n)) and found[how, "block"].sent == pytest.approx(4 * ring_bytes(2 * 8 * 16 * 8, n))
    assert (found["by hand", "convolutions"].forward, found["by hand", "convolutions"].backward) == (one, one)
    assert (found["by hand", "column"].forward, found["by hand", "column"].backward) == ({"all-gather": 1}, one)
    assert (found["by hand", "row"].forward, found["by hand", "row"].backward) == (one, {"all-gather": 1})


def test_comm_debug_mode_agrees_with_our_counter(ranks):
    for key, compared in ranks[0].items():
        if key[0] in ("by hand", "dtensor"): assert compared.debug == sum(compared.forward.values()) + sum(compared.backward.values()) > 0, key


def test_cut_tokens_send_no_more_inside_of_the_block(ranks):
    n, size = len(ranks), 2 * 8 * 16 * 8
    mine, other, plain = ranks[0]["by hand", "block, tokens cut"], ranks[0]["dtensor", "block, tokens cut"], ranks[0]["by hand", "block"]
    assert other.sent == pytest.approx(plain.sent + 2 * (n - 1) / n * size) and mine.sent == pytest.approx(other.sent + 6 * ring_bytes(16 * 8, n))
    assert other.forward == mine.forward == {"all-gather": 3, "reduce-scatter": 2} and other.backward == {"all-gather": 3, "reduce-scatter": 2}
    assert mine.backward == other.backward | {"all-reduce": 6}, "two norms' weights and biases, two biases of row layers"
    assert other.unfinished == 4 and mine.unfinished == plain.unfinished == 0


def test_kept_activations_are_those_of_the_formula(ranks):
    n = len(ranks)
    assert ranks[0]["by hand", "block"].kept == 8 * tensor_costs.kept_values(16, 16, 4, n)
    assert ranks[0]["by hand", "block, tokens cut"].kept == 8 * tensor_costs.kept_values(16, 16, 4, n, sequence=True) < ranks[0]["by hand", "block"].kept


def test_training_equals_one_process_after_every_step(ranks):
    trainings = TRAININGS[len(ranks)]
    for name, training in trainings.items():
        alone = tp.train_parts(training)
        for rank in ranks:
            found = ranks[rank]["training", name]
            assert found.differs(alone) < (1e-12 if training.double else 1e-4), (name, rank)
            torch.testing.assert_close(found.losses, alone.losses, rtol=1e-4, atol=1e-5)
            assert found.differs(ranks[0]["training", name]) == 0, f"{name}: the ranks differ"
    assert alone.messages == 0 and ranks[0]["training", "by hand"].messages > 0


def test_a_forgotten_sum_would_be_seen(ranks):
    for rank in ranks:
        right, wrong = ranks[rank]["forgotten",]
        assert right < 1e-12 and wrong > 1e-3


def test_collectives_are_right_and_counted(ranks):
    for rank in ranks:
        for dim in (0, 1): assert ranks[rank]["collectives", dim] == ([True] * 4, {"all-reduce": 1, "all-gather": 1, "reduce-scatter": 1}, True)


def test_what_cannot_be_cut_is_refused_on_every_rank(ranks):
    n = len(ranks)
    for rank in ranks:
        column, row, scatter, mesh = ranks[rank]["said",]
        for words, shape in ((column, (n + 1, 4)), (row, (4, n + 1)), (scatter, (2, n + 1))): assert f"{shape} must be divisible by the {n} ranks that share it, got {n + 1}" in words
        assert mesh == f"data must divide the {n} ranks, got 3"


def test_timing_has_a_figure_for_each_round(ranks):
    for rank in ranks:
        seconds = ranks[rank]["seconds",]
        assert [len(times) for times in seconds["split"].values()] == [2, 2] and [len(times) for times in seconds["whole"].values()] == ([2, 2] if rank == 0 else [0, 0])


# ---- on one process

def test_nonsense_is_refused():
    for wrong, says in (({"query": "diagonal"}, "the plan for query must be one of column"), ({"nobody": "row"}, "names 'nobody', and Attention has no such layer")):
        with pytest.raises(ValueError, match=says): tp.parallelize(tp.Attention(8, 2), wrong)
    with pytest.raises(ValueError, match="case must be one of column, row, mlp.*got 'moe'"): tp.compare("moe")
    with pytest.raises(ValueError, match="how must be"): tp.split_model(tp.Attention(8, 2), {}, "by magic")
    with pytest.raises(ValueError, match="width must be divisible by heads, got 8 and 3"): tp.Attention(8, 3)
    for conv in (nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")):
        for part in (tp.ColumnConv, tp.RowConv):
            with pytest.raises(ValueError, match="only a convolution with groups=1"): part(conv)
    for how in (dict(model="vgg"), dict(how="magic"), dict(model="cnn", how="dtensor"), dict(model="cnn", sequence=True)):
        with pytest.raises(ValueError): tp.Training(**how)
    with pytest.raises(ValueError, match="divisible by 16 and tokens by 64, got 100 and 64"): tp.layer_seconds([100], 64)
    with pytest.raises(ValueError, match="precision must be one of fp32, fp16"): tensor_costs.Split(64, 64, 2, ROOFLINES["V100 32 GB"], LINK)
    with pytest.raises(ValueError, match="parts must be"): tensor_costs.Split(64, 64, 0, H100, LINK)
    for efficiency in (0, 1, -1, 2):
        with pytest.raises(ValueError, match="efficiency must be between 0 and 1"): tensor_costs.crossover(tensor_costs.Split(64, 64, 2, H100, LINK), efficiency)
    for seconds in ({64: 1.0}, {64: 1.0, 128: 2.0, 256: 9.0}):
        with pytest.raises(ValueError, match="two widths, got"): tensor_costs.fit_device(seconds, 64)


@settings(max_examples=15, deadline=None)
@given(stride=st.integers(1, 2), padding=st.integers(0, 2), dilation=st.integers(1, 2), bias=st.booleans())
def test_parts_of_one_rank_are_the_whole(stride, padding, dilation, bias):
    conv, x = nn.Conv2d(2, 4, 3, stride, padding, dilation, bias=bias), torch.randn(2, 2, 9, 9)
    for part in (tp.ColumnConv, tp.RowConv): torch.testing.assert_close(part(conv)(x), conv(x))
    linear, y = nn.Linear(3, 5, bias=bias), torch.randn(4, 3)
    for part in (tp.ColumnLinear, tp.RowLinear): torch.testing.assert_close(part(linear)(y), linear(y))


def test_plans_find_every_block():
    reader = tp.RowReader(16, 2, 3)
    plan = tp.block_plan(reader, sequence=True)
    assert len(plan) == 3 * len(tp.BLOCK_PLAN) + 2 and plan["stack.start"] == "slice" and plan["stack.block2.mlp.2"] == "row"
    assert "stack.start" not in tp.block_plan(reader) and tp.CASES["block, tokens cut"][1] == tp.block_plan(tp.Stack(16, 4), sequence=True)
    split = tp.parallelize(copy.deepcopy(reader), plan, sequence=1)
    x = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(split(x), reader(x))
    assert {name for name, _ in split.named_parameters()} == {name for name, _ in reader.named_parameters()}
    assert len(tp.cuts(split)) == 3 * (3 * 2 + 1 + 2 + 1)


@settings(max_examples=20, deadline=None)
@given(heads=st.integers(1, 4), head=st.integers(1, 8), samples=st.integers(1, 3), length=st.integers(1, 12))
def test_what_a_block_keeps(heads, head, samples, length):
    width = heads * head
    assert saved_bytes(tp.Block(width, heads), torch.randn(samples, length, width)) == 4 * tensor_costs.kept_values(width, samples * length, heads)


# ---- costs: laws

LINK, H100 = Network("toy", 1e9, 1e-5), ROOFLINES["H100 80 GB"]
splits = st.builds(lambda width, tokens, parts, rate, memory, link, latency, layer, sequence, context: tensor_costs.Split(
    width, tokens, parts, Roofline("x", memory, {"fp32": rate}, 0.0, "x"), Network("x", link, latency), "fp32", layer, context, sequence),
    st.integers(16, 20_000), st.integers(1, 100_000), st.integers(2, 64), st.floats(1e9, 1e15), st.floats(1e9, 1e13), st.floats(1e6, 1e12), st.floats(0, 1e-3),
    st.sampled_from([tensor_costs.MLP, tensor_costs.BLOCK]), st.booleans(), st.integers(1, 8192))


@settings(max_examples=100, deadline=None)
@given(split=splits)
def test_laws_of_splitting(split):
    efficiency = split.efficiency()
    assert 0 < efficiency <= 1 + 1e-9 and split.speedup() == pytest.approx(efficiency * split.parts)
    assert replace(split, parts=1).efficiency() == 1 and replace(split, parts=1).communication() == 0
    assert replace(split, width=2 * split.width).efficiency() >= efficiency - 1e-9, "wider is better"
    assert replace(split, tokens=2 * split.tokens).efficiency() >= efficiency - 1e-9, "more tokens pay the latency once"
    assert replace(split, parts=2 * split.parts).efficiency() <= efficiency + 1e-9
    assert replace(split, link=replace(split.link, bytes_per_s=2 * split.link.bytes_per_s)).efficiency() >= efficiency - 1e-9
    assert replace(split, sequence=True).seconds() <= split.seconds() * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(split=splits, efficiency=st.floats(0.05, 0.6))
def test_at_the_crossover_the_efficiency_is_reached(split, efficiency):
    width = tensor_costs.crossover(split, efficiency)
    if width > 1000: assert replace(split, width=round(width)).efficiency() == pytest.approx(efficiency, rel=2e-2)
    else: assert width >= 0 and replace(split, width=int(width) + 1).efficiency() >= efficiency - 1e-9


@settings(max_examples=60, deadline=None)
@given(rate=st.floats(1e9, 1e14), memory=st.floats(1e9, 1e12), tokens=st.integers(1, 10_000))
def test_fitting_finds_the_device(rate, memory, tokens):
    device = Roofline("x", memory, {"fp32": rate}, 0.0, "x")
    at = {width: tensor_costs.Split(width, tokens, 1, device, LINK, "fp32", context=64).seconds() for width in (64, 512)}
    found = tensor_costs.fit_device(at, tokens)
    assert found.flops_per_s["fp32"] == pytest.approx(rate, rel=1e-3) and found.bytes_per_s == pytest.approx(memory, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(fast=st.floats(1e-2, 10.0), ratio=st.floats(0.5, 1000), tokens=st.integers(1, 10_000))
def test_fitting_always_finds_a_device_that_takes_the_longer_time(fast, ratio, tokens):
    found = tensor_costs.fit_device({64: fast, 512: fast * ratio}, tokens)
    assert found.flops_per_s["fp32"] > 0 and found.bytes_per_s > 0
    assert tensor_costs.Split(512, tokens, 1, found, LINK, "fp32", context=64).seconds() == pytest.approx(fast * ratio, rel=1e-3)


@pytest.mark.parametrize("tokens, enough", [(64, 256), (512, 512)])
def test_a_run_here_is_fitted_from_enough_work_at_other_widths(monkeypatch, tokens, enough):
    device, asked = Roofline("x", 1e10, {"fp32": 1e11}, 0.0, "x"), []
    at = lambda width, tokens, parts: tensor_costs.Split(width, tokens, parts, device, LINK, "fp32", context=64).seconds()

    def timed(call, *arguments):
        if call is tp.all_reduce_seconds: return {size: [LINK.all_reduce(size, 2)] for size in arguments[0]}
        widths, tokens = arguments[:2]
        asked.append((list(widths), tokens))
        return {kind: {width: [at(width, tokens, parts)] for width in widths} for kind, parts in (("whole", 1), ("split", 2))}

    def here(_in_turn, ranks, calls, **how):
        done = [timed(*call) for call in calls]
        return {rank: done for rank in range(ranks)}

    monkeypatch.setattr(tp, "run_ranks", here)
    found, link, seconds = tensor_parallel_views.measure_split(512, tokens)
    assert asked[0] == ([512], tokens) and asked[1][1] == enough and not set(asked[1][0]) & {2**n for n in range(16)}, "the panel's widths are powers of two"
    assert max(asked[1][0]) >= 512 and all(width % 32 == 0 for width in asked[1][0]), "two ranks share the heads"
    assert found.flops_per_s["fp32"] == pytest.approx(1e11, rel=1e-3) and found.bytes_per_s == pytest.approx(1e10, rel=1e-3)
    assert link.bytes_per_s == pytest.approx(LINK.bytes_per_s, rel=1e-3) and seconds == {1: at(512, tokens, 1), 2: at(512, tokens, 2)}


def test_weak_scaling_is_above_the_published_figure():
    v100 = replace(ROOFLINES["V100 32 GB"], flops_per_s={"fp16": 39e12})
    eight = tensor_costs.Split(3072, 8 * 1024, 8, v100, NETWORKS["NVLink 2 (V100)"], "fp16")
    rate = lambda split: split.layer.flops(split.width, split.tokens, split.context) / split.parts / split.seconds()
    assert 0.77 < rate(eight) / rate(replace(eight, width=1536, parts=1)) < 0.9, "Shoeybi and others 2019: 77% of the arithmetic per device"


def test_known_answers():
    mlp = tensor_costs.Split(1000, 500, 4, Roofline("x", 1e30, {"fp32": 1e12}, 0.0, "x"), Network("x", 1e9, 0.0), "fp32", tensor_costs.MLP)
    assert mlp.compute() == pytest.approx(6 * 500 * 8e6 / 4 / 1e12) and mlp.communication() == pytest.approx(2 * 1.5 * 500 * 1000 * 4 / 1e9)
    assert tensor_costs.crossover(mlp) == pytest.approx(3 * 4 * 1e12 / (12 * 1e9)), "(n - 1) b F / 12 B"
    block = replace(mlp, layer=tensor_costs.BLOCK, context=250)
    assert block.compute() == pytest.approx(6 * 500 * (12e6 + 2 * 250 * 1000) / 4 / 1e12) and block.communication() == pytest.approx(2 * mlp.communication())
    assert replace(block, device=Roofline("x", 1e30, {"bf16": 1e12}, 0.0, "x"), precision="bf16").message == block.message / 2
    memory = replace(mlp, device=Roofline("x", 1e9, {"fp32": 1e30}, 0.0, "x"))
    assert memory.compute() == pytest.approx((20 / 4 + 3) * 500 * 1000 * 4 / 1e9) and replace(memory, sequence=True).compute() == pytest.approx(23 / 4 * 500 * 1000 * 4 / 1e9)
    assert tensor_costs.crossover(replace(mlp, parts=1)) == 0 and NETWORKS["NVLink 3 (A100)"].bytes_per_s == 300e9


def test_words_and_picture_follow_the_model():
    split = tensor_costs.Split(4096, 8192, 8, H100, NETWORKS["NVLink 4 (H100)"])
    words = tensor_parallel_views.describe_split(split)
    assert f"efficiency {split.efficiency():.0%}" in words and f"width {tensor_costs.crossover(split):,.0f}." in words and "says nothing" in tensor_parallel_views.describe_split(replace(split, parts=1))
    drawing, measured = str(tensor_parallel_views.draw_split(split)), str(tensor_parallel_views.draw_split(split, {1: 1.0, 2: 0.7}))
    assert drawing.count("<rect") == 2 * len(tensor_parallel_views.PARTS) and drawing.count("stroke-dasharray") == 2 * len(tensor_parallel_views.PARTS)
    assert measured.count("<rect") == 2 * len(tensor_parallel_views.PARTS) + 2 and "measured 700 ms" in measured and "▶ 8 ranks" in drawing
