"""The monitor's panel in a real JupyterLab: an example, a live training, a moment chosen while it goes on."""
import pytest
from lab import Panel, jobs, wait_until

pytestmark = pytest.mark.browser


def test_monitor_panel_follows_a_training_and_looks_back(open_cells):
    notebook = open_cells("from mlinfra.views.monitor import monitor_panel\nbox = monitor_panel()\nbox")
    panel = Panel(notebook, "monitor")
    panel.says("An example from another machine")
    panel.says("waited for the loader, which is blocked")
    before = panel.picture()
    panel.press("moment", *["ArrowRight"] * 20)
    before = panel.changed_from(before)
    panel.button("Follow").wait_for()

    panel.root.locator("select").first.select_option("the loader computes")
    panel.button("Train").click()
    panel.says("run-1: running", 60)
    assert "example" not in panel.words()
    running = panel.changed_from(before)
    panel.changed_from(running)  # it goes on by itself
    panel.button("Pause").click()
    panel.press("moment", *["ArrowLeft"] * 10)
    def settled():  # a slider tells the kernel of its last place only when the kernel has answered to the ones before
        chosen = float(notebook.value("box.controls['moment'].value"))
        return f"At {chosen:.2f} s: " in panel.words() and float(panel.readout("moment")) == chosen
    wait_until(settled, "the words are those of the moment that was chosen")
    at, recorded = panel.words().split(" s: ")[0], "len(box.screen.run.steps)"
    before = int(notebook.value(recorded))
    wait_until(lambda: int(notebook.value(recorded)) > before, "the run has gone on")
    assert panel.words().split(" s: ")[0] == at, "paused: the moment stays"
    panel.button("Follow").click()
    wait_until(lambda: panel.words().split(" s: ")[0] != at, "it follows again")
    panel.button("Stop").click()
    panel.says("stopped", 60)
    wait_until(lambda: jobs(notebook) == "[]", "no thread is left")


def test_monitor_panel_shows_past_runs(open_cells):
    cell = """import tempfile
from pathlib import Path
from mlinfra.views.monitor import monitor_panel, train_with
home = Path(tempfile.mkdtemp())
for name, fault in dict(first='none', second='the loader sleeps').items(): train_with(fault, home / name, steps=60)
box = monitor_panel(home / 'second')
box"""
    panel = Panel(open_cells(cell), "monitor")
    panel.says("second: finished")
    panel.says("waited for the loader, ")  # which is blocked; or cores for it, beside other tests
    assert "which computes" not in panel.words()
    panel.root.locator("select").first.select_option("first")
    panel.says("first: finished")
