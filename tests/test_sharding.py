"""Sharding: every way equals one process at 2 and 4 ranks, holds and sends what was predicted; laws."""
import json
import math
import re
import socket
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mlinfra import sharding as sh
from mlinfra.engine.dist.zero import ELEMENTWISE
from mlinfra.lab.shard_trials import STRATEGIES, ShardTrial, reduce_in_halves, run_shard_trial
from mlinfra.data import BatchLoader
from mlinfra.engine.dist import zero_blocks as zero
from mlinfra.engine.base.checks import refusal
from mlinfra.engine.dist.collectives import Group
from mlinfra.engine.base.hardware import ring_bytes
from mlinfra.engine.memory.optimizers import OPTIMIZERS
from mlinfra.engine.dist.rank_data import first_digits, train_digits
from mlinfra.engine.dist.process_group import rank_and_world_size
from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.dist.rank_trials import TRIAL_MODELS, run_trial
from mlinfra.models import GluonCNN
from mlinfra.training import evaluate, fit, sgd
from mlinfra.views import sharding as views

# sums of at most 1e5 products in float64, each off by half a unit, in each of at most ten steps; Adam's division
# magnifies
# the rounding of gradients that are as small as its eps of 1e-8, and then by at most 1e-3 / 1e-8 of the rate a step
EXACT = 10 * 1e5 * 1.1e-16
Uneven = partial(ShardTrial, "uneven", samples=80, global_batch=33, double=True)  # 33, 33, 14: nothing divides
TRIALS = {way: Uneven(strategy=way) for way in STRATEGIES if way not in ("whole", "fsdp, bf16")}
MANY = {
    f"{way}, {optimizer}": Uneven(strategy=way, optimizer=optimizer)
    for way, optimizer in (
        ("stage 1", "momentum"),
        ("stage 2", "momentum"),
        ("stage 3", "momentum"),
        ("fsdp", "momentum"),
        ("stage 2", "sgd"),
        ("stage 3", "adamw"),
    )
}
EMPTY = {f"{way}, an empty share": Uneven(samples=34, strategy=way) for way in ("stage 2", "stage 3", "fsdp")}
PILED = {
    f"{way}, piled up": Uneven(accumulation=3, strategy=way)
    for way in (  # micro-batches of 11; the last step: 11 and 3
        "stage 0",
        "stage 1",
        "stage 2",
        "stage 3",
        "fsdp",
        "fsdp, kept",
    )
}
SHORT = {
    f"{way}, a short step": Uneven(samples=23, accumulation=3, strategy=way) for way in ("stage 3", "fsdp")
}  # 11, 11, 1
SINGLE = {f"{way}, float32": ShardTrial(samples=64, strategy=way)
          for way in ("stage 0", "stage 1", "stage 2", "stage 3", "fsdp", "ZeroRedundancyOptimizer")}
STACK = {f"{way}, stack": ShardTrial("stack", samples=64, strategy=way) for way in ("stage 1", "stage 2", "stage 3")}
HALF = {"fsdp, bf16": ShardTrial(samples=64, strategy="fsdp, bf16")}
EVERY = {2: TRIALS | MANY | EMPTY | PILED | SHORT | SINGLE | STACK | HALF, 4: TRIALS | EMPTY | SHORT | SINGLE | HALF}


class Partly(nn.Module):
    "A dense layer outside any block, a block, and a layer that is never used."
    def __init__(self):
        super().__init__()
        self.first, self.block, self.unused = (
            nn.Linear(5, 6),
            nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)),
            nn.Linear(2, 2),
        )

    def forward(self, x): return self.block(self.first(x))


