"""Panels that live in the book's pages: what they import, and that they are the lessons' own panels."""
import importlib
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import book_live

from mlinfra.engine.ui.live import Desk

PANELS = list(book_live.PANELS)
WHERE = {"memory_panel": "mlinfra.views.memory"}  # a panel that measures, too, has a room above that of its description


@pytest.fixture(scope="module")
def described(): return book_live.describe()


@pytest.fixture(scope="module")
def desk(): return Desk(book_live.makers())


def test_panels_import_nothing_but_the_standard_library(described):
    assert set(described["panels"]) == set(PANELS)
    assert {"mlinfra.engine.ui.live", "mlinfra.views.arithmetic"} <= set(described["modules"])
    assert not {"mlinfra.training", "mlinfra.memory", "mlinfra.precision"} & set(described["modules"])


@pytest.mark.parametrize("module, refused", [("training", "torch"), ("views.workers", "torch")])
def test_another_import_is_refused(monkeypatch, module, refused):
    monkeypatch.setitem(book_live.PANELS, "new_panel", f"{module}:live_new")
    with pytest.raises(SystemExit, match=f"{refused} is not of the standard library"): book_live.describe()


@pytest.mark.parametrize("name", PANELS)
def test_the_lesson_shows_the_same_panel(desk, name):
    module = WHERE.get(name, desk.makers[name].partition(":")[0])
    box, start = getattr(importlib.import_module(module), name)(), desk.panel(name).shown()
    assert start["answer"]["words"] and start["answer"]["picture"].startswith("<svg")
    assert (box.words.value, box.picture.value, box.frame.code) == tuple(
        start["answer"][part] for part in ("words", "picture", "code"))
    texts = {control.description for control in box.controls.values()}
    assert {control["text"] for control in start["controls"].values()} <= texts


@pytest.mark.parametrize("name", PANELS)
def test_any_position_has_an_answer(desk, name):
    "Words without a picture are an error in a sentence; nothing else is raised, whatever the page sends."
    panel, draws = desk.panel(name), random.Random(0)
    controls = panel.shown()["controls"]
    kinds = {"switch": lambda c: draws.random() < 0.5, "number": lambda c: str(draws.randint(1, c["most"])),
             "text": lambda c: draws.choice(["", "1e-9", "x"]), "slider": lambda c: draws.randrange(len(c["words"])),
             "choice": lambda c: draws.randrange(len(c["words"]))}
    for _ in range(12):
        sent = {key: kinds[control["kind"]](control) for key, control in controls.items()}
        answer = json.loads(desk.answer(name, "here", json.dumps(sent)))
        assert answer["picture"].startswith("<svg") or "⚠ " in answer["words"]
        assert set(answer["hidden"]) < set(controls)


def test_the_archive_holds_the_modules_and_their_tables(described, tmp_path):
    book_live.pack(described["modules"], tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive: archive.extractall(tmp_path)
    assert (tmp_path / "mlinfra/views/memory_presets.json").exists()
    code = """import json, sys
sys.path[:1] = [sys.argv[1]]
from mlinfra.engine.ui.live import Desk
desk = Desk(json.loads(sys.argv[2]))
print(json.dumps({name: desk.panel(name).shown() for name in desk.makers}))"""
    out = subprocess.run([sys.executable, "-S", "-E", "-c", code, str(tmp_path), json.dumps(book_live.makers())],
                         capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert json.loads(out.stdout) == described["panels"]


@pytest.mark.parametrize("name, kind", [("ResNet-18, 224 px", ("fp32", True, False)),
                                        ("Transformer, 12 x 768, 512 tokens", ("bf16", False, True))])
def test_presets_are_what_a_trace_finds(name, kind):
    from mlinfra.views.memory import panel_profile, plain_profile
    from mlinfra.views.memory_plan import preset
    assert plain_profile(panel_profile(name, *kind)) == preset(name, *kind), (
        "run mlinfra.views.memory.write_presets() and look at the difference")
