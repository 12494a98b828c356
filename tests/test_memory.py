"""Memory: the estimate against real steps, its laws, its extremes, and a search that survives running out."""
import copy
import gc
import random
import sys
import weakref
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from copies import run_code
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torchvision.models import VisionTransformer

from mlinfra import memory
from mlinfra.engine.memory import batch_search, footprint, optimizers, process_memory, recompute, tracker
from mlinfra.engine.base import hardware
from mlinfra.engine.train.saved_tensors import saved_bytes
from mlinfra.engine.base.jobs import Stopped
from mlinfra.models import GluonCNN, layer_table, resnet18, resnet50
from mlinfra.views import memory as memory_views

ZOO = {
    "cnn": (GluonCNN, (1, 28, 28)),
    "resnet18": (lambda: resnet18(10), (3, 32, 32)),
    "resnet50": (lambda: resnet50(10), (3, 32, 32)),
    "vit": (lambda: VisionTransformer(32, 8, 2, 4, 64, 128), (3, 32, 32)),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False
        ),
        (20, 32),
    ),
    "encoder without dropout": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        ),
        (20, 32),
    ),
}


def pair(width, out=None): return nn.Sequential(nn.Linear(width, out or width), nn.Tanh())


# ---- prediction and measurement

@pytest.mark.parametrize(
    "name, batch, precision",
    [
        (name, batch, precision)
        for name in ZOO
        for batch, precision in ((2, "fp32"), (5, "fp32"), (3, "bf16"))
        if name != "resnet50" or batch == 2
    ],
)
def test_the_estimate_is_what_autograd_keeps(name, batch, precision):
    make, shape = ZOO[name]
    model = make()
    guess, real = (
        memory.estimate(model, batch, shape, precision=precision),
        memory.measure(model, batch, shape, precision=precision, device="cpu"),
    )
    assert guess.activations == real.activations > 0
    assert (guess.params, guess.grads, guess.optimizer, guess.buffers, guess.inputs) == (
        real.params,
        real.grads,
        real.optimizer,
        real.buffers,
        real.inputs,
    )
    assert abs(guess.total / real.total - 1) < 0.01


@pytest.mark.parametrize(
    "how", [dict(checkpointing=True), dict(accumulation=2), dict(checkpointing=["layer1.0", "layer3"])]
)
def test_with_every_means_of_saving(how):
    model = resnet18(10, "small")
    guess, real = memory.estimate(model, 3, **how), memory.measure(model, 3, device="cpu", **how)
    assert guess.activations == real.activations and abs(guess.total / real.total - 1) < 0.01


@pytest.mark.parametrize("optimizer", optimizers.OPTIMIZERS)
def test_the_state_is_what_the_optimizer_holds(optimizer):
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(20, 7))
    assert (
        memory.measure(model, 2, (3, 4, 4), optimizer, device="cpu").optimizer
        == memory.estimate(model, 2, (3, 4, 4), optimizer).optimizer
    )


def test_it_agrees_with_chapter_3():
    assert (
        saved_bytes(GluonCNN(), torch.zeros(7, 1, 28, 28))
        == (found := memory.estimate(GluonCNN(), 7)).activations + found.inputs
    )


def test_known_answers():
    found = memory.estimate(nn.Sequential(nn.Linear(100, 50), nn.Tanh(), nn.Linear(50, 10)), 8, (100,), "momentum")
    params = 4 * (100 * 50 + 50 + 50 * 10 + 10)
    assert (found.params, found.grads, found.optimizer, found.buffers) == (params, params, params, 0)
    assert (found.inputs, found.activations) == (4 * 8 * 100, 4 * 8 * 50)
    assert found.total >= 3 * params + found.inputs, "the update needs all gradients"


def test_fp16_is_as_large_as_bf16():
    assert memory.estimate(GluonCNN(), 8, precision="fp16") == memory.estimate(GluonCNN(), 8, precision="bf16")
    assert memory.estimate(GluonCNN(), 8, precision="tf32") == memory.estimate(GluonCNN(), 8)


# ---- laws

@settings(max_examples=15, deadline=None)
@given(batch=st.integers(1, 300), more=st.integers(1, 300), width=st.integers(1, 40))
def test_more_samples_never_take_less(batch, more, width):
    few, many = (memory.estimate(pair(width), size, (width,)) for size in (batch, batch + more))
    assert (
        few.activations < many.activations
        and few.total <= many.total
        and (few.params, few.optimizer) == (many.params, many.optimizer)
    )


