"""Runs of other processes in the table and in trackers: live, killed, in MLflow."""
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from copies import PYTHON
from filelock import FileLock, Timeout
from torch import nn
from torch.utils.data import TensorDataset

from mlinfra.engine.record import tracker_writers
from mlinfra.engine.record.provenance import code_version
from mlinfra.engine.record.run_folder import Run, StepRecord
from mlinfra.engine.record.run_writer import RunWriter
from mlinfra.engine.record.runs_table import keep_result, runs_table
from mlinfra.engine.record.tracker_writers import to_mlflow, to_tensorboard
from mlinfra.engine.record.watch import watch
from mlinfra.engine.tuning.lr_range import lr_range_test

ROOT = Path(__file__).parents[1]
CHILD = """
import sys
from mlinfra.engine.record.run_folder import StepRecord
from mlinfra.engine.record.run_writer import RunWriter
writer = RunWriter(sys.argv[1], rank=0, world_size=1, config=dict(lr=0.1))
for line in sys.stdin:  # a number of steps, or the end
    if line.strip() == "end": break
    for n in range(int(line)):
        writer.step(StepRecord(n, 0, 1, 8, 1.0, 0.01 * n, *[0.0] * 5, 0.01, 0.0, 0.0, 0.0))
    print("written", flush=True)
writer.end()
"""


def step(n): return StepRecord(n, n // 20, 1, 32, 2.0 / (n + 1), 0.1 * n, *[0.0] * 5, 0.08, 0.0, 0.0, 0.0)


@contextmanager
def training(folder):
    "A process that records as many steps as it is told to."
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], text=True, cwd=ROOT,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(words):
        child.stdin.write(f"{words}\n")
        child.stdin.flush()
        if words != "end": assert child.stdout.readline() == "written\n"

    child.tell = tell
    with child:
        try: yield child
        finally: child.kill()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    "A run with 25 steps, an epoch, a result and an origin whose changes were kept."
    folder = tmp_path_factory.mktemp("recorded") / "first"
    origin = dict(seed=3, command=["train.py"], code=dict(commit="c0ffee", diff_file="code-1.diff"))
    config = dict(lr=0.1, loader=dict(batch_size=32), origin=origin)
    with RunWriter(folder, rank=0, world_size=1, config=config) as writer:
        for n in range(25): writer.step(step(n))
        writer.event("epoch", epoch=0, iterations=25, loss=0.3, accuracy=0.75)
    (folder / "code-1.diff").write_text("- a\n+ b\n")
    keep_result(folder, test_accuracy=0.7)
    return folder


