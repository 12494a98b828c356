"""Processes of their own that start at once: copies of one that has loaded PyTorch, which takes seconds of a core."""
import multiprocessing
import os
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import torch

from mlinfra.engine.base.fake_tensors import count_devices
from mlinfra.lab.rendezvous import run_together

count_devices()  # before a test that exports, or uses fake tensors: else no copy could train
PYTHON = os.environ.get("MLINFRA_PYTHON", sys.executable)  # has PyTorch in memory, where a session forks (conftest.py)
METHOD = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"


def run_code(*codes, arguments=(), folder=None, environment=None, environments=(), timeout_seconds=120.0):
    "What these programs said and how they ended: side by side, each copied from a process that has done nothing yet."
    with tempfile.TemporaryDirectory() as home:
        scripts = [Path(home, f"code_{n}.py") for n in range(len(codes))]
        for script, code in zip(scripts, codes): script.write_text(code, encoding="utf-8")
        return run_together([(sys.executable, script, *arguments) for script in scripts], forked=True, folder=folder,
                            environment=environment, environments=environments, timeout_seconds=timeout_seconds)


@contextmanager
def twin(function, *arguments):
    "A copy of this process, as a loader's worker is one, in a function of a pipe; it does not outlive the block."
    context = multiprocessing.get_context(METHOD)
    ours, theirs = context.Pipe()
    process = context.Process(target=_alone, args=(function, theirs, *arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the copy does not use
        process.start()
    theirs.close()
    try: yield process, ours
    finally:
        process.kill()
        process.join()
        ours.close()


def _alone(function, *arguments):
    torch.set_num_threads(1)  # a copy has none of the others
    function(*arguments)


def heard(pipe, seconds=60):
    "The next thing that the copy says."
    assert pipe.poll(seconds), "the process says nothing"
    return pipe.recv()