def partly(stage, micro_batches=2):
    """Weights after three steps of a model with a part in no block and an unused one; the gradients of micro-batches
    pile up."""
    rank, world_size = rank_and_world_size()
    torch.manual_seed(0)
    model, x = Partly().double(), torch.randn(8, 5, dtype=torch.float64)
    own = (
        OPTIMIZERS["momentum"](model.parameters()) if stage is None else sh.Sharded(model, "momentum", stage, ["block"])
    )
    for _ in range(3):
        for part in x.tensor_split(world_size)[rank].tensor_split(micro_batches):
            (model(part).square().sum() * world_size / 8).backward()
        own.step()
        if stage is None: own.zero_grad()
    if stage is None: return torch.cat([p.detach().flatten() for p in model.parameters()])
    with own.whole(): weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    freed = [block.whole.untyped_storage().nbytes() for block in own.blocks]
    return weights, freed, model(x[:world_size]).detach().sum().item() if stage == 3 else None


class Sometimes(nn.Module):
    "A layer outside any block, and a block whose second layer is not always used."
    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Linear(5, 6), Pair()

    def forward(self, x, both): return self.block(self.first(x), both)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, both): return self.other(torch.tanh(self.one(x))) if both else self.one(x)


def sometimes(stage, together=False):
    """Weights after three steps, whose first micro-batch uses one layer of the block and whose second uses both;
    backward after each, or after both."""
    rank, world_size = rank_and_world_size()
    torch.manual_seed(0)
    model, x = Sometimes().double(), torch.randn(8, 5, dtype=torch.float64)
    whole = OPTIMIZERS["momentum"](model.parameters()) if stage is None else None
    own = whole or sh.Sharded(model, "momentum", stage, ["block"])
    for _ in range(3):
        losses, parts = [], [half.tensor_split(world_size)[rank] for half in x.tensor_split(2)]
        for part, both in zip(parts, (False, True)):
            losses.append(model(part, both).square().sum() * world_size / 8)
            if not together: losses.pop().backward()
        for loss in losses: loss.backward()
        own.step()
        if stage is None: own.zero_grad()
    with own.whole() if stage is not None else nullcontext():
        return torch.cat([p.detach().flatten() for p in model.parameters()])


def inside(stage):
    """What can be read within `whole`: before, after a forward, and after backward and a step; then the weights
    afterwards, and the bytes that are kept."""
    torch.manual_seed(0)
    model, x = Partly().double(), torch.ones(2, 5, dtype=torch.float64)
    read = lambda: torch.cat([p.detach().flatten() for p in model.parameters()])
    before = read()
    own = sh.Sharded(model, "momentum", stage, ["block"])
    with own.whole():
        with own.whole(): loss = model(x).square().sum()
        again = read()
        loss.backward()
        own.step()
        updated = read()
    freed = [block.whole.untyped_storage().nbytes() for block in own.blocks]
    with own.whole(): return before, again, updated, read(), freed


