"""The doctor's panel in a real JupyterLab: guess, diagnosis, cure.

What is shown is a diagnosis that we know, so that no busy machine changes it; tests/test_doctor.py diagnoses the same
pipeline on a clock of its own.
"""
import pytest
from lab import Panel, jobs, wait_until

pytestmark = pytest.mark.browser

KNOWN = """
import time
from mlinfra.views import doctor

storage, verified = doctor.example_diagnosis()
stages = storage.stages | dict(storage=storage.stages["transfer"], transfer=storage.stages["storage"])

class Known(type(storage)):
    "A diagnosis whose cure is verified at once."
    def verify(self, budget_seconds, report): return verified

def diagnose(model, loader, report, **options):
    "A pipeline with a slow bus is bound by it; any other is measured until somebody stops it."
    while "transfer" not in options:
        report(0.5, "measuring")
        time.sleep(0.01)
    return Known(**vars(storage) | dict(verdict="transfer", stages=stages))

doctor.diagnose = diagnose
box = doctor.doctor_panel(budget_seconds=6)
box
"""


def test_doctor_panel_from_guess_to_cure(open_cells):
    notebook = open_cells(KNOWN)
    panel = Panel(notebook, "doctor")
    panel.says("This is an example of the result, from another machine")
    panel.root.locator("select").nth(0).select_option("copy-bound")
    panel.root.locator("select").nth(1).select_option("compute")
    before = panel.picture()
    panel.says("Guess what holds this pipeline back, then press Diagnose.")
    assert panel.button("Cure").is_disabled(), "there is nothing to cure yet"
    panel.button("Diagnose").click()
    panel.says("Transfer adds ")
    panel.says("You guessed compute.")
    before = panel.changed_from(before)
    panel.root.locator("select").nth(1).select_option("transfer")
    panel.says("You guessed right.")
    panel.button("Cure").click()
    panel.says("the prediction was off by", 120)
    panel.changed_from(before)
    panel.root.locator("select").nth(0).select_option("healthy")
    panel.says("then press Diagnose")
    panel.button("Diagnose").click()
    stop, status = panel.button("Stop").first, panel.root.locator(".mlinfra-status").first
    wait_until(stop.is_enabled, "it has begun")
    stop.click()
    wait_until(lambda: status.inner_text() == "Stopped.", "the diagnosis stops", 120)
    wait_until(lambda: jobs(notebook) == "[]", "no thread is left")
