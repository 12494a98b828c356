"""Notices, supervised commands and real kills, where a notebook cannot show them: signals, processes, what is left."""
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager

import psutil
import pytest
import torch
from copies import PYTHON
from torch import nn

from mlinfra.data import BatchLoader
from mlinfra.lab import interval_study as kills
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.checkpoint.checkpoint_files import latest
from mlinfra.engine.launch.preemption import StopNotice
from mlinfra.engine.dist.ranks import run_ranks
from mlinfra.engine.launch.supervisor import supervise
from mlinfra.training import fit

FORK = multiprocessing.get_context("forkserver")  # from a process that has imported this file: children start at once
FORK.set_forkserver_preload(["torch.distributed.launcher.api", "torch._dynamo", "test_spot"])
BARE = [sys.executable, "-S", "-c"]
LONG = 60  # seconds after which something hangs


@contextmanager
def running(function, *args):
    "A process and a pipe to it; it does not outlive the test."
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=function, args=(theirs, *args))
    process.start()
    theirs.close()
    try: yield process, ours
    finally:
        process.kill()
        process.join()
        ours.close()


def told(pipe):
    assert pipe.poll(LONG), "the process says nothing"
    return pipe.recv()


def gone(pids):
    "Whether these processes have ended; waits for them, for init may be slow to reap."
    end = time.monotonic() + LONG
    def alive(pid):
        try: return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess: return False
    while any(map(alive, pids)) and time.monotonic() < end: time.sleep(0.02)
    return not any(map(alive, pids))


# ---- a notice

def numbers():
    source = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.rand(640, 6, generator=source),
                                          torch.randint(0, 3, (640,), generator=source))
    return BatchLoader(data, 16, shuffle=True, seed=0)


