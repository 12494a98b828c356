"""Lessons in a real JupyterLab: as they lie there, run whole, saved, come back to.

MLINFRA_LESSONS=all make test ARGS="-k whole_lesson" does with every lesson what is otherwise done with two."""
import os
import shutil

import pytest
from lab import IN_THE_BROWSER, ROOT, Notebook, Panel

pytestmark = pytest.mark.browser
ALL = sorted(path.relative_to(ROOT / "nbs").with_suffix("").as_posix()
             for path in [*ROOT.glob("nbs/[0-8i]*.ipynb"), *ROOT.glob("nbs/more/*.ipynb")])
RUN_WHOLE = ALL if os.environ.get("MLINFRA_LESSONS") == "all" else IN_THE_BROWSER


@pytest.fixture
def page(desk, failed):
    "The JupyterLab that panels are tried in: loading another takes seconds."
    yield desk.start().page
    if failed(): desk.clear()


@pytest.fixture
def readers_copy(server):
    "Copies a lesson beside the book's, where the hook of who builds the book does not clean what is saved."
    def copy(lesson):
        path = server[2] / "reader" / f"{lesson}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (server[2] / "reader/solutions").exists():
            shutil.copytree(server[2] / "nbs/solutions", server[2] / "reader/solutions")
        shutil.copy(server[2] / "nbs" / f"{lesson}.ipynb", path)
        return path
    return copy


@pytest.mark.parametrize("lesson", RUN_WHOLE)
def test_a_whole_lesson_runs_is_saved_and_opens_again(page, server, readers_copy, lesson):
    (url, token, folder), path = server, readers_copy(lesson)
    notebook = Notebook(page, url, token, path.relative_to(folder).as_posix()).run_all(240)
    assert notebook.error_outputs() == [] and notebook.complaints() == []
    assert page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex") == 0
    notebook.shot(f"whole_{path.stem}")
    notebook.command("docmanager:save")
    notebook.command("kernelmenu:shutdown")
    notebook.close()
    assert "vnd.jupyter.widget-view" not in path.read_text(encoding="utf-8")
    again = Notebook(page, url, token, notebook.name)
    assert page.get_by_text("Error displaying widget").count() == 0
    assert page.locator(".mlinfra-panel").count() == 0, "its kernel is gone"
    still = page.locator(".mlinfra-panel-cell .jp-OutputArea-output :is(img, svg)")
    assert all(picture.is_visible() for picture in still.all())
    assert still.count() >= page.locator(".mlinfra-panel-cell").count() > 0 or "_panel(" not in path.read_text()
    assert page.evaluate("window.jupyterapp.shell.currentWidget.context.model.dirty") is False
    again.shot(f"again_{path.stem}")
    assert again.complaints() == []
    again.command("kernelmenu:shutdown")
    again.close()


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
    still = page.locator(FIRST_OUTPUT).first.locator("svg")
    still.wait_for()
    as_committed = still.evaluate("e => e.outerHTML")
    committed = (repository / "nbs/01_arithmetic.ipynb").read_bytes()
    run_panel_cell(notebook)
    Panel(notebook, "schedule").says("5,000 iterations")
    notebook.command("docmanager:save")
    assert (repository / "nbs/01_arithmetic.ipynb").read_bytes() == committed, "saving changes the lesson"
    notebook.command("kernelmenu:shutdown")
    notebook.close()
    again = Notebook(page, url, token, "nbs/01_arithmetic.ipynb")
    back = page.locator(FIRST_OUTPUT).first.locator("svg")
    back.wait_for()
    assert back.evaluate("e => e.outerHTML") == as_committed
    assert page.get_by_text("model not found").count() == 0 and again.complaints() == []
    again.command("kernelmenu:shutdown")
    again.close()
