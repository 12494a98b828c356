"""fit on a GPU. Not run where PyTorch sees no CUDA device."""
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.data import BatchLoader, Images
from mlinfra.data_parallel import train_ddp
from mlinfra.engine.dist.rank_data import train_digits
from mlinfra.engine.dist.ranks import call_each, run_ranks
from mlinfra.engine.trace.trace import read
from mlinfra.models import GluonCNN
from mlinfra.training import PHASES, fit, sgd

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")]
QUIET = dict(progress=False, device="cuda")


@pytest.fixture
def digits():
    torch.manual_seed(0)
    return Images(torch.randint(0, 256, (1_000, 1, 28, 28), dtype=torch.uint8), torch.randint(0, 10, (1_000,)))


def trained(digits, **options):
    "A model, and the record of its two epochs; the last batch of each is smaller than the others."
    torch.manual_seed(1)
    model = GluonCNN().cuda()
    optimizer = sgd(model, 0.05, 0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    history = fit(
        model,
        BatchLoader(digits, 64, shuffle=True, seed=0, device="cuda"),
        epochs=2,
        optimizer=optimizer,
        scheduler=scheduler,
        **QUIET,
        **options,
    )
    return model, history


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_graph_computes_what_the_kernels_compute(digits, precision):
    (eager, expected), (graphed, found) = (
        trained(digits, precision=precision, cuda_graph=graph) for graph in (False, True)
    )
    tolerance = 1e-3 if precision == "fp32" else 2e-2
    assert [s.samples for s in found.steps] == [s.samples for s in expected.steps] and len(found.steps) == 32
    torch.testing.assert_close(
        [s.loss for s in found.steps], [s.loss for s in expected.steps], rtol=tolerance, atol=tolerance
    )
    for a, b in zip(graphed.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_a_graph_is_replayed(digits, monkeypatch):
    replays, replay = [], torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (replays.append(graph), replay(graph))[1])
    trained(digits, cuda_graph=True)
    assert len(replays) == 2 * (32 - 3 - 2), (
        "all steps but three to warm up and two smaller batches, forward and backward"
    )


def test_gradients_are_there_on_backward_and_gone_after(digits):
    norms = []
    class Look:
        def on_backward(self, run): norms.append(float(run.model.features[0].weight.grad.norm()))
    model, _ = trained(digits, cuda_graph=True, observers=[Look()])
    assert len(norms) == 32 and all(norm > 0 for norm in norms) and all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("graph", [False, True])
def test_phases_fill_the_epoch_and_do_not_exceed_it(digits, graph):
    _, history = trained(digits, cuda_graph=graph)
    assert [s.iteration for s in history.steps] == list(range(32))
    assert all(getattr(s, phase) >= 0 for s in history.steps for phase in PHASES) and all(
        s.forward > 0 and s.backward > 0 for s in history.steps
    )
    assert sum(s.seconds for s in history.steps) < 1.05 * sum(e.seconds for e in history.epochs)


def test_tf32_is_on_for_its_run_only(digits):
    seen = []
    class Look:
        def on_backward(self, run): seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    trained(digits, precision="tf32", observers=[Look()])
    assert set(seen) == {("high", True)} and before == (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
    )


def test_a_loader_on_the_device_delivers_from_there(digits):
    loader = BatchLoader(digits, 64, device="cuda")
    assert all(x.is_cuda and y.is_cuda for x, y in loader)


def test_a_graph_refuses_accumulation(digits):
    with pytest.raises(ValueError, match="cuda_graph=True needs a CUDA device and accumulation 1"):
        fit(nn.Linear(4, 2), BatchLoader(digits, 8), cuda_graph=True, accumulation=2, **QUIET)


class First(nn.Module):
    "Needs all of the batch on the device, and computes on little of it."
    def __init__(self): super().__init__(); self.layer = nn.Linear(1, 2)
    def forward(self, x): return self.layer(x[:, :1])


@pytest.mark.parametrize(
    "backend, gpus",
    [
        ("gloo", 1),
        pytest.param(
            "nccl",
            2,
            marks=pytest.mark.skipif(
                torch.cuda.device_count() < 2, reason="NCCL wants a GPU for each rank, and there is one"
            ),
        ),
    ],
)
def test_two_ranks_train_as_one_does(backend, gpus):
    def trained(world_size):
        train = partial(train_digits, train_ddp, 500, True, "cuda", batch_size=64 // world_size)
        found = run_ranks(train, world_size, backend=backend, gpus=True, share_cores=True, timeout_seconds=120)
        return list(found.values())
    pair, (one,) = trained(2), trained(1)
    losses = [sum(step) / 2 for step in zip(*(run.losses for run in pair))]
    torch.testing.assert_close(losses, one.losses, rtol=1e-9, atol=0)  # eight steps in float64, whose rounding is 1e-16
    assert all(torch.equal(a, b) for a, b in zip(pair[0].weights.values(), pair[1].weights.values())), (
        "the same weights"
    )


def test_the_doctor_sees_the_copy_and_leaves_the_model_where_it_was():
    from mlinfra.doctor import diagnose
    model, batches = First(), [(torch.rand(8, 4_000_000), torch.zeros(8, dtype=torch.int64))] * 4
    found = diagnose(model, batches, device="cuda", budget_seconds=10)
    assert found.verdict == "transfer" and found.stages["transfer"].value > found.stages["compute"].value
    assert model.layer.weight.device.type == "cpu"


def train_loop(how, root=None, cut=None):
    "Losses and whole weights of a plain loop on the GPU, in float64; with a folder it is saved, and gone on with."
    from mlinfra.engine.checkpoint.loop_checkpoints import LoopCheckpoints
    from mlinfra.engine.parallel.parallelize import parallelize
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))
    model.double().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 0.05)
    made = torch.Generator().manual_seed(0)
    x, y = torch.randn(23, 6, generator=made, dtype=torch.float64), torch.randint(0, 4, (23,), generator=made)
    loader = DataLoader(TensorDataset(x, y), 7, shuffle=True)  # batches of 7, 7, 7 and 2
    run = parallelize(model, loader, how, optimizer, checkpoints=None if root is None else LoopCheckpoints(root, 3))
    losses, (model, loader, optimizer) = [], run
    for _ in range(run.epoch, 3):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(run.mean(loss))
            if len(losses) == cut: return run.checkpoints.folder.wait()
    return losses, {name: tensor.cpu() for name, tensor in run.state_dict().items()}


