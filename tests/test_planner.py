"""The planner: formulas against real small models and printed figures, laws of cost, known answers, published runs."""
from dataclasses import fields, replace
from itertools import accumulate
from statistics import median

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from mlinfra import memory
from mlinfra.engine.planner import step_estimate
from mlinfra.engine.planner.calibration import calibrate_cluster
from mlinfra.engine.planner.clusters import CALL_SECONDS, LINK_SHARE, TENSOR_SHARE, USABLE_SHARE, cluster
from mlinfra.engine.planner.plan_search import MARGIN
from mlinfra.lab.published_runs import published_runs
from mlinfra.lab.published_sweeps import published_sweeps
from mlinfra.lab.published_tables import published_tables, table_errors
from mlinfra.lab.sweep_choices import H100_FEW, H100_MANY, choice_groups, order_agreement, twin_agreement
from mlinfra.lab.sweep_comparison import compare_published, compare_sweeps, predict_run
from mlinfra.engine.planner.model_specs import CHECKPOINTING, ParallelConfig, TransformerSpec
from mlinfra.engine.base.text import gb_text
from mlinfra.engine.pipeline.timeline import OperationKind
from mlinfra.pipeline import schedule
from mlinfra.planner import (
    JOBS, PlanEstimate, estimate_plan, infeasible_reason, parallel_configs, rank_plans, recommend)
from mlinfra.views.planner import draw_recommendation

GPT3, LLAMA70, RESNET = JOBS["GPT-3, 175B"], JOBS["LLaMA-like, 70B"], JOBS["ResNet-50"]
NODES = cluster(num_nodes=8)
RUNS = {run.name: run for run in published_runs()}


# ---- the formulas, counted on real models

SMALL = dict(name="", sequence_length=16, vocabulary=50)
SPECS = [
    TransformerSpec(layers=1, hidden=16, heads=2, global_batch=1, **SMALL),
    TransformerSpec(
        layers=3,
        hidden=16,
        heads=4,
        global_batch=2,
        kv_heads=2,
        gated=True,
        feed_forward=40,
        tied=False,
        dropout=False,
        **SMALL,
    ),
    TransformerSpec(
        layers=2, hidden=48, heads=6, global_batch=3, kv_heads=1, feed_forward=30, tied=False, dropout=False, **SMALL
    ),
    TransformerSpec(layers=2, hidden=8, heads=1, global_batch=2, gated=True, feed_forward=24, **SMALL),
]


@pytest.mark.parametrize("job", SPECS)
def test_parameters_and_flops_are_those_of_the_real_model(job):
    with torch.device("meta"):
        model, tokens = job.build(), torch.zeros(job.global_batch, job.sequence_length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter: model(tokens).sum().backward()
    cost = step_estimate.micro_batch_cost(job, ParallelConfig(micro_batch=job.global_batch))
    assert sum(p.numel() for p in model.parameters()) == job.parameters
    assert counter.get_total_flops() == 3 * job.global_batch * job.flops == cost.flops


GATED = dict(gated=True, fused_attention=True, feed_forward=200)


@pytest.mark.parametrize(
    "checkpointing, blocks, kind",
    [
        ("none", None, {}),
        ("selective", ".attention.core", {}),
        ("full", "", {}),
        ("none", None, GATED),
        ("full", "", GATED),
    ],
)
def test_activations_of_a_whole_model(checkpointing, blocks, kind):
    job = TransformerSpec(name="", layers=3, hidden=96, heads=3, global_batch=2, sequence_length=80, vocabulary=50,
                          dropout=False, precision="fp32", **kind)
    names = False if blocks is None else [f"blocks.{i}{blocks}" for i in range(job.layers)]
    counted = memory.estimate(job.build(), 2, (80,), checkpointing=names, input_dtype=torch.long).activations
    config = ParallelConfig(micro_batch=2, checkpointing=checkpointing)
    kept = job.layers * step_estimate.kept_layer_bytes(job, config) + 2 * 4 * 2 * 80 * 96
    assert counted == pytest.approx(kept, rel=0.01), "the layers, and input and output of the last norm"


def test_a_forward_pass_has_scores_for_each_token():
    job = SPECS[1]
    torch.manual_seed(0)
    plain, fused = job.build().eval(), replace(job, fused_attention=True).build().eval()
    fused.load_state_dict(plain.state_dict())
    tokens = torch.randint(0, 50, (2, 16))
    assert plain(tokens).shape == (2, 16, 50)
    torch.testing.assert_close(plain(tokens), fused(tokens))


# ---- laws

SIZES = st.sampled_from([(1, 1), (1, 8), (2, 4), (4, 2), (8, 8), (8, 1)])  # tensor, pipeline


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, stage=st.integers(0, 3), micro_batch=st.sampled_from([1, 2]), kind=st.sampled_from(CHECKPOINTING),
       sequence=st.booleans())
