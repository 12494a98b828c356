"""A real SLURM on this machine: what is left of a cluster, and jobs from the rendered script by the launcher."""
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from copies import PYTHON
from hypothesis import given, settings
from test_at_work import of
from test_launch_files import few, jobs, shellcheck

from mlinfra.lab import local_slurm as slurm_here
from mlinfra.lab.job_queue import QueuedJob
from mlinfra.engine.launch.job_spec import JobSpec, job_from_toml
from mlinfra.engine.launch.sbatch_options import SBATCH_OPTIONS
from mlinfra.engine.launch.launchers import launcher
from mlinfra.lab.local_slurm import queue_on_slurm, slurm_cluster, why_no_slurm
from mlinfra.lab.rendezvous import free_port

pytestmark = pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "SLURM is here")
LONG = 120  # seconds after which something hangs
BARE = (sys.executable, "-S", "-c")


def until(found, what="it"):
    "What `found` gives as soon as it gives something."
    end = time.monotonic() + LONG
    while not (value := found()):
        assert time.monotonic() < end, f"{what} did not come in {LONG} s"
        time.sleep(0.05)
    return value


def alive(pids):
    def lives(pid):
        try: return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess: return False
    return [pid for pid in pids if lives(pid)]


# ---- the cluster and what is left of it

HOLDER = """
import os, sys
from mlinfra.lab.local_slurm import slurm_cluster
with slurm_cluster(2) as cluster:
    cluster.run("sbatch", "--nodes=2", "--output=/dev/null", "--wrap",
                f"setsid sleep 1000 & echo $! > {cluster.folder}/orphan.part; mv {cluster.folder}/orphan.part "
                f"{cluster.folder}/orphan; wait")
    while not (cluster.folder / "orphan").exists(): pass
    print(cluster.folder, (cluster.folder / "orphan").read_text().strip(), flush=True)
    sys.stdin.read()
"""


def descendants(folder):
    "Every process that SLURM started for the cluster in this folder, with the reaper."
    found = []
    for process in psutil.process_iter():
        try: told = " ".join([*process.cmdline(), process.environ().get("SLURM_CONF", "")])
        except (psutil.Error, OSError): continue
        if str(folder) in told: found.append(process.pid)
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_process_that_held_the_cluster(how):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, start_new_session=True)
    try:
        folder, orphan = holder.stdout.readline().split()
        pids = [*descendants(folder), int(orphan)]
        until(lambda: psutil.Process(int(orphan)).name() == "sleep", "sleep, which setsid becomes")
        names = [psutil.Process(pid).name() for pid in pids]
        assert {"munged", "slurmctld"} <= set(names) and names.count("slurmd") == 2
        os.killpg(holder.pid, how)  # as a terminal or a notebook does
        assert holder.wait(LONG) == -how or how == signal.SIGINT
        until(lambda: not alive(pids) and not Path(folder).exists(), "their end")
        assert descendants(folder) == []
    finally:
        holder.kill()
        holder.communicate()


def test_a_daemon_that_does_not_come_up_says_why(monkeypatch):
    monkeypatch.setattr(slurm_here, "_CONF", slurm_here._CONF.replace("select/cons_tres", "select/nosuch"))
    with pytest.raises(RuntimeError, match="(slurmctld|node.) ended with status 1: fatal: .*select"):
        with tempfile.TemporaryDirectory() as folder:
            try:
                with slurm_cluster(1, folder=folder): pass
            finally: assert os.listdir(folder) == []


def test_the_daemons_listen_to_this_machine_alone(cluster):
    daemons = [pid for pid in descendants(cluster.folder) if psutil.Process(pid).name() in ("slurmd", "slurmctld")]
    ports = [at.laddr.ip for pid in daemons for at in psutil.Process(pid).net_connections() if at.status == "LISTEN"]
    assert len(ports) == 3 and set(ports) == {"127.0.0.1"}
    assert cluster.folder.stat().st_mode & 0o777 == 0o700, "who cannot enter it cannot give orders"


# ---- jobs

@pytest.fixture(scope="module")
def cluster():
    with slurm_cluster(2, remember_seconds=2, gpus="h100:8", features=("nvlink", "a100")) as cluster, cluster.joined():
        yield cluster


@pytest.fixture
def slurm(cluster):
    "Its launcher."
    found = launcher("slurm")
    assert found.why_not() == ""
    found.poll_seconds = 0.1
    return found


