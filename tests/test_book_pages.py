"""How the book is made: what is staged of a notebook, the reference from docments, the checks of the built pages."""
import html
import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

from mlinfra.engine.ui.reader_progress import LESSONS

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import book_api  # noqa: E402
import book_check  # noqa: E402
import book_live  # noqa: E402
import book_pages  # noqa: E402
import book_pdf  # noqa: E402
import book_slides  # noqa: E402
import book_stage  # noqa: E402

SVG = f'<svg width="700" style="max-width:100%"><text>hi</text></svg>'


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


CARD = '<div class="mlinfra-guess" data-key="01.x" data-options="[1, 2]" data-start="1" data-unit="ms">How many?</div>'


def shown_html(cell): return cell["outputs"][-1]["data"]["text/html"]


def test_a_question_is_the_card_that_the_notebook_saved(tmp_path):
    cells, stager = staged(tmp_path,
                           code('predict("01.x", f"How {n}?", list(range(n)), 1, "ms")', shown(text_html=CARD)),
                           code('n = 2\npredict("01.x",\n    f"How {n}?", [n], 1)\nprint(n)', shown(text_html=CARD)))
    assert shown_html(cells[0]) == CARD.replace("<div ", '<div id="guess-01.x" ')
    assert cells[0]["metadata"]["tags"] == ["remove-input"] and stager.asked == [("01_one", "01.x")] * 2
    assert cells[1]["source"] == "n = 2\nprint(n)" and cells[1]["metadata"]["tags"] == []


def test_an_output_leads_to_the_book_and_says_nothing_of_running_it(tmp_path):
    saved = CARD.replace("How many?", 'How <a href="glossary.ipynb#step">many</a>, <a href="02_two.ipynb">02</a>?'
                         '<div class="mlinfra-run" style="x">Run this cell.</div>')
    stager = book_stage.Stager(words={"step": "One &#34;a&#34;."})
    cell = stager.notebook(page(tmp_path, code('predict("01.x", q, o, 1)', shown(text_html=saved))))["cells"][0]
    assert 'How <a href="glossary.html#step" title="One &#34;a&#34;.">many</a>, <a href="02_two.html">02</a>?</div>' \
        in shown_html(cell)


def test_a_question_over_a_panel_keeps_the_panel(tmp_path):
    asks = "display(predict('01.x', 'How?', [1, 2], 1))\nqueue_panel()"
    cells, _ = staged(tmp_path, code(asks, shown(text_html=CARD), picture()))
    assert ["data-key" in o["data"]["text/html"] for o in cells[0]["outputs"]] == [True, False]
    assert 'data-panel="queue_panel"' in shown_html(cells[0]) and "predict" not in cells[0]["source"]


def test_an_answer_is_folded_under_the_name_of_its_question(tmp_path):
    made = shown(text_html='<div class="mlinfra-answer" data-key="01.x" data-measured="8">8</div>')
    cells, _ = staged(tmp_path, code('show(reveal("01.x", eight(n)))', made))
    assert shown_html(cells[0]) == ('<details class="answer" data-key="01.x"><summary>The answer</summary><div '
                                    'class="mlinfra-answer" data-key="01.x" data-measured="8">8</div></details>')


def test_every_question_of_the_lessons_is_a_card():
    stager, wanted = book_stage.Stager(), []
    for lesson in book_stage.lesson_pages():
        stager.notebook(lesson)
        sources = [s.cell["source"] for s in lesson.sections if s.cell["cell_type"] == "code"]
        wanted += [(lesson.name, key) for source in sources for key in re.findall(r'\bpredict\(\s*"([^"]+)"', source)]
    assert len(wanted) == sum(lesson.guesses for lesson in LESSONS.values()) and stager.asked == wanted


