"""Lessons in a real JupyterLab: as they lie there, run whole, saved, come back to."""
import pytest
from lab import IN_THE_BROWSER, Notebook, Panel

pytestmark = pytest.mark.browser


@pytest.fixture
def page(desk, failed):
    "The JupyterLab that panels are tried in: loading another takes seconds."
    yield desk.start().page
    if failed(): desk.clear()


@pytest.mark.parametrize("lesson", IN_THE_BROWSER)
def test_a_whole_lesson_runs_in_the_browser(page, server, lesson):
    url, token, _ = server
    notebook = Notebook(page, url, token, f"nbs/{lesson}.ipynb").run_all(240)
    assert notebook.error_outputs() == [] and notebook.complaints() == []
    folded = page.locator(".jp-OutputArea-output details", has_text="Lock your guess")  # nobody has guessed
    assert folded.count() or lesson == "index"
    assert not any(answer.is_visible() for answer in folded.locator("svg").all()), "an answer spoils a guess"
    notebook.command("kernelmenu:shutdown")
    notebook.close()


FIRST_OUTPUT = ".jp-Notebook .jp-CodeCell .jp-OutputArea-output"


def run_panel_cell(notebook):
    "Run the first cell after the one that installs."
    notebook.page.evaluate("""async () => {
      const {content, sessionContext} = window.jupyterapp.shell.currentWidget;
      content.activeCellIndex = content.widgets.findIndex(
        cell => cell.model.type === 'code' && cell.model.id !== 'install');
      await window.jupyterapp.commands.execute('notebook:run-cell');
    }""")


def test_a_panel_is_seen_before_anything_runs_and_after_its_kernel_is_gone(page, server):
    url, token, repository = server
    notebook = Notebook(page, url, token, "nbs/01_arithmetic.ipynb")
    still = page.locator(FIRST_OUTPUT).first.locator("img")
    still.wait_for()
    as_committed = still.get_attribute("src")
    committed = (repository / "nbs/01_arithmetic.ipynb").read_bytes()
    run_panel_cell(notebook)
    Panel(notebook, "schedule").says("1,252 iterations")
    notebook.command("docmanager:save")
    assert (repository / "nbs/01_arithmetic.ipynb").read_bytes() == committed, "saving changes the lesson"
    notebook.command("kernelmenu:shutdown")
    notebook.close()
    again = Notebook(page, url, token, "nbs/01_arithmetic.ipynb")
    back = page.locator(FIRST_OUTPUT).first.locator("img")
    back.wait_for()
    assert back.get_attribute("src") == as_committed
    assert page.get_by_text("model not found").count() == 0 and again.complaints() == []
    again.command("kernelmenu:shutdown")
    again.close()
