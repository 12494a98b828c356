"""What our extension of JupyterLab does for who reads a lesson."""
import re

import pytest
from lab import Notebook, Panel, wait_until, write_notebook

pytestmark = pytest.mark.browser
CURRENT = "() => window.jupyterapp.shell.currentWidget"
CARD = "from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()"


@pytest.fixture
def page(desk, failed):
    "The JupyterLab that panels are tried in."
    yield desk.start().page
    if failed(): desk.clear()


@pytest.fixture
def lesson(page, server):
    "Opens a notebook; at the end its kernel is shut down."
    opened = []

    def open_(path):
        opened.append(Notebook(page, *server[:2], path))
        return opened[-1]

    yield open_
    for notebook in opened:
        if notebook.closed: continue
        notebook.command("kernelmenu:shutdown")
        notebook.close()


def dirty(notebook): return notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.model.dirty")


def test_opening_changes_nothing_and_typing_does(lesson, server):
    path = write_notebook(server[2] / "saved.ipynb", "1 + 1")
    notebook = lesson(path.name)
    notebook.page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.context.model.getMetadata('language_info').version")
    assert not dirty(notebook)
    notebook.page.evaluate("""() => window.jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel
                              .setSource('2 + 2')""")
    assert dirty(notebook)
    notebook.command("docmanager:save")
    assert not dirty(notebook)


def test_after_run_all_the_reader_is_at_the_top(lesson, server):
    path = write_notebook(server[2] / "long.ipynb", *["print('line\\n' * 30)"] * 12)
    notebook = lesson(path.name).run_all()
    assert notebook.page.evaluate(f"({CURRENT})().content.activeCellIndex") == 0
    assert notebook.page.evaluate("document.querySelector('.jp-WindowedPanel-outer').scrollTop") == 0
    assert notebook.page.locator(".jp-CodeCell").first.is_visible()


def test_an_error_is_shown_where_it_happened(lesson, server):
    path = write_notebook(server[2] / "wrong.ipynb", *["print('line\\n' * 30)"] * 6, "1 / 0")
    notebook = lesson(path.name)
    notebook.command("notebook:run-all-cells")
    error = notebook.page.get_by_text("ZeroDivisionError").first
    error.wait_for()
    wait_until(lambda: notebook.page.evaluate(f"({CURRENT})().content.activeCellIndex") == 6, "the cell is chosen")


def test_directives_are_not_shown_and_stay_in_the_source(lesson, server):
    cells = "#| export\n#| hide\nx = 1", "#| default_exp a.b", "# | no\ny = 2"
    path = write_notebook(server[2] / "directives.ipynb", *cells)
    notebook = lesson(path.name)
    page = notebook.page
    text = lambda: [e.inner_text().strip() for e in page.locator(".jp-CodeCell .cm-content").all() if e.is_visible()]
    wait_until(lambda: text() == ["x = 1", "y = 2"], "lines of code alone are shown")
    page.locator(".cm-line", has_text="x = 1").click()
    page.keyboard.press("Home")
    page.keyboard.press("Backspace")
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.type("z = 3")
    source = lambda: page.evaluate(f"({CURRENT})().content.widgets[0].model.sharedModel.getSource()")
    assert source() == "#| export\n#| hide\nz = 3"
    page.keyboard.press("Control+A")
    page.keyboard.type("y = 4")
    page.keyboard.press("Control+Home")  # where the cursor is when a cell is entered by the keyboard
    page.keyboard.type("m")
    assert source() == "#| export\n#| hide\nmy = 4"
    page.keyboard.press("Control+A")
    page.keyboard.type("z = 3")
    notebook.command("mlinfra:toggle-directives")
    wait_until(lambda: text()[0] == "#| export\n#| hide\nz = 3", "they are shown when asked for")
    notebook.command("mlinfra:toggle-directives")
    wait_until(lambda: text()[0] == "z = 3", "and not when no longer")


def test_a_word_of_the_glossary_is_explained_and_led_to(lesson, server, page):
    notebook = lesson("nbs/01_arithmetic.ipynb")
    link = page.locator('.jp-MarkdownCell a[href*="glossary.ipynb"]', has_text="batch").first
    card, glossary = page.locator(".mlinfra-word"), re.compile(r"/api/contents/nbs/glossary\.ipynb")
    page.route(glossary, lambda route: route.abort())
    with page.expect_event("requestfailed", lambda request: glossary.search(request.url)): link.hover()
    page.unroute(glossary)  # a server that did not answer is asked again
    page.mouse.move(0, 0)
    for come, go in ((link.hover, lambda: page.mouse.move(0, 0)), (link.focus, link.blur)):
        come()
        card.wait_for()
        assert card.inner_text().startswith("batch The samples that a model computes on at a time")
        go()
        card.wait_for(state="hidden")
    link.click()
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget.context.path.endsWith('glossary.ipynb')")
    page.locator(".mlinfra-found", has_text=re.compile("^batch")).wait_for()
    at = page.locator(".mlinfra-found").bounding_box()["y"]
    assert 0 < at < 400, "the word is at the top of the page"
    assert page.evaluate(f"({CURRENT})().sessionContext.session") is None, "the glossary has started a kernel"
    page.evaluate(f"({CURRENT})().dispose()")
    notebook.page.wait_for_function("() => window.jupyterapp.shell.currentWidget.context.path.includes('01_')")