def test_a_live_run_is_followed_until_it_ends_and_seen_in_the_table(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    with training(tmp_path / "run") as child:
        child.tell(20)
        assert runs_table(tmp_path).loc[0, ["ended", "steps"]].tolist() == ["running", 20]
        found = []
        follow = threading.Thread(target=lambda: found.append(to_tensorboard(
            tmp_path / "run", tmp_path / "tb", follow=True)))
        follow.start()
        end = time.monotonic() + 60
        while not any((tmp_path / "tb").rglob("events.out.tfevents.*")):
            assert time.monotonic() < end, "it is written"
            time.sleep(0.05)
        assert not found, "and goes on"
        child.tell(5)
        child.tell("end")
        follow.join(60)
    assert found[0].ended == "finished" and found[0].points == 50  # losses and seconds of 25 steps
    read = EventAccumulator(found[0].where, size_guidance=dict(scalars=0)).Reload()
    assert len(read.Scalars("loss")) == 25 and runs_table(tmp_path).ended[0] == "finished"


def test_a_killed_run_is_said_to_be_killed(tmp_path):
    with training(tmp_path / "run") as child:
        child.tell(3)
        child.kill()
        child.wait()
    assert runs_table(tmp_path).loc[0, ["ended", "steps"]].tolist() == ["killed", 3]
    written = to_tensorboard(tmp_path / "run", tmp_path / "tb", follow=True)
    assert (written.ended, written.points) == ("killed", 6)


def test_stopping_the_writing_leaves_what_is_whole(recorded, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    def stop(run): raise KeyboardInterrupt
    monkeypatch.setattr(tracker_writers, "state_text", stop)
    with pytest.raises(KeyboardInterrupt): to_tensorboard(recorded, tmp_path)
    read = EventAccumulator(str(tmp_path / "first")).Reload()
    assert len(read.Scalars("loss")) == 25
    assert read.Tensors("ended/text_summary")[0].tensor_proto.string_val == [b"stopped writing"]
    with pytest.raises(FileExistsError, match="holds events already"): to_tensorboard(recorded, tmp_path)


def test_mlflow_holds_what_was_recorded_and_refuses_it_twice(recorded, tmp_path, monkeypatch):
    import mlflow
    from mlflow import MlflowClient
    database, alone = tmp_path / "new folder" / "runs.db", []
    recorded = Path(shutil.copytree(recorded, tmp_path / "first"))

    def opened(uri):
        "MLflow makes the tables at the first call: another process that would write must wait."
        with pytest.raises(Timeout): FileLock(f"{database}.lock", timeout=0).acquire()
        alone.append(uri)
        return MlflowClient(uri)

    monkeypatch.setattr(mlflow, "MlflowClient", opened)
    written = to_mlflow(recorded, database, every=10)
    assert alone == [written.where]
    client = MlflowClient(written.where)
    experiment = client.get_experiment_by_name("mlinfra")
    run, = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "first" and run.data.tags["ended"] == "finished"
    assert run.data.params == {"lr": "0.1", "loader.batch_size": "32", "seed": "3"}
    assert run.data.tags["mlflow.source.git.commit"] == "c0ffee"
    history = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss")]
    assert [n for n, _ in history] == [9, 19, 24]
    assert history[0][1] == pytest.approx(sum(2 / n for n in range(1, 11)) / 10)
    assert run.data.metrics["epoch/accuracy"] == 0.75 and run.data.metrics["result/test_accuracy"] == 0.7
    assert abs(run.info.start_time / 1000 - Run(recorded).started) < 0.01
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert files == {"origin.json", "code-1.diff"}
    with pytest.raises(FileExistsError, match="is already in the experiment"): to_mlflow(recorded, database)
    assert sorted(path.name for path in database.parent.iterdir()) == ["artifacts", "runs.db", "runs.db.lock"]

    with RunWriter(recorded, rank=0, world_size=1) as writer: writer.step(step(20))  # it is resumed
    to_mlflow(recorded, database)
    again, = client.search_runs([experiment.experiment_id])
    steps = [m.step for m in client.get_metric_history(again.info.run_id, "loss")]
    assert again.info.run_id != run.info.run_id and steps == list(range(21)), "one run, each step once"
    with pytest.raises(FileExistsError, match="is already in"): to_mlflow(Run(recorded, attempt=0), database)


def test_a_loop_that_was_resumed_goes_on_at_its_step_in_a_tracker(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    def loop(steps, **where):
        with watch(tmp_path / "run", every_seconds=60, **where) as w:
            for n in w(range(steps)): w.loss(float(n))
    loop(6)
    loop(4, first_step=5)
    where = to_tensorboard(tmp_path / "run", tmp_path / "tb").where
    losses = [(e.step, e.value) for e in EventAccumulator(where).Reload().Scalars("loss")]
    assert losses == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 0.0), (6, 1.0), (7, 2.0), (8, 3.0)]
    loop(2)
    with pytest.warns(UserWarning, match="all steps of attempt 0, 1 are left out.*first_step"):
        to_tensorboard(tmp_path / "run", tmp_path / "again")


def test_the_code_is_that_of_the_main_program(tmp_path):
    git = lambda *words: subprocess.run(["git", "-C", tmp_path / "code", *words], check=True, capture_output=True)
    (tmp_path / "code").mkdir()
    script = "from mlinfra.engine.record.provenance import origin\nprint(origin().code.commit)"
    (tmp_path / "code" / "train.py").write_text(script)
    git("init")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-m", "first")
    head = subprocess.run(["git", "-C", tmp_path / "code", "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    done = subprocess.run([PYTHON, "code/train.py"], capture_output=True, text=True, cwd=tmp_path,
                          env=os.environ | dict(PYTHONPATH=str(ROOT)))
    assert done.stdout == head, done.stderr


def test_a_range_test_leaves_each_layer_in_its_mode():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    model[1].eval()
    lr_range_test(model, TensorDataset(torch.randn(64, 4), torch.arange(64) % 2), steps=10, batch_size=16)
    assert [layer.training for layer in model.modules()] == [True, True, False, True, True]


def test_a_machine_without_git_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_version(tmp_path).remark == "the code version is not known: there is no git on this machine"
