"""Every exercise's stub fails its check and its solution passes, run from the notebooks as readers have them."""
import ast
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

NBS = Path(__file__).parents[1] / "nbs"
sys.path.append(str(NBS))  # for the folder of solutions
CHAPTERS = [path for path in sorted(NBS.glob("[0-9][0-9]_*.ipynb")) if path.name[:2] not in ("00", "98", "99")]
CALL = re.compile(r"^(check_\w+)\((\w+)\)$", re.M)


def code_cells(path):
    "Their sources; the cell that installs where nothing is installed is no Python."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == "code" and c["id"] != "install"]


def only_imports(source):
    return all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.parse(source).body)


def exercises(path):
    "A namespace with the chapter's names and checks, and (check, attempt, stub's source) of each exercise."
    module = importlib.import_module(f"mlinfra.{path.stem[3:]}")
    names, found = dict(vars(module)), []
    for source in code_cells(path):
        if source.startswith("#| exercise\n") or (not source.startswith("#|") and only_imports(source)):
            exec(source, names)
        if source.startswith("#| exercise-stub"):
            check, attempt = CALL.search(source).groups()
            found.append((check, attempt, source))
    return names, found


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_there_are_three_exercises(path):
    assert len(exercises(path)[1]) >= 3


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_stubs_fail_and_solutions_pass(path):
    names, found = exercises(path)
    solutions = importlib.import_module(f"solutions.ch{path.stem}")
    for check, attempt, stub in found:
        exec(stub, names)
        assert repr(names[check](names[attempt])).startswith("to do: "), f"{attempt}, a stub, counts as tried"
        verdict = names[check](getattr(solutions, attempt))
        assert verdict, f"the solution of {attempt} fails: {verdict}"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_notebooks_hold_no_solution(path):
    for _check, attempt, stub in exercises(path)[1]:
        assert "...  # your code" in stub, f"{attempt} is not a stub"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_each_assertion_says_what_is_wrong(path):
    checks = [ast.parse(text) for text in code_cells(path) if text.startswith("#| exercise\n")]
    mute = [ast.unparse(node) for check in checks for node in ast.walk(check)
            if isinstance(node, ast.Assert) and node.msg is None]
    assert mute == [], "a reader whose attempt fails it sees nothing but AssertionError"
