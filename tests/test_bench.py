"""What `make bench` imports is there, and its tables and marks are tried on the committed results. With --everything
each stage starts and comes to its end: tried in seconds, with figures that are thrown away."""
import ast
import importlib
import sys
from pathlib import Path

import peers
import pytest
import run
import torch
from copies import PYTHON
from lab import chromium_path

BENCH = Path(__file__).parent / "bench"
SOURCES = sorted([*BENCH.glob("*.py"), *BENCH.glob("scripts/*.py")])


def only(table, *names):
    "The entries of a table with these names."
    return lambda: {name: table()[name] for name in names}


def attribute(place):
    "(module or object, name) of a dotted place."
    module, _, name = place.rpartition(".")
    return importlib.import_module(module), name


def kept(place, *names):
    "These entries of the table at `place`."
    return {name: getattr(*attribute(place))[name] for name in names}


SMALLER = {  # stage -> what is smaller in its trial: the place of a constant, and its value or a function that makes it
    "epoch": {"stages.CONTENDERS": ("floor", "mlinfra")},
    "accuracy": {"stages.SEEDS": 1},
    "import": {"stages.IMPORTED": ("mlinfra",), "stages.IMPORTS": 1},
    "decode": {"decode.REPEATS": 1, "decode.CONTENDERS": ("JpegFolder + RandomCropFlip", "RawCache + RandomCropFlip")},
    "doctor": {"patients.SHORT_SECONDS": 2.0,
               "patients.TWENTY": lambda: kept("patients.TWENTY", "transfer: a slow bus")},
    "inference": {"inference.models": lambda: only(importlib.import_module("inference").models, "GluonCNN")},
    "exporting": {"exporting.TRAINED": {"GluonCNN": 1}},
    "precision": {"formats.networks": lambda: first_of("formats.networks"), "formats.STEP_BATCHES": (2, 2),
                  "formats.JUDGED": 20},
    "networks": {"networks.NETWORKS": lambda: getattr(*attribute("networks.NETWORKS"))[:1]},
    "allreduce": {"parallel.WORLDS": (2,), "parallel.SIZES": lambda: list(getattr(*attribute("parallel.ENDS")))},
    "ddp": {"parallel.BATCHES": (64,)},
    "parallelize": {"few_lines.weights_of": lambda: lambda *_: {"w": torch.zeros(1)}},  # test_parallelize runs scripts
    "watching": {"by_tool.COSTS": ("bare", "watch"),
                 "by_tool.BLOCKS": lambda: kept("by_tool.BLOCKS", "0.17 ms step, 1 module"),
                 "speed_cases.CASES": lambda: kept("speed_cases.CASES", "slow collate")},
    "saving": {"saving.TRAININGS": lambda: kept("saving.TRAININGS", "CNN, batch 64"), "saving.EVERY": 2,
               "saving.AROUND": 1, "saving.WIDTH": 16, "saving.find_spec": lambda: lambda name: None},
    "faults": {"checkpoints.TOOLS": ("mlinfra",),
               "checkpoints.FAULTS": lambda: kept("checkpoints.FAULTS", "NaN as best")},
    "serving": {"serving.models": lambda: only(importlib.import_module("serving").models, "GluonCNN"),
                "serving.REQUESTS": {"GluonCNN": ((64, 4, 0.5),)}, "serving.SATURATIONS": 1, "serving.LOADS": (0.7,),
                "serving.REQUESTS_AT_REST": {"GluonCNN": 10}},
    "gains": {"advice.real": lambda: the_first_case(), "advice.CASES": lambda: first_cases(), "advice.EPOCHS": 1,
              "advice.PAGE_STEPS": (100, 200)},
    "browser": {"browser.PANELS": lambda: kept("browser.PANELS", "interact", "overlap"), "browser.PRESSES": 1,
                "browser.WARM_UP": 0},
    "first_picture": {"browser.FIRST_PANELS": ("index",)},
}


IN_THE_BROWSER = ("browser", "first_picture")


def first_cases():
    import advice
    return advice.CASES[:1]


def the_first_case():
    import advice
    return advice.trainer(advice.CASES[0], 1)


def first_of(place):
    found = getattr(*attribute(place))()[:1]
    return lambda: found


@pytest.fixture
def small(monkeypatch):
    "Makes a stage small; installs nothing, compiles nothing, and has processes that start at once."
    def small_(stage):
        for place, value in SMALLER.get(stage, {}).items():
            monkeypatch.setattr(*attribute(place), value() if callable(value) else value)
        monkeypatch.setattr(peers, "INSTALL", False)
        monkeypatch.setattr(sys, "executable", PYTHON)
        monkeypatch.setattr(torch, "compile", lambda model, **_options: model)

    return small_


@pytest.mark.rarely
@pytest.mark.parametrize("stage", [name for name in run.STAGES if name not in IN_THE_BROWSER])
def test_a_stage_starts_and_ends(stage, small, capfd):
    small(stage)
    for key, part in run.STAGES[stage].parts.items():
        found = part(1, 2)
        assert found or "gpuprof" in key or "TraceML" in key or "no CUDA device" in capfd.readouterr().out, key
        run.rounded(found)


@pytest.mark.rarely
@pytest.mark.browser
@pytest.mark.skipif(chromium_path() is None, reason="there is no Chromium")
@pytest.mark.parametrize("stage", IN_THE_BROWSER)
def test_a_stage_in_the_browser_starts_and_ends(stage, small):
    small(stage)
    found = run.STAGES[stage].parts[stage](1, 2)
    assert found and run.STAGES[stage].marks({stage: found})


def test_each_patient_can_be_made():
    import patients
    for name, patient in patients.TWENTY.items(): assert len(patient.make()) == 2, name


def test_committed_results_have_their_tables_and_marks():
    for stage in run.STAGES.values():
        results = run.load(stage.file(run.FULL))
        if stage.parts.keys() <= results.keys(): assert all(map(str, stage.marks(run.with_shares(results))))
        for key in stage.parts.keys() & results.keys(): assert stage.show(results[key])


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_is_imported_from_the_package_is_there(path):
    "Also inside functions, and in those that run beside peers that are not installed here."
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != "mlinfra": continue
        module = importlib.import_module(node.module)
        for name in node.names:
            if not hasattr(module, name.name): importlib.import_module(f"{node.module}.{name.name}")
