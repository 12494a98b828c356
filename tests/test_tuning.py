"""Searches with processes: kills, stops, budgets, several processes on one file, the shell, Ray."""
import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from copies import run_code

from mlinfra.engine.tuning import function_settings
from mlinfra.engine.tuning.function_settings import function_code
from mlinfra.engine.tuning.optuna_study import open_study, tune
from mlinfra.lab.rendezvous import run_together
from mlinfra.engine.record.run_folder import Run
from mlinfra.engine.tuning.search_space import Space, random_points, uniform
from mlinfra.engine.tuning.seed_comparison import is_better
from mlinfra.engine.tuning.trial_pool import Live, run_trials
from mlinfra.engine.base.jobs import Job
from mlinfra.training import fit

SPACE = Space(x=uniform(0, 1))
MLINFRA = Path(sys.executable).with_name("mlinfra")
needs_flock = pytest.mark.skipif(os.name != "posix", reason="the lock that ends with its process is POSIX's")


# ---- objectives, which processes import from here

def quick(trial):
    for step in range(1, 4): trial.report(step, trial.params["x"] + 1 / step)
    return trial.params["x"]


def short(trial):
    "Some milliseconds of work, which a kill hits at any point."
    for step in range(1, 4):
        time.sleep(0.002)
        trial.report(step, trial.params["x"] + 1 / step)
    return trial.params["x"]


def stuck(note, trial):
    "Reports once, writes into the note who it is, starts a process, and never ends."
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    Path(note).write_text(json.dumps([os.getpid(), child.pid]))
    trial.report(1, 0.5)
    time.sleep(600)


def deadly(trial):
    if trial.number == 1: os.kill(os.getpid(), signal.SIGKILL)
    if trial.number == 2: os._exit(3)
    return trial.params["x"]


def no_room(trial): raise OSError(errno.ENOSPC, "cannot write weights: the disk is full")


def endless(trial):
    "Reports until it is told to end."
    for step in range(1, 10**9):
        trial.report(step, trial.params["x"])
        time.sleep(0.01)


def alive(pid):
    try: return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess: return False


def wait_for(condition, seconds=60):
    "Poll until it is true; the test fails if it never is."
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)
    return found


def noted(note): return json.loads(wait_for(lambda: note.exists() and note.read_text()))


# ---- what becomes of trials in processes

class PointsPlan:
    "Tries given points one after another, and gives none up."
    waits = False
    def __init__(self, points): self.points, self.asked, self.records = list(points), 0, []

    def ask(self):
        if self.asked == len(self.points): return None
        self.asked += 1
        return self.asked - 1, self.points[self.asked - 1]

    def report(self, number, step, value): return False

    def tell(self, record): self.records.append(record)

    def add(self, point): self.points.append(point)



def test_trials_in_processes_report_in_order():
    found = run_trials(quick, PointsPlan([{"x": x} for x in range(6)]), workers=2)
    assert [(r.state, r.value) for r in found] == [("finished", x) for x in range(6)]
    assert [step for step, _ in found[5].steps] == [1, 2, 3] and found[1].steps[-1] == (3, 1 + 1 / 3)
    assert not [p for p in multiprocessing.active_children() if p.name == "mlinfra-trials"]


def leaves_something(trial):
    said = torch.rand(1).item(), np.random.rand(), random.random(), torch.get_default_dtype(), torch.is_grad_enabled()
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    if trial.number == 1: raise ValueError("in the middle")
    assert said[3:] == (torch.float32, True)
    return sum(said[:3])


def test_a_trial_leaves_nothing_to_the_next_and_draws_the_same_everywhere():
    before = np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist()
    here = tune(leaves_something, SPACE, trials=4, method="random")
    beside = tune(leaves_something, SPACE, trials=4, method="random", workers=1)
    assert (np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist()) == before
    for study in (here, beside):
        assert [record.state for record in study.records] == ["finished", "failed", "finished", "finished"]
    assert len({record.value for study in (here, beside) for record in study.records} - {None}) == 1


@pytest.mark.parametrize("held", [b'{"lr": 0.1}', b"SQLite format 3\0\xfb", b"one line\nand a half"])
def test_a_file_that_is_no_study_is_refused_and_stays_as_it_was(tmp_path, held):
    (other := tmp_path / "other").write_bytes(held)
    for read in (lambda: open_study(other), lambda: tune(quick, SPACE, trials=1, storage=other)):
        with pytest.raises(ValueError, match="other holds no study but something that begins with"): read()
        assert other.read_bytes() == held


