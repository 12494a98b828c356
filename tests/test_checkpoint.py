"""Checkpoints under real kills and faults: nothing is lost, and every later loss is the same number."""
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

import checkpoint_cases as cases
from copies import PYTHON, run_code
from mlinfra import training
from mlinfra.data import BatchLoader, Images
from mlinfra.engine.checkpoint import checkpoint_files as files
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.train.step_clock import HostClock
from mlinfra.engine.base.step_folders import step_folder, step_folders
from mlinfra.engine.checkpoint.checkpoint_files import RankStates, damage, latest, read_state, verify, write_state
from mlinfra.engine.checkpoint.state_trees import UnreadableCheckpoint
from mlinfra.engine.checkpoint.weight_files import best
from mlinfra.training import fit

SAME = "losses", "iterations", "samples", "epochs", "weights"
FILES = "model.safetensors", "training.safetensors", "state.json", "manifest.json"


@pytest.fixture(scope="module")
def ask():
    "Trainings in children of a process that has imported everything and has one thread."
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process = subprocess.Popen([PYTHON, cases.__file__], **pipes)
    def send(**task):
        process.stdin.write(json.dumps(task, default=str) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())
    with process:
        yield send
        process.stdin.close()


@pytest.fixture
def root():
    "In memory where there is such a disk: what is tested is the order of the calls, not the disk."
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(dir=base))
    yield folder / "root"
    shutil.rmtree(folder, ignore_errors=True)


# ---- bit-identical, however often and wherever it is killed

@pytest.mark.parametrize("name", cases.CASES)
def test_a_killed_run_ends_as_an_undisturbed_one(name, ask, root):
    "Killed after a step, and again between backward and update; step 4, 8 and 12 are saved inside epochs of 5 steps."
    whole, how = ask(name=name), dict(name=name, root=root, background=False)
    assert len(whole["losses"]) == cases.STEPS
    assert ask(**how, kill=6) == ask(**how, kill=9, where="on_backward") == dict(killed=signal.SIGKILL)
    again = ask(**how)
    assert again["resumed_from"] == 8 and {key: again[key] for key in SAME} == {key: whole[key] for key in SAME}


def test_killed_after_every_step(ask, root):
    "One run that dies fifteen times, each time after one more step, before that is saved."
    whole = ask(name="momentum")
    for step in range(cases.STEPS):
        assert ask(name="momentum", root=root, every=1, kill=step + 1, background=False) == dict(killed=signal.SIGKILL)
        assert latest(root) is None if step == 0 else latest(root).step == step
    again = ask(name="momentum", root=root, every=1)
    assert {key: again[key] for key in SAME} == {key: whole[key] for key in SAME}


def test_killed_while_a_thread_writes(ask, root):
    whole = ask(name="adam")
    for step in (3, 5, 9, 14): assert ask(name="adam", root=root, every=2, kill=step) == dict(killed=signal.SIGKILL)
    again = ask(name="adam", root=root, every=2)
    assert {key: again[key] for key in SAME} == {key: whole[key] for key in SAME} and again["left"][-1] == cases.STEPS


def test_the_last_step_of_an_epoch_is_saved_after_its_evaluation(ask, root):
    whole = ask(name="plateau")
    ask(name="plateau", root=root, every=5, kill=11, background=False)
    assert read_state(step_folder(root, 10)).parts["history"]["epochs"][1]["valid_loss"] is not None
    again = ask(name="plateau", root=root, every=5)
    assert {key: again[key] for key in SAME} == {key: whole[key] for key in SAME} and again["resumed_from"] == 10


def test_saving_does_not_change_the_run(ask, root):
    assert {k: v for k, v in ask(name="main", root=root, every=1).items() if k in SAME} == {
        k: v for k, v in ask(name="main").items() if k in SAME}