@settings(max_examples=15, deadline=None)
@given(widths=st.lists(st.integers(1, 30), min_size=2, max_size=5), batch=st.integers(1, 20))
def test_a_sequential_takes_what_its_modules_take(widths, batch):
    blocks = [pair(a, b) for a, b in zip(widths, widths[1:])]
    parts = [memory.estimate(block, batch, (block[0].in_features,)) for block in blocks]
    whole = memory.estimate(nn.Sequential(*blocks), batch, (widths[0],))
    for name in ("params", "grads", "optimizer", "activations"):
        assert getattr(whole, name) == sum(getattr(part, name) for part in parts), name


@pytest.fixture(scope="module")
def lines(): return {name: memory.profile(make(), shape) for name, (make, shape) in ZOO.items() if name != "resnet50"}


@pytest.mark.parametrize("name", [name for name in ZOO if name != "resnet50"])
def test_memory_is_a_straight_line_in_the_batch(lines, name):
    make, shape = ZOO[name]
    for batch in (4, 17): assert lines[name].at(batch) == memory.estimate(make(), batch, shape)


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(0, 1 << 28),
    optimizer=st.sampled_from(list(optimizers.OPTIMIZERS)),
    stage=st.integers(0, 3),
    world=st.integers(1, 9),
)
def test_the_largest_batch_fits_and_one_more_does_not(limit, optimizer, stage, world):
    line, how = _line(), (optimizer, stage, world)
    most = line.largest(limit, *how)
    assert most == 0 or line.at(most, *how).total <= limit
    assert line.at(most + 1, *how).total > limit


def _line(cache=[]):
    if not cache: cache.append(memory.profile(GluonCNN()))
    return cache[0]


@given(sizes=st.tuples(*[st.integers(0, 10**12)] * 3), stage=st.integers(0, 3), world=st.integers(1, 5_000))
def test_shares_hold_the_whole_and_no_more_than_a_byte_each_beyond(sizes, stage, world):
    for whole, share, first in zip(sizes, memory.zero_bytes_per_rank(*sizes, stage, world), (3, 2, 1)):
        if stage < first: assert share == whole
        else: assert whole <= share * world < whole + world


def test_from_stage_2_on_a_finished_gradient_is_handed_on():
    model = nn.Sequential(*(nn.Linear(500, 500, bias=False) for _ in range(4)))
    one, two = (memory.estimate(model, 1, (500,), "sgd", sharding_stage=stage, world_size=4).total for stage in (1, 2))
    assert one - two > 0.5 * sum(p.nbytes for p in model.parameters()), (
        "three of four gradients are shared when the last one is made"
    )


def test_each_stage_takes_no_more_than_the_one_before():
    found = [memory.estimate(resnet18(10, "small"), 2, sharding_stage=stage, world_size=8) for stage in range(4)]
    static = [f.params + f.grads + f.optimizer for f in found]
    assert static == sorted(static, reverse=True) and static[3] < static[0] / 7
    assert len({f.activations for f in found}) == 1 and found[3].temporary > found[2].temporary, (
        "stage 3 gathers a block"
    )
    assert memory.estimate(GluonCNN(), 2, sharding_stage=3, world_size=1) == memory.estimate(GluonCNN(), 2)


@pytest.mark.parametrize("blocks", [4, 16])
def test_the_root_of_n_is_the_best_number_of_segments(blocks):
    unit, needs = 4 * 32 * 64, {}
    for count in (n for n in range(1, blocks + 1) if blocks % n == 0):
        found = memory.estimate(
            recompute.segments([pair(32) for _ in range(blocks)], count), 64, (32,), "sgd", checkpointing=True
        )
        assert found.activations == (count - 1) * unit
        needs[count] = found.activations + found.temporary
    assert min(needs, key=needs.get) == blocks ** 0.5


def test_accumulation_keeps_gradients_all_along():
    model = nn.Sequential(*(nn.Linear(200, 200) for _ in range(5)))
    once, twice = (memory.estimate(model, 64, (200,), "sgd", accumulation=n) for n in (1, 2))
    assert twice.total > once.total and twice.grads == once.grads


# ---- extremes

class Nothing(nn.Module):
    def forward(self, x): return x * 2


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x): return self.b(self.a(x))