def job(folder, *command, **how):
    "One for the CPU that works in the folder."
    return JobSpec(command, folder=str(folder), **dict(device="cpu", time_seconds=120, grace_seconds=30) | how)


def told(cluster, number):
    "What SLURM says of a job: name -> value."
    return dict(re.findall(r"(\S+?)=(\S*)", cluster.run("scontrol", "-o", "show", "job", number)))


def hurry(cluster, number):
    """A job that was requeued waits until its old credentials are void; a test need not. In the same second its nodes
    would take the new ones for the old."""
    def requeued(): return (state := told(cluster, number))["JobState"] == "PENDING" and state["Restarts"] == "1"
    until(requeued, "the requeue")
    cluster.run("scontrol", "update", f"jobid={number}", "StartTime=now+2")


class Waited:
    "`launcher.wait` in a thread: its lines so far, and its exit status."
    def __init__(self, slurm, handle):
        self.lines, self.said, self.code = [], [], None
        def run(): self.code = slurm.wait(handle, self.lines.append, self.said.append)
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def status(self):
        self.thread.join(LONG)
        return self.code


STEPS = """
import os, signal, sys, time
from pathlib import Path
import torch, torch.distributed as dist
told, state = [], Path("state")
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
step, total = map(int, state.read_text().split()) if "--resume" in sys.argv else (0, 0)
print(f"rank {rank} of {ranks} on {os.environ['SLURMD_NODENAME']} from step {step}", flush=True)
while step < 40:
    x = torch.tensor([rank + 1, bool(told)])
    dist.all_reduce(x)
    if x[1]: break
    if step == 20 and "--resume" not in sys.argv:  # waits here for the notice
        Path(f"ready{rank}").touch()
        time.sleep(0.05)
        continue
    step, total = step + 1, total + int(x[0])
if rank == 0: state.write_text(f"{step} {total}")
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} at step {step}, total {total}", flush=True)
"""


def test_two_nodes_follow_a_notice_and_go_on(cluster, slurm, tmp_path):
    (tmp_path / "steps.py").write_text(STEPS)
    variables = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    two = job(tmp_path, PYTHON, "steps.py", nodes=2, retries=2, environment=variables)
    handle = slurm.submit(two, tmp_path / "launch")
    waited = Waited(slurm, handle)
    until(lambda: len(list(tmp_path.glob("ready*"))) == 2, "step 20 of both ranks")
    assert told(cluster, handle.id)["TimeLimit"] == "00:02:00"
    cluster.run("scancel", "--batch", "--signal=USR1", handle.id)  # as --signal=B:USR1@30 does before the time limit
    hurry(cluster, handle.id)
    assert waited.status() == 0, waited.lines
    lines = "\n".join(waited.lines)
    for step in (0, 20):
        ranks = sorted(re.findall(rf"rank (\d) of 2 on (node\d) from step {step}\b", lines))
        assert ranks == [("0", "node1"), ("1", "node2")], lines
    assert lines.count("at step 40, total 120") == 2, "(1 + 2) in each of 40 steps, none of them lost or done twice"
    assert "retry 1 of 2 with: --resume" in lines and any("finished" in line for line in waited.said)


def test_a_failure_is_started_again_and_the_last_status_counts(cluster, slurm, tmp_path):
    fails = "import sys; print(sys.argv[1:], flush=True); sys.exit(5 + ('--again' in sys.argv))"
    handle = slurm.submit(job(tmp_path, *BARE, fails, retries=1, resume=("--again",)), tmp_path / "launch")
    waited = Waited(slurm, handle)
    hurry(cluster, handle.id)
    assert waited.status() == 6 and [line for line in waited.lines if line.startswith("[")] == ["[]", "['--again']"]
    assert slurm.state(handle).phase == "failed"


def lesson_file():
    "The whole file for sbatch that lesson 16 shows."
    cells = json.loads((Path(__file__).parent.parent / "nbs/16_launch.ipynb").read_text(encoding="utf-8"))["cells"]
    source = next("".join(cell["source"]) for cell in cells if cell["id"] == "16sbatch0")
    return source.split("r'''\n")[1].split("'''")[0]