def test_several_threads_compute_the_same_after_a_kill(root):
    "Copied from a process that has loaded PyTorch and computed nothing: one forked later may not use several threads."
    code = f"""import json, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import checkpoint_cases as c
print(json.dumps([c.train(**task) for task in json.loads(sys.argv[1])]))"""
    def run(*tasks):
        tasks = [dict(name="channels_last", threads=2, **task) for task in tasks]
        told, = run_code(code, arguments=[json.dumps(tasks)])
        return json.loads(told.output.splitlines()[-1]) if told.code == 0 else told.code
    how = dict(root=str(root), background=False)
    assert run(dict(**how, kill=7)) == -signal.SIGKILL
    again, whole = run(how, {})
    assert {key: again[key] for key in SAME} == {key: whole[key] for key in SAME} and again["resumed_from"] == 4


# ---- killed in a save

def test_a_save_can_be_killed_at_every_call(ask, root):
    "What is there is the old checkpoint or the new one, whole; and the next save goes well."
    found = ask(do="kill_everywhere", root=root)
    assert found["calls"] >= 50 and found["wrong"] == [] and found["old"] > 20 and found["new"] > 10


def test_all_is_on_the_disk_before_the_rename_and_the_name_after_it(root, monkeypatch):
    "What a power failure asks for, and no kill can show."
    order, sync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append(os.fstat(handle).st_ino), sync(handle)))
    monkeypatch.setattr(os, "rename", lambda old, new: (order.append("renamed"), rename(old, new)))
    write_state(step_folder(root, 3), cases.small_state(3))
    folder, at = step_folder(root, 3), order.index("renamed")
    assert {path.stat().st_ino for path in (folder, *(folder / name for name in FILES))} <= set(order[:at])
    assert root.stat().st_ino in order[at:]


# ---- in this process

class Cut(Exception): pass


class Stop:
    "Ends a run as an error would, after a step."
    guard = True
    def __init__(self, after): self.after = after
    def on_step(self, run, step):
        if step.iteration + 1 == self.after: raise Cut


def trained(*observers, name="momentum", after=None, **more):
    how = cases.CASES[name]() | more
    how["observers"] = [*observers, *how["observers"], *([Stop(after)] if after else [])]
    try: return fit(**how)
    except Cut: return None


def losses(history): return [step.loss for step in history.steps]


@pytest.fixture
def cut_off(root):
    "A root with the checkpoints of steps 3, 6 and 9."
    trained(Checkpointer(root, 3, background=False), after=11)
    assert list(step_folders(root)) == [9, 6, 3]
    return root


def flip(path, at=-3):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
def truncate(path): os.truncate(path, path.stat().st_size // 2)
def empty(path): os.truncate(path, 0)
def remove(path): path.unlink()
def replace_by_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("spoil", [flip, truncate, empty, remove, replace_by_folder])
def test_a_damaged_newest_is_passed_over(spoil, name, cut_off):
    spoil(step_folder(cut_off, 9) / name)
    found = verify(cut_off)
    assert list(found.good) == [True, True, False] and name in found.why[2] and latest(cut_off).step == 6
    keeper = Checkpointer(cut_off, 3, background=False)
    assert losses(trained(keeper)) == losses(trained())
    assert keeper.resumed_from == 6 and name in keeper.remarks[0] and verify(cut_off).good.all()


def test_no_byte_of_the_manifest_can_change_unseen(cut_off):
    path = step_folder(cut_off, 9) / "manifest.json"
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1:])
        assert "manifest.json" in damage(path.parent), at


@pytest.mark.parametrize("spoil, name, step", [
    (flip, "model.safetensors", 9), (truncate, "model.safetensors", 6), (flip, "state.json", 6)])
def test_a_look_at_the_newest_sums_no_tensors(spoil, name, step, cut_off):
    spoil(step_folder(cut_off, 9) / name)
    assert latest(cut_off, tensors=False).step == step and latest(cut_off).step == 6


