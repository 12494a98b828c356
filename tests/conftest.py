"""What all tests share: notebooks are tests too, and --processes runs several units of work at a time."""
import gc
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NBS = ROOT / "nbs"
CELL_SECONDS = 600  # a cell of a lesson that takes longer fails
TOGETHER = {  # tests of the browser that share the book, or a JupyterLab of their own; the others share another one
    "test_every_lesson.py": "lessons in the browser",
    "test_book.py": "the book in the browser",
    "test_book_guesses.py": "the book in the browser",
    "test_book_panels.py": "the book in the browser",
    "test_report_page.py": "the book in the browser",
}


def pytest_addoption(parser):
    parser.addoption("--processes", type=int, default=1, help="how many units of tests run at a time (side_by_side.py)")
    parser.addoption("--everything", action="store_true",
                     help="lessons measure as often as a reader's do, and tests marked `rarely` run too")


def pytest_configure(config):
    "What tests solve and guess is not the reader's progress; Ctrl-C is heard in the background too."
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it, and all that it starts
    folder = tempfile.mkdtemp()
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.add_cleanup(gc.unfreeze)
    os.environ["MLINFRA_PROGRESS"] = f"{folder}/progress.json"
    config.pluginmanager.register(Notebooks(), "notebooks of the book")
    if config.option.processes > 1 and not config.option.usepdb:
        from side_by_side import SideBySide
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        config.pluginmanager.register(SideBySide(config, config.option.processes, cores, unit_of, spent_elsewhere,
                                                 unit_begins))
        config.stash[FOLDER] = folder
        if not (config.option.keyword or config.option.collectonly): start_kernels(config)  # while tests are collected


KERNELS, FORK_SERVERS, FOLDER = [], [], pytest.StashKey[str]()


def start_kernels(config):
    "Lessons' kernels are forked from a process that has imported what they import."
    from kernel_server import Kernels, available
    if KERNELS or not available() or FOLDER not in config.stash: return
    start_fork_server(config)
    import fork_server
    KERNELS.append(Kernels(config.stash[FOLDER]).start(fork_server.place()))
    config.add_cleanup(KERNELS[0].close)
    os.environ["MLINFRA_PYTHON"] = KERNELS[0].python


@pytest.fixture
def seeded():
    "One thread, and the first random numbers: each test of a training starts the same."
    import torch
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    "Those that lessons' kernels are forked by, or None where processes cannot be forked like this."
    from kernel_server import Kernels, available
    if KERNELS or not available(): yield KERNELS[0] if KERNELS else None
    else:
        kernels = Kernels(str(tmp_path_factory.mktemp("kernels"))).start()
        yield kernels
        kernels.close()


def start_fork_server(config):
    "Units get their processes from one server."
    if FORK_SERVERS or FOLDER not in config.stash: return
    if "forkserver" not in multiprocessing.get_all_start_methods(): return
    import fork_server
    FORK_SERVERS.append(f"{config.stash[FOLDER]}/fork_server")
    fork_server.start(FORK_SERVERS[0])


def spent_elsewhere():
    "Processor seconds of kernels and ranks that a unit did not start itself."
    found = sum(kernels.cpu_seconds for kernels in KERNELS)
    if FORK_SERVERS: found += importlib.import_module("fork_server").spent()
    return found


def unit_begins(name):
    "In the process of a unit."
    if FORK_SERVERS: importlib.import_module("fork_server").join(name, FORK_SERVERS[0])


def unit_of(item):
    "The name of the unit that a test belongs to, and whether that must not be divided."
    if "browser" in item.path.parts: return TOGETHER.get(item.path.name, "JupyterLab in the browser"), True
    return str(item.path), False