def test_a_word_of_the_glossary_brings_its_explanation(tmp_path):
    glossary = page(tmp_path, words('## L\n\n### p95 | tail\n\nOf "100", 5 take [longer](x.md),\nor cost `$` 5.\n\n'
                                    "[01 One](01_one.ipynb)\n\n### step\n\nOne."), name="glossary")
    found = book_stage.explanations(glossary)
    assert found == {"p95-|-tail": "Of &#34;100&#34;, 5 take longer, or cost &#36; 5.", "step": "One."}
    text = book_stage.relink("[a](glossary.ipynb#step) [b](glossary.ipynb#gone)", found)
    assert text == '[a](glossary.ipynb#step "One.") [b](glossary.ipynb#gone)'


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
    minutes = sum(LESSONS[number].minutes for number in ("01", "02", "03", "04"))
    assert f"| {minutes} |" in text and "cores" in text


@pytest.mark.parametrize("address, report", [
    ("https://example.org/mlinfra", None), ("https://code.example/mlinfra", None), ("", None),
    ("https://examples.org/mlinfra.git", "https://examples.org/mlinfra/issues/new")])
def test_a_mistake_is_reported_to_no_placeholder(address, report):
    assert book_pages.report_address(address) == report


def test_the_book_can_be_cited():
    cited = {"title": "A book", "authors": [{"name": "the authors"}, {"family-names": "Daly", "given-names": "J."}],
             "version": "0.2", "date-released": "2026-11-23"}
    made = book_pages.bibtex(cited, "https://code.org/x")
    assert made.startswith("@software{mlinfra,\n") and made.endswith("\n}") and made.count("{") == made.count("}")
    assert "{{the authors} and {Daly, J.}}" in made and "= {2026}" in made and "url     = {https://code.org/x}" in made
    assert "url" not in book_pages.bibtex(cited, "https://example.org/x")


def test_the_page_to_take_the_book_along_says_what_is_there():
    printed, plain = book_pages.take_page(True), book_pages.take_page(False)
    assert 'href="mlinfra.pdf"' in printed and 'href="mlinfra.pdf"' not in plain and "make book ARGS=pdf" in plain
    assert "@software" in plain and "cff-version" in plain


def test_the_page_of_guesses_counts_the_questions(tmp_path):
    stager = book_stage.Stager(asked=[("01_one", "01.x"), ("01_one", "01.y")])
    more = book_stage.more_pages()[0]
    stager.asked.append((more.name, "02.z"))
    made = book_pages.guesses_page([page(tmp_path, words("# 01 One: why?"))], stager)
    listed = [["01_one", "01 One", ["01.x", "01.y"]], [more.name, more.short, ["02.z"]]]
    assert "asks 3 questions" in made and html.escape(json.dumps(listed)) in made


def test_printed_pages_share_no_name_and_lead_to_one_another(tmp_path):
    (tmp_path / "more").mkdir()
    body = ('<nav><a href="b.html">no</a></nav><article class="bd-article" role="main"><h2 id="x">X</h2>'
            '<a href="#x">here</a><a href="{}#y">there</a><a href="{}">all</a><a href="https://code.org/z.html#q">out</a>'
            '<g clip-path="url(#x)"/><details class="answer" data-key="k">8</details></article>')
    (tmp_path / "a.html").write_text(body.format("more/b.html", "more/b.html"))
    (tmp_path / "more" / "b.html").write_text(body.format("../a.html", "c.html"))
    made = book_pdf.joined(tmp_path, ["a", "more/b"])
    names, links = re.findall(r' id="([^"]*)"', made), re.findall(r' href="#([^"]*)"', made)
    assert sorted(names) == ["a--", "a--x", "more-b--", "more-b--x"] and made.count("<nav>") == 0
    assert links == ["a--x", "more-b--y", "more-b--", "more-b--x", "a--y", "more-c--"]
    assert made.count("https://code.org/z.html#q") == 2 and "url(#more-b--x)" in made
    assert made.count('<details open class="answer"') == 2


