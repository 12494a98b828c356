"""Jobs that are really launched: by a shell, by torchrun on this machine and on two hosts that are network
namespaces; ranks that fail, are killed, are interrupted. The launchers for Kubernetes and SageMaker, of which none can
be reached from here, run against programs that answer as `kubectl` and `aws` do (fake_clients.py); SLURM and Ray have
files of their own."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import fake_clients
import psutil
import pytest
from copies import PYTHON

from mlinfra import cli
from mlinfra.engine.launch.launcher_base import JobState, read_handle
from mlinfra.engine.launch.job_spec import JobSpec, job_to_toml
from mlinfra.engine.launch.launchers import launcher, submitted
from mlinfra.engine.launch.job_logs import rank_failure
from mlinfra.engine.dist.network import lay_cables, why_no_hosts

BARE = [sys.executable, "-S"]
MLINFRA = [sys.executable, "-m", "mlinfra"]
PIPES = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
LONG = 120  # seconds after which something hangs
SECRET = "hush-hush-hush"


@pytest.fixture
def cpu(tmp_path):
    "A job of this file, whose processes do not outlive the test."
    def made(text, *words, **how):
        script = tmp_path / "train.py"
        script.write_text(text)
        return JobSpec([*BARE, str(script), *words], device="cpu", **how)
    yield made
    for process in of_job(tmp_path):
        with contextlib.suppress(psutil.NoSuchProcess): process.kill()


def of_job(folder):
    "The processes that were launched from below this folder and still run; those that launched them are others."
    handles = {json.loads(path.read_text())["id"] for path in folder.rglob("handle.json")}
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MLINFRA_LAUNCH") in handles and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError): continue
    return found


def until(found):
    "What `found` gives as soon as it gives something."
    end = time.monotonic() + LONG
    while not (value := found()):
        assert time.monotonic() < end, "it never comes"
        time.sleep(0.02)
    return value


class Reader:
    "The lines of a process, as they come."
    def __init__(self, stream):
        self.lines = []
        self.thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.thread.start()

    def _read(self, stream):
        for line in stream: self.lines.append(line.rstrip("\n"))

    def has(self, words): return until(lambda: [line for line in self.lines if words in line])


def shell(*words, **how):
    "The command line of a user in a session of their own, as a terminal is."
    return subprocess.Popen([*MLINFRA, "launch", *map(str, words)], text=True, start_new_session=True, **PIPES, **how)


def written(job, path):
    path.write_text(job_to_toml(job))
    return path


# ---- on this machine

WAITS = """
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
print("ready", *sys.argv[2:], len(os.environ.get("KEY_A", "")))
while not (here / "go").exists(): time.sleep(0.02)
print("gone on")
sys.exit(5)
"""


def test_a_job_outlives_its_shell_and_another_one_waits_for_it(cpu, tmp_path):
    job = written(cpu(WAITS, str(tmp_path), secrets=["KEY_A"]), tmp_path / "job.toml")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    first = shell(job, "--submit", env=environment | {"KEY_A": SECRET})
    said = first.communicate(timeout=LONG)[1]
    assert first.returncode == 0 and "is submitted" in said, said
    with pytest.raises(ProcessLookupError): os.killpg(first.pid, signal.SIGKILL)  # nobody of it is left
    second = shell(job, "--wait")
    lines = Reader(second.stdout)
    assert lines.has("ready") == [f"ready {len(SECRET)}"], "the line is there before the job goes on"
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not any(SECRET in word for command in commands for word in command)
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    (tmp_path / "go").touch()
    assert second.wait(LONG) == 5 and lines.has("gone on")
    assert cli.main(["launch", str(job), "--wait"]) == 5, "and so it stays"


KILLED = """
import os, pathlib, sys
here = pathlib.Path(sys.argv[1])
count = len(list(here.glob("attempt-*")))
(here / f"attempt-{count}").write_text(" ".join(sys.argv[2:]))
if count < 2: os.kill(os.getpid(), 9)
print("step 7")
"""


def test_a_killed_training_goes_on_as_often_as_it_may(cpu, tmp_path):
    local = launcher()
    handle = local.submit(cpu(KILLED, str(tmp_path), retries=1), tmp_path / "launch")
    assert local.wait(handle, print) == 137
    for path in tmp_path.glob("attempt-*"): path.unlink()
    lines = []
    handle = local.submit(cpu(KILLED, str(tmp_path), retries=2, resume=["--from", "last one"]), tmp_path / "launch")
    assert local.wait(handle, lines.append) == 0 and "step 7" in lines
    words = [path.read_text() for path in sorted(tmp_path.glob("attempt-*"))]
    assert words == ["", "--from last one", "--from last one"]


def test_a_keeper_that_is_killed_takes_nobody_along_and_the_job_can_be_cancelled(cpu, tmp_path):
    local = launcher()
    handle = local.submit(cpu(STAYS, "stubborn", grace_seconds=1), tmp_path / "launch")
    until(lambda: list(local.logs(handle)))
    os.kill(json.loads((tmp_path / "launch/keeper.json").read_text())["pid"], signal.SIGKILL)
    state = until(lambda: (found := local.state(handle)).detail and found)
    assert state.phase == "running" and "was killed" in state.detail and of_job(tmp_path)
    assert local.cancel(handle).endswith("is told to end") and not of_job(tmp_path)
    assert local.state(handle).phase == "cancelled"


def test_what_cannot_be_launched_is_refused_in_a_sentence(cpu, tmp_path, monkeypatch, capsys):
    job = written(cpu("", nodes=2, image="a/b:1"), tmp_path / "job.toml")
    def said(*words):
        assert cli.main(["launch", str(job), *words]) == 2
        return capsys.readouterr().err
    assert "say what to do, one of --dry-run, --submit" in said() and "say what to do" in said("--logs", "--cancel")
    assert "was not submitted on slurm" in said("--logs", "--on", "slurm")
    job.write_text(job.read_text() + "\nnode = 3\n")
    assert said("--submit") == f"mlinfra launch: {job}: a job has no node: is nodes meant?\n"
    job.write_text(job.read_text().replace("\nnode = 3\n", "\nsetup = [\"if true; then\", \"echo 'a\"]\n"))
    assert "setup must be lines that bash can read: " in said("--submit") and not list(tmp_path.rglob("handle.json"))
    job.write_text(job.read_text().partition("\nsetup")[0])
    monkeypatch.setenv("PATH", str(tmp_path / "nothing here"))
    clients = dict(slurm="sbatch", kubernetes="kubectl", trainjob="kubectl", sagemaker="aws", local="bash")
    for system, client in clients.items():
        words = said("--submit", "--on", system)
        assert f"{client} is not installed here: " in words and "--dry-run works without" in words
        assert cli.main(["launch", str(job), "--dry-run", "--on", system]) == 0
        assert capsys.readouterr().out.count("\n") > 20 and not list(tmp_path.rglob("handle.json"))


def test_dry_run_prints_what_is_submitted(cpu, tmp_path, capsys):
    job = written(cpu("print('done')"), tmp_path / "job.toml")
    assert cli.main(["launch", str(job), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert cli.main(["launch", str(job), "--submit", "--wait"]) == 0
    assert (tmp_path / "job.launches/local/local.sh").read_text() == shown and capsys.readouterr().out == "done\n"


# ---- torchrun

FAILS = """
import os, sys, time, traceback
if os.environ["RANK"] == "0": time.sleep(1000)
try: {}["no such key"]
except KeyError:
    traceback.print_exc()
    sys.exit(7)
