"""The table of runs in a real JupyterLab: sorted, filtered and compared by mouse and keyboard."""
import pytest
from lab import Panel, wait_until

pytestmark = pytest.mark.browser
CELL = "from mlinfra.views.experiments import runs_panel\nbox = runs_panel()\nbox"


def names(panel): return panel.root.locator(".mlinfra-runs-list tbody th").all_inner_texts()


def test_runs_panel_sorts_filters_and_compares(open_cells):
    notebook = open_cells(CELL)
    panel = Panel(notebook, "runs")
    panel.says("9 runs: 7 finished, 1 killed, 1 raised")
    rows = panel.root.locator(".mlinfra-runs-list tbody tr")
    wait_until(lambda: rows.count() == 9, "the table is there")
    before = names(panel)

    heading = panel.root.get_by_role("button", name="lr", exact=True)
    heading.click()  # the largest first
    wait_until(lambda: names(panel)[0] == "run-9", "sorted by lr")
    sorted_by = panel.root.locator("thead th[aria-sort=descending]")
    assert sorted_by.inner_text().startswith("lr") and names(panel) != before
    panel.root.get_by_role("button", name="lr ▼").press("Enter")  # it kept the focus
    wait_until(lambda: names(panel)[0] == "run-1", "the other way round")
    assert notebook.page.evaluate("() => document.activeElement.textContent") == "lr ▲"

    fits = panel.root.locator("input[type=text]")
    fits.fill("acuracy > 0.5")
    fits.press("Enter")
    panel.says("did you mean accuracy?")
    assert not panel.root.locator(".mlinfra-picture svg").is_visible(), "no picture of what was set before"
    fits.fill("lr > 0.05 and accuracy > 0.5")
    fits.press("Enter")
    panel.says("5 runs: 5 finished")
    wait_until(lambda: sorted(names(panel)) == ["run-3", "run-4", "run-5", "run-7", "run-8"], "only those that fit")

    for box in panel.root.get_by_role("checkbox").all():
        if box.is_checked(): box.uncheck()
    panel.says("Curves of none")
    panel.root.get_by_label("show the curve of run-3").press("Space")
    panel.says("Curves of run-3.")
    before = panel.picture()
    panel.root.get_by_label("show the curve of run-7").check()
    panel.says("Curves of run-3, run-7.")
    panel.changed_from(before)
    differs = panel.root.locator(".mlinfra-differences")
    wait_until(lambda: "batch_size" in differs.inner_text() and "torch" in differs.inner_text(), "what differs")
    panel.button("Reset").click()
    panel.says("9 runs")
