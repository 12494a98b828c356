"""Data parallelism: the launcher's faults, equality with one process at 2 and 4 ranks, the ring, the cost model's laws."""
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from mlinfra.engine import hardware, network as network_room, rank_data, ranks as ranks_room, shared_memory
from mlinfra.engine import synced_norm
from mlinfra.views import data_parallel as data_parallel_views
from mlinfra import data_parallel as dp
from mlinfra.data import BatchLoader
from mlinfra.models import GluonCNN
from mlinfra.training import fit

ROOT = Path(__file__).parents[1]
LINK = hardware.Network("toy", 1e9, 1e-5)


# ---- nothing is left behind

def ranks_of(process):
    "What it has started, without Python's own helper."
    return [p for p in process.children(recursive=True) if "resource_tracker" not in " ".join(p.cmdline())]


def ports():
    gc.collect()
    own = psutil.Process()
    connections = own.net_connections("inet") if hasattr(own, "net_connections") else own.connections("inet")
    return {c.laddr for c in connections if c.status == psutil.CONN_LISTEN}


@pytest.fixture
def nothing_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests start ranks at the same time
    handlers, before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}, ports()
    yield
    assert ranks_of(psutil.Process()) == [] and ports() <= before
    assert list(tmp_path.glob("ranks-*")) == []
    assert {s: signal.getsignal(s) for s in handlers} == handlers and "TORCHELASTIC_SIGNALS_TO_HANDLE" not in os.environ
    assert not [t for t in threading.enumerate() if t.name == "mlinfra-launch"]


# ---- faults

@pytest.mark.parametrize("fault, rank, cause, says", [
    ("raises", 1, "raised", "rank 1 raised KeyError: 'a label that is not there' (data_parallel.py:"),
    ("is killed", 1, "killed", "rank 1 was killed by SIGKILL"), ("exits", 1, "raised", "rank 1 ended with status 3 and no word"),
    ("hangs", 1, "hung", "after 1 s rank 1 was still at data_parallel.py:")])
def test_a_fault_is_told(fault, rank, cause, says, nothing_left):
    with pytest.raises(ranks_room.RankError) as caught: ranks_room.run_ranks(ranks_room.faulty, 2, fault, seconds=1 if fault == "hangs" else 60, share_cores=True)
    assert (caught.value.rank, caught.value.cause) == (rank, cause) and str(caught.value).startswith(says)
    if fault == "hangs": assert "rank 0 waited at data_parallel.py:" in str(caught.value) and "in faulty" in str(caught.value)


@pytest.mark.parametrize("notes, failed, says", [
    ({}, (1, -9), "rank 1 was killed by SIGKILL"), ({}, (1, 3), "rank 1 ended with status 3 and no word"),
    ({0: (True, "RuntimeError: gloo")}, (1, 3), "rank 1 ended with status 3 and no word"),
    ({0: (True, "RuntimeError: gloo")}, (0, 1), "rank 0 raised RuntimeError: gloo (a.py:1 in f)"),
    ({0: (True, "RuntimeError: gloo"), 1: (False, "KeyError: 1")}, (0, 1), "rank 1 raised KeyError: 1 (a.py:1 in f)"),
    ({0: (False, "KeyError: 0"), 1: (False, "KeyError: 1")}, (1, 1), "rank 0 raised KeyError: 0 (a.py:1 in f)")])
def test_the_first_cause_is_told_not_what_followed(tmp_path, notes, failed, says):
    for rank, (lost, error) in notes.items():
        (tmp_path / f"{rank}.error").write_text(json.dumps(dict(rank=rank, time=float(rank), lost=lost, error=error, place="a.py:1 in f")))
    rank, exitcode = failed
    assert str(ranks_room._failed(tmp_path, {rank: SimpleNamespace(exitcode=exitcode, timestamp=0, signal_name=lambda: "SIGKILL")})) == says


def at_work(act):
    "A `report` that calls `act` once the ranks are at work."
    def report(share, words):
        if "at work" in words: act()
    return report


def test_an_interrupt_ends_the_ranks(nothing_left):
    with pytest.raises(KeyboardInterrupt):
        ranks_room.run_ranks(ranks_room.faulty, 2, "hangs", share_cores=True, report=at_work(lambda: signal.raise_signal(signal.SIGINT)))