def test_a_model_without_parameters():
    found = memory.estimate(Nothing(), 4, (10,))
    assert (found.params, found.grads, found.optimizer, found.activations, found.inputs) == (
        0,
        0,
        0,
        0,
        160,
    ) and found.total == 320
    assert memory.measure(Nothing(), 4, (10,), device="cpu").total == 320


def test_frozen_parameters_have_no_gradient_and_no_state():
    model = nn.Sequential(pair(16), pair(16))
    for p in model[0].parameters(): p.requires_grad = False
    found, trained = memory.estimate(model, 4, (16,)), sum(p.nbytes for p in model[1].parameters())
    assert (found.params, found.grads, found.optimizer) == (2 * trained, trained, 2 * trained + 8)
    assert found == replace(memory.measure(model, 4, (16,), device="cpu"), total=found.total)
    for p in model.parameters(): p.requires_grad = False
    found = memory.estimate(model, 4, (16,))
    assert (found.grads, found.optimizer, found.activations) == (0, 0, 0)


def test_shared_parameters_count_once():
    found = memory.estimate(Tied(), 4, (8,))
    assert (found.params, found.grads, found.optimizer) == (256, 256, 516)
    assert found.activations == memory.measure(Tied(), 4, (8,), device="cpu").activations == 4 * 4 * 8


def test_a_parameter_that_nobody_uses_gets_no_gradient():
    class Partly(nn.Module):
        def __init__(self): super().__init__(); self.used, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)
        def forward(self, x): return self.used(x)
    found, real = memory.estimate(Partly(), 2, (4,)), memory.measure(Partly(), 2, (4,), device="cpu")
    assert found.params == 2 * found.grads and found.optimizer == real.optimizer == 2 * 80 + 8


def test_an_optimizer_without_state(): assert memory.estimate(GluonCNN(), 2, optimizer="sgd").optimizer == 0


def test_a_model_on_meta_costs_nothing_and_says_the_same():
    with torch.device("meta"): model = resnet18(10, "small")
    assert memory.estimate(model, 4) == memory.estimate(resnet18(10, "small"), 4)


def test_the_model_is_left_as_it_was():
    model = resnet18(10, "small").eval()
    before, seed = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    memory.estimate(model, 4, checkpointing=True, accumulation=2)
    assert torch.equal(seed, torch.get_rng_state())
    memory.measure(model, 2, device="cpu")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training and all(p.grad is None and not p._post_accumulate_grad_hooks for p in model.parameters())
    assert not any("forward" in vars(part) for part in model.modules())


def test_integers_as_input():
    model = nn.Sequential(nn.Embedding(1000, 16), nn.Linear(16, 4))
    guess = memory.estimate(model, 4, (10,), input_dtype=torch.int64)
    real = memory.measure(model, 4, (10,), input_dtype=torch.int64, device="cpu")
    assert guess.inputs == 4 * 10 * 8 and (guess.activations, guess.total) == (real.activations, real.total)
    assert memory.find_batch_size(model, start=3, input_shape=(10,), input_dtype=torch.int64, device="cpu").largest == 3


def test_blocks_are_found_below_what_holds_most_of_the_model():
    from torchvision.models import VisionTransformer
    vit = VisionTransformer(32, 8, 3, 4, 64, 128)
    assert recompute.top_blocks(vit) == [f"encoder.layers.encoder_layer_{i}" for i in range(3)] + ["heads"]
    stack = recompute.segments([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)], 2)
    assert recompute.top_blocks(stack) == ["0", "1"], "a segment is one block"


class Decides(nn.Module):
    def __init__(self): super().__init__(); self.layer = nn.Linear(4, 4)
    def forward(self, x): return self.layer(x) if x.sum().item() > 0 else x


def test_a_model_that_looks_at_values_is_refused():
    with pytest.raises(ValueError, match="Decides decides by values.*only `measure`"):
        memory.estimate(Decides(), 2, (4,))


