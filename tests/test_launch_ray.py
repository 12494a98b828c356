"""A job by Ray's TorchTrainer with two workers on this machine: a rank is killed, and the job goes on."""
import os
import sys
import tempfile
import time

import psutil
import pytest

from mlinfra.engine.launch.job_spec import JobSpec
from mlinfra.engine.launch.launchers import launcher

pytestmark = [
    pytest.mark.skipif(bool(launcher("ray").why_not()), reason=launcher("ray").why_not()),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="Ray wants a processor for each of two ranks")]

TRAINS = """
import os, sys, time
said = "rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "with", sys.argv[1:], len(os.environ["KEY_A"])
print(*said, flush=True)
if "--resume" in sys.argv: sys.exit(0)
zero = __file__ + ".zero"  # rank 1 waits until rank 0 has printed: Ray ends it as soon as rank 1 is dead
if os.environ["RANK"] == "0": open(zero, "w").close()
while not os.path.exists(zero): time.sleep(0.05)
if os.environ["RANK"] == "1": os.kill(os.getpid(), 9)
time.sleep(1000)
"""


@pytest.fixture
def alone(monkeypatch, tmp_path):
    "A Ray of its own, which leaves nothing in the user's folders."
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:  # sockets: short
        for name in ("RAY_ADDRESS", "RAY_RUNTIME_ENV_HOOK"): monkeypatch.delenv(name, raising=False)
        own = dict(RAY_TMPDIR=folder, HOME=str(tmp_path), RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.2", KEY_A="hush-hush",
                   RAY_AUTH_MODE="disabled", RAY_prestart_worker_first_driver="0")  # workers that nobody would use
        for name, value in own.items(): monkeypatch.setenv(name, value)
        yield


def launched(job, folder):
    "Handle, exit status and lines. Ray gives its own node 30 s to start; a machine that is too busy has another try."
    for _ in range(3):
        ray, lines = launcher("ray"), []
        handle = ray.submit(job, folder)
        status = ray.wait(handle, lines.append)
        if not any("timed out during startup" in line for line in lines): return handle, status, lines
    pytest.skip("Ray itself did not start within the 30 s that it gives its own node, in three tries")


def test_a_killed_rank_is_started_again_and_nothing_is_left(alone, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    job = JobSpec([sys.executable, "-S", str(script)], device="cpu", devices_per_node=2, retries=1, secrets=["KEY_A"],
                 setup=["module() { echo loaded $1; }", "module cuda"])
    handle, status, lines = launched(job, tmp_path / "launch")
    assert status == 0, lines[-20:]
    for rank in range(2):
        for words in ([], ["--resume"]): assert any(f"rank {rank} of 2 with {words} 9" in line for line in lines)
    assert sum("loaded cuda" in line for line in lines) == 4, "before each rank of each attempt"
    assert all("pid=" in line for line in lines if "of 2 with" in line), "Ray says which worker wrote it"
    for path in (tmp_path / "launch").iterdir(): assert b"hush-hush" not in path.read_bytes()
    end = time.monotonic() + 120
    while left := [process for process in psutil.process_iter() if marked(process, handle.id)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def marked(process, word):
    try: return process.environ().get("MLINFRA_LAUNCH") == word and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError): return False