"""


def test_the_rank_that_fails_its_status_and_its_line_come_back(cpu, tmp_path):
    torchrun, words, lines = launcher("torchrun"), [], []
    handle = torchrun.submit(cpu(FAILS, devices_per_node=2), tmp_path / "launch")
    assert torchrun.wait(handle, lines.append, words.append) == 7, "torchrun itself ends with 1"
    assert f"ended with 7 at {tmp_path}/train.py, line 4: KeyError: 'no such key'" in words[-1]
    assert "rank 1 on " in words[-1]
    assert "[rank1]:KeyError: 'no such key'" in lines and until(lambda: not of_job(tmp_path))


ONE_IS_KILLED = """
import os, sys, time
print("with", sys.argv[1:])
if "--resume" in sys.argv: sys.exit(0)
if os.environ["RANK"] == "1": os.kill(os.getpid(), 9)
time.sleep(1000)
"""


def test_a_killed_rank_is_named_and_the_next_attempt_resumes(cpu, tmp_path):
    torchrun, lines = launcher("torchrun"), []
    handle = torchrun.submit(cpu(ONE_IS_KILLED, devices_per_node=2, retries=1), tmp_path / "launch")
    assert torchrun.wait(handle, lines.append, print) == 0
    assert {"[rank0]:with ['--resume']", "[rank1]:with ['--resume']"} <= set(lines)
    first = rank_failure(lines)  # of the first attempt; where it is the last one, it is the status of the job
    assert (first.rank, first.exit_code) == (1, 137) and "was killed by signal 9" in str(first)


STAYS = """
import os, signal, sys, time
def told(*_):
    print("told to end", flush=True)
    if len(sys.argv) == 1: sys.exit(0)