def trained(*observers, epochs=2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return fit(nn.Linear(6, 3), numbers(), epochs=epochs, device="cpu", progress=False, observers=observers)


class Tells:
    "An observer that says each step, and after the fifth waits for a word."
    def __init__(self, pipe): self.pipe = pipe
    def on_step(self, run, step):
        self.pipe.send(step.iteration)
        if step.iteration == 5: self.pipe.recv()


def trains(pipe, root):
    keeper = Checkpointer(root, every=1000)
    notice = StopNotice(keeper)
    history = trained(keeper, notice, Tells(pipe))
    pipe.send([(step.iteration, step.loss) for step in history.steps])
    pipe.send(history.remarks)
    sys.exit(notice.exit_status)


def last_words(pipe):
    while isinstance(said := told(pipe), int): pass
    return said, told(pipe)


def test_a_signal_saves_and_stops_and_the_rest_is_the_same(tmp_path):
    whole = [(step.iteration, step.loss) for step in trained().steps]
    with running(trains, tmp_path) as (process, pipe):
        while told(pipe) != 5: pass
        os.kill(process.pid, signal.SIGTERM)
        pipe.send("go on")
        steps, remarks = last_words(pipe)
        process.join(LONG)
        assert process.exitcode == 75
    saved = latest(tmp_path).step
    assert saved == len(steps) and steps == whole[:saved] and saved < 10  # inside the first epoch
    words = f"SIGTERM: stopped after iteration {saved - 1}; the checkpoint of step {saved} was written after"
    assert any(words in remark for remark in remarks), remarks
    with running(trains, tmp_path) as (process, pipe):
        pipe.send("go on")
        steps, _ = last_words(pipe)
        process.join(LONG)
        assert process.exitcode == 0
    assert steps == whole


def hangs(pipe):
    notice = StopNotice()
    notice.together_seconds = 0.0
    def step(model, batch):
        pipe.send("in a step")
        while notice._signal is None: time.sleep(0.01)
        pipe.send("noted")
        time.sleep(3600)
    fit(nn.Linear(6, 3), numbers(), step=step, device="cpu", progress=False, observers=[notice])


def test_a_second_sigterm_ends_at_once():
    with running(hangs) as (process, pipe):
        assert told(pipe) == "in a step"
        os.kill(process.pid, signal.SIGTERM)
        assert told(pipe) == "noted" and process.is_alive()
        os.kill(process.pid, signal.SIGTERM)
        process.join(LONG)
        assert process.exitcode == -signal.SIGTERM


def test_a_metadata_service_that_never_answers_is_reported_before_the_first_step():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        url = "http://127.0.0.1:%d/latest/meta-data/spot/instance-action" % silent.getsockname()[1]
        notice, said = StopNotice(notice_url=url, signals=()), []
        class Meanwhile:
            def on_step(self, run, step): said.append(list(run.history.remarks))
        with pytest.warns(UserWarning, match="was not read: timed out; StopNotice goes on asking"):
            history = trained(notice, Meanwhile(), epochs=1)
        assert len(said) == 40 and notice.exit_status == 0
        assert "was not read: timed out" in said[0][-1] and said[0] == said[-1] == history.remarks, "and only once"


def one_of_two(root):
    keeper, rank = Checkpointer(root, every=1000), torch.distributed.get_rank()
    notice = StopNotice(keeper)
    class Sends:
        def on_step(self, run, step):
            if rank == 1 and step.iteration == 3: os.kill(os.getpid(), signal.SIGTERM)
    history = trained(keeper, notice, Sends())
    return len(history.steps), notice.exit_status, notice.notice.source


def test_ranks_stop_after_the_same_step(tmp_path):
    found = run_ranks(one_of_two, 2, tmp_path, share_cores=True)
    assert found == {0: (5, 75, "a notice to another rank"), 1: (5, 75, "SIGTERM")}
    assert latest(tmp_path).step == 5


# ---- the supervisor

def supervised_training(root, losses):
    "Dies in its seventh step; the next one comes to its end."
    class Fate:
        def on_step(self, run, step):
            if step.iteration == 6 and keeper.resumed_from is None: os.kill(os.getpid(), signal.SIGKILL)
    keeper = Checkpointer(root, every=5, background=False)
    history = trained(keeper, Fate())
    with open(losses, "w") as file: file.write("\n".join(step.loss.hex() for step in history.steps))


def test_a_supervised_training_comes_to_its_end_with_the_same_losses(tmp_path):
    root, said = tmp_path / "root", []
    command = [PYTHON, __file__, str(root), str(tmp_path / "losses")]
    found = supervise(command, checkpoints=root, backoff_seconds=0.0, say=said.append)
    assert [(a.status, a.step, a.progress) for a in found.attempts] == [(-9, 5, True), (0, 80, True)], said
    assert found.ok and "killed by SIGKILL" in said[0] and "newest checkpoint: step 5" in said[0]
    assert (tmp_path / "losses").read_text().split() == [step.loss.hex() for step in trained().steps]


def test_nothing_is_left_of_a_killed_command(tmp_path):
    "Neither what it started, nor what that started in sessions of its own."
    name = tmp_path / "pids"
    script = f"(setsid sleep 300 & echo $! >> {name}; sleep 300 & echo $! >> {name}); kill -9 $$"
    found = supervise(["sh", "-c", script], restarts=1, backoff_seconds=0.0, say=lambda _: None)
    assert [a.status for a in found.attempts] == [-9, -9] and not found.ok
    pids = [int(word) for word in name.read_text().split()]
    assert len(pids) == 4 and gone(pids)


def test_nothing_is_left_of_a_killed_torchrun(tmp_path):
    (tmp_path / "rank.sh").write_text(f"echo $$ >> {tmp_path}/pids; [ $RANK = 0 ] && kill -9 $PPID; exec sleep 300")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, "sh", str(tmp_path / "rank.sh")]
    found = supervise(command, restarts=0, log=tmp_path / "log", say=lambda _: None)
    assert [a.status for a in found.attempts] == [-9], (tmp_path / "log").read_text()
    assert gone([int(word) for word in (tmp_path / "pids").read_text().split()])


def test_a_rank_that_is_just_becoming_another_program_is_not_left(tmp_path, monkeypatch):
    "For a moment in exec a process shows no environment, and so no mark."
    shown, real = set(), psutil.Process.environ

    def environ(process):
        if process.pid in shown: return real(process)
        shown.add(process.pid)
        return {}

    monkeypatch.setattr(psutil.Process, "environ", environ)
    (tmp_path / "start.sh").write_text(f"setsid sh -c 'echo $$ > {tmp_path}/pids; exec sleep 300' & "
                                       f"until [ -s {tmp_path}/pids ]; do sleep 0.01; done")
    found = supervise(["sh", str(tmp_path / "start.sh")], restarts=0, log=tmp_path / "log", say=lambda _: None)
    assert found.outcome == "finished" and gone([int((tmp_path / "pids").read_text())])


OBEYS = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(75)); print('up', flush=True); time.sleep(300)"
IGNORES = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(300)"