def test_each_means_saves_memory(sizes, stage, micro_batch, kind, sequence):
    tensor, pipeline = sizes
    config = ParallelConfig(64 // tensor // pipeline, tensor, pipeline, stage, micro_batch, kind, sequence)
    def total(**changes):
        held = step_estimate.device_bytes(GPT3, replace(config, **changes))
        return held.total - held.gathered
    assert total() >= total(sequence_parallel=True) and total(micro_batch=2 * micro_batch) >= total()
    if stage < 3: assert total() >= total(sharding_stage=stage + 1)
    assert total(checkpointing="none") >= total(checkpointing="selective")
    held = step_estimate.device_bytes(GPT3, config)
    if stage == 0: assert held.params + held.grads + held.optimizer == 16 * (held.params / 2)


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, micro_batch=st.sampled_from([1, 2]), factor=st.sampled_from([0.1, 0.5]))
def test_slower_machines_take_longer(sizes, micro_batch, factor):
    tensor, pipeline = sizes
    config = ParallelConfig(64 // tensor // pipeline, tensor, pipeline, 0, micro_batch)
    def seconds(**changes): return PlanEstimate(GPT3, replace(NODES, **changes), config).seconds
    def slow(link): return replace(link, bytes_per_s=factor * link.bytes_per_s)
    assert seconds(flops_per_s=factor * NODES.flops_per_s) > seconds()
    assert seconds(bytes_per_s=factor * NODES.bytes_per_s) > seconds()
    assert (
        seconds(inter_node=slow(NODES.inter_node)) >= seconds()
        and seconds(intra_node=slow(NODES.intra_node)) >= seconds()
    )
    assert seconds(overlap=False) >= seconds()
    one = PlanEstimate(GPT3, NODES, config)
    parts = [getattr(one.step, field.name) for field in fields(one.step)]
    assert min(parts) >= 0 and 0 < one.mfu < NODES.matrix_share and one.samples_per_s == GPT3.global_batch / one.seconds


def test_bytes_between_data_ranks_by_stage():
    instant = {name: replace(getattr(NODES, name), latency_seconds=0.0) for name in ("intra_node", "inter_node")}
    job, still = replace(GPT3, global_batch=512), replace(NODES, overlap=False, **instant)
    def sent(stage, micro_batch=1):
        seconds = estimate_plan(job, still, ParallelConfig(64, sharding_stage=stage, micro_batch=micro_batch)).step.data
        return round(seconds * 0.75 * 8 * 25e9 / (63 / 64) / (2 * job.parameters), 6)
    assert [sent(stage) for stage in range(4)] == [2, 2, 8 + 1, 8 * 3], \
        "eight micro-batches: gradients each time from stage 2 on, weights twice in stage 3"
    assert sent(3, 8) == 3, "one larger micro-batch gathers once"


def test_gradients_hide_behind_backward_and_new_weights_behind_the_next_forward():
    place = cluster(num_nodes=8, links_per_node=1)
    def step(stage, **changes):
        config = ParallelConfig(64, sharding_stage=stage)
        return estimate_plan(replace(GPT3, global_batch=128), replace(place, **changes), config).step
    turn = (step(0).compute + step(0).traffic) / 2            # two micro-batches
    def hidden(stage, **changes): return (step(stage, overlap=False).data - step(stage, **changes).data) / turn
    assert [hidden(stage) for stage in range(4)] == pytest.approx([2 / 3, 2 / 3 + 1 / 3, 2 * 2 / 3 + 1 / 3, 2])
    assert [hidden(stage, gather_overlap=False) for stage in range(4)] == pytest.approx([2 / 3, 2 / 3, 4 / 3, 2]), \
        "what ZeRO 3 gathers is for the pass that runs, and no new weight of an update"


def test_the_bubble_and_what_interleaving_saves():
    def bubble(chunks, batch=64):
        step = estimate_plan(replace(GPT3, global_batch=batch), NODES, ParallelConfig(1, 8, 8, chunks=chunks)).step
        return step.bubble / (step.compute + step.traffic + step.tensor)
    assert 7 / 64 < bubble(1) < 7 / 64 + 0.02 and bubble(3) < bubble(1) / 2 and bubble(1, 512) < bubble(1) / 4


def test_a_pipeline_divides_weights_and_not_activations():
    flat = [step_estimate.activation_bytes(GPT3, ParallelConfig(1, 8, stages), 512) for stages in (1, 2, 4, 8)]
    assert max(flat) / min(flat) < 1.03
    few = step_estimate.activation_bytes(GPT3, ParallelConfig(1, 8, 8), 1)
    assert few < flat[-1] / 4, "one micro-batch is in one stage"
    assert step_estimate.activation_bytes(GPT3, ParallelConfig(1, 8, 8, chunks=3), 512) > flat[-1] * 1.2
    weights = [step_estimate.device_parameters(GPT3, ParallelConfig(1, 1, stages)) for stages in (1, 2, 4, 8)]
    assert weights == sorted(weights, reverse=True) and weights[-1] < weights[0] / 7


def test_messages_of_tensor_ranks_and_the_link_they_take():
    for kind, count in (("none", 4), ("selective", 4), ("full", 6)):
        cost = step_estimate.micro_batch_cost(GPT3, ParallelConfig(tensor=8, checkpointing=kind))
        assert cost.all_reduces == count * GPT3.layers
    small = replace(GPT3, global_batch=8)
    step = estimate_plan(small, NODES, ParallelConfig(8, 8)).step
    message = CALL_SECONDS + 14 * 3.4e-6 + 2 * 7 / 8 * 2 * 2048 * 12288 / (TENSOR_SHARE * 300e9)
    assert step.tensor == pytest.approx(96 * 4 * message)
    assert estimate_plan(small, NODES, ParallelConfig(4, 16)).step.tensor > 2 * step.tensor, "even over eight links"


def test_a_ring_over_nodes_uses_all_their_links_unless_fewer_are_stated():
    def seconds(**changes):
        place = cluster(num_nodes=8, overlap=False, **changes)
        return estimate_plan(replace(GPT3, global_batch=64), place, ParallelConfig(64, sharding_stage=3)).step.data
    eight, one = seconds(), seconds(links_per_node=1)
    assert seconds(rails=False) == pytest.approx(one, rel=0.01) and one == pytest.approx(8 * eight, rel=0.05)
    assert cluster("H100 80 GB", num_nodes=2).link(16, 8).bytes_per_s == LINK_SHARE * 400e9
    assert cluster("A100 80 GB", num_nodes=2).link(16, 8).bytes_per_s == LINK_SHARE * 200e9


@pytest.mark.parametrize("name, spread", [
    ("MosaicML H100", 1.6), ("MosaicML A100 80 GB", 1.2), ("MLPerf Training 3.1", 1.2)])
def test_published_steps_over_several_nodes_are_those_of_rails(name, spread):
    "What is predicted, divided by what was published, varies little by default, and much with one cable a node."
    runs = [run for run in published_tables()[name] if run.config and run.cluster.num_nodes > 1]
    def varies(**changes):
        ratios = [step_estimate.step_seconds(run.job, replace(run.cluster, **changes), run.config).total / run.seconds
                  for run in runs]
        return max(ratios) / min(ratios)
    assert varies() < spread < varies(links_per_node=1)


def test_what_zero_3_pays_in_latency_grows_with_layers_messages_and_ranks():
    def latency(layers=96, nodes=8, **changes):
        job, place = replace(GPT3, layers=layers, global_batch=64 * nodes), cluster(num_nodes=nodes, **changes)
        instant = replace(place, overlap=False, intra_node=replace(place.intra_node, latency_seconds=0),
                          inter_node=replace(place.inter_node, latency_seconds=0))
        config = ParallelConfig(8 * nodes, sharding_stage=3, micro_batch=8)
        slow = estimate_plan(job, replace(place, overlap=False), config).step.data
        return slow - estimate_plan(job, instant, config).step.data
    hop = (7 * 3.4e-6 + 9.6e-6) / 8  # one hop of eight leaves a node
    assert latency() == pytest.approx(3 * 96 * 63 * hop) and latency(layers=48) == pytest.approx(latency() / 2)
    assert latency(gathers_per_layer=16) == pytest.approx(16 * latency())
    assert latency(nodes=16) == pytest.approx(127 / 63 * latency())


# ---- lists and refusals

@settings(max_examples=25, deadline=None)
@given(layers=st.integers(1, 40), heads=st.sampled_from([4, 6, 12]), batch=st.sampled_from([7, 48, 64]),
       num_nodes=st.sampled_from([1, 2, 3]), devices_per_node=st.sampled_from([1, 4, 8]))
def test_the_list_is_all_that_divides(layers, heads, batch, num_nodes, devices_per_node):
    job = TransformerSpec(name="", layers=layers, hidden=heads * 8, heads=heads, global_batch=batch)
    place = cluster(num_nodes=num_nodes, devices_per_node=devices_per_node)
    listed = parallel_configs(job, place)
    assert not any(infeasible_reason(job, place, config) for config in listed) and len(set(listed)) == len(listed)
    sizes = [(d, t, p) for d in range(1, 25) for t in range(1, 2 * devices_per_node + 1) for p in range(1, 25)]
    every = {size for size in sizes if not infeasible_reason(job, place, ParallelConfig(*size))}
    assert {(config.data, config.tensor, config.pipeline) for config in listed} == every


FP32 = replace(GPT3, precision="fp32")


@pytest.mark.parametrize("call, says", [
    (lambda: recommend(FP32, NODES), "precision must be bf16 or fp16"),
    (lambda: estimate_plan(FP32, NODES, ParallelConfig(64)), "precision must be bf16 or fp16"),
    (lambda: estimate_plan(LLAMA70, NODES, ParallelConfig(4, 16)),
     "tensor must divide the 8 heads of keys and values, got 16"),
    (lambda: estimate_plan(GPT3, NODES, ParallelConfig(1, 64)), "tensor must divide the 96 heads"),
    (lambda: estimate_plan(GPT3, NODES, ParallelConfig(8)),
     "data x tensor x pipeline x context must be the 64 devices, got 8"),
    (lambda: estimate_plan(GPT3, cluster(num_nodes=5), ParallelConfig(1, 8, 5)), "pipeline must divide the 96 layers"),
    (lambda: estimate_plan(GPT3, NODES, ParallelConfig(1, 8, 8, 2)), "sharding_stage must be 0 or 1 in a pipeline"),
    (lambda: estimate_plan(GPT3, NODES, ParallelConfig(64, micro_batch=7)),
     "data x micro_batch must divide the global batch of 1,536, got 448"),
    (lambda: estimate_plan(GPT3, NODES, ParallelConfig(1, 8, 8, chunks=5)), "chunks must divide a stage's 12 layers"),
    (lambda: estimate_plan(RESNET, NODES, ParallelConfig(8, 8)), "tensor and pipeline must be 1"),
    (lambda: recommend(NODES, GPT3), "job must be a TransformerSpec or a ModelSpec"),
    (lambda: recommend("GPT-3, 175B", NODES), "job must be .*, got 'GPT-3, 175B'"),
    (lambda: estimate_plan(GPT3, "A100 80 GB", ParallelConfig(64)), "cluster must be a Cluster"),
    (lambda: cluster(devices_per_node="8"), "devices_per_node must be a whole number, got '8'"),
    (lambda: cluster(inter_node=5), "inter_node must be a Network"),
    (lambda: cluster(intra_node="NVLink"), "intra_node must be a Network")])
def test_what_cannot_be_had_is_refused(call, says):
    with pytest.raises(ValueError, match=says): call()


# ---- long sequences, experts, 8 bits

LONG = replace(JOBS["LLaMA-like, 7B"], sequence_length=131_072, global_batch=16)
SPARSE = TransformerSpec(
    name="sparse", layers=8, hidden=1024, heads=16, feed_forward=2048, experts=16, experts_per_token=2, gated=True,
    tied=False, dropout=False, fused_attention=True, global_batch=64, sequence_length=4096)
H100S = cluster("H100 80 GB", num_nodes=2)


def test_context_ranks_divide_a_sequence_and_its_activations():
    kept = [step_estimate.device_bytes(LONG, ParallelConfig(context=ranks)).activations for ranks in (1, 2, 4)]
    assert kept[0] == pytest.approx(2 * kept[1]) == pytest.approx(4 * kept[2])
    flops = [step_estimate.micro_batch_cost(LONG, ParallelConfig(context=ranks)).flops for ranks in (1, 4)]
    assert flops[0] == pytest.approx(4 * flops[1])
    block = 2 * 2 * LONG.kv_width * LONG.sequence_length / 4   # keys and values of a rank, in 16 bits
    cost = step_estimate.micro_batch_cost(LONG, ParallelConfig(context=4))
    assert cost.ring_bytes == LONG.layers * 3 * 3 * block, "three hops: keys and values twice, their gradients once"
    slow = replace(H100S, intra_node=replace(H100S.intra_node, bytes_per_s=1e9))
    waits = [estimate_plan(LONG, place, ParallelConfig(2, context=8)).step.context for place in (H100S, slow)]
    assert waits[0] == 0 < waits[1], "attention hides keys and values, unless the link is slow"
    assert estimate_plan(LONG, H100S, ParallelConfig(context=16, sharding_stage=1)).memory.optimizer * 15.9 < (
        12 * LONG.parameters), "context ranks share the optimizer's state as copies do"
    with pytest.raises(ValueError, match="context must divide half a sequence"):
        estimate_plan(replace(LONG, sequence_length=2**17 + 2), H100S, ParallelConfig(2, context=8))
    assert {config.context for config in parallel_configs(LONG, H100S)} == {1, 2, 4, 8, 16}
    assert {config.context for config in parallel_configs(replace(LONG, sequence_length=2048), H100S)} == {1}


def test_experts_are_divided_among_ranks_that_exchange_tokens():
    whole, divided = (estimate_plan(SPARSE, H100S, ParallelConfig(16, expert=ranks)) for ranks in (1, 16))
    saved = SPARSE.layers * SPARSE.expert_parameters * 15 / 16
    assert whole.memory.params - divided.memory.params == pytest.approx(2 * saved)
    assert whole.step.expert == 0 < divided.step.expert and whole.step.compute == divided.step.compute
    cost = step_estimate.micro_batch_cost(SPARSE, ParallelConfig(16, expert=16))
    assert cost.exchanges == 4 * SPARSE.layers, "to an expert and back, forward and backward"
    assert cost.exchange_bytes == 2 * 4096 * 1024 * 2 * 15 / 16, "two experts a token, those on other ranks"
    near = estimate_plan(SPARSE, cluster("H100 80 GB"), ParallelConfig(8, expert=8)).step.expert
    assert divided.step.expert > 1.3 * near / 2, "half as many micro-batches, whose tokens leave the node by half"
    zero = [step_estimate.device_bytes(SPARSE, ParallelConfig(16, sharding_stage=1, expert=ranks)) for ranks in (1, 16)]
    assert zero[0].optimizer == pytest.approx(zero[1].optimizer, rel=1e-6), "each state once, on all 16"
    with pytest.raises(ValueError, match="expert must divide the 16 experts"):
        estimate_plan(SPARSE, H100S, ParallelConfig(16, expert=32))
    with pytest.raises(ValueError, match="expert must divide the 1 experts"):
        estimate_plan(LONG, H100S, ParallelConfig(16, expert=2))
    assert {config.expert for config in parallel_configs(SPARSE, H100S)} == {1, 2, 4, 8, 16}


def test_8_bits_halve_the_products_of_layers_only():
    short, long = (estimate_plan(replace(LONG, sequence_length=length, precision=precision), H100S, ParallelConfig(16))
                   for length, precision in ((2048, "fp8"), (2048, "bf16")))
    assert 0.5 < short.step.compute / long.step.compute < 0.65
    with pytest.raises(ValueError, match="precision must be bf16 or fp16"):
        estimate_plan(replace(GPT3, precision="fp8"), NODES, ParallelConfig(64))


@pytest.mark.parametrize("table, least, most", [
    ("MLPerf Training 3.1", 0.95, 1.15), ("NeMo H100, long sequences", 0.75, 1.1), ("MosaicML A100 80 GB", 0.7, 1.3),
    ("MosaicML A100 40 GB", 0.65, 1.2), ("MosaicML H100", 0.5, 1.05), ("torchtitan H100, context", 0.5, 1.05)])
def test_published_rows_that_no_constant_was_fitted_to(table, least, most):
    errors = table_errors(published_tables()[table])
    assert least < errors.ratio.min() and errors.ratio.max() < most
    assert errors.published_tokens_per_s.rank().corr(errors.predicted_tokens_per_s.rank()) > 0.95


# ---- recommendations

@pytest.mark.parametrize("job, place", [
    (JOBS["GPT-2 XL, 1.6B"], NODES), (RESNET, cluster("V100 32 GB", num_nodes=4)),
    (replace(JOBS["LLaMA-like, 7B"], layers=8), cluster("H200 141 GB", num_nodes=2))])
def test_what_fits_on_a_device_needs_plain_data_parallelism(job, place):
    best = recommend(job, place).best.config
    assert (best.tensor, best.pipeline, best.sharding_stage) == (1, 1, 0)


def test_too_large_means_sharding_before_cutting_matrices():
    found = recommend(JOBS["LLaMA-like, 7B"], NODES)
    best = found.best.config
    assert best.sharding_stage > 0 and best.tensor == best.pipeline == 1
    assert "Plain data parallelism takes at least" in found.summary and "too much" in found.summary


@pytest.mark.parametrize("job, over", [(LLAMA70, "is not possible"), (GPT3, "fits, and a step takes")])
def test_large_models_cut_matrices_inside_a_node(job, over):  # eight heads of keys and values make eight parts
    found = recommend(job, NODES)
    assert 1 < found.best.config.tensor <= 8 and f"A tensor group over two nodes {over}" in found.summary
    assert "What would change it" in found.reason and found.reason.startswith(found.summary)


def test_one_device_checkpoints_and_then_gives_up():
    job = replace(JOBS["LLaMA-like, 7B"], global_batch=8, layers=18)
    tight = recommend(job, cluster(devices_per_node=1, memory_bytes=16 * job.parameters / USABLE_SHARE + 8e9))
    assert tight.best.config.checkpointing == "full" and "Without checkpointing it takes at least" in tight.summary
    none = recommend(job, cluster(devices_per_node=1, memory_bytes=20e9))
    least = min(one.memory.total for one in none.tried)
    assert none.best is None and none.alternatives == () and none.table().empty
    for words in (
        gb_text(least - none.cluster.usable_bytes),
        "It would fit on A100 80 GB",
        "nodes like these",
        "offloading",
    ):
        assert words in none.reason


def test_what_divides_by_nothing():
    found = recommend(replace(GPT3, global_batch=7, layers=11), cluster(num_nodes=5, devices_per_node=1))
    assert found.best is None and found.reason.startswith("Nothing divides")


def test_the_order_the_margin_and_the_table():
    found = recommend(GPT3, NODES)
    fitting = sorted((one for one in found.tried if one.fits), key=lambda one: one.seconds)
    assert found.best.seconds <= MARGIN * fitting[0].seconds and all(one.fits for one in found.alternatives)
    assert [one.seconds for one in found.alternatives] == sorted(one.seconds for one in found.alternatives)
    table = found.table()
    assert len(table) == 5 and table.step_seconds[0] == found.best.seconds
    assert (table.data * table.tensor * table.pipeline == 64).all()
    assert found.place(fitting[0]) == 1 and found.place(fitting[-1]) > 1
    assert [found.best, *found.alternatives] == rank_plans(found.tried)


def test_what_does_not_divide_is_not_said_not_to_fit():
    reason = recommend(replace(RESNET, global_batch=8), cluster(devices_per_node=8)).reason
    assert "with four times the nodes no sizes divide" in reason and "nothing fits" not in reason


@pytest.mark.parametrize("stages, chunks", [(4, 1), (4, 2), (8, 4)])
def test_as_many_micro_batches_are_held_as_the_schedule_of_the_pipeline_chapter_holds(stages, chunks):
    lists = schedule("interleaved 1F1B" if chunks > 1 else "1F1B", stages, 4 * stages, chunks)
    change = {OperationKind.FORWARD: 1, OperationKind.BACKWARD: -1}  # of the micro-batches that a rank holds
    def most(rank): return max(accumulate(change[operation.kind] for operation in lists[rank])) / chunks
    place = ParallelConfig(pipeline=stages, chunks=chunks)
    job = TransformerSpec(name="", layers=8 * stages - 2, hidden=64, heads=4, global_batch=4 * stages, dropout=False,
                          vocabulary=1)
    each = step_estimate.kept_layer_bytes(job, place)
    again = step_estimate.layer_bytes(job, place) - each
    expected = max(most(0) * 7, most(1) * 8) * each + again
    assert step_estimate.activation_bytes(job, place, 4 * stages) == pytest.approx(expected), (
        "ends of 7 layers, 8 in the middle"
    )


def test_slow_links_and_much_memory_change_the_answer():
    slow = recommend(LLAMA70, cluster(num_nodes=8, inter_node="Ethernet, 1 Gbit/s")).best.config
    assert slow.data == 1 and slow.pipeline >= 8, "only activations at the borders of stages leave a node"
    roomy = recommend(LLAMA70, cluster(num_nodes=8, memory_bytes=2e12)).best.config
    assert (roomy.tensor, roomy.pipeline) == (1, 1)


# ---- published runs

SIZES_PRINTED = {
    "GLM-130B": (130e9, 0.02),
    "BLOOM 176B": (176.2e9, 0.002),
    "Llama 3 405B on 8192": (405e9, 0.005),
    "LLaMA-65B": (65.2e9, 0.005),
    "GPT-NeoX-20B": (20.55e9, 0.003),
}  # parameters, as printed to this many digits


@pytest.mark.parametrize("name", SIZES_PRINTED)
def test_the_models_have_their_published_sizes(name):
    printed, rel = SIZES_PRINTED[name]
    assert RUNS[name].job.parameters == pytest.approx(printed, rel=rel)


def test_units_of_published_figures():
    run = RUNS["LLaMA-65B"]
    assert run.seconds == pytest.approx(2048 * 2048 / 380 / 2048)
    base = RUNS["selective 175B"]
    assert replace(base, figure=100 * base.mfu, unit="MFU %").seconds == pytest.approx(base.seconds)


def test_published_runs_are_predicted_and_the_fitted_are_few():
    predicted = {name: predict_run(run) for name, run in RUNS.items()}
    assert len({run.source for run in RUNS.values()}) >= 9 and sum(run.fitted for run in RUNS.values()) == 13
    held = [name for name, run in RUNS.items() if not run.fitted and not name.startswith("ZeRO-3")]
    errors = [abs(predicted[name].seconds / RUNS[name].seconds - 1) for name in held]
    sharded = [predicted[name].seconds / RUNS[name].seconds for name in RUNS if name.startswith("ZeRO-3 530B")]
    assert len(sharded) == 3 and all(0.75 < ratio < 1 for ratio in sharded), "held out: fitted on 175B"
    assert len(held) >= 18 and median(errors) < 0.15 and max(errors) < 0.35
    misfits = {name for name, one in predicted.items() if not one.fits}
    assert misfits == {"Llama 3 405B on 8192", "Llama 3 405B on 16384", "ZeRO-3 530B on 640"}


def test_a_published_run_beside_ours():
    runs = [RUNS[name] for name in ("Megatron-LM 3.6B", "ZeRO-3 530B on 640", "LLaMA-65B")]
    table = compare_published(runs)
    assert list(table.run) == [run.name for run in runs] and list(table.fits) == [True, False, True]
    assert ((table.place >= 1) & (table.place <= table.fitting + 1)).all() and table.theirs[2] is None
    assert table.loss_percent[2] == 0, "where the source does not tell, our own configuration is taken"


def test_calibration_finds_constants_that_made_the_figures():
    constants = dict(matrix_share=0.55, tensor_share=0.3, call_seconds=4e-4)
    sweep = next(sweep for sweep in published_sweeps() if sweep.name == "LLaMA 65B, 2k, 128 A100")
    place = replace(sweep.cluster, **constants)
    made = [replace(run, seconds=estimate_plan(sweep.job, place, run.config).seconds) for run in sweep.timed]
    found = calibrate_cluster([replace(sweep, runs=tuple(made))])
    assert found._asdict() == pytest.approx(constants, rel=1e-3)


# ---- published sweeps, on which nothing was fitted

HELD = [sweep for sweep in published_sweeps() if not sweep.fitted]


def test_the_order_of_held_out_sweeps():
    table = compare_sweeps(HELD)
    llama, h100 = (table[table.sweep.str.startswith(name)] for name in ("LLaMA ", "Llama "))
    assert len(llama) == 9 and llama.rank_correlation.median() >= 0.8
    rest = llama[~llama.sweep.str.contains("256 A100")]  # there a step grows with parameters of a device, by no link
    assert rest.rank_correlation.min() > 0.7
    assert len(h100) == 26 and h100.shape_correlation.median() >= 0.75 and h100.rank_correlation.median() >= 0.78
    assert llama.chosen_slower_percent.median() < 3 and llama.chosen_slower_percent.max() < 20
    assert rest.shortlist_slower_percent.max() < 1, "a run of the list is the best published one"


def test_the_order_is_as_good_as_the_h100_runs_repeat_themselves():
    unseen = [sweep for members in (choice_groups()[H100_MANY], choice_groups()[H100_FEW]) for sweep in members
              if not sweep.program_fitted]
    assert len(unseen) == 18 and {sweep.job.name for sweep in unseen} == {"Llama 3B", "Llama 8B", "Llama 80B"}
    twins = twin_agreement(unseen)
    assert twins.apart > twins.twins / 3 and twins.correlation < 0.75, "the runs do not repeat themselves"
    assert order_agreement(unseen) > max(0.75, twins.correlation)
    assert order_agreement(unseen, repeated=True) > 0.8
    without = [replace(sweep, cluster=replace(sweep.cluster, micro_batch_seconds=0.0)) for sweep in unseen]
    assert order_agreement(without) < order_agreement(unseen) - 0.05, "the program's own time for a micro-batch matters"


def test_what_ran_out_of_memory_is_told_for_nine_of_ten_runs():
    table = compare_sweeps(sweep for sweep in HELD if sweep.name.startswith("LLaMA "))
    assert table.fits_right.sum() > 0.88 * (table.runs + table.out_of_memory).sum()


# ---- the picture

def test_the_picture_shows_the_list_and_what_does_not_fit():
    found = recommend(LLAMA70, NODES)
    text = str(draw_recommendation(found))
    for one in (*found.shortlist, found.best): assert str(one.config) in text
    assert text.count("▶") == 1 + len(found.shortlist)
    nothing = str(draw_recommendation(recommend(JOBS["GPT, 530B"], cluster("V100 32 GB", num_nodes=1))))
    assert "V100 32 GB" in nothing and "MFU" not in nothing