@pytest.mark.parametrize("storage, says", [("", "the study's file, got ''"), (3, "file, got 3"), (".", "is a folder")])
def test_what_is_no_path_of_a_study_leaves_no_trace(tmp_path, monkeypatch, storage, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=says): tune(quick, SPACE, trials=1, storage=storage)
    assert not list(tmp_path.iterdir())


def test_trials_of_other_code_are_told_once(tmp_path):
    how = dict(space=SPACE, storage=tmp_path / "study", method="random")
    tune(quick, trials=1, **how).optuna.set_user_attr("objective", "loss")  # an attribute of the study's owner
    with pytest.warns(UserWarning, match="study has trials of another objective: the code of .*<lambda>"):
        tune(lambda trial: 1.0, trials=2, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune(lambda trial: 1.0, trials=3, **how)


def test_the_code_of_an_objective_is_found_behind_values_that_are_not_read(monkeypatch):
    class Data(torch.utils.data.Dataset):
        def __init__(self): self.words, self.pairs = ["word"] * 2_000, [(Path("a"), 1)] * 2_000
        def __reduce_ex__(self, protocol): raise SystemExit("it is read")

    def holding(value, add):
        holder = dict(add=[partial(add)], data=Data())
        return function_code(lambda trial: value[0] + holder["add"][0](trial.number))
    def plus(n): return n + 1
    def minus(n): return n - 1
    monkeypatch.setattr(function_settings, "_of_tensor", lambda value: pytest.fail("a tensor is read"))
    assert holding([1], plus) == holding(torch.zeros(4), plus) == holding([2] * 2_000, plus)
    assert any(name.endswith("<locals>.minus") for name in holding([1], minus))


def test_a_process_that_dies_fails_its_trial_alone():
    found = run_trials(deadly, PointsPlan([{"x": x} for x in range(5)]), workers=2)
    assert [r.state for r in found] == ["finished", "failed", "failed", "finished", "finished"]
    assert "SIGKILL" in found[1].error and "status 3" in found[2].error


def test_a_trial_that_does_not_listen_ends_with_the_budget_and_keeps_what_it_said(tmp_path):
    note = tmp_path / "note"
    records = run_trials(partial(stuck, note), PointsPlan([{"x": 1}]), workers=1, live=(live := Live()),
                         budget_seconds=600,
                         report=lambda share, words: note.exists() and live.trials[0].steps and live.stop())
    assert [(r.state, r.steps) for r in records] == [("stopped", ((1, 0.5),))]
    assert not any(map(alive, noted(note))), "neither the trial's process nor what it has started is left"


def test_the_budget_ends_a_study(tmp_path):
    study = tune(endless, SPACE, budget_seconds=1.0, method="random", storage=tmp_path / "study")
    assert list(study.trials.state) == ["stopped"] and study.curves.step.is_monotonic_increasing
    assert len(study.curves) >= 1 and study.counts() == "1 stopped"


def test_stop_of_a_job_ends_all_processes():
    plan = PointsPlan([{"x": x} for x in range(4)])
    def work(job):
        return run_trials(endless, plan, workers=2, live=live, report=job.report)
    live, job = Live(), Job(work)
    job.start()
    wait_for(lambda: sum(bool(r.steps) for r in live.trials) == 2)
    job.stop()
    job.join(60)
    assert type(job.error).__name__ == "Stopped" and [r.state for r in plan.records] == ["stopped"] * 2
    assert all(record.steps for record in plan.records)
    assert not [p for p in multiprocessing.active_children() if p.name == "mlinfra-trials"]


def test_a_chosen_trial_is_pruned_and_a_point_is_added_while_others_run():
    live, plan = Live(), PointsPlan([{"x": 0}, {"x": 1}])
    def steer(share, words):
        running = {r.number: r for r in live.trials if r.state == "running" and r.steps}
        if 0 in running and len(live.trials) == 2: live.add({"x": 7}), live.prune(0)
        if 2 in running: live.stop()
    found = run_trials(endless, plan, workers=2, live=live, report=steer)
    assert [(r.params["x"], r.state) for r in found] == [(0, "pruned"), (1, "stopped"), (7, "stopped")]


def test_an_objective_that_cannot_be_imported_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="Put it into a module, or pass workers=0"):
        tune(lambda trial: 0.0, SPACE, trials=1, workers=1)