@pytest.mark.parametrize(
    "wrong, says",
    [
        (dict(batch_size=0), "batch_size must be at least 1, got 0"),
        (dict(model="x"), "model must be a torch.nn.Module, got str"),
        (dict(batch_size=2.5), "batch_size must be"),
        (dict(batch_size=float("nan")), "batch_size must be a whole number"),
        (dict(input_shape=(1, 0, 28)), "each of input_shape must be at least 1, got 0"),
        (dict(sample=torch.zeros(1, 1, 28, 28), input_shape=(1, 28, 28)), "pass sample= or input_shape="),
        (dict(sample="x"), "must hold a tensor of samples"),
        (dict(step="loss"), "step must be a function"),
        (dict(optimizer="lion"), "optimizer must be one of sgd, momentum, adam, adamw, adafactor, got 'lion'"),
        (dict(batch_size=None), "batch_size must be given where there is no sample="),
        (dict(precision="fp8"), "precision must be one of"),
        (dict(sharding_stage=4), "sharding_stage must be one of 0, 1, 2, 3, got 4"),
        (dict(sharding_stage=True), "sharding_stage must be"),
        (dict(world_size=0), "world_size must be"),
        (dict(accumulation=0), "accumulation must be"),
        (
            dict(checkpointing="layer9"),
            "must name blocks of the model, got 'layer9'; its top-level blocks are features, classifier",
        ),
        (dict(checkpointing=[]), "has no top-level block"),
        (dict(model=nn.Linear(2, 2)), "input_shape must be given for Linear"),
        (dict(model=nn.LSTM(4, 4), input_shape=(5, 4), plan="cuda"), "recurrent layers keep"),
        (dict(model=nn.LazyLinear(2), input_shape=(3,)), "parameters without a shape"),
    ],
)
def test_nonsense_is_refused(wrong, says):
    with pytest.raises(ValueError, match=says): memory.estimate(**dict(model=GluonCNN(), batch_size=2) | wrong)


def test_sparse_gradients_are_measured_and_searched():
    words = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(32, 4))
    how = dict(input_shape=(4,), input_dtype=torch.int64, device="cpu")
    for optimizer in ("sgd", "momentum"):
        grows = nullcontext() if optimizer == "sgd" else pytest.warns(UserWarning, match="sparse gradients grows with")
        with grows: found = memory.measure(words, 2, optimizer=optimizer, **how)
        rows = 2 * 4 * (8 + 4 * 8)  # two samples of four words: an index, and a row of floats
        assert found.params == 4 * (50 * 8 + 32 * 4 + 4) and found.grads == rows + 4 * (32 * 4 + 4)
        with grows: tried = memory.find_batch_size(words, start=3, steps=2, optimizer=optimizer, **how).tried
        assert tried == ((3, True),)


def test_a_block_that_is_named_twice_is_checkpointed_once():
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with recompute.checkpointed(nn.Sequential(block, block), ["0", "1", "0"]) as shared: shared(torch.rand(2, 4))
    assert "forward" not in vars(block)


def test_a_model_that_runs_otherwise_for_other_batches_has_no_line():
    class Odd(nn.Module):
        def __init__(self): super().__init__(); self.layer = nn.Linear(4, 4)
        def forward(self, x): return self.layer(x).tanh() if len(x) % 2 else self.layer(x)
    with pytest.raises(ValueError, match="no straight line"): memory.profile(Odd(), (4,))


def test_a_model_that_pairs_samples_has_no_line():
    class Pairs(nn.Module):
        def __init__(self): super().__init__(); self.layer = nn.Linear(4, 4)
        def forward(self, x): return self.layer(x) @ self.layer(x).T
    with pytest.raises(ValueError, match="Pairs is no straight line"): memory.profile(Pairs(), (4,))
    assert memory.profile(Pairs(), (4,), check=False).at(2) == memory.estimate(Pairs(), 2, (4,))


# ---- the ledger

def test_the_ledger_forgets_what_has_died():
    with tracker.MemoryTracker() as ledger:
        for _ in range(20): torch.zeros(1000) + 1
    assert ledger.live["temporary"] == 0 and max(m[2] for m in ledger.moments) == 8_000


def test_tracing_leaves_nothing_behind():
    def count(): return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())
    model = resnet18(10, "small")
    memory.estimate(model, 2)
    gc.collect()
    before = count()
    for _ in range(3): memory.estimate(model, 2)
    gc.collect()
    assert count() == before


# ---- the batch that really trains