# ---- panels that live in a page: what they know before Python is there

def test_one_control_moved_from_the_start_is_known():
    from mlinfra.engine.ui.controls import Slider, Switch, TypedText
    from mlinfra.engine.ui.live import LivePanel
    controls = dict(a=Slider("a", [1, 2, 4], 2), double=Switch("twice"), name=TypedText("n"))
    panel = LivePanel("sum", "How much?", controls, lambda a, double, name: (f"{a * (1 + double)}", None))
    known = book_live.positions(panel, panel.shown())
    assert list(known) == ['{"a":0}', '{"a":2}', '{"double":true}']
    assert known['{"a":2}'] == panel.answer(dict(a=2, double=False, name=""))
    assert "4" in known['{"double":true}']["words"]


def test_what_is_too_much_is_not_brought(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(book_live, "MOST_KNOWN", 200)
    noise = "".join(f"{n * n * 7919 % 9973:x}" for n in range(400))
    assert book_live.bring(dict(small={"a": {}}, big={"a": {"words": noise}}), tmp_path / "known") == ["small"]
    assert [path.name for path in (tmp_path / "known").iterdir()] == ["small.js"] and "big" in capsys.readouterr().out


# ---- pages of text

def test_twenty_questions_each_with_a_section():
    parts = (ROOT / "docs" / "questions.md").read_text().split("\n## ")[1:]
    assert len(parts) >= 20
    for part in parts: assert re.search(r"\]\(\d\d_\w+\.ipynb#", part), part.splitlines()[0]


def test_links_into_sections_find_them():
    "Those of pages and lessons; Sphinx says the same of the book, half an hour later."
    pages = [*(ROOT / "nbs").glob("*.ipynb"), *(ROOT / "nbs/more").glob("*.ipynb")]
    sections, lost = {}, []
    for path in pages:
        prose = "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown")
        titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
        named = re.findall(r'id="([^"]+)"', prose)
        sections[path.stem] = {book_stage.anchor(book_stage.plain(title)) for title in titles} | set(named)
    for path in [*pages, *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]:
        links = re.findall(r"(\w+)\.ipynb#([^)\s\"\\]+)", path.read_text(encoding="utf-8"))
        lost += [f"{path.name}: {page}.ipynb#{section}" for page, section in links
                 if page in sections and page != "glossary" and unquote(section) not in sections[page]]
    assert lost == []


def test_each_command_in_the_docs_exists(capsys):
    from mlinfra.cli import main
    with pytest.raises(SystemExit): main(["--help"])
    known = set(re.findall(r"^    (\w+) ", capsys.readouterr().out, flags=re.M))
    text = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert {"sweep", "doctor"} <= set(re.findall(r"`mlinfra (\w+)", text)) <= known


def test_slides_have_the_question_the_pictures_and_the_guesses(tmp_path):
    lesson = page(tmp_path, words("# 01 One: why so slow?\n\n*Before.*\n\nIt is slow. Why?"),
                  code("queue_panel()", picture()), words("## Fast"),
                  code('predict("01.x", "How many?", [1, 2], 1, "ms")', shown(text_html=CARD)),
                  code("plot()", picture()), words("It grows. And more."))
    made = list(book_slides.slides(lesson))
    assert len(made) == 3 and "Why so slow?" in made[0] and "It is slow. Why?" in made[0] and "<svg" in made[0]
    assert "How many?" in made[1] and "<h2>Fast</h2>" in made[1]
    assert "<svg" in made[2] and "It grows." in made[2]


def test_drawings_on_slides_take_the_palettes_dark_colours(tmp_path):
    from mlinfra.engine.ui.palette import css_values
    made = book_slides.deck(page(tmp_path, words("# 01 One: why?")))
    dark = re.search(r"@media screen and \(prefers-color-scheme: dark\) \{ :root \{ (.*?) \} \}", made)
    assert dark and dark[1] == css_values("dark")


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
