"""The doctor's panel in a real JupyterLab: guess, diagnosis, cure."""
import re

import pytest
from lab import Panel, jobs, wait_until

pytestmark = pytest.mark.browser


def diagnose_patiently(panel, most=4):
    "Press Diagnose; again where there is no clear verdict or no cure, which may be the machine's fault."
    for _ in range(most):
        panel.button("Diagnose").click()
        wait_until(panel.button("Diagnose").is_disabled, "the diagnosis begins")
        wait_until(panel.button("Diagnose").is_enabled, "the diagnosis ends", 120)
        undecided = re.search(r"No stage leads|No clear verdict", panel.words())
        if not undecided and "Cure:" in panel.words(): return


def test_doctor_panel_from_guess_to_cure(open_cells):
    notebook = open_cells("from mlinfra.views.doctor import doctor_panel\nbox = doctor_panel(budget_seconds=6)\nbox")
    panel = Panel(notebook, "doctor")
    panel.says("This is an example of the result, from another machine")
    panel.root.locator("select").nth(0).select_option("copy-bound")
    panel.root.locator("select").nth(1).select_option("compute")
    before = panel.picture()
    panel.says("Guess what holds this pipeline back, then press Diagnose.")
    assert panel.button("Cure").is_disabled(), "there is nothing to cure yet"
    diagnose_patiently(panel)
    panel.says("Transfer adds ")
    panel.says("You guessed compute.")
    before = panel.changed_from(before)
    panel.root.locator("select").nth(1).select_option("transfer")
    panel.says("You guessed right.")
    panel.button("Cure").click()
    panel.says("the prediction was off by", 120)
    panel.changed_from(before)
    notebook.shot("doctor_cured")
    panel.root.locator("select").nth(0).select_option("healthy")
    panel.says("then press Diagnose")
    panel.button("Diagnose").click()
    stop, status = panel.button("Stop").first, panel.root.locator(".mlinfra-status").first
    wait_until(stop.is_enabled, "it has begun")
    stop.click()
    wait_until(lambda: status.inner_text() == "Stopped.", "the diagnosis stops", 120)
    wait_until(lambda: jobs(notebook) == "[]", "no thread is left")