def quiet():
    "Whether `fsdp` leaves the warnings of the process as they are, and the warnings of two runs with it."
    sh.fsdp(GluonCNN())
    alone = not any("returned a view" in str(message) for _, message, *_ in warnings.filters)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run_shard_trial(ShardTrial(samples=8, global_batch=8, strategy="fsdp"))
        sh.train_sharded(GluonCNN(), first_digits(8), batch_size=8 // rank_and_world_size()[1], device="cpu")
    return alone, [str(w.message) for w in seen if "returned a view" in str(w.message)]


def few_images(): return refusal(sh.train_sharded, GluonCNN(), first_digits(1), device="cpu")


def other_model():
    return refusal(sh.train_sharded, GluonCNN(hidden=100 + rank_and_world_size()[0]), first_digits(40), device="cpu")


def other_settings():
    rank, images = rank_and_world_size()[0], first_digits(40)
    ways = dict(
        images=dict(train=first_digits(40 + rank)),
        batch_size=dict(batch_size=8 + rank),
        epochs=dict(epochs=1 + rank),
        seed=dict(seed=rank),
        precision=dict(precision=("fp32", "bf16")[rank % 2]),
        valid=dict(valid=first_digits(8 + rank)),
    )
    return {
        name: refusal(sh.train_sharded, GluonCNN(), **(dict(train=images, device="cpu") | how))
        for name, how in ways.items()
    }


def wrong_group(): return refusal(sh.Sharded, GluonCNN(), shard_size=3), refusal(sh.fsdp, GluonCNN(), shard_size=3)


def modes():
    "Whether a sharded model is in the mode it was in after its accuracy was measured."
    net = sh.fsdp(GluonCNN())
    found = []
    for training in (True, False):
        sh.accuracy_of_ranks(net.train(training), first_digits(9))
        found.append(all(module.training is training for module in net.modules()))
    return found


def hybrid_of_the_lesson():
    "The shard of a block that the lesson's line for hybrid sharding leaves on this rank, with two ranks to a copy."
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    cells = json.loads((Path(__file__).parent.parent / "nbs/12_sharding.ipynb").read_text(encoding="utf-8"))["cells"]
    line = re.search(r"`(mesh = .*?)`, then `(fully_shard\(.*?\))`", "\n".join("".join(c["source"]) for c in cells))
    made = line[1].replace('"cuda", (2, 8)', f'"cpu", ({Group.of().size // 2}, 2)')
    names = dict(block=nn.Linear(8, 8), init_device_mesh=init_device_mesh, fully_shard=fully_shard)
    exec(f"{made}\n{line[2]}", names)
    return tuple(names["block"].weight.to_local().shape)


def group(world_size):
    "Everything in one started group, by name."
    calls = {name: (run_shard_trial, trial) for name, trial in EVERY[world_size].items()}
    calls |= {f"partly {stage}": (partly, stage) for stage in range(4)}
    calls |= {
        "halves": (reduce_in_halves, 7),
        "few": (few_images,),
        "other": (other_model,),
        "wrong group": (wrong_group,),
    }
    calls |= {f"sometimes {stage}": (sometimes, stage) for stage in range(4)}
    calls |= {f"sometimes {stage}, together": (sometimes, stage, True) for stage in (1, 3)}
    calls |= {f"inside {stage}": (inside, stage) for stage in (1, 3)}
    calls |= {"quiet": (quiet,), "other settings": (other_settings,), "modes": (modes,)}
    calls |= {"hybrid": (hybrid_of_the_lesson,)}
    how = dict(double=True, batch_size=24 // world_size, accumulation=2, lr=0.05, momentum=0.5)
    how |= dict(valid=first_digits(101, True, train=False))
    calls |= {"digits": (partial(train_digits, sh.train_sharded, 97, **how),)}
    found = run_ranks(call_each, world_size, list(calls.values()), share_cores=True, timeout_seconds=600)
    return [dict(zip(calls, values)) for values in found.values()]


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.rarely), 4])
def ranks(request): return group(request.param)


def alone(trial): return replace(trial, strategy="whole", accumulation=1)


@pytest.fixture(scope="module")
def once():
    "What one process does, once for each kind of trial, without micro-batches."
    found = {trial: run_trial(trial) for trial in {alone(trial) for trial in EVERY[2].values()}}
    return lambda trial: found[alone(trial)]


# ---- equal to one process

def steps_apart(run, lr=1e-3):
    """Where a gradient is mere rounding, Adam may step the other way: twice the rate a step, in sizes of the largest
    weight."""
    return 2 * lr * len(run.losses) / run.weights.abs().max().item()


def test_every_way_equals_one_process(ranks, once):
    strict = {trial.strategy for trial in EVERY[len(ranks)].values() if trial.double}
    assert strict >= set(STRATEGIES) - {"whole", "fsdp, bf16"}, "the strict proof is in float64"
    for name, trial in EVERY[len(ranks)].items():
        first, one = ranks[0][name], once(trial)
        assert all(first.differs(found[name]) == 0 for found in ranks), f"{name}: the ranks differ"
        assert first.differs(one) < (EXACT if trial.double else 2 * steps_apart(one)), name
        if trial.double: torch.testing.assert_close(first.losses, one.losses, rtol=EXACT, atol=0, msg=name)


