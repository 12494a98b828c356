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
APART = "MLINFRA_APART"         # set in a unit that starts a server of its own
PRELOADED = """torch.distributed.launcher.api torch.nn.parallel torch._dynamo torch.distributed.tensor pytest
mlinfra.engine.dist.ranks mlinfra.engine.dist.rank_data mlinfra.engine.checkpoint.checkpointer mlinfra.data_parallel
mlinfra.sharding mlinfra.tensor_parallel mlinfra.pipeline mlinfra.engine.parallel.parallelize""".split()
OWN = ("test_watch", "sampler",          # look for the server among what a process has started
       "16_waiting", "21_checkpoint")     # show what a server is good for
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


def place() -> tuple[str, int]:
    "What `use` is told: the server's address, and a descriptor that it lives as long as."
    return server._forkserver_address, server._forkserver_alive_fd


def join(unit, folder):
    "In the process of a unit, forked from the first."
    os.environ[SPENT] = f"{folder}/{os.getpid()}"
    if Path(unit).stem not in OWN: return use(*place())
    os.environ[APART] = "yes"
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None


def use(address, alive):
    "Get processes from this server."
    if APART in os.environ: return
    server._forkserver_address, server._forkserver_alive_fd = address, alive
    server.ensure_running = lambda: None
    process.current_process()._config[SPENT] = os.environ[SPENT]


def spent() -> float:
    "Processor seconds of the processes that servers forked for this unit and that have ended."
    notes = Path(os.environ.get(SPENT, ""))
    return sum(map(float, notes.read_text().split())) if notes.is_file() else 0.0


def serve():
    "In the server."
    words = open(Path(folder, "said"), "ab")  # now: a short run of tests may be over before all is imported
    for name in PRELOADED: import_module(name)
    serve_one = forkserver._serve_one

    def noted(*args):
        try: return serve_one(*args)
        finally:
            with open(process.current_process()._config[SPENT], "a") as notes: notes.write(f"{sum(os.times()[:4])}\n")

    forkserver._serve_one = noted
    os.dup2(words.fileno(), 1), os.dup2(words.fileno(), 2)
    words.close()
    gc.collect()
    gc.freeze()


if folder := os.environ.pop(FOLDER, None): serve()
