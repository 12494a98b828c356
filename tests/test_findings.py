"""Every sentence that a lesson may conclude with is tried with figures that choose it.

`tests/findings/lesson_NN.py` holds CASES: the id of a cell -> a case for each sentence, as (names that the call of
`finding` reads, words that its sentence must hold). Names of the lesson's cells are set to figures of the test.
"""
import ast
import html
import importlib.util
import json
import re
from pathlib import Path

import pytest

from mlinfra.engine.ui.conclusions import finding

HERE = Path(__file__).parent
TRIED = sorted((HERE / "findings").glob("lesson_*.py"))


def findings_of(number):
    "The calls of `finding` in a lesson's cells that choose by a condition: a cell's id and its calls."
    (path,) = (HERE.parent / "nbs").glob(f"{number}_*.ipynb")
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "finding(" not in source: continue
        lines = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("!", "%")))
        calls = [node for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Call)
                 and isinstance(node.func, ast.Name) and node.func.id == "finding"
                 and any(word.arg == "otherwise" for word in node.keywords)]
        if calls: yield cell["id"], calls


def chosen(call, names):
    "Which of a call's sentences the figures choose, counted from 0, and how it reads."
    picked = []
    def choose(*branches, otherwise):
        said = finding(*branches, otherwise=otherwise)
        picked.append((next((n for n, (holds, _) in enumerate(branches) if holds), len(branches)), str(said)))
    eval(compile(ast.Expression(call), "<a finding>", "eval"), dict(names, finding=choose))
    return picked[0]


def cases_of(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CASES


@pytest.mark.parametrize("path", TRIED, ids=lambda path: path.stem)
def test_each_sentence_is_chosen_by_some_figures(path):
    cases, number = cases_of(path), path.stem.removeprefix("lesson_")
    cells = dict(findings_of(number))
    assert cases.keys() == cells.keys(), "a case for each cell that concludes, and no other"
    for cell, calls in cells.items():
        seen = set()
        for names, words in cases[cell]:
            told = [(n, *chosen(call, names)) for n, call in enumerate(calls)]
            assert any(words in said for _, _, said in told), (cell, words, [said for *_, said in told])
            seen |= {(n, branch) for n, branch, _ in told}
        every = {(n, branch) for n, call in enumerate(calls) for branch in range(len(call.args) + 1)}
        assert seen == every, f"cell {cell}: no case chooses {sorted(every - seen)} (call, sentence)"


@pytest.mark.parametrize("path", sorted((HERE.parent / "nbs").rglob("*.ipynb")), ids=lambda path: path.stem)
def test_a_page_shows_the_words_of_its_text(path):
    "A saved conclusion is there twice, as HTML and as text: whoever changes one must change the other."
    def bare(text): return re.sub(r"[\s`*]+", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for data in (output.get("data", {}) for output in cell.get("outputs", ())):
            text = bare("".join(data.get("text/plain", "")))
            for shown in re.findall(r'<p class="mlinfra-finding.*?</p>', "".join(data.get("text/html", "")), re.S):
                words = html.unescape(re.sub(r"<[^>]+>", "", shown))
                assert bare(words) in text, f"cell {cell['id']} shows: {words}"