@pytest.mark.parametrize("how", ["ddp", "tensor"])
def test_a_plain_loop_on_two_ranks_is_one_process(how, tmp_path):
    def on_ranks(*calls): return run_ranks(call_each, 2, calls, backend="gloo", gpus=True, share_cores=True)
    losses, weights = train_loop("ddp")
    root = str(tmp_path / "checkpoints")
    on_ranks((train_loop, how, root, 8))
    for whole, rest in on_ranks((train_loop, how), (train_loop, how, root)).values():
        torch.testing.assert_close(whole[0], losses, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(rest[0], losses[6:], rtol=1e-9, atol=1e-12)
        for name, tensor in weights.items(): torch.testing.assert_close(rest[1][name], tensor, rtol=1e-7, atol=1e-9)


def test_the_table_has_the_memory_that_this_device_reports():
    from mlinfra.engine.base.hardware import DEVICES
    properties = torch.cuda.get_device_properties(0)
    words = properties.name.removeprefix("NVIDIA ").split()[0].replace("-", " ").split()[0]
    known = [device for device in DEVICES.values() if device.name.split()[0] == words]
    if not known: pytest.skip(f"{properties.name} is not in the table")
    nearest = min(known, key=lambda device: abs(device.memory_bytes - properties.total_memory))
    assert nearest.memory_bytes == pytest.approx(properties.total_memory, rel=2e-3), properties.total_memory


def step_of(kind):
    "A training step: many small launches, one large product, or a wait for the GPU after each layer."
    wide, layers = (4_096, 4) if kind == "large" else (64, 40)
    model = nn.Sequential(*(nn.Linear(wide, wide) for _ in range(layers))).cuda()
    optimizer, x = torch.optim.SGD(model.parameters(), 1e-4), torch.randn(wide, wide, device="cuda")
    def step():
        out = x
        for layer in model:
            out = layer(out)
            if kind == "waits": out.sum().item()
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def test_a_trace_tells_why_this_gpu_was_idle(tmp_path):
    "Beside PyTorch's own sums of the kernels' time."
    from torch.profiler import ProfilerActivity, profile, schedule
    parts, plan, sums = {}, schedule(wait=0, warmup=2, active=4, repeat=1), []
    def keep(profiler):
        profiler.export_chrome_trace(str(path))
        sums.append(sum(one.self_device_time_total for one in profiler.key_averages()
                        if one.device_type == torch.autograd.DeviceType.CUDA
                        and not one.key.startswith(("ProfilerStep", "Optimizer."))) / 1e6)  # spans, not kernels
    for kind in ("small", "large", "waits"):
        step, path = step_of(kind), tmp_path / f"{kind}.json.gz"
        kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=kinds, schedule=plan, on_trace_ready=keep) as profiler:
            for _ in range(6):
                step()
                torch.cuda.synchronize()
                profiler.step()
        trace = read(path)
        assert trace.device == torch.cuda.get_device_name() and len(trace.steps) == 4
        print(kind, trace, f"kernels {trace.kernels['seconds'].sum():.6f} s, PyTorch's sum {sums[-1]:.6f} s", sep="\n")
        assert trace.kernels["seconds"].sum() == pytest.approx(sums[-1], rel=0.02)
        parts[kind] = trace.parts / trace.parts.sum()
        assert abs(parts[kind].sum() - 1) < 1e-6
    assert parts["large"]["gpu_compute"] > 0.8 and parts["small"]["idle_launch"] > parts["small"]["gpu_compute"]
    assert parts["waits"]["idle_synchronise"] > 3 * parts["small"]["idle_synchronise"]