def test_the_file_that_lesson_16_shows_starts_all_ranks_and_starts_them_again_after_an_error(cluster, tmp_path):
    text = lesson_file()
    assert shellcheck(text) == ""
    for words, here in (("--cpus-per-task=64", "--cpus-per-task=2"), ("--time=4:00:00", "--time=10"),
                        ("$first:29500", f"127.0.0.1:{free_port()}")):  # nodes of four cores, whose names are no hosts
        assert text.count(words) == 1
        text = text.replace(words, here)
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/activate").write_text(f"export PATH={Path(sys.executable).parent}:$PATH\n")
    (tmp_path / "train.py").write_text("""
import os, sys, time
from pathlib import Path
start, rank = int(Path("failed").exists()), os.environ["RANK"]
print(f"start {start} rank {rank} of {os.environ['WORLD_SIZE']} {sys.argv[1:]}", flush=True)
Path(f"started-{rank}").touch()
if rank == "11" and not start:
    while len([*Path().glob("started-*")]) < 16: time.sleep(0.05)
    Path("failed").touch()
    sys.exit(3)
if not start: time.sleep(1000)  # as in an all-reduce, where the others wait for it
""")
    (tmp_path / "digits.sh").write_text(text)
    number = cluster.run("sbatch", "--parsable", "--output=log", "digits.sh", cwd=tmp_path)
    until(lambda: number not in cluster.run("squeue", "-h", "-o", "%A").split(), "its end")
    log = (tmp_path / "log").read_text()
    assert sorted(re.findall(r"start 1 rank (\d+) of 16 \['--resume'\]", log), key=int) == [*map(str, range(16))], log
    assert len(re.findall(r"start 0 rank (\d+) of 16 \['--resume'\]", log)) == 16 and "SIGTERM" in log, log


def test_an_array_is_all_its_copies(slurm, tmp_path):
    code = "import os, sys; n = int(os.environ['MLINFRA_COPY']); print('copy', n); sys.exit(4 * (n == 1))"
    waited = Waited(slurm, slurm.submit(job(tmp_path, *BARE, code, array=3), tmp_path / "launch"))
    assert waited.status() == 4
    assert {f"[copy {n}] copy {n}" for n in range(3)} <= set(waited.lines)


def test_what_cannot_be_had_is_refused_in_a_sentence(slurm, tmp_path):
    for how, words in ((dict(partition="nosuch"), "partition.*nosuch.*there are here"), (dict(nodes=3), "[Nn]ode"),
                       (dict(cpus=9), "processors|configuration"), (dict(constraint="fast"), "the job says.*='fast'"),
                       (dict(device="gpu", gpu_type="h200"), "gres|configuration"),
                       (dict(directives=["--licenses=a"]), "license")):
        with pytest.raises(ValueError, match=f"SLURM refuses the job: .*{words}") as refused:
            slurm.submit(job(tmp_path, "true", **how), tmp_path / "launch")
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "launch/handle.json").exists()


def test_a_cancelled_job_is_told_and_gone(cluster, slurm, tmp_path):
    code = """
import os, signal, sys, time
from pathlib import Path
def leave(*_):
    Path("saved").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
Path("part").write_text(str(os.getpid()))
Path("part").rename("pid")
while True: time.sleep(0.05)"""
    handle = slurm.submit(job(tmp_path, *BARE, code, retries=3), tmp_path / "launch")
    until((tmp_path / "pid").exists, "the job")
    assert slurm.state(handle).phase == "running"
    assert "is not running" not in slurm.cancel(handle)
    assert slurm.wait(handle, lambda _line: None) == 143 and slurm.state(handle).phase == "cancelled"
    assert (tmp_path / "saved").exists() and until(lambda: not alive([int((tmp_path / "pid").read_text())]), "its end")
    assert handle.id not in cluster.run("squeue", "-h", "-o", "%A").split(), "it is not started again"
    assert "is not running" in slurm.cancel(handle)


