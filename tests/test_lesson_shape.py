"""The shape of a lesson: question first, a result early, guesses before answers, a module that exports little."""
import ast
import json
import re
import sys
from pathlib import Path

import nbformat
import pytest
from smaller import SMALLER, make_smaller

from mlinfra.engine.ui.reader_progress import LESSONS as CONTENTS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from notebooks import public_names

NBS = Path(__file__).resolve().parent.parent / "nbs"
LESSONS = sorted(path.stem for path in NBS.glob("[0-9][0-9]_*.ipynb") if path.stem[:2] not in ("98", "99"))


def cells_of(name):
    "A lesson's cells without the one that installs where nothing is installed (tests/test_elsewhere.py)."
    cells = json.loads((NBS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["id"] != "install"]


def source(cell): return "".join(cell["source"])
def is_hidden(cell): return cell["metadata"].get("jupyter", {}).get("source_hidden", False)
def is_open_code(cell): return cell["cell_type"] == "code" and not is_hidden(cell)


def only_imports(cell):
    text = "\n".join(line for line in source(cell).splitlines() if not line.startswith("#|"))
    return all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.parse(text).body)


def shows_figures(cell):
    "Whether a cell's committed output is a number, a table or a picture."
    return any(output["output_type"] in ("stream", "execute_result", "display_data") for output in cell["outputs"])


def problems(cells):
    "What is not as it should be, a line each."
    code, words = [c for c in cells if c["cell_type"] == "code"], source(cells[0])
    if not 35 <= len(cells) <= 95: yield f"{len(cells)} cells, not 35 to 95"
    if not (words.startswith("# ") and words.splitlines()[0].rstrip().endswith("?")): yield "the title is no question"
    if not re.search(r"\.ipynb\).*before", words): yield "no link to the lesson before"
    if "minutes" not in words: yield "no minutes"
    if ".ipynb)" not in source(cells[-1]): yield "the last cell does not lead on"
    first = next(cell for cell in code if "predict(" not in source(cell))  # a question may come before it
    if "_panel(" not in source(first): yield "the first code cell shows no panel"
    if not any(kind.startswith("image/") for output in first["outputs"] for kind in output.get("data", {})):
        yield "the panel has no still picture"
    for cell in code:
        start = source(cell).strip()[:50]
        if only_imports(cell) and not is_hidden(cell) and source(cell).strip(): yield f"imports in the open: {start!r}"
        if start.startswith("#| exercise\n") and not is_hidden(cell): yield f"a check in the open: {start!r}"
        if start.startswith("#| exercise-stub") and is_hidden(cell): yield f"a stub is hidden: {start!r}"
        if re.search(r"(^plot_\w+\(.*\)|\.figure)$", source(cell).strip().split("\n")[-1]) and not shows_figures(cell):
            yield f"a picture was not drawn: {start!r}"
    opened = [cell for cell in cells if is_open_code(cell)]
    if not any(map(shows_figures, opened[:10])): yield "no result within ten open code cells"
    if "predict(" not in "".join(map(source, code)): yield "no guess"


def lengths(cells):
    "Cells that a reader sees, and words of prose."
    prose = [source(cell) for cell in cells if cell["cell_type"] == "markdown"]
    return sum(not is_hidden(cell) for cell in cells), sum(len(text.split()) for text in prose)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_short(name):
    shown, words = lengths(cells_of(name))
    assert shown <= 60 and words <= 2_400, (shown, words)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_its_shape(name): assert list(problems(cells_of(name))) == []


def contents_of(cells):
    "Title, minutes, number of guesses and of exercises, as they stand in the lesson."
    title, minutes = re.search(r"^# \d\d ([\w ]+)[:?]", source(cells[0])), re.search(r"(\d+) minutes", source(cells[0]))
    code = "\n".join(source(cell) for cell in cells if cell["cell_type"] == "code")
    guesses = set(re.findall(r'predict\(\s*"([\w.]+)"', code))
    return title and title[1], minutes and int(minutes[1]), len(guesses), code.count("#| exercise-stub")


@pytest.mark.parametrize("name", LESSONS)
def test_the_table_of_contents_tells_what_a_lesson_holds(name):
    lesson = CONTENTS[name[:2]]
    assert contents_of(cells_of(name)) == (lesson.title, lesson.minutes, lesson.guesses, lesson.exercises)
    row = next(line for line in "".join(map(source, cells_of("index"))).splitlines() if f"({name}.ipynb)" in line)
    assert row.startswith(f"| [{name[:2]} {lesson.title}]({name}.ipynb) | {lesson.minutes} |")


@pytest.mark.parametrize("before, after", list(zip(["index", *LESSONS], LESSONS)))
def test_a_lesson_leads_to_the_next(before, after):
    assert f"({before}.ipynb)" in source(cells_of(after)[0]) and "comes before" in source(cells_of(after)[0])
    assert before == "index" or f"({after}.ipynb)" in source(cells_of(before)[0])
    assert before == "index" or f"({after}.ipynb)" in source(cells_of(before)[-1])


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_exports_little(name):
    module = NBS.parent / "mlinfra" / f"{name[3:]}.py"
    text = module.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert len(public_names(ast.parse(text))) <= 20


def test_a_lesson_out_of_shape_is_noticed():
    cells = cells_of("08_doctor")
    imports = dict(cell_type="code", source="import os", metadata={}, outputs=[])
    picture = dict(imports, source="plot_samples(seen).figure")
    found = "; ".join(problems([*cells[1:], *cells[:1], picture, imports] + [imports] * 90))
    for words in ("a picture was not drawn: 'plot_samples", "not 35 to 95", "no question", "no minutes",
                  "does not lead on", "imports in the open"):
        assert words in found


def test_what_runs_smaller_in_tests_stands_in_its_notebook():
    for name in SMALLER: make_smaller(nbformat.read(NBS / f"{name}.ipynb", 4), name)
