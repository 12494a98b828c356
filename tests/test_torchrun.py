"""The shell's way to many ranks: torchrun on one machine, and on two hosts that are network namespaces of this one."""
import re
import subprocess
import sys
from pathlib import Path

import pytest
from copies import PYTHON

from mlinfra import cli
from mlinfra.engine.dist.network import Host, lay_cables, why_no_hosts
from mlinfra.lab.rendezvous import ProcessResult, free_port, run_together
from mlinfra.models import GluonCNN

# 10 steps of 64, and one of a single image; at this rate rounding does not grow, and yet a gradient that is averaged
# wrongly moves the loss by more than the tolerance
TRAIN = ["-m", "mlinfra", "train", "--limit", "641", "--device", "cpu", "--lr", "0.01"]
GRADIENTS = sum(p.nbytes for p in GluonCNN().parameters())


CABLE = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
RANKS = {"PYTHON_EXEC": PYTHON}  # which torchrun starts for each rank


HEADER = re.compile("2 ranks, (each with batches of 32|(in a pipeline|sharing layers), batches of 64) images")


def result(told: ProcessResult) -> tuple[float, float]:
    "Loss of the epoch and accuracy, from what was printed."
    said = told.output
    assert told.code == 0, said
    table = re.search(r"\n( *epoch.*)\n(.*)\n", said)
    row = dict(zip(table[1].split(), table[2].split()))
    found = re.search(r"accuracy ([\d.]+)", said)
    assert row["iterations"] == "11" and (" ranks, " not in said or HEADER.search(said))
    return float(row["loss"]), float(found[1] if found else row["accuracy"])


def train(parallel: str) -> list[str]:
    return [*TRAIN, "--batch-size", "64" if parallel in ("pipeline", "tensor") else "32", "--parallel", parallel]


def torchrun(parallel: str, *how: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *how, *train(parallel)]

@pytest.fixture(scope="module")
def one():
    (alone,) = run_together([[sys.executable, *TRAIN, "--batch-size", "64"]], forked=True, timeout_seconds=120)
    return result(alone)


def test_torchrun_is_the_run_of_one_process(one):
    "Started by the shell, in the kind that is chosen."
    (two,) = run_together([torchrun("auto", "--standalone", "--nproc_per_node", "2")], environment=CABLE | RANKS,
                          forked=True, timeout_seconds=120)
    assert "2 ranks, each with" in two.output and result(two) == pytest.approx(one, abs=2e-3)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "pipeline", "tensor"])
def test_ranks_that_were_told_by_torchrun_are_the_run_of_one_process(parallel, one):
    "With its variables, in copies of a process that has PyTorch."
    common = dict(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                  OMP_NUM_THREADS="1") | CABLE
    ranks = run_together([[sys.executable, *train(parallel)]] * 2, environment=common, forked=True, timeout_seconds=120,
                         environments=[dict(RANK=str(i), LOCAL_RANK=str(i)) for i in range(2)])
    assert [told.code for told in ranks] == [0, 0] and "epoch" not in ranks[1].output, "rank 0 speaks for all"
    assert "2 ranks, " in ranks[0].output and result(ranks[0]) == pytest.approx(one, abs=2e-3)


MOVE = "import os, sys; from pyroute2 import netns; netns.setns(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"


def inside(host: Host, *command: str) -> list[str]: return [sys.executable, "-c", MOVE, host.name, *command]


def sent(host: Host) -> int:
    "Bytes that went through the host's cable."
    lines = subprocess.check_output(inside(host, "cat", "/proc/net/dev"), text=True).splitlines()
    return next(int(line.split()[9]) for line in lines if line.split()[0] == "eth0:")


@pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts() or "cables can be laid")
def test_two_hosts_and_a_cable_are_the_run_of_one_process(one):
    with lay_cables(2, 125e6) as hosts:
        def node(i: int) -> list[str]:
            meet = ["--master_addr", hosts[0].address, "--master_port", "29500"]
            place = ["--nnodes", "2", "--node_rank", str(i), "--nproc_per_node", "1"]
            return torchrun("ddp", *place, *meet)
        first, second = run_together([node(0), node(1)], environment=RANKS, hosts=hosts, forked=True,
                                     timeout_seconds=120)
        both = result(first)
        assert "2 ranks, each with" in first.output, "they have met"
        assert second.code == 0 and "epoch" not in second.output, "rank 0 speaks for all"
        assert 12 * GRADIENTS < sent(hosts[0]) < 14 * GRADIENTS, "the weights once, then the gradients of eleven steps"
    assert both == pytest.approx(one, abs=2e-3)
    assert not any(path.name == host.name for host in hosts for path in Path("/run/netns").iterdir())


def test_without_torchrun_it_says_what_is_missing(capsys):
    assert cli.main([*TRAIN[2:], "--parallel", "ddp"]) == 2
    assert "start this with `torchrun" in capsys.readouterr().err