def test_the_exit_status_is_known_after_the_end(cluster, slurm, tmp_path, monkeypatch):
    "SLURM knows an ended job for a time; then its accounts do, where it keeps any, and what was seen is kept here."
    handles = [slurm.submit(job(tmp_path, *BARE, "import sys; sys.exit(7)"), tmp_path / f"launch{n}") for n in (1, 2)]
    until(lambda: not {h.id for h in handles} & set(cluster.run("squeue", "-h", "-o", "%A").split()), "their end")
    assert slurm.state(handles[0]).exit_code == 7
    def forgotten():
        try: return not told(cluster, handles[1].id)
        except RuntimeError as error: return "Invalid job id" in str(error)
    until(forgotten, "the end of SLURM's memory")
    assert (slurm.state(handles[0]).phase, slurm.wait(handles[0], lambda _line: None)) == ("failed", 7)
    sacct = tmp_path / "bin/sacct"  # as with slurmdbd, which is not here
    sacct.parent.mkdir()
    sacct.write_text(f'#!/bin/sh\ncase "$*" in *{handles[1].id}*) echo "FAILED|7:0" ;; esac\n')
    sacct.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sacct.parent}:{os.environ['PATH']}")
    assert (slurm.state(handles[1]).phase, slurm.state(handles[1]).exit_code) == ("failed", 7)


NASTY = ["a b", "", "'", '"', "$HOME", "`id`", "$(id)", "\\", "\\n", "line\nline", "\ttab", "%j %A", "*", "--", "-x",
         "ü≠", "#SBATCH --nodes=9", "a;b&c|d>e", "!1", "{1..3}", "~", "#", "\r", "x" * 2000]


# ---- what sbatch itself says of the files

def taken(text, tmp_path):
    "What is wrong with a script by `sbatch --test-only`; empty if it would be queued."
    (tmp_path / "job.sh").write_text(text)
    done = subprocess.run(["sbatch", "--test-only", tmp_path / "job.sh"], capture_output=True, text=True, timeout=LONG)
    return done.stderr if done.returncode else ""


@given(drawn=jobs("slurm"))
@settings(few, max_examples=40)
def test_sbatch_takes_the_files(drawn, cluster, tmp_path):
    "Sizes are those of the cluster; all else is as it was drawn."
    sizes = dict(nodes=min(drawn.nodes, 2), devices_per_node=min(drawn.devices_per_node, 4), cpus=1, partition=None)
    sizes |= dict(memory_gb=drawn.memory_gb and 0.1, time_seconds=drawn.time_seconds and 600.5)
    directives = [one for one in drawn.directives if "reservation" not in one]
    how = dict(gpu_type=drawn.gpu_type and "h100", constraint=drawn.constraint and "nvlink|a100", directives=directives)
    assert taken(replace(drawn, **sizes, **how).slurm(), tmp_path) == ""


def test_sbatch_refuses_what_is_misspelt(cluster, tmp_path):
    whole = JobSpec("a", devices_per_node=2, gpu_type="h100", constraint="nvlink", time_seconds=60, memory_gb=1,
                    directives=["--exclusive", "--mail-type=END", "--gres=tmpdisk:9", "--licenses=a"]).slurm()
    sane = whole.replace("#SBATCH --licenses=a\n", "")
    assert taken(sane, tmp_path) == "" and taken(whole, tmp_path) != "", "there is no such licence here"
    for good, bad in (("--gres=gpu:h100:2", "--gres=gpu:h200:2"), ("--constraint=nvlink", "--constraint=nolink"),
                      ("--exclusive", "--exclusve"), ("--mail-type=END", "--mail-type=ENDE"), ("--time=0", "--time=x"),
                      ("tmpdisk:9", "tmpdsk:9"), ("B:USR1", "B:USER1"), ("--open-mode", "--opn-mode")):
        assert good in sane and taken(sane.replace(good, bad), tmp_path) != "", bad
    per_node = JobSpec("a", devices_per_node=2, directives=["--gpus-per-node=h100:2"]).slurm()
    assert taken(per_node, tmp_path) == "" and taken(per_node.replace("h100", "h200"), tmp_path) != ""


@pytest.mark.parametrize("snippet", of("toml"), ids=str)
def test_sbatch_takes_the_job_of_a_lesson(snippet, cluster, tmp_path):
    "With as many nodes as there are here, and as many GPUs as a node has processors."
    job = job_from_toml(snippet.text)
    sizes = dict(nodes=min(job.nodes, 2), devices_per_node=4, time_seconds=1800)
    assert taken(replace(job, **sizes).slurm(), tmp_path) == ""


def test_the_options_are_those_of_sbatch(cluster):
    "Those that its own help names; ours are of two versions, and so more."
    told = set(re.findall(r"--([a-z][a-z-]+)", cluster.run("sbatch", "--help")))
    assert len(told) > 90 and told - set(SBATCH_OPTIONS) <= {"thread", "core"}, told - set(SBATCH_OPTIONS)