class Allocator:
    "Raises as an allocator does for batches above `most`, and notes what was alive at each attempt."
    def __init__(self, most, error=lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")):
        self.most, self.error, self.held, self.alive = most, error, [], []

    def __call__(self, batch):
        self.alive.append(sum(ref() is not None for ref in self.held))
        tensor = torch.zeros(100)
        self.held.append(weakref.ref(tensor))
        self._inner(batch, tensor)

    def _inner(self, batch, tensor):
        activations = [tensor + 1]
        self.held.append(weakref.ref(activations[0]))
        if batch > self.most: raise self.error()


ERRORS = [
    lambda: torch.OutOfMemoryError("full"),
    MemoryError,
    lambda: RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
    lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"),
]


@pytest.mark.parametrize("error", ERRORS)
def test_out_of_memory_is_survived_without_a_leak(error):
    allocator = Allocator(37, error)
    plan = memory.find_batch_size(allocator, start=60)
    assert plan.largest == plan.batch_size == 37 and plan.accumulation == 1 and len(plan.tried) > 4
    assert set(allocator.alive) == {0}, "what a failed attempt held is free before the next"


@settings(max_examples=60, deadline=None)
@given(most=st.integers(1, 3_000), start=st.integers(1, 3_000))
def test_the_search_finds_the_largest(most, start):
    found, tried = batch_search.search_down(lambda batch: batch <= most, start)
    assert (
        found == min(most, start)
        and len(tried) <= 4 + 2 * start.bit_length()
        and len({batch for batch, _ in tried}) == len(tried)
    )


@given(largest=st.integers(1, 500), wanted=st.integers(1, 5_000))
def test_the_global_batch_is_kept(largest, wanted):
    micro, parts = batch_search.divide_batch(wanted, largest)
    assert micro * parts == wanted and micro <= largest
    assert not any(wanted % size == 0 for size in range(micro + 1, largest + 1))


def test_accumulation_makes_up_for_a_small_batch():
    plan = memory.find_batch_size(Allocator(150), global_batch=256)
    assert (plan.largest, plan.batch_size, plan.accumulation, plan.global_batch) == (150, 128, 2, 256)
    plan = memory.find_batch_size(Allocator(150), global_batch=96)
    assert (plan.largest, plan.batch_size, plan.accumulation) == (96, 96, 1)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        KeyboardInterrupt(),
        Stopped("stopped"),
    ],
)
def test_other_errors_come_through_as_they_are(error):
    calls = []
    def attempt(batch): calls.append(batch); raise error
    with pytest.raises(type(error)) as caught: memory.find_batch_size(attempt, start=64)
    assert caught.value is error and calls == [64]


def test_a_stop_ends_the_search():
    def report(fraction, words): raise Stopped("stopped")
    with pytest.raises(Stopped): memory.find_batch_size(lambda batch: None, start=8, report=report)


def test_nothing_fits():
    with pytest.raises(MemoryError, match="not even a batch of 1 trains: 8, "):
        memory.find_batch_size(Allocator(0), start=8)


def test_the_search_begins_at_the_estimate():
    plan = memory.find_batch_size(GluonCNN(), limit=30 << 20, device="cpu")
    assert plan.tried == ((_line().largest(30 << 20, margin=footprint.HOST_MARGIN), True),)
    with pytest.raises(ValueError, match="limit must be"): memory.find_batch_size(GluonCNN(), limit=0, device="cpu")
    with pytest.raises(ValueError, match="start must be"): memory.find_batch_size(lambda batch: None)
    frozen = GluonCNN().requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter to train"): memory.find_batch_size(frozen, start=2, device="cpu")


def test_a_trial_takes_full_steps(monkeypatch):
    steps, step = [], torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, *args: (steps.append(1), step(self, *args))[1])
    memory.find_batch_size(GluonCNN(), start=2, steps=4, device="cpu")
    assert len(steps) == 4


def test_a_trial_accumulates_where_the_global_batch_asks_for_it(monkeypatch):
    passes, forward = [], GluonCNN.forward
    def counted(self, x):
        if type(x) is torch.Tensor: passes.append(len(x))  # and not one of the estimate's, which have no memory
        return forward(self, x)
    monkeypatch.setattr(GluonCNN, "forward", counted)
    plan = memory.find_batch_size(GluonCNN(), global_batch=16, world_size=2, start=2, steps=3, device="cpu")
    assert passes == [2] * 6
    assert (plan.batch_size, plan.accumulation, plan.world_size, plan.global_batch) == (2, 4, 2, 16)
    with pytest.raises(ValueError, match="multiple of world_size, got 15 and 2"):
        memory.find_batch_size(GluonCNN(), global_batch=15, world_size=2)