KEEPER = """
import sys
from functools import partial
sys.path[:0] = [{tests!r}]
from test_tuning import SPACE, stuck
from mlinfra.engine.tuning import function_settings
from mlinfra.engine.tuning.function_settings import function_code
from mlinfra.engine.tuning.optuna_study import tune
if __name__ == "__main__": tune(partial(stuck, sys.argv[2]), SPACE, trials=1, workers=1, storage=sys.argv[1])
"""


def test_processes_end_with_a_search_that_is_killed_and_its_trial_is_tried_again(tmp_path):
    note = tmp_path / "note"
    (tmp_path / "keeper.py").write_text(KEEPER.format(tests=str(Path(__file__).parent)))
    path = tmp_path / "study"
    with subprocess.Popen([sys.executable, tmp_path / "keeper.py", path, note]) as search:
        worker, child = noted(note)
        wait_for(lambda: len(open_study(path).curves))
        assert list(open_study(path).trials.state) == ["running"]
        search.kill()
    wait_for(lambda: not alive(worker))
    psutil.Process(child).kill()  # what a trial starts by itself outlives a kill of all others
    assert list(open_study(path).trials.state) == ["killed"] and len(open_study(path).curves) == 1
    after = tune(quick, SPACE, trials=1, method="random", storage=path)
    assert list(after.trials.state) == ["killed", "finished"]
    assert after.records[1].params == after.records[0].params


# ---- one file, several processes

def search(path, seed, trials, start):
    start.wait()
    tune(short, SPACE, trials=trials, method="random", sampler="random", seed=0, storage=path)


@pytest.fixture
def start_search(tmp_path):
    "Start a process that works on the study; all are gone at the end."
    context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
    context.set_forkserver_preload(["mlinfra.engine.tuning.trial_pool", "torch.distributed.launcher.api"])
    begun, started = context.Event(), []

    def start_(seed, trials):
        process = context.Process(target=search, args=(tmp_path / "study", seed, trials, begun))
        process.start()
        started.append(process)
        return process

    start_.begun, start_.path = begun, tmp_path / "study"
    yield start_
    for process in started:
        process.kill()
        process.join()


@needs_flock
def test_several_processes_share_a_study(start_search):
    processes = [start_search(seed, 40) for seed in range(3)]
    start_search.begun.set()
    for process in processes: process.join(120)
    study = open_study(start_search.path)
    assert [p.exitcode for p in processes] == [0, 0, 0] and list(study.trials.state) == ["finished"] * 40
    assert [r.params for r in study.records] == random_points(SPACE, 40), "no point twice, whoever asked"


@needs_flock
def test_a_study_survives_processes_that_are_killed_at_any_time(start_search):
    start_search.begun.set()
    chance, running, kills = random.Random(0), [], 0
    while kills < 12:
        running = [p for p in running if p.is_alive()]
        while len(running) < 2: running.append(start_search(kills, 4_000))  # more than they reach
        before = start_search.path.stat().st_size if start_search.path.exists() else 0
        grown = before + chance.randrange(9000)
        wait_for(lambda: start_search.path.exists() and start_search.path.stat().st_size > grown)
        running.pop(chance.randrange(2)).kill()
        kills += 1
    for process in running: process.kill(), process.join()
    left = open_study(start_search.path)
    done = int((left.trials.state == "finished").sum())
    whole = tune(short, SPACE, trials=done + 20, method="random", storage=start_search.path)
    states = whole.trials.state
    assert (states == "finished").sum() == done + 20 and set(states) == {"finished", "killed"}
    points = {json.dumps(r.params) for r in whole.records if r.state == "finished"}
    cut = [json.dumps(r.params) for r in whole.records if r.state == "killed" and r.params]
    assert points.issuperset(cut), "none is lost"


@needs_flock
@pytest.mark.parametrize("room, number, says", [
    (True, errno.ENOSPC, "the disk is full"), (False, errno.ENOSPC, "the disk is full"),
    (False, errno.EFBIG, "the file may not grow")])
