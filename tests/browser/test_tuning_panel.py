"""The panels of tuning in a real JupyterLab: a search that is steered and stopped, and the range test."""
import pytest
from lab import Panel, jobs, wait_until

pytestmark = pytest.mark.browser

TRIALS = """[p.pid for p in __import__('multiprocessing').active_children() if p.name == 'mlinfra-trials']"""


def test_tuning_panel_runs_prunes_adds_and_stops(open_cells):
    notebook = open_cells("from mlinfra.views.tuning import tuning_panel\nbox = tuning_panel()\nbox")
    panel = Panel(notebook, "tuning")
    panel.says("An example")
    assert jobs(notebook) == "[]" and notebook.value(TRIALS) == "[]", "nothing runs until Search is pressed"
    before = panel.picture()
    panel.control("method").locator("select").select_option("random, none given up")
    panel.press("budget", *["ArrowRight"] * 3)
    assert panel.readout("budget") == "2 min"
    panel.button("Search").click()
    wait_until(lambda: any(f"{n} running" in panel.words() for n in (1, 2)), "trials run", 60)
    panel.says("left.")
    panel.button("Add this trial").click()
    wait_until(lambda: "is tried next" in panel.root.inner_text(), "it is asked for")
    wait_until(lambda: panel.button("Prune it").is_enabled(), "a trial that runs is offered")
    panel.button("Prune it").click()
    panel.says("given up", 60)
    panel.changed_from(before)
    panel.button("Stop").click()
    wait_until(lambda: panel.status() == "Stopped.", "it stops", 20)
    assert "left." not in panel.words() and "stopped" in panel.words()
    assert jobs(notebook) == "[]" and notebook.value(TRIALS) == "[]", "no thread and no process is left"


def test_lr_range_panel_tests_a_network_and_says_where_to_begin(open_cells):
    notebook = open_cells("from mlinfra.views.lr_range import lr_range_panel\nbox = lr_range_panel()\nbox")
    panel = Panel(notebook, "lr-range")
    panel.says("Not tested yet")
    panel.control("network").locator("select").select_option("two dense layers")
    panel.control("optimizer").locator("select").select_option("Adam")
    before = panel.picture()
    panel.button("Test").click()
    panel.says("Begin with", 60)
    panel.changed_from(before)
    panel.control("optimizer").locator("select").select_option("SGD")
    panel.says("Not tested yet")
    wait_until(lambda: jobs(notebook) == "[]", "no thread is left")