def test_if_all_are_damaged_nothing_begins_and_nothing_is_lost(cut_off):
    for folder in step_folders(cut_off).values(): flip(folder / "state.json")
    before = {path: path.read_bytes() for path in cut_off.rglob("*.*") if path.is_file()}
    with pytest.raises(ValueError, match="all checkpoints in .* are damaged .*step-00000003: state.json was altered"):
        trained(Checkpointer(cut_off))
    assert all(path.read_bytes() == raw for path, raw in before.items())


def test_what_was_not_committed_is_cleared_away(cut_off):
    half = Path(shutil.copytree(step_folder(cut_off, 9), cut_off / "step-00000012.x1y2.part"))
    os.utime(half, (9e9, 9e9))  # from the future
    keeper = Checkpointer(cut_off, 3)
    assert losses(trained(keeper)) == losses(trained()) and keeper.resumed_from == 9 and not half.exists()


def test_steps_that_are_missing(cut_off):
    shutil.rmtree(step_folder(cut_off, 9))
    shutil.rmtree(step_folder(cut_off, 3))
    keeper = Checkpointer(cut_off, 3)
    assert losses(trained(keeper)) == losses(trained()) and keeper.resumed_from == 6


def test_a_copy_under_another_step_is_neither_gone_on_with_nor_the_newest_to_keep(cut_off):
    shutil.copytree(step_folder(cut_off, 3), step_folder(cut_off, 99))
    keeper = Checkpointer(cut_off, 3, keep=1)
    assert losses(trained(keeper)) == losses(trained()) and keeper.resumed_from == 9
    assert "it holds step 3" in keeper.remarks[0]
    assert list(step_folders(cut_off)) == [99, 15] and latest(cut_off).step == 15


def test_a_clock_that_jumps(root, monkeypatch):
    "Every save is dated before the one that came first."
    now = iter(range(10**9, 0, -10**6))
    monkeypatch.setattr(files.time, "time", lambda: float(next(now)))
    trained(Checkpointer(root, 3, background=False), after=11)
    for step, folder in step_folders(root).items(): os.utime(folder, (10**9 - step, 10**9 - step))
    assert latest(root).step == 9 and list(step_folders(root)) == [9, 6, 3]
    keeper = Checkpointer(root, 3, background=False)
    assert losses(trained(keeper)) == losses(trained()) and keeper.resumed_from == 9
    assert list(step_folders(root)) == [15, 12, 9], "the newest by step stay"


# ---- what is refused, in words, before anything runs

def test_a_model_that_has_changed_is_told_by_its_layers(cut_off):
    def wider():
        return nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Dropout(), nn.Linear(9, 3), nn.Linear(3, 3))
    how = cases.case(wider)
    weights = [p.clone() for p in how["model"].parameters()]
    with pytest.raises(ValueError, match="the model has changed since step 9 was saved: layer 4 is new; "
                                         "0.weight is 9x6 float32 and was 8x6 float32; 0.bias"):
        fit(**how | dict(observers=[Checkpointer(cut_off)]))
    assert all(map(torch.equal, weights, how["model"].parameters())), "nothing was changed"


def test_another_optimizer_or_loader_is_refused(cut_off):
    def adam(model): return torch.optim.Adam(model.parameters())
    with pytest.raises(ValueError, match="step 9 was saved with the optimizer SGD, and this run has Adam"):
        fit(**cases.case(optimizer=adam) | dict(observers=[Checkpointer(cut_off)]))
    def frozen(model): return torch.optim.SGD(list(model.parameters())[:4], 0.1, momentum=0.9)
    with pytest.raises(ValueError, match=r"parameter groups of \[6\] tensors and has \[4\]"):
        fit(**cases.case(optimizer=frozen) | dict(observers=[Checkpointer(cut_off)]))
    with pytest.raises(ValueError, match="batches 5 -> 10, batch_size 8 -> 4: the rest of the epoch that had begun"):
        fit(**cases.case(loader=lambda: cases.BatchLoader(cases.TensorDataset(*cases.numbers()), 4, shuffle=True))
            | dict(observers=[Checkpointer(cut_off)]))