KERNEL = """
from mlinfra import data_parallel as dp
dp.run_ranks(dp.faulty, 2, "hangs", share_cores=True, report=lambda share, words: print(words, flush=True))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_ranks_end_with_a_kernel_that_is_killed():
    kernel = subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    while "at work" not in (line := kernel.stdout.readline()): assert line, "it ended early"
    family = psutil.Process(kernel.pid).children(recursive=True)
    assert len([p for p in family if "resource_tracker" not in " ".join(p.cmdline())]) == 2
    kernel.kill()
    kernel.wait()
    _gone, alive = psutil.wait_procs(family, 10)
    alive = [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]  # where nobody buries them
    for process in alive: process.kill()
    assert alive == []
    for folder in Path(tempfile.gettempdir()).glob("ranks-*"):  # nobody was left to remove it
        if {int(path.read_text()) for path in folder.glob("*.pid")} & {p.pid for p in family}: shutil.rmtree(folder)


def test_nonsense_is_refused_before_anything_starts():
    for world_size in (0, -1, 1.5, True, 10**6):
        with pytest.raises(ValueError, match="world_size must be"): ranks_room.run_ranks(ranks_room.rank_and_world_size, world_size)
    with pytest.raises(ValueError, match="define it in a module"): ranks_room.run_ranks(lambda: 1, 1)
    with pytest.raises(ValueError, match="must be callable"): ranks_room.run_ranks("who", 1)
    with pytest.raises(ValueError, match="seconds must be"): ranks_room.run_ranks(ranks_room.rank_and_world_size, 1, seconds=0)
    with pytest.raises(ValueError, match="threads must be"): ranks_room.run_ranks(ranks_room.rank_and_world_size, 1, threads=0)
    with pytest.raises(ValueError, match="hosts must be one for each of 2 ranks or none, got 1"): ranks_room.run_ranks(ranks_room.rank_and_world_size, 2, hosts=[network_room.Host("a", "b")], share_cores=True)
    with pytest.raises(ValueError, match="global_batch|batch_size"): rank_data.ShardLoader(TensorDataset(torch.arange(3)), 0)
    for rank in (-1, 2):
        with pytest.raises(ValueError, match="rank must be 0 to 1"): rank_data.ShardLoader(TensorDataset(torch.arange(3)), 1, rank, 2)
    for how in (dict(way="sometimes"), dict(model="vgg")):
        with pytest.raises(ValueError, match="must be one of"): dp.RankTrial(**how)
    with pytest.raises(ValueError, match="torchrun"): dp.train_ddp(GluonCNN(), rank_data.first_digits(10), device="cpu")
    with pytest.raises(ValueError, match="samples must be at most"): rank_data.first_digits(60_001)
    with pytest.raises(ValueError, match="contiguous"): dp.ring_all_reduce(torch.zeros(3, 4).t())
    with pytest.raises(ValueError, match="fault must be"): ranks_room.faulty("sneezes")
    with pytest.raises(ValueError, match="hook must be one of none, fp16, powersgd, shared memory, got 'gzip'"): shared_memory.wrap_ddp(GluonCNN(), "gzip")


# ---- real groups: each does much, for starting one takes seconds

DTYPES = (torch.int64, torch.int32, torch.float64, torch.float32, torch.uint8)
RINGS = [(n, DTYPES[i % len(DTYPES)]) for i, n in enumerate((0, 1, 2, 3, 4, 5, 7, 64, 999, 10_007))]
TRIALS = {
    "each parameter": dp.RankTrial("each parameter", samples=300), "buckets": dp.RankTrial("buckets", samples=300), "overlap": dp.RankTrial("overlap", samples=300),
    "ddp": dp.RankTrial("ddp", samples=300), "one image left": dp.RankTrial(samples=257), "one image left, ddp": dp.RankTrial("ddp", samples=257),
    "float64": dp.RankTrial(samples=300, double=True), "accumulated": dp.RankTrial(samples=300, accumulation=3),
    "accumulated, ddp": dp.RankTrial("ddp", samples=300, accumulation=3), "each micro-batch": dp.RankTrial(samples=300, accumulation=3, sync_each=True),
    "synced batch norm": dp.RankTrial(model="synced batch norm", samples=300),
} | ({} if shared_memory.why_not_shared() else {"ddp shared memory": dp.RankTrial("ddp shared memory", samples=300), "accumulated, ddp shared memory": dp.RankTrial("ddp shared memory", samples=300, accumulation=3)})
UNEQUAL = {"never": dp.RankTrial("never", samples=300), "batch norm": dp.RankTrial(model="batch norm", samples=300), "dropout": dp.RankTrial(model="dropout", samples=300)}


def other_models():
    "What `check_same` says of two different models, and of the same one."
    try: ranks_room.faulty("has another model")
    except ValueError as error: return str(error)


def refused_settings():
    "What `train_ddp` says where one rank has another setting, for each of some settings."
    last, said = ranks_room.rank_and_world_size()[0] == ranks_room.rank_and_world_size()[1] - 1, []
    for own in (dict(batch_size=8), dict(epochs=2), dict(seed=1), dict(precision="bf16")):
        try: dp.train_ddp(GluonCNN(), rank_data.first_digits(50), device="cpu", **(own if last else {}))
        except ValueError as error: said.append(str(error))
    try: dp.train_ddp(GluonCNN(), rank_data.first_digits(40 if last else 50), device="cpu")
    except ValueError as error: said.append(str(error))
    return said


def refused_images():
    "What `train_ddp` says of fewer images than ranks."
    try: dp.train_ddp(GluonCNN(), rank_data.first_digits(1), device="cpu")
    except ValueError as error: return str(error)


def group(world_size):
    calls = [(dp.run_trial, trial) for trial in (TRIALS | UNEQUAL).values()] + [(dp.try_ring, *ring) for ring in RINGS] + [(other_models,), (refused_images,), (dp.train_digits, 500, 1, 48 // world_size), (refused_settings,), (losses_of_two_epochs, 48 // world_size)]
    with socket.socket() as busy:
        with suppress(OSError):  # taken by another, which will do
            busy.bind(("127.0.0.1", 29500))  # torchrun's usual port: ours must not mind
            busy.listen()
        found = ranks_room.run_ranks(ranks_room.in_turn, world_size, calls, share_cores=True, seconds=600)
    trials, rest = len(TRIALS | UNEQUAL), len(TRIALS | UNEQUAL) + len(RINGS)
    return {r: (dict(zip(TRIALS | UNEQUAL, calls[:trials])), calls[trials:rest], calls[rest:]) for r, calls in found.items()}


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request): return group(request.param)


@pytest.fixture(scope="module")
def alone(): return {name: dp.run_trial(trial) for name, trial in (TRIALS | UNEQUAL).items()}


def test_every_way_equals_one_process(ranks, alone):
    for name in TRIALS:
        first = ranks[0][0][name]
        assert first.differs(alone[name]) < (1e-13 if name == "float64" else 2e-5), name
        torch.testing.assert_close(first.losses, alone[name].losses, rtol=1e-4, atol=1e-5)
        assert all(first.differs(ranks[r][0][name]) == 0 for r in ranks), f"{name}: the ranks differ"


def test_what_is_not_equal_is_seen_not_to_be(ranks, alone):
    for name in UNEQUAL: assert ranks[0][0][name].differs(alone[name]) > 1e-4, name
    assert ranks[0][0]["never"].differs(ranks[1][0]["never"]) > 1e-4, "without averaging the ranks drift apart"
    assert ranks[0][0]["dropout"].differs(ranks[1][0]["dropout"]) == 0, "dropout's noise is averaged too"


def test_messages_and_bytes(ranks):
    trained, steps, size = ranks[0][0], 3, sum(p.nbytes for p in GluonCNN().parameters())
    assert trained["each parameter"].messages == 8 * steps and trained["buckets"].messages < trained["each parameter"].messages
    assert {trained[name].bytes for name in ("each parameter", "buckets", "overlap", "ddp", "accumulated", "accumulated, ddp")} == {steps * size}
    assert trained["each micro-batch"].bytes == 3 * steps * size and trained["float64"].bytes == 2 * steps * size
    assert trained["never"].messages == 0


def test_the_ring_is_exact_and_sends_what_the_formula_says(ranks):
    for i, (n, dtype) in enumerate(RINGS):
        assert all(ranks[r][1][i][1] for r in ranks), (n, dtype)
        assert sum(ranks[r][1][i][0] for r in ranks) == 2 * (len(ranks) - 1) * n * dtype.itemsize


def test_different_models_and_too_few_images_are_refused_on_every_rank(ranks):
    last = len(ranks) - 1
    for said, images, *_ in (found[2] for found in ranks.values()):
        assert said.startswith(f"rank {last} has another model than rank 0: classifier.1.weight is (100, 800) there and classifier.1.weight is (512, 800) here")
        assert images == f"each rank needs an image: 1 are too few for {len(ranks)} ranks"


def test_other_settings_are_refused_on_every_rank(ranks):
    last = len(ranks) - 1
    pairs = (("batch_size", 8, 64), ("epochs", 2, 1), ("seed", 1, 0), ("precision", "bf16", "fp32"), ("images", 40, 50))
    for found in ranks.values():
        assert found[2][3] == [f"rank {last} has {name}={theirs!r}, rank 0 has {name}={first!r}: all must run the same" for name, theirs, first in pairs]


def losses_of_two_epochs(batch_size=None):
    "Mean losses of 97 images: the last batch has one, so that all ranks but one have none. Alone, what `fit` says."
    torch.manual_seed(0)
    model, digits = GluonCNN(), rank_data.first_digits(97)
    if batch_size is None: return [epoch.loss for epoch in fit(model, BatchLoader(digits, 48, shuffle=True, seed=0), epochs=2, device="cpu", progress=False).epochs]
    return rank_data.epoch_losses(dp.train_ddp(model, digits, epochs=2, batch_size=batch_size, device="cpu")[0])


def test_an_epochs_loss_counts_each_image_once(ranks):
    for found in ranks.values(): assert found[2][4] == pytest.approx(losses_of_two_epochs(), rel=1e-5)


def test_train_ddp_is_the_same_run_at_any_world_size(ranks):
    losses = [sum(step) / len(ranks) for step in zip(*(found[2][2][0] for found in ranks.values()))]
    assert {found[2][2][1:] for found in ranks.values()} == {ranks[0][2][2][1:]}
    torch.manual_seed(0)
    one = fit(GluonCNN(), BatchLoader(rank_data.first_digits(500), 48, shuffle=True, seed=0), device="cpu", progress=False)
    torch.testing.assert_close(losses, [step.loss for step in one.steps], rtol=1e-3, atol=1e-3)


def test_what_torchrun_announces_is_enough(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    for name, value in dict(RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=port).items(): monkeypatch.setenv(name, str(value))
    losses, accuracy, _ = dp.train_digits(300)
    assert len(losses) == 10 and 0 < accuracy <= 1 and ranks_room.rank_and_world_size() == (0, 1), "the group is gone"


# ---- shared memory

shared = pytest.mark.skipif(bool(shared_memory.why_not_shared()), reason=shared_memory.why_not_shared() or "memory can be shared")


def handles(): return len(os.listdir("/proc/self/fd"))


@shared
def test_one_rank_reads_its_own_mean_and_leaves_nothing():
    before, parameters = handles(), [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(5))]
    memory = shared_memory.SharedMemory(parameters)
    for step in range(5):
        for n in (5, 3): memory.write(torch.full((n,), float(n + step)))
        assert [m.tolist() for m in memory.mean()] == [[5.0 + step] * 5, [3.0 + step] * 3]
    del memory
    gc.collect()
    assert handles() == before


@shared
def test_shared_memory_refuses_what_it_cannot_do(monkeypatch):
    with pytest.raises(ValueError, match="of one dtype, got"): shared_memory.SharedMemory([nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3).half())])
    late = shared_memory.SharedMemory([nn.Parameter(torch.zeros(3))], seconds=0.01)
    late.sent.append(torch.zeros(3))
    with pytest.raises(RuntimeError, match="rank 0 wrote nothing for 0.01 s"): late.mean()
    del late
    gc.collect()
    before = handles()
    def full(*_): raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="of shared memory: No space left"): shared_memory.SharedMemory([nn.Parameter(torch.zeros(3))])
    assert handles() == before
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(ValueError, match="this is aarch64"): shared_memory.SharedMemory([nn.Parameter(torch.zeros(3))])


# ---- cables

cables = pytest.mark.skipif(bool(network_room.why_no_hosts()), reason=network_room.why_no_hosts() or "cables can be laid")


def networks(): return {path.name for path in Path("/run/netns").glob(f"mlinfra-{os.getpid()}-*")}


def over_the_cable(size):
    "An all-reduce of so many bytes: what the kernel saw leave."
    before = network_room.sent_bytes()
    torch.distributed.all_reduce(torch.ones(size // 4))
    torch.distributed.barrier()
    return network_room.sent_bytes() - before


@cables
def test_the_kernel_counts_what_the_ring_formula_says():
    before, mine = networks(), os.readlink("/proc/self/ns/net")
    with network_room.lay_cables(2, 1e9) as hosts: found = ranks_room.run_ranks(over_the_cable, 2, 10_000_000, hosts=hosts, share_cores=True)
    assert all(hardware.ring_bytes(10_000_000, 2) < sent < 1.2 * hardware.ring_bytes(10_000_000, 2) for sent in found.values()), found
    assert networks() == before and os.readlink("/proc/self/ns/net") == mine, "this process stayed where it was"


@cables
def test_cables_of_a_process_that_was_killed_are_cleared_away():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    subprocess.run(["ip", "netns", "add", left := f"mlinfra-{ended.pid}-0-1"], check=True)
    with network_room.lay_cables(1): assert not Path("/run/netns", left).exists()
    with pytest.raises(OSError, match="boom"), network_room.lay_cables(2): raise OSError("boom")
    with pytest.raises(ValueError, match="bytes_per_s must be"), network_room.lay_cables(2, 0): pass
    assert not networks()


def test_a_busy_port_is_told(monkeypatch):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        for name, value in dict(RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, MASTER_ADDR="127.0.0.1", MASTER_PORT=port).items(): monkeypatch.setenv(name, str(value))
        with pytest.raises(OSError, match=rf"could not meet at 127.0.0.1, port {port}: .*in use"), ranks_room.process_group("cpu"): pass
    assert ranks_room.rank_and_world_size() == (0, 1)


# ---- sharing, buckets: laws

@settings(max_examples=60, deadline=None)
@given(samples=st.integers(1, 60), batch=st.integers(1, 20), world_size=st.integers(1, 7), shuffle=st.booleans())
def test_shares_make_up_the_batch(samples, batch, world_size, shuffle):
    loaders = [rank_data.ShardLoader(TensorDataset(torch.arange(samples)), batch, rank, world_size, shuffle) for rank in range(world_size)]
    seen = []
    for parts in zip(*loaders, strict=True):
        sizes = [len(part[0]) for part in parts]
        assert max(sizes) - min(sizes) <= 1 and sum(sizes) == loaders[0].whole <= batch
        seen += torch.cat([part[0] for part in parts]).tolist()
    assert sorted(seen) == list(range(samples))


def test_another_epoch_has_another_order():
    loader = rank_data.ShardLoader(TensorDataset(torch.arange(50)), 50, 1, 2, shuffle=True)
    assert not torch.equal(*(next(iter(loader))[0] for _ in range(2)))


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 50), max_size=12), limit=st.integers(1, 300))
def test_buckets_hold_each_parameter_once(sizes, limit):
    parameters = [nn.Parameter(torch.zeros(n)) for n in sizes]
    buckets = dp.make_buckets(parameters, limit)
    assert [id(p) for b in buckets for p in b] == [id(p) for p in reversed(parameters)]
    assert all(sum(p.nbytes for p in b[:-1]) < limit for b in buckets) and all(sum(p.nbytes for p in b) >= limit for b in buckets[:-1])


def test_averaging_alone_leaves_the_gradients():
    model = GluonCNN()
    averager = dp.GradientReducer(model, 1000)
    model(torch.rand(2, 1, 28, 28)).sum().backward()
    before = [p.grad.clone() for p in model.parameters()]
    averager.finish()
    dp.average_gradients(model)
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters()))


def test_a_parameter_without_a_gradient_gets_a_zero():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    averager = dp.GradientReducer(model)
    model[0](torch.ones(1, 2)).sum().backward()
    averager.finish()
    assert all((p.grad == 0).all() for p in model[1].parameters()) and model[0].weight.grad.abs().sum() > 0


# ---- costs: laws

seconds = st.floats(1e-7, 1e-2)
rates = st.floats(1e6, 1e12)


@settings(max_examples=60, deadline=None)
@given(latency=seconds, rate=rates, world_size=st.integers(2, 64))
def test_fitting_finds_the_network(latency, rate, world_size):
    network = hardware.Network("x", rate, latency)
    sizes = (1, int(100 * latency * rate) + 1000)
    fitted = dp.fit_network({n: network.all_reduce(n, world_size) for n in sizes}, world_size)
    assert abs(fitted.bytes_per_s / rate - 1) < 1e-3 and abs(fitted.latency / latency - 1) < 1e-3


def test_fitting_refuses_what_says_nothing():
    for seconds, world_size in (({1: 1.0}, 2), ({1: 1.0, 2: 1.0}, 2), ({1: 2.0, 9: 1.0}, 2), ({1: 1.0, 9: 2.0}, 1)):
        with pytest.raises(ValueError): dp.fit_network(seconds, world_size)


@settings(max_examples=80, deadline=None)
@given(latency=seconds, rate=rates, bytes=st.integers(0, 10**9), fixed=st.floats(0, 0.1), per_image=st.floats(1e-6, 0.1), batch=st.integers(1, 512), power=st.integers(0, 9))
def test_scaling_laws(latency, rate, bytes, fixed, per_image, batch, power):
    job, network, n = dp.Workload("x", bytes, fixed, per_image, 1000, 1), hardware.Network("x", rate, latency), 2**power
    weak, more = job.efficiency(batch, network, n), job.efficiency(batch, network, 2 * n)
    assert 0 < more <= weak + 1e-12 <= 1 + 1e-9
    assert job.efficiency(batch, network, n, overlap=False) <= weak + 1e-12
    assert job.efficiency(batch, network, n, strong=True) <= weak + 1e-9
    assert job.efficiency(batch, replace(network, bytes_per_s=2 * rate), n) >= weak - 1e-12
    assert job.efficiency(batch, network, 1) == pytest.approx(1)


def test_known_answers():
    assert hardware.ring_bytes(100, 1) == 0 and hardware.ring_bytes(100, 2) == 100 and hardware.ring_bytes(100, 4) == 150
    assert LINK.all_reduce(1e6, 4) == pytest.approx(6e-5 + 1.5e-3)
    job = dp.Workload("x", 60 << 20, 0.01, 0.001, 100, 2)
    total, last = job.communication(LINK, 2)
    assert total == pytest.approx(sum(2e-5 + b / 1e9 for b in (1 << 20, 25 << 20, 25 << 20, 9 << 20))) and last == pytest.approx(2e-5 + (9 << 20) / 1e9)
    assert job.exposed(10, LINK, 2) == pytest.approx(total - 2 / 3 * 0.02) and job.exposed(1000, LINK, 2) == pytest.approx(last)
    crowded = replace(job, cores=2)
    assert crowded.compute(10, 2) == 0.02 and crowded.compute(10, 4) == 0.04 and crowded.exposed(1000, LINK, 2) == pytest.approx(total), "shared cores hide nothing"
    assert job.run_seconds(10, LINK, 2) == pytest.approx(2 * 100 / 20 * job.step(10, LINK, 2))


def test_the_panel_refuses_empty_shares_and_names_crowding():
    job = replace(dp.WORKLOADS["ResNet-50, P100"], cores=2)
    assert "without an image" in data_parallel_views.describe_scaling(job, LINK, 8, 4, strong=True) and "share 2 cores" in data_parallel_views.describe_scaling(job, LINK, 8, 4)


def test_synced_batch_norm_in_evaluation_is_batch_norm():
    ours, theirs, x = synced_norm.SyncedBatchNorm(3), nn.BatchNorm2d(3), torch.randn(4, 3, 5, 5)
    for norm in (ours, theirs): norm(x)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))
