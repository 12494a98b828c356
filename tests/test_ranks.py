"""Ranks on this machine: faults are told and nothing is left, cables are laid and cleared away, memory is shared."""
import gc
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest
import torch

from mlinfra.engine.base.hardware import ring_bytes
from mlinfra.engine.dist.network import Host, lay_cables, sent_bytes, why_no_hosts
from mlinfra.engine.dist.process_group import process_group, rank_and_world_size
from mlinfra.engine.dist.ranks import RankError, run_ranks
from mlinfra.engine.dist.shared_memory import SharedMemory, why_not_shared
from mlinfra.lab.rank_faults import faulty

ROOT = Path(__file__).parents[1]


# ---- nothing is left behind

def ranks_of(process):
    "What it has started, without Python's own two helpers: ranks are children of the one that forks them."
    def is_helper(child):
        return child in children and re.search("resource_tracker|forkserver", " ".join(child.cmdline()))
    children, found = process.children(), []
    for child in process.children(recursive=True):
        try:
            if not is_helper(child): found.append(child)
        except psutil.ZombieProcess: found.append(child)  # nobody has taken note of its end
        except psutil.NoSuchProcess: continue
    return found


def ports():
    gc.collect()
    own = psutil.Process()
    connections = own.net_connections("inet") if hasattr(own, "net_connections") else own.connections("inet")
    return {c.laddr for c in connections if c.status == psutil.CONN_LISTEN}


@pytest.fixture
def nothing_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests start ranks at the same time
    handlers, before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}, ports()
    others = ranks_of(psutil.Process())  # such as the browser of other tests
    yield
    assert [p for p in ranks_of(psutil.Process()) if p not in others] == [] and ports() <= before
    assert list(tmp_path.glob("ranks-*")) == []
    assert {s: signal.getsignal(s) for s in handlers} == handlers and "TORCHELASTIC_SIGNALS_TO_HANDLE" not in os.environ
    assert not [t for t in threading.enumerate() if t.name in ("mlinfra-launch", "mlinfra-cables")]


# ---- faults

@pytest.mark.parametrize("fault, cause, says", [
    ("is killed", "killed", "rank 1 was killed by SIGKILL"),
    ("exits", "left", "rank 1 ended with status 3 and no word"),
    ("leaves", "raised", "rank 1 raised RuntimeError: sys.exit(0) was called, and the other ranks wait for this one"),
    ("vanishes", "left", "rank 1 ended with status 0 before its function returned"),
    ("hangs", "hung", "after 1 s rank 0 waited at rank_faults.py:")])
def test_a_fault_is_told(fault, cause, says, nothing_left):
    limit = 1 if fault == "hangs" else 60
    with pytest.raises(RankError) as caught: run_ranks(faulty, 2, fault, timeout_seconds=limit, share_cores=True)
    assert (caught.value.rank, caught.value.cause) == (1, cause) and str(caught.value).startswith(says)
    if fault == "hangs": assert "in faulty; rank 1 was still at rank_faults.py:" in str(caught.value)
    if fault == "leaves": assert re.search(r"\(rank_faults.py:\d+ in _suffer\)$", str(caught.value)), "its place"


SCRIPT = """
from mlinfra.engine.dist.process_group import rank_and_world_size
from mlinfra.engine.dist.ranks import RankError, run_ranks
{guard}
try: print("found", run_ranks(rank_and_world_size, 1))
except RankError as error: print(error.cause, error)
"""


def run_script(tmp_path, guard):
    script = tmp_path / "train.py"
    lines = SCRIPT.format(guard=guard).splitlines()
    script.write_text("\n".join(lines if not guard else [*lines[:4], *(f"    {line}" for line in lines[4:])]))
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=env)


def test_a_script_without_a_guard_is_told_what_is_missing(tmp_path):
    done = run_script(tmp_path, "")
    assert done.stdout.startswith("did not start rank 0 did not start: every rank imports the script that starts it")
    assert done.stdout.rstrip().endswith('put the call under `if __name__ == "__main__":`')
    assert "Traceback" not in done.stderr and done.stderr.count("run_ranks:") == 1, "one sentence for one rank"


def test_a_script_with_a_guard_runs(tmp_path):
    done = run_script(tmp_path, 'if __name__ == "__main__":')
    assert done.stdout == "found {0: (0, 1)}\n", done.stderr


def test_ranks_have_the_environment_of_today(monkeypatch):
    for said in ("early", "late"):
        monkeypatch.setenv("MLINFRA_TOLD", said)
        assert run_ranks(os.getenv, 2, "MLINFRA_TOLD", share_cores=True) == {0: said, 1: said}


