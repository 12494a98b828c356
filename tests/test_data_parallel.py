"""Data parallelism: equality with one process at 2 and 4 ranks, micro-batches too, the ring, the cost model's laws."""
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from mlinfra import data_parallel as dp
from mlinfra.lab.rank_workload import WORKLOADS, Workload, measure_compute
from mlinfra.data import BatchLoader
from mlinfra.engine.base.checks import refusal
from mlinfra.engine.dist.collectives import check_all_reduce
from mlinfra.engine.base.hardware import Network, ring_bytes
from mlinfra.engine.dist.rank_data import ShardLoader, accuracy_of_ranks, first_digits, train_digits
from mlinfra.engine.dist.process_group import check_same, rank_and_world_size
from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.dist.shared_memory import why_not_shared
from mlinfra.engine.dist.rank_trials import PreparedTrial, RankTrial, run_trial
from mlinfra.models import GluonCNN
from mlinfra.training import evaluate, fit, sgd

LINK = Network("toy", 1e9, 1e-5)
EXACT = 10 * 1e5 * 1.1e-16  # ten steps of sums of at most 1e5 products in float64, each off by half a unit


# ---- real groups: each does much, for starting one takes seconds

DTYPES = (torch.int64, torch.int32, torch.float64, torch.float32, torch.uint8)
RINGS = [(n, DTYPES[i % len(DTYPES)]) for i, n in enumerate((0, 1, 2, 3, 4, 5, 7, 64, 999, 10_007))]


@dataclass(frozen=True)
class AveragingTrial(RankTrial):
    "A trial in which gradients are averaged."
    strategy: str = "overlap"
    hook: str = "none"  # of DDP
    sync_each: bool = False

    def prepare(self, model):
        net, passes = dp.averaged(model, self.strategy, self.hook, self.sync_each)
        return PreparedTrial(net, sgd(model), passes)


Trial = partial(AveragingTrial, samples=201, global_batch=96, double=True)  # steps of 96, 96 and 9 images
PILED = dict(samples=201, global_batch=48, accumulation=3)  # micro-batches of 16: the last step has one, of 9
SHORT = dict(samples=34, global_batch=48, accumulation=3)  # 16, 16 and 2 images in one step: of 4 ranks, two have none
EQUAL = {strategy: Trial(strategy=strategy) for strategy in dp.STRATEGIES[1:]} | {
    "one image left": Trial(samples=97), "one image left, ddp": Trial(strategy="ddp", samples=97),
    "float32": Trial(double=False), "synced batch norm": Trial(model="synced batch norm"),
    "piled up": Trial(**PILED), "piled up, ddp": Trial(strategy="ddp", **PILED),
    "each micro-batch": Trial(sync_each=True, **PILED),
    "a short step": Trial(**SHORT), "a short step, ddp": Trial(strategy="ddp", **SHORT)}
if not why_not_shared():
    EQUAL |= {"shared memory": Trial(strategy="ddp", hook="shared memory"),
              "shared memory, piled up": Trial(strategy="ddp", hook="shared memory", **PILED)}
UNEQUAL = {"never": Trial(strategy="never"), "batch norm": Trial(model="batch norm"), "dropout": Trial(model="dropout")}
TRIALS = EQUAL | UNEQUAL


def refused_settings():
    "What `train_ddp` says where one rank has another setting, for each of some settings."
    images, last = first_digits(50), rank_and_world_size()[0] == rank_and_world_size()[1] - 1
    ways = [dict(batch_size=8), dict(epochs=2), dict(seed=1), dict(precision="bf16"), dict(train=first_digits(40))]
    own = [dict(train=images, device="cpu") | (way if last else {}) for way in ways]
    return [refusal(dp.train_ddp, GluonCNN(), **how) for how in own]


def refused_model():
    rank, world_size = rank_and_world_size()
    other = refusal(check_same, GluonCNN(hidden=100 if rank == world_size - 1 else 512))
    return other, refusal(dp.train_ddp, GluonCNN(), first_digits(1), device="cpu")


class Viewed(nn.Module):
    "A convolution whose output is looked at with `view`, which channels_last does not bear."
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 5), nn.Linear(4 * 24 * 24, 10)

    def forward(self, x): return self.out(self.conv(x).view(len(x), -1))


