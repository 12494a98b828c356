"""The installed console script, as a shell user runs it."""
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from copies import PYTHON

from mlinfra import __version__, cli, data
from mlinfra.engine.checkpoint import checkpoint_files
from mlinfra.engine.checkpoint.checkpoint_files import latest, read_state, verify
from mlinfra.lab.rendezvous import run_together
from mlinfra.engine.record.run_folder import StepRecord
from mlinfra.engine.record.run_writer import RunWriter

MLINFRA = Path(sys.executable).with_name("mlinfra")


def run(*args, **kw):
    "As a shell runs it."
    return subprocess.run([MLINFRA, *args], capture_output=True, text=True, timeout=300, **kw)


def few_to_test_on(train=True, root=None, whole=data.mnist):
    digits = whole(train, root)
    return digits if train else data.Images(digits.images[:500], digits.labels[:500])


@pytest.fixture
def here(capsys, tmp_path, monkeypatch):
    "The same without a process of its own, which would import PyTorch anew; in an empty folder, with few test images."
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "mnist", few_to_test_on)

    def run_here(*args):
        try: code = cli.main([str(arg) for arg in args])
        except SystemExit as ended: code = ended.code
        return SimpleNamespace(returncode=code, **capsys.readouterr()._asdict())
    return run_here


@pytest.mark.parametrize("command", [[], *([name] for name in (
    "train", "sweep", "doctor", "memory", "plan", "watch", "report", "trace", "cost", "compare", "runs", "export",
    "serve"))])
def test_help(command):
    done = run(*command, "--help")
    assert done.returncode == 0 and "usage: mlinfra" in done.stdout


def test_train(tmp_path):
    "In a process that is copied from one with PyTorch in memory, as the one that an interrupt ends, below."
    typed = "train", "--model", "gluon", "--epochs", "2", "--batch-size", "64", "--limit", "1280"
    done, = run_together([(sys.executable, MLINFRA, *typed)], forked=True, folder=tmp_path)
    rows = done.output.strip().splitlines()
    assert done.code == 0, done.output
    assert re.fullmatch("gluon: 440,812 parameters, 1,280 images, 20 iterations an epoch, on (cpu|cuda)", rows[0])
    assert rows[1].split()[:3] == ["epoch", "iterations", "samples"] and [row.split()[:3] for row in rows[2:]] == [
        ["0", "20", "1280"],
        ["1", "20", "1280"],
    ]


def test_sweep_writes_a_table_and_a_verdict(here, tmp_path):
    done = here("sweep", "--workers", "0,1", "--limit", "640", "--csv", "sweep.csv")
    assert done.returncode == 0, done.err
    assert re.search(r"(Workers do not pay here|1 worker pays here)", done.out)
    columns = (tmp_path / "sweep.csv").read_text().splitlines()[0]
    assert columns.startswith("workers,train_seconds,eval_seconds,accuracy,wait_share")


LINEAR = """
from torch import nn
def make(): return nn.Linear(1000, 1000, bias=False), 'and whatever else'
"""


def test_memory_of_a_model_of_ones_own(here, tmp_path):
    (tmp_path / "of_one_layer.py").write_text(LINEAR)
    typed = "memory", "of_one_layer:make", "--input-shape", "1000", "--batch-size", "10", "--optimizer", "sgd", "--gb"
    done = here(*typed, "1")
    assert done.returncode == 0, done.err
    for found in (r"params +3.81 MiB", r"grads +3.81 MiB", r"batch 10 on .* fits"):
        assert re.search(found, done.out), found
    assert "does not fit" in here(*typed, "0.001").out
    (tmp_path / "of_sgd.py").write_text("from torch import nn\n"
                                        "def sgd(): return nn.Linear(9, 4), None, dict(optimizer='sgd')\n")
    ignored = here("memory", "of_sgd:sgd", "--input-shape", "9")
    assert ignored.returncode == 2 and "options may be step, got {'optimizer': 'sgd'}" in ignored.err


TOKENS = """
import torch
from torch import nn

def tokens(): return nn.Sequential(nn.Embedding(100, 8), nn.Flatten(), nn.Linear(8 * 16, 10))
def batch(): return torch.zeros(2, 16, dtype=torch.int64)
def with_batch(): return tokens(), batch()
def with_options(): return tokens(), {"ids": batch()}, dict(step=lambda model, batch: model(batch["ids"]).sum())
"""


