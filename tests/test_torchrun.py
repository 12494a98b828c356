"""The shell's way to many ranks: torchrun on one machine, and on two hosts that are network namespaces of this one."""
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlinfra.engine import network
from mlinfra.models import GluonCNN

TRAIN = ["-m", "mlinfra", "train", "--limit", "641", "--device", "cpu"]  # 10 steps of 64, and one of a single image
GRADIENTS = sum(p.nbytes for p in GluonCNN().parameters())


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen]:
    "A process that does not outlive its test."
    env = {"OMP_NUM_THREADS": "1"} | ({"GLOO_SOCKET_IFNAME": "eth0" if "netns" in command else "lo"} if sys.platform == "linux" else {})
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env)
    try: yield process
    finally:
        if process.poll() is None: process.terminate()  # torchrun then ends its ranks
        try: process.wait(15)
        except subprocess.TimeoutExpired: process.kill()


def result(process: subprocess.Popen) -> tuple[float, float]:
    "Loss of the epoch and accuracy, from what was printed."
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    table, header = re.search(r"\n( *epoch.*)\n(.*)\n", said), said.splitlines()[0]
    row = dict(zip(table[1].split(), table[2].split()))
    found = re.search(r"accuracy ([\d.]+)", said)
    assert row["iterations"] == "11" and ("ranks" not in header or re.search("2 ranks, (each with batches of 32|in a pipeline, batches of 64) images", header))
    return float(row["loss"]), float(found[1] if found else row["accuracy"])


def torchrun(parallel: str, *how: str) -> list[str]: return [sys.executable, "-m", "torch.distributed.run", *how, *TRAIN, "--batch-size", "64" if parallel == "pipeline" else "32", "--parallel", parallel]


@pytest.fixture(scope="module")
def one():
    with started(sys.executable, *TRAIN, "--batch-size", "64") as alone: return result(alone)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "pipeline"])
def test_torchrun_is_the_run_of_one_process(parallel, one):
    with started(*torchrun(parallel, "--standalone", "--nproc_per_node", "2")) as two: assert result(two) == pytest.approx(one, abs=2e-3)


def sent(host: network.Host) -> int:
    "Bytes that went through the host's cable."
    shown = subprocess.run(["ip", "-n", host.name, "-j", "-s", "link", "show", "eth0"], capture_output=True, text=True, check=True)
    return json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"]


@pytest.mark.skipif(bool(network.why_no_hosts()), reason=network.why_no_hosts() or "cables can be laid")
def test_two_hosts_and_a_cable_are_the_run_of_one_process(one):
    with network.lay_cables(2, 125e6) as hosts:
        node = lambda i: ["ip", "netns", "exec", hosts[i].name, *torchrun("ddp", "--nnodes", "2", "--node_rank", str(i), "--nproc_per_node", "1", "--master_addr", hosts[0].address, "--master_port", "29500")]
        with started(*node(0)) as first, started(*node(1)) as second:
            both = result(first)
            assert second.communicate(timeout=60)[0] == "" and second.returncode == 0, "rank 0 speaks for all"
        assert 12 * GRADIENTS < sent(hosts[0]) < 14 * GRADIENTS, "the weights once, then the gradients of eleven steps"
    assert both == pytest.approx(one, abs=2e-3)
    assert not any(path.name == host.name for host in hosts for path in Path("/run/netns").iterdir())


def test_without_torchrun_it_says_what_is_missing():
    done = subprocess.run([sys.executable, *TRAIN, "--parallel", "ddp"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "start this with `torchrun" in done.stderr