def test_another_version_of_torch_is_remarked(cut_off):
    state = read_state(step_folder(cut_off, 9))
    identity = state.parts["identity"] | dict(torch="9.9.1+new", threads=77)
    shutil.rmtree(step_folder(cut_off, 9))
    write_state(step_folder(cut_off, 9), replace(state, parts=state.parts | dict(identity=identity)))
    keeper = Checkpointer(cut_off)
    history = trained(keeper)
    assert losses(history) == losses(trained()) and keeper.resumed_from == 9
    assert re.search("saved with PyTorch 9.9.1.new, 77 threads, and goes on with .*may differ", keeper.remarks[0])
    assert keeper.remarks[0] in history.remarks


def of_a_later_version(folder, name="mlinfra checkpoint 7"):
    "Its manifest as a later version may write it."
    kept = json.loads((folder / "manifest.json").read_bytes()) | dict(format=name)
    del kept["crc32"]
    (folder / "manifest.json").write_bytes(files._json(kept | dict(crc32=files._sum_of(kept))))


def no_access(_path): raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
def lost_server(_path): raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("reason", ["later", no_access, lost_server])
@pytest.mark.parametrize("step", [9, 6])
def test_what_cannot_be_read_now_is_neither_passed_over_nor_deleted(reason, step, cut_off, monkeypatch):
    "The newest is refused; an older one is left where it is, though it is its turn to be deleted."
    folder, real = step_folder(cut_off, step), Path.read_bytes
    if reason == "later": of_a_later_version(folder)
    else: monkeypatch.setattr(Path, "read_bytes", lambda path: reason(path) if path.parent == folder else real(path))
    if step == 9:
        for look in (latest, lambda root: trained(Checkpointer(root))):
            with pytest.raises(UnreadableCheckpoint, match="step-00000009"): look(cut_off)
        assert not verify(cut_off).good[2] and verify(cut_off).good[:2].all()
    else:
        history = trained(Checkpointer(cut_off, 3, keep=1))
        assert any("step-00000006 could not be deleted" in words for words in history.remarks)
    assert folder.exists() and "step-00000009" in os.listdir(cut_off) if step == 9 else folder.exists()
    monkeypatch.undo()
    assert read_state(folder).step == step if reason != "later" else (folder / "model.safetensors").exists()


def test_a_stale_handle_is_opened_again(cut_off, monkeypatch):
    real, left = Path.read_bytes, [2]
    def read(path):
        left[0] -= 1
        if left[0] >= 0: raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(path)
    monkeypatch.setattr(Path, "read_bytes", read)
    assert latest(cut_off).step == 9


@pytest.mark.parametrize("where, says", [
    (dict(config=dict(net=nn.Linear(1, 1))), "identity.config.net cannot be kept in a checkpoint, it is a .*Linear"),
    (dict(group=lambda: 1), "optimizer.groups.0.odd cannot be kept in a checkpoint, it is a function"),
])
def test_what_only_pickle_could_keep_is_refused_before_training(where, says, root):
    how = cases.CASES["momentum"]()
    if "group" in where: how["optimizer"].param_groups[0]["odd"] = where.pop("group")
    seen = []
    with pytest.raises(ValueError, match=says): fit(**how | dict(observers=[Checkpointer(root, **where), seen.append]))
    assert not seen and not step_folders(root)


def test_a_value_that_cannot_be_kept_later_does_not_end_the_run(root):
    class Spoil:
        def on_step(self, run, step):
            groups = run.optimizer.param_groups
            if step.iteration == 5: groups[0]["odd"] = print
            if step.iteration == 7: del groups[0]["odd"]
    with pytest.warns(UserWarning, match="step 6 was not saved: optimizer.groups.0.odd cannot be kept"):
        history = trained(Checkpointer(root, 3), Spoil())
    assert losses(history) == losses(trained()) and list(step_folders(root)) == [15, 12, 9]
    assert any("the newest one is of step 3" in words for words in history.remarks)