def test_memory_of_token_ids_a_batch_and_a_device_of_the_table(here, tmp_path):
    (tmp_path / "of_tokens.py").write_text(TOKENS)
    typed = "memory", "of_tokens:tokens", "--input-shape", "16", "--on", "T4 16 GB"
    asked = here(*typed, "--input-dtype", "int64")
    assert asked.returncode == 0 and re.search(r"batch 64 on 14\.75 GiB: fits", asked.out), asked.err
    parts = re.search("params.*\n.*\ngrads.*\nactivations.*", asked.out)[0]
    for factory in ("with_batch", "with_options"):
        found = here("memory", f"of_tokens:{factory}", "--on", "T4 16 GB")
        assert found.returncode == 0 and parts in found.out, found.err
    wrong = here(*typed)
    assert wrong.returncode in (1, 2) and "Int" in wrong.err, "an embedding of floats"
    missing = here(*typed, "--input-dtype", "int64", "--precision", "bf16")
    assert missing.returncode == 2 and "T4 16 GB has no bf16: use fp32 or fp16" in missing.err
    unknown = here("memory", "gluon", "--on", "T5")
    assert unknown.returncode == 2 and "--on must be one of" in unknown.err and "T4 16 GB" in unknown.err


JOB = """
from mlinfra.planner import TransformerSpec

def job(): return TransformerSpec(name="mine", layers=24, hidden=2048, heads=16, global_batch=256)
def layers(): return 24
"""


def test_plan_of_a_job_of_ones_own(here, tmp_path):
    (tmp_path / "of_a_job.py").write_text(JOB)
    planned = here("plan", "of_a_job:job", "--nodes", "2", "--device", "H100 80 GB")
    assert planned.returncode == 0 and planned.out.startswith("data 16"), planned.err
    assert planned.out.count("\nfirst run: ") == 1 and planned.out.count("\nthen time: ") == 2
    larger = here("plan", "of_a_job:job", "--nodes", "2", "--device", "H100 80 GB", "--batch-size", "512")
    assert larger.out != planned.out
    assert "of 57.7 GB on each device" in here("plan", "13B", "--nodes", "8", "--memory-factor", "1.4").out
    assert "Nothing fits" in here("plan", "530B", "--device", "V100 32 GB").out
    wrong = here("plan", "of_a_job:layers")
    assert wrong.returncode == 2 and "must return a TransformerSpec or a ModelSpec, got int" in wrong.err


@pytest.mark.parametrize(
    "args",
    [
        ["train", "--epochs", "0"],
        ["train", "--batch-size", "x"],
        ["train", "--precision", "tf32", "--device", "cpu"],
        ["sweep", "--workers", "0,0"],
        ["sweep", "--csv", "/nowhere/sweep.csv"],
        ["sweep", "--blurs", "-1"],
        ["train", "--root", "/nowhere"],
        ["dance"],
        ["train", "--device", "foo"],
        ["train", "--momentum", "nan"],
        ["memory", "resnet9"],
        ["memory", "gluon", "--batch-size", "0"],
        ["memory", "gluon", "--input-shape", "1,28"],
        ["memory", "nowhere:model"],
        ["memory", "./of_one_layer.py:make"],
        ["memory", "gluon", "--sharding-stage", "4"],
        ["plan", "llama"],
        ["plan", "13B", "--nodes", "0"],
        ["plan", "13B", "--memory-factor", "0"],
        ["plan", "13B", "--link", "string"],
    ],
)
def test_nonsense_is_one_clear_line_and_status_2(args, here):
    done = here(*args)
    assert done.returncode == 2 and "Traceback" not in done.err and done.err.strip()


def test_nonsense_from_a_shell():
    done = run("train", "--device", "foo")
    assert (done.returncode, done.stderr) == (2, "mlinfra train: device must be cpu or cuda, got 'foo'\n")


