"""Arithmetic on other processors: the engine rooms' equalities hold with narrower vectors, with one thread and with two
beside processes that keep every core busy. With this machine's own vectors `make test` runs the same rooms, several at
once, so that they have busy processes beside them there."""
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
ARITHMETIC = """crops saved_tensors transformer autocast evaluation step_executor drift worker_sweep casting
recompute rank_step sync_batch_norm zero_blocks stages layer_plans tensor_training""".split()


def processor(instructions, onednn, mkl, threads):
    "The environment in which torch, oneDNN and MKL compute as on a processor with these instructions."
    return dict(ATEN_CPU_CAPABILITY=instructions, ONEDNN_MAX_CPU_ISA=onednn, MKL_ENABLE_INSTRUCTIONS=mkl,
                OMP_NUM_THREADS=str(threads))


def check_rooms(environment):
    "The rooms' cells and assertions, run by nbdev in a process of their own."
    command = [Path(sys.executable).with_name("nbdev_test"), "--path", "nbs", "--n_workers", "1",
               "--file_re", rf"^({'|'.join(ARITHMETIC)})\.ipynb"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_equalities_hold_with_narrow_vectors_and_one_thread(): check_rooms(processor("default", "SSE41", "SSE4_2", 1))


def test_equalities_hold_with_wider_vectors_and_two_threads_beside_busy_processes():
    with ExitStack() as running:
        for _ in range(psutil.cpu_count() or 1):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            running.callback(busy.wait)
            running.callback(busy.kill)
        check_rooms(processor("avx2", "AVX2", "AVX2", 2))


def test_every_room_of_arithmetic_is_there():
    found = [path.stem for room in ("engine", "lab") for path in (ROOT / "nbs" / room).rglob("*.ipynb")]
    assert set(found).issuperset(ARITHMETIC)
