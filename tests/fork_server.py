"""One fork server of `multiprocessing` for all units of a session: each would start its own, which takes 3 s of a core.

Units fork from the process that starts it, and use it; the server imports this file too, and so the processes that it
forks note what they took for the unit that wanted them.
"""
import gc
import multiprocessing
import os
from importlib import import_module
from multiprocessing import forkserver, process
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "MLINFRA_FORK_SERVER"  # the variable that names the server's folder
SPENT = "MLINFRA_SPENT"         # names the file in which a unit's processes note their processor seconds
PRELOADED = """torch.distributed.launcher.api torch.nn.parallel torch._dynamo torch.distributed.tensor pytest
mlinfra.engine.dist.ranks mlinfra.engine.dist.rank_data mlinfra.engine.checkpoint.checkpointer mlinfra.data_parallel
mlinfra.sharding mlinfra.tensor_parallel mlinfra.pipeline mlinfra.engine.parallel.parallelize""".split()
OWN = ("test_watch", "sampler")  # they look for the server among what a process has started
server = forkserver._forkserver


def start(folder):
    "In the first process."
    Path(folder).mkdir()
    before = dict(os.environ)
    os.environ |= {FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(
        [str(Path(__file__).parent), str(ROOT), *filter(None, [before.get("PYTHONPATH")])])}
    multiprocessing.set_forkserver_preload([Path(__file__).stem])
    try: server.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def join(unit, folder):
    "In the process of a unit, forked from the first."
    if server._forkserver_pid is None: return
    os.environ[SPENT] = process.current_process()._config[SPENT] = f"{folder}/{os.getpid()}"
    if Path(unit).stem in OWN: return leave()
    server.ensure_running = lambda: None


def leave():
    os.close(server._forkserver_alive_fd)
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None


def spent() -> float:
    "Processor seconds of the processes that servers forked for this unit and that have ended."
    notes = Path(os.environ.get(SPENT, ""))
    return sum(map(float, notes.read_text().split())) if notes.is_file() else 0.0


def serve():
    "In the server."
    for name in PRELOADED: import_module(name)
    serve_one = forkserver._serve_one

    def noted(*args):
        try: return serve_one(*args)
        finally:
            with open(process.current_process()._config[SPENT], "a") as notes: notes.write(f"{sum(os.times()[:4])}\n")

    forkserver._serve_one = noted
    with open(Path(folder, "said"), "ab") as words: os.dup2(words.fileno(), 1), os.dup2(words.fileno(), 2)
    gc.collect()
    gc.freeze()


if folder := os.environ.pop(FOLDER, None): serve()
