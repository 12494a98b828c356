"""The debugger's panel in a real JupyterLab: a guess, a training that is broken, and the rule that speaks."""
import pytest
from lab import Panel, jobs, wait_until

pytestmark = pytest.mark.browser


def test_debugger_panel_trains_and_names_the_fault_after_the_guess(open_cells):
    notebook = open_cells("from mlinfra.views.debugger import debugger_panel\nbox = debugger_panel()\nbox")
    panel = Panel(notebook, "debugger")
    panel.says("Not trained yet")
    panel.says("The picture is an example")
    assert "DeadRelu" not in panel.words(), "no answer before the guess"
    panel.root.locator("select").nth(1).select_option("DeadRelu")
    before = panel.picture()
    panel.button("Train").click()
    panel.says("DeadRelu at step 5", 60)
    panel.says("You guessed it.")
    panel.changed_from(before)
    panel.root.locator("select").nth(1).select_option("MemoryLeak")
    panel.says("You guessed it.")  # the guess that counts is the one that was made before
    panel.press("how bad", *["ArrowLeft"] * 3)
    panel.says("Not trained yet")
    wait_until(panel.button("Train").is_enabled, "the training has ended")
    panel.button("Train").click()
    wait_until(lambda: "Your guess: MemoryLeak." in panel.words(), "the training has ended", 60)
    wait_until(lambda: jobs(notebook) == "[]", "no thread is left")
