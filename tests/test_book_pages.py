"""How the book is made: what is staged of a notebook, the reference from docments, the checks of the built pages."""
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import book_api  # noqa: E402
import book_check  # noqa: E402
import book_pages  # noqa: E402
import book_slides  # noqa: E402
import book_stage  # noqa: E402

SVG = f'<svg width="700" style="max-width:100%">{book_stage.WHITE}<text>hi</text></svg>'


def code(source, *outputs, hidden=False):
    cell = nbformat.v4.new_code_cell(source, outputs=list(outputs))
    if hidden: cell.metadata["jupyter"] = {"source_hidden": True}
    return cell


def shown(**data):
    return nbformat.v4.new_output("display_data", {key.replace("_", "/", 1): value for key, value in data.items()})


def picture(): return nbformat.v4.new_output("display_data", {"image/svg+xml": SVG, "text/plain": "Card()"})


def page(tmp_path, *cells, name="01_one"):
    path = tmp_path / f"{name}.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), path)
    return book_stage.read_page(path)


def words(text): return nbformat.v4.new_markdown_cell(text)


def staged(tmp_path, *cells, live=()):
    stager = book_stage.Stager(frozenset(live))
    return stager.notebook(page(tmp_path, words("# 01 One: why?"), *cells))["cells"][1:], stager


# ---- cells

def test_hidden_cells_and_imports_are_folded_and_open_ones_are_not(tmp_path):
    cells, _ = staged(tmp_path, code("check()", hidden=True), code("import os\nfrom a import b"), code("x = 1"),
                      code("#| hide\nx = 2"))
    assert [cell["metadata"]["tags"] for cell in cells] == [["hide-input"], ["hide-input"], [], ["remove-input"]]


def test_what_only_a_kernel_needs_is_left_out(tmp_path):
    install = code("install()")
    install["id"] = "install"
    cells, _ = staged(tmp_path, install, code("#| default_exp one"), words("<!-- only in JupyterLab -->\nPress."),
                      code("#| export\nx = 1"))
    assert [cell["source"] for cell in cells] == ["x = 1"]


def test_nothing_is_executed_and_outputs_stay(tmp_path):
    cells, _ = staged(tmp_path, code("raise SystemExit", nbformat.v4.new_output("stream", text="7 ms\n")))
    assert cells[0]["outputs"][0]["text"] == "7 ms\n"


def test_a_panel_has_a_place_with_its_still_picture(tmp_path):
    cells, stager = staged(tmp_path, code("views.queue_panel(3)", picture()))
    made = cells[0]["outputs"][0]["data"]["text/html"]
    assert 'data-panel="queue_panel"' in made and 'data-args="3"' in made and "<text>hi</text>" in made
    assert book_stage.WHITE not in made  # it follows the page's theme
    assert [panel for _, _, panel, _ in stager.shown] == ["queue_panel"]
    assert not any("live.js" in cell["source"] for cell in cells)


def test_a_page_with_a_live_panel_asks_for_its_script(tmp_path):
    cells, _ = staged(tmp_path, code("queue_panel()", picture()), live=["queue_panel"])
    assert '<script src="_static/live/live.js">' in cells[-1]["source"]


def test_a_panel_without_a_picture_says_what_it_needs(tmp_path):
    cells, _ = staged(tmp_path, code("queue_panel()"))
    assert "needs a kernel" in cells[0]["outputs"][0]["data"]["text/html"]


def test_every_panel_in_the_lessons_has_a_still_picture():
    missing = [f"{lesson.name}: {section.cell['source'][:60]}" for lesson in book_stage.lesson_pages()
               for section in lesson.sections if section.cell["cell_type"] == "code"
               and book_stage.panel_of(section.cell["source"]) and section.cell["outputs"]
               and not any(book_stage.picture_html(o.get("data", {})) for o in section.cell["outputs"])]
    assert missing == []