LIMITED = """
import resource, torch
torch.set_num_threads(1)
from torch import nn
from mlinfra import memory
model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(8)))
memory.find_batch_size(model, start=2, input_shape=(32,), device="cpu")   # libraries and threads are loaded
line = memory.profile(model, (32,))
size = int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) * 1024
room = 48 << 20
resource.setrlimit(resource.RLIMIT_AS, (size + room, size + room))
plan = memory.find_batch_size(model, limit=3 * room, input_shape=(32,), device="cpu")
# by estimate and margin half as much again as there is: it has to go down
failed = [ok for _, ok in plan.tried].count(False)
print(plan.largest, line.at(plan.largest).total / room, failed, plan.tried[0][1],
      len({batch for batch, _ in plan.tried}))
again = memory.find_batch_size(model, start=max(1, plan.largest // 2), input_shape=(32,), device="cpu")
print(again.tried[0][1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is obeyed on Linux")
def test_a_process_that_really_runs_out():
    out, = run_code(LIMITED, timeout_seconds=300)
    assert out.code == 0, out.output
    first, second = out.output.splitlines()
    largest, share, failures, first_worked, _ = first.split()
    assert int(largest) > 0 and int(failures) >= 1 and first_worked == "False", first
    assert 0.3 < float(share) <= 1.1, "near what there was, and not beyond it"
    assert second == "True", "a batch of half the size still trains: nothing has leaked"


# ---- words and picture

def test_the_panel_says_what_the_estimate_says():
    plan = memory_views.MemoryPlan(
        "GluonCNN, 28 px", "bf16", "adamw", 128, 1, False, 2, 4, hardware.DEVICES["A100 40 GB"]
    )
    assert plan.footprint() == memory.estimate(
        GluonCNN(), 128, optimizer="adamw", precision="bf16", sharding_stage=2, world_size=4
    )
    told = memory_views.describe_plan(plan)
    assert told.number.endswith("on each of 4 ranks") and "it fits, " in told.sentence
    assert "global batch is 512." in told.sentence
    every = replace(plan, precision="fp16", checkpointing=True, accumulation=8)
    assert every.footprint() == memory.estimate(
        GluonCNN(), 128, None, "adamw", "fp16", 2, 4, checkpointing=True, accumulation=8
    )
    with pytest.raises(ValueError, match="set the world size to 1"): memory_views.measure_plan(plan, 1e9)
    with pytest.raises(ValueError, match="choose a smaller batch"):
        memory_views.measure_plan(replace(plan, world_size=1), 1e3)


@settings(max_examples=30, deadline=None)
@given(
    batch=st.integers(1, 10_000),
    optimizer=st.sampled_from(list(optimizers.OPTIMIZERS)),
    stage=st.integers(0, 3),
    world=st.integers(1, 64),
)
def test_the_bars_parts_add_up(batch, optimizer, stage, world):
    found = _line().at(batch, optimizer, stage, world)
    parts = found.parts()
    assert sum(parts.values()) == found.total and min(parts.values()) >= 0


def test_the_driver_is_asked_where_there_is_a_gpu(monkeypatch):
    import types

    fake = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda h: b"Test GPU",
        nvmlDeviceGetMemoryInfo=lambda h: types.SimpleNamespace(total=123),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: (7, 5))
    assert process_memory.this_device() == hardware.Device("this Test GPU", 123, "the driver", (7, 5))


# ---- what users bring

class TwoTowers(nn.Module):
    "Token ids and a mask by name; two inputs."
    def __init__(self):
        super().__init__()
        self.words, self.scores = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, ids, mask): return self.scores(self.words(ids) * mask[..., None])


def next_word(model, batch):
    return nn.functional.cross_entropy(model(batch["ids"], batch["mask"]).flatten(0, 1), batch["next"].flatten())


IDS, MASK = torch.ones(2, 6, dtype=torch.int64), torch.ones(2, 6)
SAMPLES = {
    "by name": (dict(ids=IDS, mask=MASK), None),
    "two inputs and targets": (((IDS, MASK), torch.zeros(2, 50)), None),
    "with a loss": ({"ids": IDS, "mask": MASK, "next": IDS, "note": "x"}, next_word),
    "of numpy": (dict(ids=IDS.numpy(), mask=MASK.numpy()), None),
}


@pytest.mark.parametrize("sample, step", SAMPLES.values(), ids=SAMPLES)
def test_any_batch_is_estimated_from_a_sample(sample, step):
    how = dict(sample=sample, step=step)
    guess, real = memory.estimate(TwoTowers(), 7, **how), memory.measure(TwoTowers(), 7, device="cpu", **how)
    assert guess.inputs == real.inputs > 0 and guess.activations == real.activations > 0
    assert guess.params == 4 * (50 * 16 + 16 * 50 + 50) and guess.total <= 1.05 * real.total
    line = memory.profile(TwoTowers(), **how)
    assert line.at(7) == guess
    assert memory.find_batch_size(TwoTowers(), start=5, device="cpu", **how).tried == ((5, True),)


def test_the_loss_of_a_pair_counts():
    x, y = torch.rand(4, 1, 28, 28), torch.arange(4)
    with_loss, without = memory.estimate(GluonCNN(), 64, sample=(x, y)), memory.estimate(GluonCNN(), 64, sample=x)
    assert with_loss.inputs - without.inputs == 64 * 8, "the labels"
    assert with_loss.activations - without.activations >= 4 * 64 * 10, "logarithms of ten classes"
    assert memory.estimate(GluonCNN(), 64, sample=x) == memory.estimate(GluonCNN(), 64)


def test_a_wrong_shape_is_one_sentence(capfd):
    for model, shape in (
        (nn.Sequential(nn.Linear(10, 5)), (7,)),
        (GluonCNN(), (1, 32, 32)),
        (nn.Sequential(nn.BatchNorm2d(3)), (3, 4)),
        (VisionTransformer(32, 8, 2, 4, 64, 128), (3, 40, 40)),
        (nn.Embedding(10, 4), (5,)),
    ):
        with pytest.raises(ValueError, match=f"{type(model).__name__} does not run on a batch of shape") as raised:
            memory.estimate(model, 2, shape)
        assert "\n" not in str(raised.value)
    said = capfd.readouterr()
    assert said.out == said.err == "", "nothing of the library's log"


def test_bf16_is_refused_where_the_device_has_none():
    plan = memory_views.MemoryPlan("GluonCNN, 28 px", "fp32", "adam", 8, 1, False, 0, 1, hardware.DEVICES["T4 16 GB"])
    with pytest.raises(ValueError, match="bf16 needs compute capability 8.0, T4 16 GB has 7.5"):
        replace(plan, precision="bf16")
    assert replace(plan, precision="bf16", device=hardware.DEVICES["RTX 4090 24 GB"]).footprint().total > 0


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.read, self.tag = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)
    def forward(self, x): return self.tag(self.read(x)[0][:, -1])


def all_pairs(model, x):
    found = F.normalize(model(x), dim=1)
    return F.cross_entropy(found @ found.T / 0.1, torch.arange(len(found)))


def test_a_batch_is_searched_where_memory_is_no_line():
    for model, less, how in ((Tagger(), 1.5e5, dict(input_shape=(5, 8))),
                             (nn.Linear(8, 4), 2e4, dict(input_shape=(8,), step=all_pairs))):
        search = partial(memory.find_batch_size, model, device="cpu", **how)
        assert search(start=64, limit=1e8).largest == 64 > search(start=64, limit=less).largest >= 1
    with pytest.raises(ValueError, match="or say start=, the largest batch to try"):
        memory.find_batch_size(Tagger(), device="cpu", input_shape=(5, 8), limit=1e8)
    contrastive = memory.find_batch_size(nn.Linear(8, 4), device="cpu", input_shape=(8,), step=all_pairs, limit=2e4)
    assert 1 <= contrastive.largest < 64, "without start= it doubles and bisects by estimates"


def test_a_limit_below_one_sample_is_said():
    with pytest.raises(MemoryError, match="a batch of 1 needs .* MiB, a margin of 100% included"):
        memory.find_batch_size(GluonCNN(), limit=1 << 20, device="cpu")


def test_start_and_limit_hold_together():
    how = dict(device="cpu", input_shape=(32,))
    model = pair(32)
    fits = memory.profile(model, (32,)).largest(1 << 20, margin=footprint.HOST_MARGIN)
    assert memory.find_batch_size(model, limit=1 << 20, start=10**6, **how).tried[0] == (fits, True), (
        "not ten thousand times too much"
    )
    assert memory.find_batch_size(model, limit=1 << 20, start=3, **how).tried == ((3, True),)
    with pytest.raises(ValueError, match="limit= is compared with an estimate"):
        memory.find_batch_size(Allocator(3), limit=1e9, start=8)


@given(
    need=st.integers(0, 10**12),
    have=st.integers(0, 10**12),
    margin=st.sampled_from([0.0, footprint.GPU_MARGIN, footprint.HOST_MARGIN]),
)
def test_fits_keeps_the_margin(need, have, margin):
    words = footprint.fits_text(need, have, margin)
    assert words.startswith("fits, ") == (need + int(need * margin) <= have) and words.startswith("does not fit") == (
        need > have
    )


PROCESS = """
import torch
from mlinfra import memory, models
from mlinfra.engine.memory.process_memory import train_step_memory
torch.set_num_threads(2)
def make(): return models.resnet18(10)
photo = torch.zeros(1, 3, 112, 112)
train_step_memory(make, photo, 2)   # what libraries keep for ever is there before the counting begins
guess, found = memory.estimate(make(), 16, sample=photo).total, train_step_memory(make, photo, 16)
print(guess, found.handed_out_bytes or 0, found.resident_bytes or 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of resident memory is read from /proc")
def test_the_parts_of_a_process_are_the_estimate_what_libraries_borrow_and_free_blocks():
    out, = run_code(PROCESS, timeout_seconds=300)
    assert out.code == 0, out.output
    guess, handed_out, risen = map(int, out.output.split())
    if handed_out: assert 0.98 * guess < handed_out < 1.1 * guess, "tensors, and what libraries keep beside them"
    if risen:
        assert 0.9 * guess < risen < (1 + footprint.HOST_MARGIN + 0.1) * guess, (
            "free blocks that the C library keeps: within the margin, and the libraries' part"
        )


# ---- on a GPU

@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "make, shape, batch",
    [(resnet18, (3, 224, 224), 64), (resnet50, (3, 224, 224), 32), ZOO["encoder"] + (256,)],
    ids=["resnet18", "resnet50", "encoder"],
)
def test_the_total_is_within_five_percent_of_the_allocators_peak(make, shape, batch, precision):
    model = make().cuda()
    guess, real = (
        memory.estimate(model, batch, shape, precision=precision),
        memory.measure(model, batch, shape, precision=precision, device="cuda"),
    )
    assert abs(guess.total / real.total - 1) < 0.05


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
def test_a_real_gpu_runs_out_and_recovers():
    gc.collect()  # else the search frees what earlier tests left, and ends with less than it began
    before = torch.cuda.memory_allocated()
    plan = memory.find_batch_size(resnet18(), start=1 << 20, input_shape=(3, 224, 224), device="cuda")
    assert plan.tried[0] == (1 << 20, False) and plan.largest > 1 and torch.cuda.memory_allocated() == before