# ---- memory

def _decoder(**how):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=8_192, n_embd=512, n_layer=6, n_head=8, n_positions=512, **how)
    return transformers.GPT2LMHeadModel(config).cuda()


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_decoder_with_attention_dropout_peaks_where_it_is_estimated(precision, checkpointing):
    from mlinfra import memory
    ids = torch.randint(0, 8_192, (8, 512))
    how = dict(sample=dict(input_ids=ids, labels=ids), precision=precision, optimizer="adamw",
               checkpointing=[f"transformer.h.{i}" for i in range(6)] if checkpointing else False)
    model = _decoder(attn_pdrop=0.1)
    guess, real = memory.estimate(model, 8, **how), memory.measure(model, 8, device="cuda", **how)
    assert abs(guess.total / real.total - 1) < 0.05
    planned = memory.estimate(model.cpu(), 8, **how, plan="cuda")
    assert abs(planned.total / real.total - 1) < 0.10, "planned without the GPU"


def test_the_largest_batch_within_a_fraction_of_the_memory():
    from mlinfra import memory
    share = 2e9 / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(share)
    try: plan = memory.find_batch_size(GluonCNN(), start=1 << 18, device="cuda", steps=1)
    finally: torch.cuda.set_per_process_memory_fraction(1.0)
    assert plan.tried[0] == (1 << 18, False) and 1 < plan.largest < 1 << 18
    assert memory.estimate(GluonCNN().cuda(), plan.largest).total < 2e9


# ---- a loop that is watched

def test_a_loop_that_is_watched_and_traced_on_the_gpu_is_the_same(tmp_path):
    from mlinfra.engine.trace.trace import read
    from mlinfra.debugger import Debugger
    from mlinfra.monitor import watch
    def losses(folder):
        torch.manual_seed(0)
        model, seen, asked = GluonCNN().cuda(), [], []
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        x, y = torch.rand(640, 1, 28, 28), torch.randint(10, (640,))
        batches = DataLoader(TensorDataset(x, y), 64, pin_memory=True)
        def step(x, y):
            loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        if folder is None:
            for x, y in batches: step(x, y)
            return seen, None
        with watch(folder, model, optimizer, rules=[Debugger()]) as w:
            for number, (x, y) in enumerate(w(batches)):
                if number == 3: asked.append(w.trace(3))
                step(x, y)
        return seen, asked[0]
    torch.backends.cudnn.deterministic, before = True, torch.backends.cudnn.deterministic
    try: (plain, _), (watched, trace) = losses(None), losses(tmp_path / "run")
    finally: torch.backends.cudnn.deterministic = before
    assert watched == plain
    found = read(trace.path)
    assert found.device == torch.cuda.get_device_name() and len(found.steps) == 3 and len(found.kernels)