def pytest_collection_modifyitems(config, items):
    "Leave out what runs only when everything is asked for."
    if config.option.everything: return
    left_out = [item for item in items if item.get_closest_marker("rarely")]
    if left_out: config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish(session):
    """What is loaded by now stays: a garbage collector that looks through all of it again takes 0.3 s each time.
    Processes that are forked from this one do not import it again."""
    items, option = session.items, session.config.option
    if option.processes > 1 and items and not option.collectonly:
        if sum(is_lesson(item) for item in items) > 1: start_kernels(session.config)
        if any(isinstance(item, RoomItem) for item in items): import_all(IMPORTED_BY_ROOMS)
        if len({str(item.path) for item in items} & set(map(str, EXPORTING))) > 1:
            import_all(["onnx_registry"])
            sys.modules["onnx_registry"].keep()
        if "torch" in sys.modules:
            import_all(IMPORTED_WITH_TORCH)
            start_fork_server(session.config)
    gc.collect()
    gc.freeze()


EXPORTING = [*NBS.glob("engine/export/*.ipynb"), ROOT / "tests/test_export.py", ROOT / "tests/test_serving.py"]
IMPORTED_BY_ROOMS = ("torch", "pandas", "matplotlib.pyplot", "nbdev.test", "matplotlib_inline.backend_inline")
IMPORTED_WITH_TORCH = ("torch._dynamo", "torch.distributed", "numpy", "pandas", "matplotlib.pyplot")


def import_all(names):
    for name in names: importlib.import_module(name)


def is_lesson(item): return isinstance(item, LessonItem)


# ---- notebooks: lessons run in a kernel, as a reader runs them; engine, lab and views in a process, by nbdev

class Notebooks:
    "Collects the notebooks of the book, beyond those that the browser's tests run."
    def pytest_collect_file(self, file_path, parent):
        if file_path.suffix != ".ipynb" or NBS not in file_path.parents: return None
        place = file_path.relative_to(NBS).parts
        if any(part[0] in "._" for part in place): return None
        if place[0] in ("engine", "lab", "views"): return RoomFile.from_parent(parent, path=file_path)
        if place[:-1] not in ((), ("more",)) or runs_in_the_browser(file_path.stem): return None
        return LessonFile.from_parent(parent, path=file_path)


def runs_in_the_browser(stem):
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from lab import IN_THE_BROWSER, chromium_path
    return stem in IN_THE_BROWSER and bool(chromium_path())


class LessonFile(pytest.File):
    "A notebook that is read."
    def collect(self): yield LessonItem.from_parent(self, name=self.path.name)


class LessonItem(pytest.Item):
    "Its cells, run in a kernel as a reader runs them; what smaller.toml names is run fewer times."
    def runtest(self):
        import nbformat
        from nbclient import NotebookClient
        from smaller import make_smaller
        book = nbformat.read(self.path, 4)
        if not self.config.option.everything: make_smaller(book, self.path.relative_to(NBS).with_suffix("").as_posix())
        if KERNELS: KERNELS[0].used()  # a hook of this file is not called for what lies outside tests/
        where = {"metadata": {"path": str(self.path.parent)}}
        NotebookClient(book, timeout=CELL_SECONDS, resources=where).execute()

    def repr_failure(self, excinfo):
        if type(excinfo.value).__module__.startswith("nbclient"): return str(excinfo.value)  # with the cell
        return super().repr_failure(excinfo)

    def reportinfo(self): return self.path, 0, self.nodeid


class RoomFile(pytest.File):
    "A notebook of an engine area, of the lab or of the views."
    def collect(self): yield RoomItem.from_parent(self, name=self.path.stem)


class RoomItem(pytest.Item):
    "Its cells and assertions, run by nbdev."
    def runtest(self):
        from nbdev.test import test_nb
        before = os.getcwd()
        os.chdir(NBS)
        try: passed, _ = test_nb(self.path, skip_flags=["gpu"], basepath=ROOT)
        finally: os.chdir(before)
        if not passed: raise CellFailed

    def repr_failure(self, excinfo):
        if excinfo.errisinstance(CellFailed): return "a cell failed: its traceback is in the captured output"
        return super().repr_failure(excinfo)

    def reportinfo(self): return self.path, 0, self.nodeid


class CellFailed(Exception): pass