def test_the_server_of_ranks_has_not_touched_a_gpu():
    "A process forked from one that has could use none; asking how many there are is enough, with or without a GPU."
    assert run_ranks(torch.cuda._is_in_bad_fork, 2, share_cores=True) == {0: False, 1: False}


def at_work(act):
    "A `report` that calls `act` once the ranks are at work."
    def report(share, words):
        if "at work" in words: act()
    return report


def test_an_interrupt_ends_the_ranks(nothing_left):
    interrupt = at_work(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt): run_ranks(faulty, 2, "hangs", share_cores=True, report=interrupt)


KERNEL = """
from mlinfra.engine.dist.ranks import run_ranks
from mlinfra.lab.rank_faults import faulty
run_ranks(faulty, 2, "hangs", share_cores=True, report=lambda share, words: print(words, flush=True))
"""


def test_ranks_end_with_a_kernel_that_is_killed():
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    kernel = subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env)
    while "at work" not in (line := kernel.stdout.readline()): assert line, "it ended early"
    family = psutil.Process(kernel.pid).children(recursive=True)
    assert len(ranks_of(psutil.Process(kernel.pid))) == 2
    kernel.kill()
    kernel.wait()
    _gone, alive = psutil.wait_procs(family, 60)
    alive = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]  # where nobody buries them
    for process in alive: process.kill()
    assert alive == []
    for folder in Path(tempfile.gettempdir()).glob("ranks-*"):  # nobody was left to remove it
        if {int(path.read_text()) for path in folder.glob("*.pid")} & {p.pid for p in family}: shutil.rmtree(folder)


def test_a_busy_port_is_told(monkeypatch):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        announced = dict(RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        for name, value in announced.items(): monkeypatch.setenv(name, str(value))
        told = rf"could not meet at 127.0.0.1, port {port}: .*in use"
        with pytest.raises(OSError, match=told), process_group("cpu"): pass
    assert rank_and_world_size() == (0, 1)


# ---- shared memory

shared = pytest.mark.skipif(bool(why_not_shared()), reason=why_not_shared() or "memory can be shared")


def handles():
    gc.collect()  # what others have left to be collected
    return len(os.listdir("/proc/self/fd"))


@shared
def test_shared_memory_leaves_nothing():
    before, memory = handles(), SharedMemory([3, 5])
    for n in (5, 3): memory.write(torch.full((n,), float(n)))
    assert [m.tolist() for m in memory.mean()] == [[5.0] * 5, [3.0] * 3]
    del memory
    gc.collect()
    assert handles() == before


@shared
def test_shared_memory_refuses_what_it_cannot_do(monkeypatch):
    def full(*_): raise OSError(28, "No space left on device")
    before = handles()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="of shared memory: No space left"): SharedMemory([3])
    assert handles() == before
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(ValueError, match="this is aarch64"): SharedMemory([3])


# ---- cables

cables = pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts() or "cables can be laid")


def networks(): return {path.name for path in Path("/run/netns").glob(f"mlinfra-{os.getpid()}-*")}


def over_the_cable(size):
    "The bytes that the kernel saw leave in an all-reduce of `size` bytes."
    before = sent_bytes()
    torch.distributed.all_reduce(torch.ones(size // 4))
    torch.distributed.barrier()
    return sent_bytes() - before


@cables
def test_the_kernel_counts_what_the_ring_formula_says(nothing_left):
    before, mine, size = networks(), os.readlink("/proc/self/ns/net"), 10_000_000
    with lay_cables(2, 1e9) as hosts: found = run_ranks(over_the_cable, 2, size, hosts=hosts, share_cores=True)
    assert all(ring_bytes(size, 2) < sent < 1.2 * ring_bytes(size, 2) for sent in found.values()), found
    assert networks() == before and os.readlink("/proc/self/ns/net") == mine, "this process stayed where it was"


@cables
def test_cables_of_a_process_that_was_killed_are_cleared_away():
    from pyroute2 import netns
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    netns.create(left := f"mlinfra-{ended.pid}-0-1")
    with lay_cables(1): assert not Path("/run/netns", left).exists()
    with pytest.raises(OSError, match="boom"), lay_cables(2): raise OSError("boom")
    assert not networks()


def test_hosts_are_as_many_as_ranks():
    with pytest.raises(ValueError, match="hosts must be one for each of 2 ranks or none, got 1"):
        run_ranks(rank_and_world_size, 2, hosts=[Host("a", "b")], share_cores=True)