def test_the_history_of_lbfgs_is_counted():
    model, history = nn.Linear(30, 2), 5
    optimizer = torch.optim.LBFGS(model.parameters(), 1e-3, history_size=history, max_iter=4)
    inputs, targets = torch.randn(20, 30), torch.randn(20, 2)

    def closure():
        optimizer.zero_grad()
        loss = (model(inputs) - targets).pow(4).mean()
        loss.backward()
        return loss
    for _ in range(20): optimizer.step(closure)
    state = optimizer.state[model.weight]
    held = [value for kept in state.values() for value in (kept if isinstance(kept, list) else [kept])
            if isinstance(value, torch.Tensor) and value.numel() > 1]
    assert len(state["old_dirs"]) == history
    made = lambda parameters: torch.optim.LBFGS(parameters, history_size=history)
    assert memory.estimate(nn.Linear(30, 2), 2, (30,), optimizer=made).optimizer == sum(t.nbytes for t in held)


class _Draws(nn.Linear):
    def forward(self, x): return super().forward(x) * random.random() + np.random.rand() + torch.rand(1)

@pytest.mark.parametrize("look", [
    lambda model: memory.estimate(model, 2, (4,)).total,
    lambda model: memory.measure(model, 2, (4,), device="cpu").total,
    lambda model: memory.profile(model, (4,)).at(2).total,
    lambda model: memory.find_batch_size(model, start=2, input_shape=(4,), device="cpu").largest,
    lambda model: layer_table(model, (4,)).flops.sum(),
])
def test_what_surrounds_the_call_is_not_counted_and_no_random_state_moves(look):
    model = _Draws(4, 3)
    states = lambda: (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[2])
    before, plain = states(), look(model)
    assert states() == before
    with torch.inference_mode(): assert look(model) == plain
    with torch.autocast("cpu", torch.bfloat16): assert look(model) == plain