def layouts():
    "Strides of a model that bears channels_last and one that does not, before and after training."
    found = []
    for model in (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(10)), Viewed()):
        images = TensorDataset(torch.rand(8, 1 if isinstance(model, Viewed) else 3, 28, 28), torch.arange(8))
        model(images.tensors[0])
        before = [p.stride() for p in model.parameters()]
        dp.train_ddp(model, images, batch_size=2, device="cpu")
        found.append((before, [p.stride() for p in model.parameters()]))
    return found


DIGITS = dict(double=True, epochs=2, accumulation=2)  # of 97 images; micro-batches of 24 in all, the last one of 1


def group(world_size):
    calls = {name: (run_trial, trial) for name, trial in TRIALS.items()}
    calls |= {("ring", i): (check_all_reduce, dp.ring_all_reduce, *ring) for i, ring in enumerate(RINGS)}
    calls |= {"model": (refused_model,), "settings": (refused_settings,), "layouts": (layouts,)}
    how = DIGITS | dict(batch_size=24 // world_size, valid=first_digits(101, True, train=False))
    calls |= {"digits": (partial(train_digits, dp.train_ddp, 97, **how),)}
    with socket.socket() as busy:
        with suppress(OSError):  # taken by another, which will do
            busy.bind(("127.0.0.1", 29500))  # torchrun's usual port: ours must not mind
            busy.listen()
        found = run_ranks(call_each, world_size, list(calls.values()), share_cores=True, timeout_seconds=600)
    return [dict(zip(calls, values)) for values in found.values()]


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.rarely), 4])
def ranks(request): return group(request.param)


@pytest.fixture(scope="module")
def alone():
    "What one process does, without micro-batches."
    trials = {name: replace(trial, accumulation=1, sync_each=False) for name, trial in TRIALS.items()}
    found = {trial: run_trial(trial) for trial in {replace(t, strategy="never", hook="none") for t in trials.values()}}
    return {name: found[replace(trial, strategy="never", hook="none")] for name, trial in trials.items()}


def test_every_way_equals_one_process(ranks, alone):
    for name in EQUAL:
        first = ranks[0][name]
        assert all(first.differs(found[name]) == 0 for found in ranks), f"{name}: the ranks differ"
        if name == "float32": continue  # rounding there is as large as many an error
        assert first.differs(alone[name]) < EXACT, name
        torch.testing.assert_close(first.losses, alone[name].losses, rtol=EXACT, atol=0, msg=name)


def test_what_is_not_equal_is_seen_not_to_be(ranks, alone):
    for name in UNEQUAL: assert ranks[0][name].differs(alone[name]) > 1e-4, name
    assert ranks[0]["never"].differs(ranks[1]["never"]) > 1e-4, "without averaging the ranks drift apart"
    assert ranks[0]["dropout"].differs(ranks[1]["dropout"]) == 0, "dropout's noise is averaged too"


def test_messages_and_bytes(ranks):
    found, steps, size = ranks[0], 3, 2 * sum(p.nbytes for p in GluonCNN().parameters())
    assert found["each parameter"].messages == 8 * steps > found["buckets"].messages
    assert {found[name].bytes for name in ("each parameter", "buckets", "overlap", "ddp")} == {steps * size}
    assert found["piled up"].bytes == found["piled up, ddp"].bytes == 5 * size, "five steps"
    assert found["each micro-batch"].bytes == 13 * size and 2 * found["float32"].bytes == steps * size
    assert found["never"].messages == 0


def test_the_ring_is_exact_and_sends_what_the_formula_says(ranks):
    for i, (n, dtype) in enumerate(RINGS):
        assert all(found["ring", i][1] for found in ranks), (n, dtype)
        assert sum(found["ring", i][0] for found in ranks) == 2 * (len(ranks) - 1) * n * dtype.itemsize


def test_different_models_and_too_few_images_are_refused_on_every_rank(ranks):
    last = len(ranks) - 1
    for model, images in (found["model"] for found in ranks):
        assert model == (f"rank {last} has another model than rank 0: "
                         "classifier.1.weight is (100, 800) there and classifier.1.weight is (512, 800) here")
        assert images == f"each rank needs an image: 1 are too few for {len(ranks)} ranks"