def test_without_talking_ranks_are_not_equal(once):
    other = run_trial(replace(alone(TRIALS["stage 3"]), global_batch=32))
    assert other.differs(once(TRIALS["stage 3"])) > 1e-6, "another batch is another run: the comparison can fail"


def test_measuring_accuracy_leaves_the_mode_as_it_was(ranks):
    for found in ranks: assert found["modes"] == [True, True]


def test_blocks_leftovers_unused_parameters_and_micro_batches(ranks):
    expected = partly(None)
    for stage in range(4):
        weights, freed, output = ranks[0][f"partly {stage}"]
        torch.testing.assert_close(weights, expected)
        assert all((size == 0) == (stage == 3) for size in freed) and (output is None) == (stage < 3)
        assert all(torch.equal(weights, found[f"partly {stage}"][0]) for found in ranks)


def test_a_layer_that_only_some_micro_batches_use(ranks):
    for name in ranks[0]:
        if not name.startswith("sometimes"): continue
        torch.testing.assert_close(
            ranks[0][name], sometimes(None, "together" in name), msg=lambda words: f"{name}: {words}"
        )
        assert all(torch.equal(ranks[0][name], found[name]) for found in ranks), name


def test_within_whole_all_weights_stay(ranks):
    for stage in (1, 3):
        for found in ranks:
            before, again, updated, after, freed = found[f"inside {stage}"]
            assert torch.equal(before, again) and torch.equal(updated, after) and not torch.equal(before, after)
            assert all((size == 0) == (stage == 3) for size in freed), "afterwards stage 3 has its share only"


def test_fsdp_leaves_the_warnings_of_the_process_alone(ranks):
    for found in ranks: assert found["quiet"] == (True, [])


def test_the_lessons_line_for_hybrid_sharding_runs(ranks):
    assert {found["hybrid"] for found in ranks} == {(4, 8)}, "half of the rows, on two ranks and on four"


def test_an_all_reduce_is_two_halves(ranks):
    for found in ranks:
        same, calls = found["halves"]
        assert same and [call.kind for call in calls] == ["all-reduce", "reduce-scatter", "all-gather"]
        assert {(call.bytes, call.ranks) for call in calls} == {(8 * 7 * len(ranks), len(ranks))}
        assert (
            calls[0].sent_bytes == calls[1].sent_bytes + calls[2].sent_bytes == ring_bytes(calls[0].bytes, len(ranks))
        )


# ---- bytes

def test_each_rank_holds_what_the_estimate_says(ranks):
    for name, trial in SINGLE.items():
        guess, held = trial.predicted(len(ranks)), [found[name].held for found in ranks]
        for part in ("params", "grads", "optimizer", "activations"):
            real, wanted = max(getattr(h, part) for h in held), getattr(guess, part)
            if name.startswith("Zero") and part == "optimizer":
                assert sum(h.optimizer for h in held) == pytest.approx(len(ranks) * wanted, abs=64 * len(ranks))
                assert real > 1.5 * wanted
                continue
            padding = (64 if part == "optimizer" else 8 * (len(ranks) - 2)) + (0.02 * wanted if "fsdp" in name else 0)
            assert abs(real - wanted) <= padding, (name, part)


def test_padding_is_all_that_uneven_sizes_cost(ranks):
    size = len(ranks)
    for stage in range(1, 4):
        trial, held = TRIALS[f"stage {stage}"], ranks[0][f"stage {stage}"].held
        blocks = [
            sum(p.numel() for p in own) for own in zero.blocks_of(GluonCNN(channels=(7, 13), hidden=101)).values()
        ]
        shares = sum(8 * math.ceil(n / size) for n in blocks)
        assert held.params == (shares if stage == 3 else size * shares) and held.optimizer == 2 * shares + 4 * len(
            blocks
        )
        assert held.grads == (8 * sum(blocks) if stage == 1 else shares)
        assert held.activations <= trial.predicted(size).activations