def test_a_full_disk_ends_a_search_in_a_sentence_and_the_same_call_goes_on(tmp_path, monkeypatch, room, number, says):
    from optuna.storages.journal import JournalFileBackend
    append, full = JournalFileBackend.append_logs, []

    def append_logs(self, logs):
        "The disk is full; what a search's sign gives back is enough, or is not."
        taken = any(sign.stat().st_size for sign in tmp_path.glob("study.searches/*")) or not room
        if full and taken: raise OSError(number, os.strerror(number))
        append(self, logs)

    def objective(trial):
        if trial.number == 2: full.append(True)
        return quick(trial)

    monkeypatch.setattr(JournalFileBackend, "append_logs", append_logs)
    how = dict(trials=5, method="random", storage=tmp_path / "study")
    with pytest.raises(OSError, match=f"since {says}.*Free some space") as said: tune(objective, SPACE, **how)
    x = random_points(SPACE, 5)
    lacks = "" if room else f"The study lacks trial 2 finished with {x[2]['x']!r}"
    assert lacks in str(said.value) and ("has all trials that have ended" in str(said.value)) is room
    full.clear()
    assert open_study(how["storage"]).counts() == ("3 finished" if room else "2 finished, 1 killed")
    again = tune(quick, SPACE, **how)
    assert sum(r.state == "finished" for r in again.records) == 5
    assert x[2] in [r.params for r in again.records if r.state == "finished"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_trial_that_finds_the_disk_full_is_tried_again_later(tmp_path, workers):
    how = dict(trials=3, method="random", storage=tmp_path / "study")
    with pytest.raises(OSError, match="trial 0 says OSError.*cannot write weights"):
        tune(no_room, SPACE, workers=workers, **how)
    assert open_study(how["storage"]).counts() == "1 stopped", "and no other trial was begun"
    again = tune(quick, SPACE, **how)
    assert again.counts() == "1 stopped, 3 finished" and again.records[1].params == again.records[0].params


@needs_flock
def test_a_search_on_a_lost_machine_gives_its_trial_back(tmp_path, monkeypatch):
    from mlinfra.engine.tuning import optuna_study
    lost = f"""
import os
from mlinfra.engine.tuning import search_heartbeat
from mlinfra.engine.tuning import function_settings
from mlinfra.engine.tuning.function_settings import function_code
from mlinfra.engine.tuning.optuna_study import tune
from mlinfra.engine.tuning.search_space import Space, uniform
search_heartbeat.gethostname = lambda: "a-machine-that-is-gone"
tune(lambda trial: os._exit(9), Space(x=uniform(0, 1)), trials=3, storage={str(tmp_path / "study")!r})"""
    assert subprocess.run([sys.executable, "-c", lost]).returncode == 9
    signs, told = tmp_path / "study.searches", []
    assert len(list(signs.iterdir())) == 1 and open_study(tmp_path / "study").counts() == "1 running"
    quick_beat = partial(optuna_study.Heartbeat, every_seconds=0.05)
    monkeypatch.setattr(optuna_study, "Heartbeat", quick_beat)
    study = tune(quick, SPACE, trials=3, method="random", storage=tmp_path / "study",
                 report=lambda share, words: told.append(words))
    assert study.counts() == "1 killed, 3 finished" and not signs.exists()
    assert study.records[3].params == study.records[0].params and any("waiting" in w for w in told), told


# ---- the observer

def test_a_trial_prunes_a_run_of_fit_and_the_run_folder_says_so(tmp_path):
    data = torch.utils.data.TensorDataset(torch.rand(64, 4), torch.randint(2, (64,)))

    def objective(trial):
        model = torch.nn.Linear(4, 2)
        history = fit(model, data, epochs=6, valid=data, observers=trial.observers(), progress=False, keep_memory=False)
        return history.epochs[-1].valid_loss

    live = Live()
    def steer(share, words):  # told of each report before it counts
        if len(live.trials) == 2 and live.trials[1].steps: live.prune(1)
    found = run_trials(objective, PointsPlan([{"lr": 0.1}, {"lr": 0.2}]), folder=tmp_path, live=live, report=steer)
    assert [(r.state, len(r.steps)) for r in found] == [("finished", 6), ("pruned", 2)]
    runs = [Run(record.folder) for record in found]
    assert [len(run.epochs) for run in runs] == [6, 2] and [run.config["lr"] for run in runs] == [0.1, 0.2]
    assert [run.events("end")[0].data["how"] for run in runs] == ["finished", "stopped"]


# ---- the shell

MINE = """
import time
from mlinfra.engine.tuning.search_space import Space, log_uniform

def search():
    def objective(trial):
        for step in range(1, 4):
            time.sleep({pause})
            trial.report(step, trial.params["lr"] / step)
        if trial.number == 1: raise RuntimeError("one is too many")
        return trial.params["lr"]
    return objective, Space(lr=log_uniform(1e-3, 1))
"""


def shell(folder, *args, pause, **kw):
    (folder / "mine.py").write_text(MINE.format(pause=pause))
    return subprocess.Popen([MLINFRA, "tune", "mine:search", *args], cwd=folder, stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.PIPE, start_new_session=True, **kw)


def test_tune_from_a_shell_ends_with_130_on_ctrl_c_and_the_same_command_goes_on(tmp_path):
    with shell(tmp_path, "--trials", "100000", "--method", "random", "--workers", "2", pause=0.02) as process:
        head = [process.stdout.readline() for _ in range(4)]
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of them
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "go on with the same command" in err and "interrupted" in err and "the study is search.study" in head[0]
    failed = "RuntimeError: one is too many (mine.py:10 in objective)"
    assert any(failed in line for line in head[1:] + out.splitlines())
    before = open_study(tmp_path / "search.study").trials
    counted = int(before.state.isin(["finished", "failed"]).sum())
    again = sys.executable, MLINFRA, "tune", "mine:search", "--trials", str(counted + 3), "--method", "random"
    done, = run_together([again], forked=True, folder=tmp_path, timeout_seconds=120)
    assert done.code == 0, done.output
    states = list(open_study(tmp_path / "search.study").trials.state)
    assert states[:len(before)] == list(before.state)
    assert states.count("finished") + states.count("failed") == counted + 3
    assert "best" in done.output and len([l for l in done.output.splitlines() if l.startswith("trial ")]) == 3


@pytest.mark.parametrize("args, says", [
    (["mine:search"], "budget_seconds or trials must be given"), (["mine:search", "--budget", "soon"], "such as 10min"),
    (["mine:nothing", "--trials", "1"], "has no function"), (["json:dumps", "--trials", "1"], "without arguments"),
    (["mine:search", "--trials", "1", "--method", "grid"], "points must be given"),
])
def test_nonsense_is_one_clear_line(tmp_path, monkeypatch, capsys, args, says):
    from mlinfra import cli
    (tmp_path / "mine.py").write_text(MINE.format(pause=0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("mine", None)
    try: code = cli.main(["tune", *args])
    except SystemExit as ended: code = ended.code
    assert code == 2 and says in capsys.readouterr().err


@pytest.mark.parametrize("wrong, says", [
    (dict(seed=2**70), "seed must be at most"), (dict(objective=3), "objective must be a function, got 3"),
    (dict(points=[3]), "a point must be a dict with lr, got 3"), (dict(points=3), "points must be a list"),
])
def test_what_would_fail_in_every_trial_is_refused(wrong, says):
    asked = dict(objective=lambda trial: trial.params["lr"], space=Space(lr=uniform(0, 1)), trials=1) | wrong
    with pytest.raises((ValueError, TypeError), match=says): tune(asked.pop("objective"), asked.pop("space"), **asked)


@pytest.mark.parametrize("values", [[1e300, 2e300, 1.5e300], [1e-320, 2e-320, 3e-320], "abc", None, ["a", "b"],
                                    [torch.ones((), requires_grad=True)] * 2])
def test_figures_that_no_verdict_can_be_computed_of_are_refused(values):
    with pytest.raises(ValueError, match="^a must be"): is_better(values, [0.1, 0.2, 0.3])


# ---- Ray

RAY = """
from mlinfra.engine.tuning.ray_tune import ray_tune
from mlinfra.engine.tuning.search_space import Space, random_points, uniform

def objective(trial):
    if trial.number == 1: raise RuntimeError("one")
    for step in (1, 2): trial.report(step, trial.params["x"] + 1 / step)
    return trial.params["x"]

space = Space(x=uniform(0, 1))
found = ray_tune(objective, space, trials=2, workers=1)
assert list(found.state) == ["finished", "failed"] and "one" in found.error[1]
assert [{"x": x} for x in found.x] == random_points(space, 2) and found.value[0] == found.x[0]
"""


@pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed: the extra `ray`")
def test_the_same_objective_on_ray(tmp_path):
    done, = run_code(RAY, folder=tmp_path, timeout_seconds=240)
    assert done.code == 0, done.output[-3000:]