# ---- the disk

@pytest.mark.parametrize("number, says", [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the quota"),
                                          (errno.EIO, "Input/output error")])
def test_a_disk_that_is_full_costs_one_checkpoint_and_not_the_run(number, says, root, monkeypatch):
    real, left = files.save_file, [4]
    def write(*what):
        left[0] -= 1
        if left[0] == 0: raise SafetensorError(f"I/O error: {os.strerror(number)} (os error {number})")  # as it does
        real(*what)
    monkeypatch.setattr(files, "save_file", write)
    keeper = Checkpointer(root, 3)
    with pytest.warns(UserWarning, match=f"was not saved: .*{says}.*training goes on"): history = trained(keeper)
    assert losses(history) == losses(trained()) and verify(root).good.all() and latest(root).step == 15
    assert not list(root.glob("*.part")) and len(keeper.saves) == 4 and "was not saved" in "".join(history.remarks)


def test_a_failure_that_comes_while_the_next_save_waits_costs_one_checkpoint(root, monkeypatch):
    real, left, waiting = files.save_file, [4], threading.Event()
    def write(*what):
        left[0] -= 1
        if left[0]: return real(*what)
        assert waiting.wait(60)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(files, "save_file", write)
    class Slow(Checkpointer):
        def wait(self):
            waiting.set()
            super().wait()
            waiting.clear()
    keeper = Slow(root, 3)
    with pytest.warns(UserWarning, match="was not saved"): trained(keeper)
    assert len(keeper.saves) == 4 and latest(root).step == 15


def mounted(folder, size):
    if os.getuid() != 0 or not shutil.which("mount"): return False
    how = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    return subprocess.run(how, capture_output=True).returncode == 0


