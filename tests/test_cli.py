"""The installed console script, as a shell user runs it."""
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

MLINFRA = Path(sys.executable).with_name("mlinfra")


def run(*args, **kw): return subprocess.run([MLINFRA, *args], capture_output=True, text=True, timeout=300, **kw)


@pytest.mark.parametrize("command", [[], ["train"], ["sweep"], ["doctor"], ["memory"]])
def test_help(command):
    done = run(*command, "--help")
    assert done.returncode == 0 and "usage: mlinfra" in done.stdout


def test_train(tmp_path):
    done = run("train", "--model", "gluon", "--epochs", "2", "--batch-size", "64", "--limit", "1280", cwd=tmp_path)
    rows = done.stdout.strip().splitlines()
    assert done.returncode == 0, done.stderr
    assert rows[0] == "gluon: 440,812 parameters, 1,280 images, 20 iterations an epoch, on cpu" or "cuda" in rows[0]
    assert rows[1].split()[:3] == ["epoch", "iterations", "samples"] and [row.split()[:3] for row in rows[2:]] == [["0", "20", "1280"], ["1", "20", "1280"]]


def test_sweep_writes_a_table_and_a_verdict(tmp_path):
    done = run("sweep", "--workers", "0,1", "--limit", "1280", "--csv", "sweep.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"(Workers do not pay here|1 worker pays here)", done.stdout)
    assert (tmp_path / "sweep.csv").read_text().splitlines()[0].startswith("workers,train_seconds,eval_seconds,accuracy,wait_share")


def test_memory_of_a_model_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text("from torch import nn\ndef make(): return nn.Linear(1000, 1000, bias=False), 'and whatever else'\n")
    run_it = lambda gb: run("memory", "mine:make", "--input-shape", "1000", "--batch-size", "10", "--optimizer", "sgd", "--gb", gb, cwd=tmp_path)
    done = run_it("1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"params +3.81 MiB", done.stdout) and re.search(r"grads +3.81 MiB", done.stdout) and "batch 10 fits" in done.stdout
    assert "does not fit" in run_it("0.001").stdout


@pytest.mark.parametrize("args", [["train", "--epochs", "0"], ["train", "--batch-size", "x"], ["train", "--precision", "tf32", "--device", "cpu"],
                                  ["sweep", "--workers", "0,0"], ["sweep", "--csv", "/nowhere/sweep.csv"], ["sweep", "--blurs", "-1"], ["train", "--root", "/nowhere"], ["dance"],
                                  ["train", "--device", "foo"], ["train", "--momentum", "nan"],
                                  ["memory", "resnet9"], ["memory", "gluon", "--batch-size", "0"], ["memory", "gluon", "--input-shape", "1,28"],
                                  ["memory", "nowhere:model"], ["memory", "gluon", "--sharding-stage", "4"]])
def test_nonsense_is_one_clear_line_and_status_2(args):
    done = run(*args)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.strip()


def test_an_interrupt_ends_with_130_and_no_traceback():
    hears_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # children of a background job would ignore them
    with subprocess.Popen([MLINFRA, "train", "--epochs", "1000", "--limit", "640"], preexec_fn=hears_interrupts,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "iterations an epoch" in process.stdout.readline()  # it says so right before it trains
            process.send_signal(signal.SIGINT)
            _out, err = process.communicate(timeout=60)
        finally: process.kill()
    assert process.returncode == 130 and "interrupted" in err and "Traceback" not in err