def test_hybrid_holds_the_share_of_its_group(ranks):
    copies = 2
    for way in ("stage 3, hybrid", "fsdp, hybrid"):
        guess, held = TRIALS[way].predicted(len(ranks)), ranks[0][way].held
        full = ranks[0][way.removesuffix(", hybrid")].held.params
        assert held.params == pytest.approx(guess.params, rel=0.03) and held.params > 0.9 * copies * full


def test_what_is_sent_follows_the_formula(ranks):
    n, weights = len(ranks), sum(p.nbytes for p in GluonCNN().parameters())
    sent = {name: sum(call.sent_bytes for call in ranks[0][name].calls) for name in EVERY[n]}
    for stage in range(4):
        assert sent[f"stage {stage}, float32"] == pytest.approx(sh.wire_bytes(weights, stage, n), rel=1e-4), (
            "but for padding"
        )
    assert sh.wire_bytes(weights, 3, n) <= sent["fsdp, float32"] < 1.02 * sh.wire_bytes(weights, 3, n)
    assert sent["ZeroRedundancyOptimizer, float32"] == pytest.approx(1.5 * sh.wire_bytes(weights, 1, n))
    bf16 = sh.wire_bytes(weights, 3, n, gathered_bytes=weights / 2)
    assert bf16 <= sent["fsdp, bf16"] < 1.02 * bf16
    uneven = 8 * sum(p.numel() for p in TRIAL_MODELS["uneven"]().parameters())
    full, hybrid = sh.wire_bytes(uneven, 3, n), sh.wire_bytes(uneven, 3, n, n // 2)
    expected = {"stage 1, all-reduce": full, "stage 3": full, "fsdp": full, "fsdp, kept": sh.wire_bytes(uneven, 2, n),
                "fsdp, on the host": full, "stage 3, hybrid": hybrid, "fsdp, hybrid": hybrid}
    for way, bytes in expected.items(): assert bytes <= sent[way] < 1.08 * bytes, way


def test_the_calls_are_those_that_pytorch_counts(ranks):
    names = {"all-reduce": "allreduce_", "all-gather": "_allgather_base_", "reduce-scatter": "_reduce_scatter_base_"}
    for way in TRIALS:
        if way.startswith("Zero"): continue  # DDP's first step is unlike the others
        run = ranks[0][way]
        kinds, steps = [call.kind for call in run.calls], len(run.losses)
        assert {names[kind]: steps * kinds.count(kind) for kind in set(kinds)} == run.debug, way


def test_who_holds_what_when(ranks):
    n, (model, width, suffix) = len(ranks), ("uneven", 8, "") if len(ranks) == 4 else ("stack", 4, ", stack")
    events = {stage: ranks[0][f"stage {stage}{suffix}"].events for stage in (1, 2, 3)}
    lengths = {name: sum(p.numel() for p in own) for name, own in zero.blocks_of(TRIAL_MODELS[model]()).items()}
    blocks = {name: width * math.ceil(length / n) * n for name, length in lengths.items()}
    spans = {stage: zero.held_spans(told, stage < 3) for stage, told in events.items()}
    most = {(stage, kind): zero.peak_held(spans[stage], kind) for stage in spans for kind in ("weights", "gradients")}
    every, largest = sum(blocks.values()), max(blocks.values())
    assert most == {(1, "weights"): every, (1, "gradients"): every, (2, "weights"): every, (2, "gradients"): largest,
                    (3, "weights"): largest, (3, "gradients"): largest}
    life = ["gather", "free", "gather", "gradients", "reduce", "free"]
    for name in blocks: assert [event.what for event in events[3] if event.block == name] == life
    assert [event.block for event in events[3] if event.what == "gather"] == [*blocks, *reversed(blocks)]


# ---- train_sharded

def test_train_sharded_is_the_run_of_one_process(ranks):
    "97 images in steps of 48: the last step has one image, so that all ranks but one have none."
    torch.manual_seed(0)
    one, digits = GluonCNN().double(), first_digits(97, double=True)
    history = fit(
        one, BatchLoader(digits, 48, shuffle=True, seed=0), optimizer=sgd(one, 0.05, 0.5), device="cpu", progress=False
    )
    losses = [sum(step) / len(ranks) for step in zip(*(found["digits"].losses for found in ranks))]
    torch.testing.assert_close(losses, [step.loss for step in history.steps], rtol=EXACT, atol=0)
    for found in (rank["digits"] for rank in ranks):
        assert found.accuracy == evaluate(one, first_digits(101, double=True, train=False))
        for name, tensor in one.state_dict().items():
            torch.testing.assert_close(found.weights[name], tensor, rtol=0, atol=EXACT * tensor.abs().max().item())


def test_nonsense_on_ranks_is_refused_on_every_rank(ranks):
    n = len(ranks)
    for found in ranks:
        assert found["few"] == f"each rank needs an image: 1 are too few for {n} ranks"
        assert "rank 1 has another model than rank 0: classifier.1.weight is (101, 800) there" in found["other"]
        said = dict(images="images=41, rank 0 has images=40", batch_size="batch_size=9, rank 0 has batch_size=8",
                    epochs="epochs=2, rank 0 has epochs=1", seed="seed=1, rank 0 has seed=0",
                    precision="precision='bf16', rank 0 has precision='fp32'", valid="valid=9, rank 0 has valid=8")
        for name, words in said.items(): assert f"rank 1 has {words}" in found["other settings"][name], name
        assert found["wrong group"] == (f"shard_size must divide the world size {n}, got 3",) * 2


def test_what_torchrun_announces_is_enough(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    announced = dict(RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    for name, value in announced.items(): monkeypatch.setenv(name, str(value))
    found = train_digits(sh.train_sharded, 100, batch_size=32)
    assert len(found.losses) == 4 and 0 < found.accuracy <= 1 and rank_and_world_size() == (0, 1)
    assert all(torch.isfinite(t).all() for t in found.weights.values())


# ---- one process: sharing among one, refusals

def test_nonsense_is_refused():
    cnn, frozen, mixed = GluonCNN(), GluonCNN(), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    next(frozen.parameters()).requires_grad = False
    for how, words in (
        (dict(sharding_stage=4), "must be one of 0, 1, 2, 3"),
        (dict(sharding_stage=True), "one of 0, 1, 2, 3"),
        (dict(optimizer="adafactor"), "must be one of sgd, momentum, adam, adamw"),
        (dict(sharding_stage=2, all_reduce=True), "a way of stage 1"),
        (dict(shard_size=0), "shard_size must be"),
        (dict(shard_size=2), "must divide the world size 1"),
        (dict(blocks=["features", "features.0"]), "in two blocks, features and features.0"),
    ):
        assert words in refusal(sh.Sharded, cnn, **how), how
    assert "features.0.weight has requires_grad=False" in refusal(sh.Sharded, frozen)
    assert "one dtype on one device, got torch.float32 on cpu, torch.float64 on cpu" in refusal(sh.Sharded, mixed)
    for how in (dict(strategy="fsdp 3"), dict(model="vgg"), dict(optimizer="adafactor")):
        assert "must be one of" in refusal(ShardTrial, **how)
    nan, inf = float("nan"), float("inf")
    for args in (
        (1, 4, 2),
        (1, -1, 2),
        (1, 3, 0),
        (1, 3, 4, 3),
        (1, 3, 4, 0),
        (nan, 1, 2),
        (-1, 1, 2),
        (inf, 0, 2),
        (1, 1, 2, None, nan),
    ):
        assert refusal(sh.wire_bytes, *args), args
    assert "torchrun" in refusal(sh.train_sharded, cnn, first_digits(10), device="cpu")
    assert "got 'fp16'" in refusal(sh.train_sharded, cnn, first_digits(10), precision="fp16")


def test_an_evaluation_between_steps_changes_nothing():
    torch.manual_seed(0)
    model, x = GluonCNN(), torch.rand(4, 1, 28, 28)
    own = sh.Sharded(model, sharding_stage=3)
    with torch.no_grad(): before = model(x)
    with own.whole(): assert torch.equal(model(x), before)
    assert own.events == [] and all(block.share.grad is None for block in own.blocks)


def test_the_groups_of_a_hybrid_are_made_where_the_weights_are(monkeypatch):
    asked = []
    def mesh(device, shard_size):
        asked.append((device, shard_size))
        raise RuntimeError("enough")
    monkeypatch.setattr(zero.Group, "of", staticmethod(lambda: Group(0, 4)))
    monkeypatch.setattr(zero, "shard_mesh", mesh)
    for model in (GluonCNN(), GluonCNN().to("meta")):
        with pytest.raises(RuntimeError, match="enough"): sh.Sharded(model, shard_size=2)
    assert asked == [("cpu", 2), ("meta", 2)]


# ---- laws

@settings(max_examples=80, deadline=None)
@given(bytes=st.integers(0, 10**12), power=st.integers(0, 10), split=st.integers(0, 10), share=st.floats(0.25, 1))
def test_laws_of_the_wire(bytes, power, split, share):
    n, size = 2**power, 2**min(split, power)
    plain = sh.wire_bytes(bytes, 0, n)
    assert sh.wire_bytes(bytes, 1, n) == sh.wire_bytes(bytes, 2, n) == pytest.approx(plain)
    assert sh.wire_bytes(bytes, 3, n) == pytest.approx(1.5 * plain)
    assert sh.wire_bytes(bytes, 3, n, gathered_bytes=share * bytes) == pytest.approx((1 + 2 * share) / 2 * plain)
    assert sh.wire_bytes(bytes, 3, n, size) <= sh.wire_bytes(bytes, 3, n) + 1e-6 * bytes, "a hybrid sends no more"
    assert sh.wire_bytes(bytes, 3, n, 1) == pytest.approx(plain) and sh.wire_bytes(bytes, 3, n) <= 3 * bytes


@settings(max_examples=60, deadline=None)
@given(shapes=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=5),
       size=st.integers(1, 7))
def test_a_flat_vector_is_its_parameters(shapes, size):
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    before, total = [p.detach().clone() for p in parameters], sum(p.numel() for p in parameters)
    flats = [zero.FlatParameters([nn.Parameter(p.clone()) for p in before], Group(rank, size)) for rank in range(size)]
    assert all(torch.equal(a, b) for flat in flats for a, b in zip(before, flat.parameters))
    assert len(flats[0].whole) % size == 0 and total <= len(flats[0].whole) < total + size
    assert torch.equal(torch.cat([flat.mine(flat.whole) for flat in flats]), flats[0].whole)
    assert (flats[0].whole[total:] == 0).all()
    for p in flats[0].parameters: p.grad = torch.ones_like(p)
    gradients = flats[0].take_gradients()
    assert (
        gradients.sum() == total and gradients[:total].eq(1).all() and all(p.grad is None for p in flats[0].parameters)
    )


@settings(max_examples=40, deadline=None)
@given(stage=st.integers(0, 3), power=st.integers(0, 10), batch=st.integers(1, 512),
       precision=st.sampled_from(["fp32", "bf16"]), optimizer=st.sampled_from(ELEMENTWISE))
def test_laws_of_the_panels_plan(stage, power, batch, precision, optimizer):
    plan = views.ShardPlan("GluonCNN, 28 px", stage, 2**power, precision, optimizer, batch)
    standing = [(found := plan.footprint(s)).params + found.grads + found.optimizer for s in range(4)]
    assert standing == sorted(standing, reverse=True)
    words, drawn = str(views.describe_sharding(plan)), str(views.draw_stages(plan))
    assert ("nobody to share" in words) == (power == 0) and "NaN" not in drawn
    for each in range(4):
        parts = plan.at_peak(each)
        assert min(parts.values()) >= 0 and sum(parts.values()) == plan.footprint(each).total
        if each < 3 or power == 0: assert parts["gathered"] == 0