def test_a_small_disk_that_really_fills_up(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mounted(disk, "256k"): pytest.skip("only root may mount a disk")
    try:
        trained(Checkpointer(disk / "root", 3, keep=1, background=False), after=4)
        with (disk / "other").open("wb", buffering=0) as other:  # another program takes what is left
            try:
                while other.write(bytes(4096)): pass
            except OSError: pass
        with pytest.warns(UserWarning, match="cannot write .*: the disk is full"):
            trained(Checkpointer(disk / "root", 3, keep=1, background=False), after=8)
        assert latest(disk / "root").step == 3 and verify(disk / "root").good.all()
        (disk / "other").unlink()
        keeper = Checkpointer(disk / "root", 3, keep=1)
        assert losses(trained(keeper)) == losses(trained()) and keeper.resumed_from == 3
    finally: subprocess.run(["umount", "-l", disk], check=True)


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("x")
    seen = []
    with pytest.raises(OSError, match="cannot write .*file/root: a part of the path is a file"):
        trained(Checkpointer(tmp_path / "file" / "root"), seen.append)
    with pytest.raises(OSError, match="cannot write .*file: a file is where a folder should be"):
        trained(Checkpointer(tmp_path / "file"), seen.append)
    assert not seen and (tmp_path / "file").read_text() == "x"


def test_a_folder_that_becomes_unwritable_costs_its_checkpoints_only(root, monkeypatch):
    trained(Checkpointer(root, 3), after=5)
    def refuse(*_args, **_how): raise PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.warns(UserWarning, match="this user may not write there"): history = trained(Checkpointer(root, 3))
    assert losses(history) == losses(trained()) and list(step_folders(root)) == [3] and latest(root).step == 3


def test_a_deletion_that_fails_is_remarked_and_the_new_checkpoint_is_there(root, monkeypatch):
    real = os.rename
    def rename(old, new):
        if "step-00000003" in str(old): raise PermissionError(errno.EACCES, "Permission denied")
        real(old, new)
    monkeypatch.setattr(os, "rename", lambda old, new: rename(old, new) if ".part" in str(new) else real(old, new))
    keeper = Checkpointer(root, 3, keep=1)
    history = trained(keeper)
    assert list(step_folders(root)) == [15, 3] and verify(root).good.all()
    assert "step-00000003 could not be deleted: Permission denied" in history.remarks and len(keeper.saves) == 5


# ---- two writers

def test_a_second_writer_is_refused_in_a_sentence(root):
    words = []
    class Second:
        def on_step(self, run, step):
            if step.iteration != 4: return
            code = f"from mlinfra.engine.checkpoint.checkpoint_files import RootLock; RootLock({str(root)!r})"
            words.append(run_code(code)[0].output)
            try: trained(Checkpointer(root))
            except OSError as error: words.append(str(error))
    trained(Checkpointer(root, 3), Second(), name="seeded")
    assert len(words) == 2
    for said in words: assert f"process {os.getpid()} saves its checkpoints into {root} now: end it, or give" in said
    assert latest(root).step == 15 and verify(root).good.all()


def test_a_killed_writer_leaves_no_lock(ask, root):
    root.mkdir()
    assert ask(do="hold_lock", root=root) == dict(killed=signal.SIGKILL)
    try: files.RootLock(root).release()
    finally: os.kill(int((root / "worker").read_text()), signal.SIGKILL)
    assert trained(Checkpointer(root), after=3) is None
    files.RootLock(root).release()  # nor does one that an error has ended


# ---- what is kept

def test_the_newest_and_the_best_stay(root):
    "The loss of epoch 1 is made the best, that of epoch 2 is not a number."
    class Spoil:
        def on_epoch(self, run, epoch):
            run.history.epochs[-1] = replace(epoch, valid_loss=[float("nan"), 0.5, float("nan")][epoch.epoch])
    valid = cases.TensorDataset(*cases.numbers(16))
    keeper = Checkpointer(root, 2, keep=1, best="valid_loss")
    trained(Spoil(), keeper, valid=valid)
    assert list(step_folders(root)) == [15, 10] and keeper.best.step == 10 and keeper.best.value == 0.5
    second = Checkpointer(root, 2, keep=1, best="valid_loss")
    trained(second, valid=valid, epochs=4)
    assert second.resumed_from == 15 and second.best.step in (10, 20)
    assert step_folders(root).keys() >= {20, second.best.step}


def test_another_figure_does_not_compete_with_that_of_the_saved_best(root):
    valid = cases.TensorDataset(*cases.numbers(16))
    class Spoil:
        def on_epoch(self, run, epoch):
            run.history.epochs[-1] = replace(epoch, valid_loss=2.0, accuracy=[9, 8, 7, 0.2, 0.4, 0.3][epoch.epoch])
    trained(Spoil(), Checkpointer(root, 5, keep=1, best="valid_loss"), valid=valid)
    with pytest.warns(UserWarning, match="best epoch was told by valid_loss, and now it is by accuracy"):
        trained(Spoil(), Checkpointer(root, 5, keep=1, best="accuracy"), valid=valid, epochs=6)
    assert best(root).step == 25 and step_folders(root).keys() == {25, 30}


class Late(HostClock):
    "Tells steps three late, as a GPU does."
    def ready(self, block=False):
        while len(self._done) > (0 if block else 3): yield self._done.popleft()


def test_a_clock_that_tells_steps_late_leaves_no_step_out(root, monkeypatch):
    whole = trained()
    monkeypatch.setattr(training, "HostClock", Late)
    trained(Checkpointer(root, 4, background=False), after=10)
    state = read_state(step_folder(root, 8))
    assert state.parts["history"]["steps"][:, 3].tolist() == losses(whole)[:8]
    assert losses(trained(Checkpointer(root, 4))) == losses(whole)


class StopAtStep:
    def on_step(self, run, step):
        if step.iteration == 6: run.stop()


class StopAtBoundary:
    def on_boundary(self, run):
        if run.iteration == 7: run.stop()


@pytest.mark.parametrize("stop, late", [(StopAtStep, False), (StopAtStep, True), (StopAtBoundary, True)])
def test_a_stopped_run_goes_on_inside_its_epoch(stop, late, root):
    "By an observer before the checkpointer, and by one after it, which it hears of too late to save in its turn."
    whole = trained()
    keeper = Checkpointer(root, 100)
    trained(*([keeper, stop()] if late else [stop(), keeper]))
    assert latest(root).step == 7 and [saved.step for saved in keeper.saves] == [7]
    again = trained(Checkpointer(root, 100))
    assert losses(again) == losses(whole) and [e.iterations for e in again.epochs] == [5, 5, 5]


def test_a_signal_saves_after_the_current_step(root):
    keeper = Checkpointer(root, 1000)
    before = signal.signal(signal.SIGUSR1, lambda *_: keeper.save_soon())
    try:
        class Signal:
            def on_backward(self, run):
                if run.iteration == 6: os.kill(os.getpid(), signal.SIGUSR1)
        trained(keeper, Signal(), after=9)
    finally: signal.signal(signal.SIGUSR1, before)
    assert list(step_folders(root)) == [7]


def test_the_writing_thread_leaves_threads_and_random_numbers_alone(root):
    def after(*observers):
        trained(*observers, name="main")
        return torch.rand(3).tolist(), np.random.rand(), random.random(), torch.get_num_threads()
    assert after(Checkpointer(root, 1)) == after()
    assert not [thread for thread in threading.enumerate() if thread.name == "checkpointer"]


def test_memory_is_used_again(root):
    "From the second save on, no save takes new memory for the copies."
    places = set()
    class Look:
        def on_boundary(self, run): places.add(keeper._copies._copies[0].data_ptr())
    keeper = Checkpointer(root, 1, background=False)
    trained(keeper, Look())
    assert len(places) <= 2, "once without momenta, once with them"


def test_nothing_is_unpickled(cut_off, monkeypatch):
    import pickle
    def refuse(*_args, **_how): raise AssertionError("unpickled")
    for name in ("load", "loads", "Unpickler"): monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    assert read_state(step_folder(cut_off, 9)).step == 9


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_other_tools_read_weights_and_optimizer(root):
    "Two layers that share a weight, the momenta of the optimizer, and nothing of ours."
    how = cases.CASES["tied"]()
    fit(**how | dict(observers=[Checkpointer(root, 15)]))
    folder, model = step_folder(root, 15), cases.Tied()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    momenta = {f"optimizer.state.{n}.momentum_buffer": torch.empty_like(own["momentum_buffer"])
               for n, own in how["optimizer"].state_dict()["state"].items()}
    found = {name: torch.empty_like(tensor) for name, tensor in model.state_dict().items()} | momenta
    dcp.load(found, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)
    for name, tensor in how["model"].state_dict().items():
        assert torch.equal(tensor, found[name]) and torch.equal(tensor, model.state_dict()[name])
    for n, own in how["optimizer"].state_dict()["state"].items():
        assert torch.equal(own["momentum_buffer"], momenta[f"optimizer.state.{n}.momentum_buffer"])


@pytest.fixture
def old(root):
    "Checkpoints of the format before: of one process, and of two ranks of FSDP."
    root.mkdir()
    archive = Path(__file__).with_name("checkpoints_format_1.tar.xz")
    newer = dict(filter="data") if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
    with tarfile.open(archive) as held: held.extractall(root, **newer)
    return root


def test_an_old_checkpoint_is_read_and_gone_on_with(old):
    "As from the same state in today's format."
    was = read_state(step_folder(old / "plain", 8))
    assert was.parts["identity"]["config"] == dict(width=8, words=("a", 1), odd={1: float("inf")})
    write_state(step_folder(old / "new", 8), was)
    found = [trained(Checkpointer(old / name, 100), name="bf16") for name in ("plain", "new")]
    assert losses(found[0]) == losses(found[1]) and len(found[0].steps) == 15 and latest(old / "plain").step == 15
    assert list(step_folders(old / "plain")) == [15, 8]


def test_old_shards_are_put_together(old):
    folder = step_folder(old / "shards", 5)
    own = RankStates(folder)
    assert own.ranks == 2 and own.step == 5
    zero, one = own.of(0), own.of(1)
    for name, tensor in zero.parts["model"]["weights"].items():
        part = load_file(folder / "rank-0" / "model.safetensors")[name]
        assert torch.equal(tensor[:len(part)] if tensor.ndim else tensor, part)
        if "body.1" not in name: assert torch.equal(tensor, one.parts["model"]["weights"][name])
    assert zero.parts["model"]["weights"]["body.0.weight"].shape == (15, 6)
    assert zero.parts["optimizer"]["state"][0]["momentum_buffer"].shape == (15, 6)
    flip(folder / "rank-1" / "model.safetensors")
    with pytest.raises(ValueError, match="rank-1/model.safetensors was altered"): RankStates(folder)


def test_a_run_that_is_stopped_while_the_loader_opens_is_saved(tmp_path):
    class StopAtOpening:
        openings = 0

        def on_between(self, run, what, start, seconds):
            self.openings += what == "loader"
            if self.openings == 2: run.stop()

    def train(*observers):
        torch.manual_seed(0)
        images = torch.randint(0, 256, (64, 1, 28, 28), dtype=torch.uint8)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(784, 10))
        loader = BatchLoader(Images(images, torch.arange(64) % 10), 16, shuffle=True)  # draws from the global generator
        return [s.loss for s in fit(model, loader, epochs=3, observers=observers, progress=False).steps]

    assert len(train(Checkpointer(tmp_path, 100), StopAtOpening())) == 4 and latest(tmp_path).step == 4
    assert train(Checkpointer(tmp_path, 100)) == train()