def test_a_panel_begins_with_a_button(lesson, page):
    notebook = lesson("nbs/index.ipynb")
    start = page.get_by_role("button", name="▶ Start").first
    picture = page.locator(".mlinfra-panel-cell .jp-OutputArea-output svg").first
    page.set_viewport_size({"width": 1280, "height": 800})
    assert start.bounding_box()["y"] < 400 and picture.bounding_box()["y"] < 500, "the picture is above the fold"
    for noise in ("#|", "Where mlinfra is missing"): assert page.get_by_text(noise).filter(visible=True).count() == 0
    start.click()
    panel = Panel(notebook, "schedule")
    panel.says("5,000 iterations")
    assert not start.is_visible()
    drawn = panel.root.locator("svg").first.bounding_box()
    assert drawn["y"] < 640, "the picture of the panel is above the fold"


def test_pytorch_is_imported_while_the_first_lines_are_read(lesson):
    notebook = lesson("nbs/03_models.ipynb")
    thread = "[t.join() for t in __import__('threading').enumerate() if t.name == 'mlinfra warm-up']"
    imported = f"({thread}, 'torch._dynamo' in __import__('sys').modules)[1]"
    wait_until(lambda: notebook.value(imported) == "True", "PyTorch is there")


def test_a_restart_is_said(lesson, server, page):
    notebook = lesson(write_notebook(server[2] / "restart.ipynb", CARD).name).run_all()
    panel = Panel(notebook, "schedule")
    page.evaluate(f"({CURRENT})().sessionContext.session.kernel.restart()")
    page.locator(".mlinfra-panel.jupyter-widgets-disconnected").wait_for()
    says = "e => getComputedStyle(e, '::before').content"
    assert "run this cell again" in panel.root.evaluate(says)
    inner = panel.root.locator(".jupyter-widgets-disconnected").all()
    assert inner and {e.evaluate(says) for e in inner} == {"none"}, "broken links beside the words"


def test_a_second_tab_is_told(lesson, server, page):
    notebook = lesson(write_notebook(server[2] / "twice.ipynb", "1").name)
    notebook.command("docmanager:clone")  # another view in the same tab
    page.wait_for_function("() => document.querySelectorAll('.jp-NotebookPanel').length > 1")
    other = page.context.new_page()
    other.goto(page.url.split("/lab")[0] + f"/lab/workspaces/other/tree/{notebook.name}")
    other.locator(".mlinfra-notice", has_text="open in another tab").wait_for()
    assert page.locator(".mlinfra-notice").count() == 0
    other.close()
    page.evaluate(f"({CURRENT})().dispose()")
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget?.context.path === 'twice.ipynb'")


def test_panels_live_as_long_as_their_kernel(lesson, server, page):
    "Saved without the developer's hook and opened again, a panel answers, or is a picture if its kernel is gone."
    path = write_notebook(server[2] / "kept.ipynb", CARD)
    notebook = lesson(path.name).run_all()
    Panel(notebook, "schedule")
    notebook.command("docmanager:save")
    assert "widget-view" not in path.read_text() and "<svg" in path.read_text()
    notebook.close()
    again = lesson(path.name)
    panel = Panel(again, "schedule")
    panel.press("micro-batch", "ArrowRight")
    panel.says("2,500 iterations")
    assert not dirty(again)
    again.command("kernelmenu:shutdown")
    again.close()
    last = lesson(path.name)
    page.locator(".jp-OutputArea-output svg").first.wait_for()
    assert page.get_by_text("model not found").count() == 0 and page.locator(".mlinfra-panel").count() == 0
    assert last.complaints() == [] and not dirty(last)


SLOW = """() => {
  const kernel = Object.getPrototypeOf(window.jupyterapp.shell.currentWidget.sessionContext.session.kernel);
  const ask = kernel.requestCommInfo, answer = new Promise(resolve => { window.answer = resolve; });
  window.soon = () => { kernel.requestCommInfo = ask; window.answer(); };
  kernel.requestCommInfo = async function(...given) { await answer; return ask.apply(this, given); };
}"""


def test_what_runs_while_panels_come_back_is_not_lost(lesson, server, page):
    "The kernel takes its time to say which panels live; meanwhile the reader runs the cell again."
    path = write_notebook(server[2] / "raced.ipynb", CARD)
    notebook = lesson(path.name).run_all()
    Panel(notebook, "schedule")
    notebook.command("docmanager:save")
    page.evaluate(SLOW)
    notebook.close()
    again = lesson(path.name)
    page.evaluate(f"({CURRENT})().content.widgets[0].model.sharedModel.setSource('6 * 7')")
    again.run_all()
    page.evaluate("() => window.soon()")
    page.evaluate(f"({CURRENT})().sessionContext.session.kernel.requestCommInfo({{}})")  # comes after the other answers
    assert page.locator(".jp-OutputArea-output").all_inner_texts() == ["42"]
