"""Arithmetic on other processors: the engine rooms' equalities hold with narrower vectors, with one thread and, several
rooms at a time, with more busy threads than cores. With this machine's own vectors `make test` runs the same rooms."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ARITHMETIC = """crops saved_tensors transformer autocast evaluation step_executor drift worker_sweep casting
recompute rank_step sync_batch_norm zero_blocks stages layer_plans tensor_training""".split()


def processor(instructions, onednn, mkl, threads):
    "The environment in which torch, oneDNN and MKL compute as on a processor with these instructions."
    return dict(ATEN_CPU_CAPABILITY=instructions, ONEDNN_MAX_CPU_ISA=onednn, MKL_ENABLE_INSTRUCTIONS=mkl,
                OMP_NUM_THREADS=str(threads))


def check_rooms(environment, at_a_time=1):
    "The rooms' cells and assertions, run by nbdev in processes of their own."
    command = [Path(sys.executable).with_name("nbdev_test"), "--path", "nbs", "--n_workers", str(at_a_time),
               "--file_re", rf"^({'|'.join(ARITHMETIC)})\.ipynb"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.rarely
def test_equalities_hold_with_narrow_vectors_and_one_thread(): check_rooms(processor("default", "SSE41", "SSE4_2", 1))


def test_equalities_hold_with_wider_vectors_and_more_threads_than_cores():
    check_rooms(processor("avx2", "AVX2", "AVX2", 2), at_a_time=1 + (os.cpu_count() or 1) // 2)


def test_every_room_of_arithmetic_is_there():
    found = [path.stem for room in ("engine", "lab") for path in (ROOT / "nbs" / room).rglob("*.ipynb")]
    assert set(found).issuperset(ARITHMETIC)