# ---- weights that are not finite

def spoiled_run(root, sick=11, epochs=1, **how):
    "A mask of infinities is kept, too; from step `sick` on all weights are NaN."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 4))
    model.register_buffer("mask", torch.full((3,), -torch.inf))
    data = [(torch.randn(4, 8) * (torch.nan if n == sick else 1), torch.randint(0, 4, (4,))) for n in range(20)]
    keeper = Checkpointer(root, every=2, **how)
    fit(model, data, observers=[keeper], epochs=epochs, progress=False, device="cpu")
    return keeper, model


@pytest.mark.parametrize("background", [True, False])
def test_the_last_good_checkpoints_stay_when_the_weights_become_nan(root, background):
    with pytest.warns(UserWarning, match="step 12 are not finite .*newest of finite ones is of step 10") as told:
        keeper, model = spoiled_run(root, background=background)
    assert sorted(step_folders(root)) == [6, 8, 10, 20] and sum("not finite" in str(one.message) for one in told) == 1
    from mlinfra.engine.checkpoint.weight_files import load_weights
    with pytest.warns(UserWarning, match="are not finite: 1.bias"): load_weights(model, root)
    load_weights(model, step_folder(root, 10))
    with pytest.warns(UserWarning, match="of finite ones is of step 10: delete the folders of later steps"):
        spoiled_run(root, epochs=2)
    assert sorted(step_folders(root)) == [6, 8, 10, 40]


def test_infinities_that_are_meant_do_not_count(root, recwarn):
    spoiled_run(root, sick=None)
    spoiled_run(root, sick=None, epochs=2)
    assert sorted(step_folders(root)) == [36, 38, 40] and not [one for one in recwarn if "finite" in str(one.message)]


def test_a_model_without_memory_gets_and_gives_no_weights(tmp_path):
    from mlinfra.engine.checkpoint.weight_files import load_weights, save_weights
    path = save_weights(nn.Linear(2, 2), tmp_path / "weights.safetensors")
    model = nn.Linear(2, 2, device="meta")
    for ask in (load_weights, save_weights):
        with pytest.raises(ValueError, match="on the device meta: weight, bias"): ask(model, path)