def test_a_guess_becomes_a_question_and_its_answer_is_folded(tmp_path):
    reveal = shown(text_html="<details><summary>Lock your guess, then run this cell again.</summary>8</details>")
    cells, _ = staged(tmp_path, code('predict("01.x", "How *many*?", [1, 2], 1, "ms")'), code("reveal(8)", reveal),
                      code('predict("01.y", "How far?", list(range(n)), 1)'))
    assert cells[0]["source"] == ":::{admonition} Guess first\n:class: guess\nHow \\*many\\*?\n\n1 · 2 ms\n:::"
    assert '<details class="answer"><summary>The answer</summary>8' in cells[1]["outputs"][0]["data"]["text/html"]
    assert cells[2]["source"].startswith("predict(")  # its options are not plain figures


def test_links_to_rooms_lead_to_their_section(tmp_path):
    cells, _ = staged(tmp_path, words("[a](engine/serve/worker_server.ipynb), [b](../docs/house.md), "
                               "[c](02_two.ipynb#x)"))
    assert cells[0]["source"] == "[a](api/engine.md#engine-serve-worker_server), [b](house.md), [c](02_two.ipynb#x)"


@pytest.mark.parametrize("title, name", [("Is it true?", "Is-it-true?"), ("A `b` [c](d)", "A-b-c"), ("M/D/1", "M/D/1")])
def test_a_heading_is_named_as_jupyterlab_does(title, name): assert book_stage.anchor(book_stage.plain(title)) == name


def test_the_glossary_leads_to_the_section_that_teaches_a_word(tmp_path):
    lesson = page(tmp_path, words("# 01 One\n\nA batch."),
                  words("## Many at once\n\nA [**batch**](glossary.ipynb#batch)."),
                  words("## Later\n\nA batch and a straggler."))
    glossary = page(tmp_path, words("## B\n\n### batch\n\nSamples. [01 One](01_one.ipynb)\n\n### straggler\n\n"
                                    "Late. [01 One](01_one.ipynb)"), name="glossary")
    made = book_stage.glossary_links(glossary, [lesson]).sections[0].cell["source"]
    assert made.count("(01_one.ipynb#Many-at-once)") == 1 and made.count("(01_one.ipynb#Later)") == 1


# ---- the reference

MODULE = '''
from dataclasses import dataclass
__all__ = ["wait", "Plan"]
def wait(
    rate:float,         # requests a second
    *rest:int,
    size:int=4,         # samples in a batch
    words=tuple(i for i in (1, 2)),
) -> float:             # seconds
    "How long a request waits."
    return 1 / rate     # not a docment

@dataclass
class Plan:
    "A plan."
    a:int       # ranks
    b:int=2
    def cost(self, price:float, hours:float) -> float: return price  # dollars
    @property
    def total(self) -> int:
        "All of it."
        return 1
'''


@pytest.fixture
def entries(tmp_path, monkeypatch):
    monkeypatch.setattr(book_api, "ROOT", tmp_path)
    (tmp_path / "one.py").write_text(MODULE)
    return {entry.name: entry for entry in book_api.entries(tmp_path / "one.py")}


def test_docments_become_rows(entries):
    wait = entries["wait"]
    assert wait.signature == "(rate, *rest, size=4, words=...)"
    assert [(r.name, r.type, r.words) for r in wait.rows[:3]] == [
        ("rate", "float", "requests a second"), ("rest", "int", ""), ("size", "int", "samples in a batch")]
    assert (wait.returns, wait.holds, wait.words) == ("float", "seconds", "How long a request waits.")


def test_a_class_has_fields_and_documented_members(entries):
    plan = entries["Plan"]
    assert plan.signature == "(a, b=2)" and plan.rows[0].words == "ranks"
    assert [(m.name, m.kind) for m in plan.members] == [("total", "property")]  # `cost` says nothing


def test_every_public_name_of_the_lessons_is_in_the_reference():
    for lesson in book_stage.lesson_pages():
        path = ROOT / "mlinfra" / f"{lesson.name[3:]}.py"
        if not path.exists(): continue
        public = [name for name in book_api.read_module(path).public if not name.startswith("_")]
        assert {entry.name for entry in book_api.entries(path)} == set(public), path.name


def test_each_panel_has_a_question_for_its_title():
    titles = book_pages.panel_titles()
    assert len(titles) > 25
    assert {name for name, title in titles.items() if not title.endswith("?")} <= {"progress_panel"}


# ---- pages