signal.signal(signal.SIGTERM, told)
print("pid", os.getpid())
while True: time.sleep(1000)
"""


def test_ctrl_c_ends_all_ranks_and_says_so(cpu, tmp_path):
    job = written(cpu(STAYS, devices_per_node=2, grace_seconds=LONG), tmp_path / "job.toml")
    waiting = shell(job, "--on", "torchrun", "--submit", "--wait")
    lines, words = Reader(waiting.stdout), Reader(waiting.stderr)
    until(lambda: sum("pid" in line for line in lines.lines) == 2)
    ranks = [int(line.split()[-1]) for line in lines.has("pid")]
    os.killpg(waiting.pid, signal.SIGINT)  # as the terminal does
    assert waiting.wait(LONG) == 130
    words.thread.join(LONG)
    assert "Ctrl-C: cancelling" in words.lines[-3] and words.lines[-2].endswith("is told to end")
    assert " cancelled" in words.lines[-1] and sum("told to end" in line for line in lines.lines) == 2
    assert not any(map(psutil.pid_exists, ranks)) and until(lambda: not of_job(tmp_path)), "the keeper was the last"


def test_a_second_ctrl_c_leaves_at_once(cpu, tmp_path):
    job = written(cpu(STAYS, "stubborn", grace_seconds=10 * LONG), tmp_path / "job.toml")
    waiting = shell(job, "--submit", "--wait")
    lines, words = Reader(waiting.stdout), Reader(waiting.stderr)
    lines.has("pid")
    os.killpg(waiting.pid, signal.SIGINT)
    lines.has("told to end")
    os.killpg(waiting.pid, signal.SIGINT)
    assert waiting.wait(LONG) == 130 and words.has("interrupted") and of_job(tmp_path), "the job has its time to end"


MEET = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
print("sum", x.item(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.skipif(bool(why_no_hosts()), reason=f"no network namespaces: {why_no_hosts()}")
def test_two_hosts(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(MEET)
    job = written(JobSpec([PYTHON, str(script)], device="cpu", nodes=2), tmp_path / "job.toml")
    with lay_cables(2, 1e9) as hosts:
        nodes = []
        for rank, host in enumerate(hosts):
            who = dict(NODE_RANK=str(rank), MASTER_ADDR=hosts[0].address, GLOO_SOCKET_IFNAME="eth0")
            inside = ["nsenter", f"--net=/run/netns/{host.name}", *MLINFRA, "launch", str(job), "--on", "torchrun"]
            nodes.append(subprocess.Popen([*inside, "--submit", "--wait", "--folder", str(tmp_path / f"node{rank}")],
                                          env=os.environ | who, text=True, **PIPES))
        for rank, node in enumerate(nodes):
            out, err = node.communicate(timeout=2 * LONG)
            assert node.returncode == 0, err
            assert f"[rank{rank}]:sum 3.0 of 2" in out.splitlines()
    for rank in range(2): assert submitted(tmp_path / f"node{rank}")[0].system == "torchrun"


# ---- clusters that are not there

@pytest.fixture
def fakes(tmp_path, monkeypatch):
    home = tmp_path / "fakes"
    home.mkdir()
    fake_clients.install(home)
    monkeypatch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_HOME", str(home))
    monkeypatch.setenv("KEY_A", SECRET)
    return home


def test_kubernetes(fakes, tmp_path):
    job = JobSpec("python train.py", name="a", nodes=2, device="cpu", image="a/b:1", secrets=["KEY_A"])
    cluster, lines, words = launcher("kubernetes"), [], []
    cluster.poll_seconds = 0.0
    handle = cluster.submit(job, tmp_path / "launch")
    assert cluster.wait(read_handle(tmp_path / "launch"), lines.append, words.append) == 3
    assert sorted(lines) == [f"[{pod}] {text} of {pod}" for pod in ("a-0-x", "a-1-y") for text in ("last", "lines")]
    assert "is waiting (0/2 nodes are available" in words[0] and "(2 of 2 pods)" in words[1]
    assert "FailedIndexes" in words[-1]
    called = fake_clients.calls(fakes)
    secret, manifest, patch = [(said, told) for _, said, told in called if {"apply", "patch"} & set(said)]
    assert json.loads(secret[1])["stringData"] == {"KEY_A": SECRET}
    assert manifest[0][-1].endswith("launch/kubernetes.yaml")
    assert '"uid": "1234"' in patch[0][-1] and not any(SECRET in " ".join(said) for _, said, _ in called)
    assert all(said[:4] == ["--context", "here", "--namespace", "ml"] for _, said, _ in called if "config" not in said)
    assert not any(SECRET.encode() in path.read_bytes() for path in (tmp_path / "launch").iterdir())
    assert "is not running: failed" in cluster.cancel(handle)


def test_kubernetes_ctrl_c_deletes_the_job(fakes, tmp_path):
    cluster, words = launcher("kubernetes"), []
    cluster.poll_seconds = 0.0
    (fakes / "stays").touch()
    handle = cluster.submit(JobSpec("python train.py", name="a", image="a/b:1"), tmp_path / "launch")
    def interrupted(_line):
        if not fake_clients.seen(fakes, "delete"): raise KeyboardInterrupt
    assert cluster.wait(handle, interrupted, words.append) == 130 and words[-2].endswith("is told to end")
    assert fake_clients.seen(fakes, "delete", "-f", str(tmp_path / "launch/kubernetes.yaml")) == 1
    assert cluster.state(handle) == JobState("cancelled", 143)
    (fakes / "taken").touch()
    with pytest.raises(ValueError, match="the cluster has a job a already: kubectl delete job.batch/a"):
        cluster.submit(handle.job, tmp_path / "launch")


def test_sagemaker(fakes, tmp_path, capsys):
    spec = JobSpec("python train.py", name="a", nodes=2, image="a/b:1", secrets=["KEY_A"])
    job = written(spec, tmp_path / "job.toml")
    where = ["--role", "arn:aws:iam::123456789012:role/Train", "--output", "s3://bucket/out/"]
    assert cli.main(["launch", str(job), "--on", "sagemaker", "--submit"]) == 2
    assert "role must be given" in capsys.readouterr().err and not fake_clients.calls(fakes)
    assert cli.main(["launch", str(job), "--on", "sagemaker", "--submit", *where]) == 0
    cloud, handle = submitted(tmp_path / "job.launches/sagemaker")
    request = json.loads((handle.folder / "sagemaker.json").read_text())
    assert handle.id == request["TrainingJobName"] and request["RoleArn"] == where[1]
    cloud.poll_seconds, lines, words = 0.0, [], []
    assert cloud.wait(handle, lines.append, words.append) == 3 and "exit code: 3" in words[-1]
    assert lines == [f"[algo-{i}] {line}" for i in (1, 2) for line in ("one", "two", "three")], "each once"
    assert SECRET not in str(fake_clients.calls(fakes)) + str(request)


def test_sagemaker_is_stopped(fakes, tmp_path):
    how = dict(role="arn:aws:iam::123456789012:role/Train", output="s3://bucket/out/")
    cloud = launcher("sagemaker", **how)
    handle = cloud.submit(JobSpec("python train.py", image="a/b:1"), tmp_path / "launch")
    assert cloud.cancel(handle).endswith("is told to end") and cloud.state(handle) == JobState("cancelled", 143)
    assert fake_clients.seen(fakes, "stop-training-job", handle.id) == 1


def test_torchrun_waits_for_nodes_as_long_as_lesson_16_says(monkeypatch):
    from torch.distributed.elastic.rendezvous import RendezvousParameters, c10d_rendezvous_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout
    from torch.distributed.launcher.api import LaunchConfig
    assert RendezvousTimeout().join == timedelta(minutes=10)
    waits = []
    monkeypatch.setattr(c10d_rendezvous_backend, "TCPStore", lambda *where, timeout, **how: waits.append(timeout))
    c10d_rendezvous_backend._create_tcp_store(RendezvousParameters("c10d", "10.255.255.1:1", "digits", 2, 2))
    assert waits == [timedelta(minutes=1)], "for the node with the store"
    static = LaunchConfig(2, 2, 8, rdzv_backend="static").rdzv_configs
    assert timedelta(seconds=static["timeout"]) == timedelta(minutes=15)
    lesson = (Path(__file__).parent.parent / "nbs/16_launch.ipynb").read_text(encoding="utf-8")
    assert "agents wait 15 minutes for a missing one" in lesson
    assert "They wait ten minutes for one that does not come" in lesson and "they wait only one minute" in lesson