def test_other_settings_are_refused_on_every_rank(ranks):
    pairs = (("batch_size", 8, 64), ("epochs", 2, 1), ("seed", 1, 0), ("precision", "bf16", "fp32"), ("images", 40, 50))
    for found in ranks:
        for said, (name, theirs, first) in zip(found["settings"], pairs, strict=True):
            differ = f"rank {len(ranks) - 1} has {name}={theirs!r}, rank 0 has {name}={first!r}"
            assert said == f"{differ}: all must run the same"


def test_the_model_lies_in_memory_as_before(ranks):
    for found in ranks:
        for before, after in found["layouts"]: assert before == after


def test_train_ddp_is_the_same_run_at_any_world_size(ranks):
    "Two epochs of 97 images in steps of 48: the last step has one image, so that all ranks but one have none."
    torch.manual_seed(0)
    model, digits = GluonCNN().double(), first_digits(97, double=True)
    one = fit(model, BatchLoader(digits, 48, shuffle=True, seed=0), epochs=2, device="cpu", progress=False)
    accuracy = evaluate(model, first_digits(101, double=True, train=False))
    losses = [sum(step) / len(ranks) for step in zip(*(found["digits"].losses for found in ranks))]
    torch.testing.assert_close(losses, [step.loss for step in one.steps], rtol=EXACT, atol=0)
    for found in (rank["digits"] for rank in ranks):
        torch.testing.assert_close(found.epoch_losses, [epoch.loss for epoch in one.epochs], rtol=EXACT, atol=0)
        assert found.accuracy == accuracy
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(found.weights[name], tensor, rtol=0, atol=EXACT * tensor.abs().max().item())


def test_what_torchrun_announces_is_enough(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    announced = dict(RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    for name, value in announced.items(): monkeypatch.setenv(name, str(value))
    found = train_digits(dp.train_ddp, 300, batch_size=32)
    assert len(found.losses) == 10 and 0 < found.accuracy <= 1 and rank_and_world_size() == (0, 1), "the group is gone"


def test_nonsense_is_refused():
    assert "must be one of" in refusal(dp.averaged, GluonCNN(), "sometimes")
    assert "must be one of" in refusal(Trial, model="vgg")
    assert "torchrun" in refusal(dp.train_ddp, GluonCNN(), first_digits(10), device="cpu")
    assert "contiguous" in refusal(dp.ring_all_reduce, torch.zeros(3, 4).t())
    assert "bucket_bytes must be at least 1" in refusal(dp.make_buckets, GluonCNN().parameters(), 0)
    for nonsense in (0, -1, float("nan"), float("inf")):
        job = WORKLOADS["ResNet-50, P100"]
        assert refusal(job.compute, nonsense) and refusal(job.step, nonsense, LINK, 2)
        assert refusal(job.efficiency, 1, LINK, nonsense)
        assert refusal(replace, job, seconds_per_image=nonsense) and refusal(dp.scaled_lr, nonsense, 2, 1)
        assert refusal(dp.warm_up, 1, 2, nonsense) and refusal(measure_compute, (1, nonsense))
    assert refusal(dp.warm_up, -1, 2, 2.0) and refusal(measure_compute, (8, 4))


@pytest.mark.parametrize("training", [True, False])
def test_measuring_accuracy_leaves_the_mode_as_it_was(training):
    model = GluonCNN().train(training)
    accuracy_of_ranks(model, first_digits(5))
    assert all(module.training is training for module in model.modules())
    with pytest.raises(RuntimeError): accuracy_of_ranks(model, TensorDataset(torch.zeros(2, 3), torch.zeros(2)))
    assert all(module.training is training for module in model.modules()), "after an error, too"


# ---- sharing, buckets: laws

@settings(max_examples=60, deadline=None)
@given(samples=st.integers(1, 60), batch=st.integers(1, 20), world_size=st.integers(1, 7), shuffle=st.booleans(),
       drop=st.booleans())
def test_shares_make_up_the_batch(samples, batch, world_size, shuffle, drop):
    assume(not drop or samples >= batch)  # nothing would be left, which is refused
    data = TensorDataset(torch.arange(samples))
    loaders = [ShardLoader(data, batch, rank, world_size, shuffle, drop) for rank in range(world_size)]
    seen, batches = [], list(zip(*loaders, strict=True))
    assert [sum(len(part[0]) for part in parts) for parts in batches] == loaders[0].batch_sizes()
    for parts in batches:
        sizes = [len(part[0]) for part in parts]
        assert max(sizes) - min(sizes) <= 1 and sum(sizes) <= batch
        seen += torch.cat([part[0] for part in parts]).tolist()
    assert len(set(seen)) == len(seen) == (samples // batch * batch if drop else samples)


def test_another_epoch_has_another_order():
    loader = ShardLoader(TensorDataset(torch.arange(50)), 50, 1, 2, shuffle=True)
    assert not torch.equal(*(next(iter(loader))[0] for _ in range(2)))


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 50), max_size=12), limit=st.integers(1, 300))
def test_buckets_hold_each_parameter_once(sizes, limit):
    parameters = [nn.Parameter(torch.zeros(n)) for n in sizes]
    buckets = dp.make_buckets(parameters, limit)
    assert [id(p) for b in buckets for p in b] == [id(p) for p in reversed(parameters)]
    assert all(sum(p.nbytes for p in b[:-1]) < limit for b in buckets)
    assert all(sum(p.nbytes for p in b) >= limit for b in buckets[:-1])