def test_set_up_lines_run_once_on_each_node_before_its_ranks(cluster, slurm, tmp_path):
    "Also where the node has more GPUs than the job asked for."
    (tmp_path / "profile").write_text("module() { export LOADED=$2; }\n")
    code = ("import os; who = [os.environ.get(k) for k in ('RANK', 'LOCAL_WORLD_SIZE', 'LOADED', 'OMP_NUM_THREADS')]; "
            "print('seen', *who, os.environ['SLURM_STEP_TASKS_PER_NODE'])")
    lines = (". ./profile", "module load cuda", "echo set up on $SLURMD_NODENAME")
    two = JobSpec([*BARE, code], nodes=2, devices_per_node=2, cpus=2, folder=str(tmp_path), time_seconds=120,
                  setup=lines, account="abc", gpu_type="h100", constraint="nvlink",
                  directives=["--exclusive", "--gres=tmpdisk:100"])
    waited = Waited(slurm, handle := slurm.submit(two, tmp_path / "launch"))
    assert waited.status() == 0, waited.lines
    lines = [line.rpartition("]:")[2] for line in waited.lines]
    assert sorted(line for line in lines if line.startswith("set up")) == ["set up on node1", "set up on node2"]
    assert sorted(line for line in lines if line.startswith("seen")) == [f"seen {n} 2 cuda 2 1(x2)" for n in range(4)]
    found = told(cluster, handle.id)
    assert found["Account"] == "abc" and found["TresPerNode"] == "gres:gpu:h100:2,gres:tmpdisk:100"


def test_a_set_up_line_that_fails_ends_the_job_and_says_which(slurm, tmp_path):
    waited = Waited(slurm, slurm.submit(job(tmp_path, *BARE, "print('began')", setup=["module load nosuch", ":"]),
                                        tmp_path / "launch"))
    assert waited.status() not in (0, None) and not any(line == "began" for line in waited.lines)
    assert any("set-up fails at: module load nosuch" in line for line in waited.lines), waited.lines


def test_words_arrive_as_they_were_meant(slurm, tmp_path):
    folder = tmp_path / "a folder's $name"
    folder.mkdir()
    code = "import json, os, sys; json.dump([sys.argv[1:], os.environ['NASTY'], os.getcwd()], open('seen', 'w'))"
    variables = {"NASTY": "\n".join(NASTY)}
    asked = job(folder, *BARE, code, *NASTY, environment=variables, name="it's a $(name) %j")
    waited = Waited(slurm, slurm.submit(asked, folder / "launch here"))
    assert waited.status() == 0, waited.lines
    assert json.loads((folder / "seen").read_text()) == [NASTY, variables["NASTY"], str(folder)]


def test_a_secret_arrives_and_is_written_nowhere(cluster, slurm, tmp_path, monkeypatch):
    value = "s3cret, with 'quotes' and $HOME"
    monkeypatch.setenv("HUB_TOKEN", value)
    code = ("import hashlib, os, time; from pathlib import Path; part = Path('part'); "
            "part.write_text(hashlib.sha256(os.environ['HUB_TOKEN'].encode()).hexdigest()); part.rename('seen')\n"
            "while not Path('go').exists(): time.sleep(0.05)")
    handle = slurm.submit(job(tmp_path, *BARE, code, secrets=("HUB_TOKEN",)), tmp_path / "launch")
    until((tmp_path / "seen").exists, "the job")
    assert (tmp_path / "seen").read_text() == hashlib.sha256(value.encode()).hexdigest()
    shown = cluster.run("scontrol", "-dd", "show", "job", handle.id)
    shown += cluster.run("scontrol", "write", "batch_script", handle.id, "-") + cluster.run("ps", "-e", "-o", "args")
    files = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    (tmp_path / "go").touch()
    assert "HUB_TOKEN" in files and "s3cret" not in files and "s3cret" not in shown
    assert slurm.wait(handle, lambda _line: None) == 0


# ---- the queue

def test_first_come_first_served_lets_nobody_overtake():
    "Backfill does, in the engine room's own notebook."
    jobs = [QueuedJob("long", 1, 1, 120), QueuedJob("wide", 2, 0.1, 60), QueuedJob("short", 1, 0.1, 60)]
    started = queue_on_slurm(jobs, 2, "first come").table().started_s
    assert list(started.sort_values().index) == ["long", "wide", "short"]
