"""How the tests share processes: those of a file stay together, and so do all that need the browser."""
import gc
import os
import signal
import tempfile

import pytest


def pytest_configure(config):
    "What tests solve and guess is not the reader's progress; Ctrl-C is heard in the background too."
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it, and all that it starts
    folder = tempfile.TemporaryDirectory()
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(gc.unfreeze)
    os.environ["MLINFRA_PROGRESS"] = f"{folder.name}/progress.json"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    "The browser's tests, the longest row, come first, then the lessons."
    items.sort(key=lambda item: 0 if "browser" in item.path.parts else 1 if item.path.suffix == ".ipynb" else 2)


def pytest_collection_finish():
    "What is loaded by now stays: a garbage collector that looks through all of it again takes 0.3 s each time."
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config, log):
    "One JupyterLab for all browser tests, so one process for them; fixtures of a module are made once."
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.split("::")[0]
            return "tests/browser" if path.startswith("tests/browser/") else path

    return ByFile(config, log)