def test_averaging_alone_leaves_the_gradients():
    model = GluonCNN()
    reducer = dp.GradientReducer(model, 1000)
    model(torch.rand(2, 1, 28, 28)).sum().backward()
    before = [p.grad.clone() for p in model.parameters()]
    reducer.finish()
    dp.average_gradients(model)
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters()))


def test_a_parameter_without_a_gradient_gets_a_zero():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    reducer = dp.GradientReducer(model)
    model[0](torch.ones(1, 2)).sum().backward()
    reducer.finish()
    assert all((p.grad == 0).all() for p in model[1].parameters()) and model[0].weight.grad.abs().sum() > 0


# ---- costs: laws

seconds = st.floats(1e-7, 1e-2)
rates = st.floats(1e6, 1e12)


@settings(max_examples=80, deadline=None)
@given(latency=seconds, rate=rates, bytes=st.integers(0, 10**9), fixed=st.floats(0, 0.1),
       per_image=st.floats(1e-6, 0.1), batch=st.integers(1, 512), power=st.integers(0, 9))
def test_scaling_laws(latency, rate, bytes, fixed, per_image, batch, power):
    job, network, n = Workload("x", bytes, fixed, per_image, 1000, 1), Network("x", rate, latency), 2**power
    weak, more = job.efficiency(batch, network, n), job.efficiency(batch, network, 2 * n)
    assert 0 < more <= weak + 1e-12 <= 1 + 1e-9
    assert job.efficiency(batch, network, n, overlap=False) <= weak + 1e-12
    assert job.efficiency(batch, network, n, strong=True) <= weak + 1e-9
    assert job.efficiency(batch, replace(network, bytes_per_s=2 * rate), n) >= weak - 1e-12
    assert job.efficiency(batch, network, 1) == pytest.approx(1)


def test_known_answers():
    assert ring_bytes(100, 1) == 0 and ring_bytes(100, 2) == 100 and ring_bytes(100, 4) == 150
    job = Workload("x", 60 << 20, 0.01, 0.001, 100, 2)
    total, last = job.communication(LINK, 2)
    assert total == pytest.approx(sum(2e-5 + b / 1e9 for b in (1 << 20, 25 << 20, 25 << 20, 9 << 20)))
    assert last == pytest.approx(2e-5 + (9 << 20) / 1e9)
    assert job.exposed(10, LINK, 2) == pytest.approx(total - 2 / 3 * 0.02)
    assert job.exposed(1000, LINK, 2) == pytest.approx(last)
    crowded = replace(job, cores=2)
    assert crowded.compute(10, 2) == 0.02 and crowded.compute(10, 4) == 0.04
    assert crowded.exposed(1000, LINK, 2) == pytest.approx(total), "shared cores hide nothing"
    assert job.run_seconds(10, LINK, 2) == pytest.approx(2 * 100 / 20 * job.step(10, LINK, 2))