def supervises(pipe, command, log, how):
    try: found = supervise(command, log=log, say=pipe.send, **how)
    except KeyboardInterrupt: pipe.send("interrupted")
    else: pipe.send((found.outcome, found.exit_status, [a.status for a in found.attempts]))
    pipe.send([child.pid for child in psutil.Process().children()])


def until_up(log):
    end = time.monotonic() + LONG
    while not (log.exists() and "up" in log.read_text()):
        assert time.monotonic() < end, "the command does not start"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "order, script, grace, expected",
    [
        (signal.SIGTERM, OBEYS, 30.0, ("stopped", 75, [75])),
        (signal.SIGTERM, IGNORES, 0.1, ("stopped", 75, [-9])),
        (signal.SIGINT, OBEYS, 30.0, "interrupted"),
    ],
)
def test_an_order_to_the_supervisor_ends_both(tmp_path, order, script, grace, expected):
    command, log = [*BARE, script], tmp_path / "log"
    with running(supervises, command, log, dict(grace_seconds=grace)) as (process, pipe):
        until_up(log)
        os.kill(process.pid, order)
        assert told(pipe).startswith("attempt 1 ")
        assert told(pipe) == expected
        assert told(pipe) == [], "no child is left, not even a zombie"


def supervises_beside_a_slow_kill(*how):
    "The first kill comes late, as on a busy machine."
    kill = os.killpg

    def late(*whom):
        os.killpg = kill
        threading.Timer(0.2, kill, whom).start()

    os.killpg = late
    supervises(*how)


def test_a_command_that_dies_late_was_killed_all_the_same(tmp_path):
    "Whoever waits for it first takes its exit status."
    command, log = [*BARE, IGNORES], tmp_path / "log"
    with running(supervises_beside_a_slow_kill, command, log, dict(grace_seconds=0.1)) as (process, pipe):
        until_up(log)
        os.kill(process.pid, signal.SIGTERM)
        assert told(pipe).startswith("attempt 1 killed by SIGKILL")
        assert told(pipe) == ("stopped", 75, [-9])


def is_stopped_while_it_waits(pipe):
    "Gets SIGTERM when the supervisor waits before the second attempt."
    main = threading.main_thread().ident
    def order():
        while sys._current_frames()[main].f_code.co_name != "_back_off": time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
    def say(words):
        if words.startswith("attempt"): threading.Thread(target=order, daemon=True).start()
    long = dict(backoff_seconds=3600.0, most_backoff_seconds=3600.0)
    found = supervise([*BARE, "import sys; sys.exit(3)"], say=say, **long)
    pipe.send((found.outcome, [a.status for a in found.attempts]))


def test_an_order_while_it_waits_to_start_again_is_obeyed():
    with running(is_stopped_while_it_waits) as (_, pipe): assert told(pipe) == ("stopped", [3])


def test_it_supervises_in_a_thread_too():
    found = []
    threads = dict(OMP_NUM_THREADS=1)  # a number, as one writes it
    call = lambda: found.append(supervise([*BARE, "pass"], environment=threads, say=lambda _: None))
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(LONG)
    assert found[0].ok


# ---- real kills

def has_a_victim(pipe, root):
    with kills.killable_training(hidden=16, samples=640) as training:
        life = training.life(root / "kept", 5, saves=2)
        pipe.send((life.first, life.kept))
        (root / "file").touch()
        try: training.life(root / "file", 5, saves=1)
        except RuntimeError as error: pipe.send(str(error))
        pipe.send("lives")
        training.life(root / "endless", 1, seconds=3600.0)


def test_a_victim_is_killed_when_told_says_why_it_failed_and_ends_with_its_owner(tmp_path):
    with running(has_a_victim, tmp_path) as (process, pipe):
        first, kept = told(pipe)
        assert first == 0 and kept in (10, 15) and latest(tmp_path / "kept").step == kept
        said = told(pipe)
        assert "the training failed by itself" in said and "OSError" in said, said
        assert told(pipe) == "lives"
        end = time.monotonic() + LONG
        while not list((tmp_path / "endless").glob("step-0*")):  # the training is under way
            assert time.monotonic() < end, "no checkpoint comes"
            time.sleep(0.01)
        family = [child.pid for child in process_children(process.pid)]
        assert len(family) >= 2
        os.kill(process.pid, signal.SIGKILL)
        assert gone(family)


def process_children(pid): return psutil.Process(pid).children(recursive=True)


if __name__ == "__main__": supervised_training(*sys.argv[1:])
