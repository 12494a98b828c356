"""A machine without ipywidgets: every panel says what to install."""
import json
import re
from functools import cache
from pathlib import Path

import pytest
from copies import run_code

ROOT = Path(__file__).resolve().parent.parent
PANELS = sorted((path.stem, name) for path in (ROOT / "mlinfra/views").glob("*.py")
                for name in re.findall(r"^def (\w+_panel)\(", path.read_text(encoding="utf-8"), flags=re.M))
CALL_EACH = """
import importlib, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ipywidgets": raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
said = {}
for module, panel in json.loads(sys.argv[1]):
    try: getattr(importlib.import_module(f"mlinfra.views.{module}"), panel)()
    except Exception as error: said[panel] = f"{type(error).__name__}: {error}"
    else: said[panel] = "nothing"
print(json.dumps(said))
"""


@cache
def said():
    "What each panel says, called in a process that has no ipywidgets."
    done, = run_code(CALL_EACH, arguments=[json.dumps(PANELS)], folder=ROOT, timeout_seconds=300)
    assert done.code == 0, done.output
    return json.loads(done.output.splitlines()[-1])


@pytest.mark.parametrize("module, panel", PANELS)
def test_a_panel_says_what_to_install(module, panel):
    assert said()[panel] == 'ImportError: panels need ipywidgets: pip install "mlinfra[lab]"'