def test_the_teachers_page_is_filled():
    lessons = book_stage.lesson_pages()
    text = book_pages.filled((ROOT / "docs" / "teachers.md").read_text(), lessons)
    assert re.findall(r"\{[a-z]+(?::[\d,]+)?\}", text) == []
    assert "50 |" in text and "cores" in text


def test_twenty_questions_each_with_a_section():
    parts = (ROOT / "docs" / "questions.md").read_text().split("\n## ")[1:]
    assert len(parts) >= 20
    for part in parts: assert re.search(r"\]\(\d\d_\w+\.ipynb#", part), part.splitlines()[0]


def test_each_command_in_the_docs_exists(capsys):
    from mlinfra.cli import main
    with pytest.raises(SystemExit): main(["--help"])
    known = set(re.findall(r"^    (\w+) ", capsys.readouterr().out, flags=re.M))
    text = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert {"sweep", "doctor"} <= set(re.findall(r"`mlinfra (\w+)", text)) <= known


def test_slides_have_the_question_the_pictures_and_the_guesses(tmp_path):
    lesson = page(tmp_path, words("# 01 One: why so slow?\n\n*Before.*\n\nIt is slow. Why?"),
                  code("queue_panel()", picture()), words("## Fast"),
                  code('predict("k", "How <many>?", [1, 2], 1, "ms")'),
                  code("plot()", picture()), words("It grows. And more."))
    made = list(book_slides.slides(lesson))
    assert len(made) == 3 and "Why so slow?" in made[0] and "It is slow. Why?" in made[0] and "<svg" in made[0]
    assert "How &lt;many&gt;?" in made[1] and "<h2>Fast</h2>" in made[1]
    assert "<svg" in made[2] and "It grows." in made[2]


# ---- the checks of the built book: each can fail

GOOD = {
    "index.html": '<h1 id="top">Hi</h1><a href="a/b.html#x">b</a><a href="https://example.org/x?y=1">out</a>'
                  '<link rel="stylesheet" href="s.css"><link rel="canonical" href="https://example.org/">'
                  '<img src="p.png">',
    "a/b.html": '<p id="x"><a href="../index.html#top">up</a></p><style>p { background: url(../p.png) }</style>',
    "s.css": "p { background: url('p.png'); } q { background: url(data:image/png;base64,AA) }",
    "p.png": "",
}


def problems(tmp_path, **changed):
    for name, text in (GOOD | changed).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return book_check.problems(tmp_path)


def test_a_good_book_passes(tmp_path): assert problems(tmp_path) == ([], 5, 1)


@pytest.mark.parametrize("file, text, says", [
    ("a/b.html", '<p id="x"><a href="../index.html#bottom">', "leads to no place: ../index.html#bottom"),
    ("a/b.html", '<p id="x"><a href="gone.html">', "leads to no file: gone.html"),
    ("a/b.html", '<p id="x"><a href="../../etc/passwd">', "leads out of the book"),
    ("a/b.html", '<p id="x"><a href="http://exa mple.org">', "has a character that no address has"),
    ("a/b.html", '<p id="x"><a href="https://nohost">', "names no host"),
    ("a/b.html", '<p id="x"><script src="https://cdn.org/x.js">', "fetches https://cdn.org/x.js from another host"),
    ("a/b.html", '<p id="x"><img srcset="//cdn.org/x.png 2x">', "fetches //cdn.org/x.png from another host"),
    ("a/b.html", '<p id="x"><link rel="preconnect" href="https://fonts.org">', "fetches https://fonts.org"),
    ("a/b.html", '<p id="x"><style>@import "https://fonts.org/f.css";</style>', "fetches https://fonts.org/f.css"),
    ("a/b.html", '<p id="x" style="background: url(http://a.org/b.png)">', "fetches http://a.org/b.png"),
    ("s.css", "@font-face { src: url(https://fonts.org/f.woff) }", "fetches https://fonts.org/f.woff"),
    ("s.css", "p { background: url(q.png) }", "leads to no file: q.png"),
])
def test_what_is_wrong_is_said(tmp_path, file, text, says):
    found, _, _ = problems(tmp_path, **{file: text})
    assert any(says in line and line.startswith(file) for line in found), found
