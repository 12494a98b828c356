"""A panel in Jupyter Notebook 7, which JupyterLab's server serves where the package is installed."""
from dataclasses import replace
from types import SimpleNamespace

import pytest
from lab import Api, Panel, write_notebook

from mlinfra.arithmetic import Schedule
from mlinfra.views.arithmetic import describe_choice

pytestmark = pytest.mark.browser
pytest.importorskip("notebook", minversion="7", reason="Jupyter Notebook 7 is not installed: pip install notebook")
CELLS = ("from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()",
         "from mlinfra.views.launch import launch_panel\nlaunch_panel()")
STARTED = """() => [...document.querySelectorAll('.jp-InputPrompt')].every(
  e => !/^\\[ ?\\]:$/.test(e.textContent.trim()))"""
READY = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'


@pytest.fixture
def notebook7(page, server):
    "A notebook with two panels, open and run in Notebook 7; no script of the page may fail."
    url, token, folder = server
    path, failed = write_notebook(folder / "in_notebook_7.ipynb", *CELLS), []
    page.on("pageerror", lambda error: failed.append(f"{error.stack}"))
    page.goto(f"{url}/notebooks/{path.name}?token={token}")
    page.locator(READY).wait_for(state="attached", timeout=60_000)
    run_all(page)
    yield SimpleNamespace(page=page)
    api = Api(url, token)
    for session in api("GET", "sessions"):
        if session["path"] == path.name: api("DELETE", f"sessions/{session['id']}")
    assert [error for error in failed if "/static/notebook/" not in error] == [], "other than Notebook's own"


def run_all(page):
    "Run every cell. A click that comes before the kernel's session is ready is lost without a word."
    from playwright.sync_api import TimeoutError
    for _ in range(5):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        try: return page.wait_for_function(STARTED, timeout=10_000)
        except TimeoutError: pass
    raise AssertionError("Run All Cells runs no cell")


def test_panels_answer_in_notebook_7(notebook7):
    assert notebook7.page.evaluate("document.body.dataset.notebook") == "notebooks", "this is no JupyterLab"
    panel, plan = Panel(notebook7, "schedule"), Schedule(1_280_000, 32, epochs=100, world_size=8)
    panel.tells(describe_choice(plan, 0.44))
    before = panel.picture()
    panel.press("micro-batch", "ArrowRight", "ArrowRight")
    panel.tells(describe_choice(plan := replace(plan, batch_size=128), 1.76))
    before = panel.changed_from(before)
    panel.drag("world size", 1.0)
    panel.tells(describe_choice(replace(plan, world_size=4096), 1.76))
    panel.changed_from(before)

    panel = Panel(notebook7, "launch")
    panel.press("nodes", "ArrowRight")
    panel.says("32 ranks on 4 nodes")
    panel.root.locator("section[data-system=slurm] mark", has_text="#SBATCH --nodes=4").wait_for()
