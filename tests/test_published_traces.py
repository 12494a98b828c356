"""The figures of published traces are those that the reader takes from the files, where these are at hand."""
import importlib.util
import os
from pathlib import Path

import pytest

from mlinfra.lab.published_traces import ORIGINS, trace_figures

ROOT = Path(__file__).parents[1]
FOLDER = os.environ.get("MLINFRA_TRACES")


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("published_traces_tool", ROOT / "tools/published_traces.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not FOLDER, reason="the trace files are not part of the package: MLINFRA_TRACES names their folder")
def test_the_figures_are_those_of_the_files(tool):
    figures = {name: trace_figures(Path(FOLDER) / f"{name}.json.gz") for name in ORIGINS}
    assert tool.text(figures) == tool.FIGURES.read_text(encoding="utf-8"), "python tools/published_traces.py FOLDER"


def test_the_figures_are_small(tool): assert tool.FIGURES.stat().st_size < 80_000