@contextmanager
def training(*args):
    with subprocess.Popen([PYTHON, MLINFRA, "train", "--limit", "640", *args], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        try: yield process
        finally: process.kill()


def test_an_interrupt_ends_with_130_and_keeps_what_was_printed_and_saved(tmp_path, here):
    kept = tmp_path / "run"
    with training("--epochs", "1000", "--save", kept) as process:
        head = [
            process.stdout.readline() for _ in range(3)
        ]  # what it trains, the columns, the first epoch: each as it comes
        assert (
            "iterations an epoch" in head[0]
            and head[1].split()[0] == "epoch"
            and head[2].split()[:3] == ["0", "10", "640"]
        )
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=60)
    assert (
        process.returncode == 130
        and "interrupted" in err
        and "Traceback" not in err
        and "detached" not in err  # a column of the epoch that was stopped half-way has no figure
        and f"go on with --save {kept} --resume" in err
    )
    found = latest(kept)
    assert found.step >= 10 and found.step // 10 == found.epoch and verify(kept).good.all()
    again = here("train", "--limit", "640", "--save", kept, "--resume", "--epochs", found.epoch + 1)
    assert again.returncode == 0 and again.out.splitlines()[2].split()[0] == str(found.epoch), again.err


def test_a_resumed_run_is_the_uninterrupted_one_and_reads_each_file_once(here, monkeypatch):
    how = ["train", "--limit", "320", "--momentum", "0.9"]
    losses = lambda said: [line.split()[5:8] for line in said.splitlines()[2:]]
    whole, first = here(*how, "--epochs", "2"), here(*how, "--save", "run")
    kept, sums, real = latest("run").path.absolute(), Counter(), checkpoint_files._sum_of_file
    monkeypatch.setattr(checkpoint_files, "_sum_of_file", lambda path: sums.update([path]) or real(path))
    second = here(*how, "--save", "run", "--resume", "--epochs", "2")
    assert [sums[kept / f"{name}.safetensors"] for name in ("model", "training")] == [1, 1]
    assert (whole.returncode, first.returncode, second.returncode) == (0, 0, 0), second.err
    assert len(losses(whole.out)) == 2 and losses(first.out) + losses(second.out) == losses(whole.out)


def test_a_loss_that_is_no_number_ends_with_status_1(here):
    done = here("train", "--limit", "320", "--lr", "1e9")
    assert done.returncode == 1 and "the loss is not a finite number, first in iteration" in done.err


def test_version(): assert run("--version").stdout == f"mlinfra {__version__}\n"


@pytest.mark.parametrize("args", [["train", "--limit", "64", "--save", "nowhere/run"],
                                  ["sweep", "--csv", "nowhere/sweep.csv"]])
def test_an_unwritable_place_is_found_before_anything_runs(args, here):
    Path("nowhere").write_text("a file, no folder")
    done = here(*args)
    assert done.returncode == 2 and "nowhere" in done.err and "a file" not in done.out and "valid_loss" not in done.out


@pytest.mark.parametrize(
    "args, says",
    [
        (["--resume"], "pass --save FOLDER too"),
        (["--save", "run"], "run holds checkpoints: go on with --resume, or give another folder"),
        (["--override", "lr"], "pass --save FOLDER too"),
        (["--save", "run", "--resume", "--epochs", "2", "--model", "resnet18"], "the model has changed since step 1"),
        (["--save", "new", "--parallel", "pipeline"], "not the stages of a pipeline"),
    ],
)
def test_what_cannot_be_resumed_is_refused_in_a_sentence(args, says, here):
    assert here("train", "--limit", "64", "--save", "run").returncode == 0
    done = here("train", "--limit", "64", *args)
    assert done.returncode == 2 and says in done.err and "Traceback" not in done.err


def test_what_counts_on_a_resume_is_said_and_recorded_and_an_ended_run_is_no_error(here):
    how = ["train", "--limit", "128", "--save", "run", "--resume"]
    kept = lambda: read_state(latest("run").path).parts
    assert here(*how, "--lr", "0.1").returncode == 0
    again = here(*how)
    assert again.returncode == 0 and "run holds 1 epoch already" in again.out
    done = here(*how, "--epochs", "2", "--lr", "0.001")
    assert "lr 0.1 (not 0.001; --override lr takes that)" in done.err
    assert kept()["optimizer"]["groups"][0]["lr"] == kept()["identity"]["config"]["lr"] == 0.1
    done = here(*how, "--epochs", "3", "--lr", "0.001", "--override", "lr")
    assert done.returncode == 0 and kept()["optimizer"]["groups"][0]["lr"] == 0.001, done.err
    assert kept()["identity"]["config"]["lr"] == 0.001


def step(n): return StepRecord(n, 0, 1, 64, 0.5, float(n), 0.25, 0.0, 0.0, 0.25, 0.0, 0.25, 0.25, 0.0, 0.0)


def test_watch_shows_a_run_that_goes_on_and_one_that_is_over(here, tmp_path):
    with RunWriter(tmp_path / "run", rank=0, world_size=1) as writer:
        for n in range(8): writer.step(step(n))
        live = here("watch", "run", "--once")
        writer.event("finding", message="the loader stalls")
    assert live.returncode == 0 and "run: running, " in live.out and "step 8, epoch 0, loss 0.5, 1 s a step" in live.out
    assert re.search(r"wait +2\d% #{10}\n", live.out) and "\x1b" not in live.out
    over = here("watch", "run", "--every", "0.01")
    assert over.returncode == 0 and "run: finished, " in over.out and "! the loader stalls" in over.out


def test_watch_follows_until_the_run_ends(here, tmp_path, monkeypatch):
    writer, looks = RunWriter(tmp_path / "run", rank=0, world_size=1), []

    def later(seconds):
        looks.append(seconds)
        writer.step(step(len(looks)))
        if len(looks) == 3: writer.end()
    monkeypatch.setattr("time.sleep", later)
    done = here("watch", "run", "--every", "0.25")
    assert done.returncode == 0 and looks == [0.25] * 3 and done.out.count("run: running") == 3
    assert "no step yet" in done.out and "step 4, " in done.out


def test_watch_is_left_by_an_interrupt_and_names_what_is_no_run(here, tmp_path, monkeypatch):
    def interrupted(_seconds): raise KeyboardInterrupt
    monkeypatch.setattr("time.sleep", interrupted)
    with RunWriter(tmp_path / "run", rank=0, world_size=1): assert here("watch", "run").returncode == 0
    missing = here("watch", "nowhere", "--once")
    assert missing.returncode == 2 and "there is no run in this folder" in missing.err
    assert here("watch", "run", "--every", "0").returncode == 2


def test_train_records_a_named_run_and_runs_lists_it(here, tmp_path):
    quick = "train", "--limit", "320"
    done = here(*quick, "--set", "lr=0.05", "--set", "batch-size=32", "--name", "first")
    assert done.returncode == 0 and "recorded in runs/first" in done.out.replace("\\", "/"), done.err
    assert here(*quick, "--runs", "runs").returncode == 0 and (tmp_path / "runs" / "run-1").is_dir()
    listed = here("runs", "runs", "--sort", "lr", "--descending", "--csv", "all.csv")
    lines = listed.out.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["run-1", "finished"], ["first", "finished"]], listed
    assert "the same in all" in lines[-1] and "model gluon" in lines[-1]
    head, *rows = (tmp_path / "all.csv").read_text().splitlines()
    assert {"lr", "batch_size", "accuracy", "commit", "folder"} <= set(head.split(",")) and len(rows) == 2
    kept = here("runs", "runs", "--filter", "batch_size == 32 and ended == finished").out
    assert "first" in kept and "run-1" not in kept
    again = here(*quick, "--name", "first")
    assert again.returncode == 2 and "holds a run already" in again.err


@pytest.mark.parametrize("words, says", [
    (["--set", "momentun=0.9"], "there is no setting momentun: did you mean momentum?"),
    (["--set", "lr"], "must be KEY=VALUE such as lr=0.1"), (["--set", "lr=fast"], "--lr: must be a number above 0"),
    (["--set", "model=vgg"], "invalid choice"), (["--name", "../up"], "--name must be a plain name"),
    (["--name", "a", "--parallel", "ddp"], "leave --parallel out"),
])
def test_train_refuses_settings_that_make_no_sense(here, tmp_path, words, says):
    done = here("train", *words)
    assert done.returncode == 2 and says in done.err and not list(tmp_path.iterdir())


def test_runs_says_what_is_wrong(here, tmp_path):
    assert "there is no folder" in here("runs", tmp_path / "none").err
    assert here("runs", tmp_path).out == "no runs\n"
    with RunWriter(tmp_path / "a", rank=0, world_size=1): pass
    done = here("runs", tmp_path, "--filter", "stepps > 1")
    assert done.returncode == 2 and "did you mean steps?" in done.err
    assert here("runs", tmp_path, "--sort", "speed").returncode == 2
