"""Every panel in a real JupyterLab: by keyboard and by mouse, the number against the formula, the picture against itself."""
import re

import pytest
from lab import Notebook, Panel, jobs, wait_until

pytestmark = pytest.mark.browser


def test_prediction_is_locked_for_the_session(open_cells):
    cells = "from mlinfra.engine.lesson import predict, reveal\npredict('k', 'How many?', range(1, 11), 3, 'iterations')"
    notebook = open_cells(cells, "1")
    panel = Panel(notebook, "predict")
    panel.press("your answer", "ArrowRight")
    panel.button("Lock my answer").click()
    panel.root.get_by_text("Locked: 4 iterations").wait_for()
    assert panel.button("Lock my answer").is_disabled()
    notebook.run_all()
    Panel(notebook, "predict").root.get_by_text("Locked: 4 iterations").wait_for()


def diagnose_patiently(panel, most=4):
    "Press Diagnose; again where there is no clear verdict or no cure, which may be the machine's fault."
    for _ in range(most):
        panel.button("Diagnose").click()
        wait_until(panel.button("Diagnose").is_disabled, "the diagnosis begins")
        wait_until(panel.button("Diagnose").is_enabled, "the diagnosis ends", 120)
        undecided = re.search(r"Verdict: (mixed|inconclusive)\.", panel.words())
        if not undecided and "Cure:" in panel.words(): return


def test_doctor_panel_from_guess_to_cure(open_cells):
    notebook = open_cells("from mlinfra.views.doctor import doctor_panel\nbox = doctor_panel(seconds=6)\nbox")
    panel = Panel(notebook, "doctor")
    panel.says("Guess what holds this pipeline back, then press Diagnose.")
    panel.root.locator("select").nth(0).select_option("copy-bound")
    panel.root.locator("select").nth(1).select_option("compute")
    before = panel.picture()
    panel.button("Cure").click()
    panel.root.get_by_text("diagnose this pipeline first").wait_for()
    diagnose_patiently(panel)
    panel.says("Verdict: transfer. You guessed compute.")
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


def test_studio_lives_and_dies_well(open_cells):
    panel = Panel(open_cells("from mlinfra.views.training import studio_panel\nstudio_panel()"), "studio")
    before = panel.picture()
    panel.press("epochs", "End")
    panel.button("Start").click()
    panel.says("Epoch 1 of 20, iteration")
    before = panel.changed_from(before)
    for text, key in (("learning rate", "ArrowLeft"), ("momentum", "ArrowRight"), ("batch (next", "End")): panel.press(text, key)
    panel.root.locator("select").select_option("bf16")
    panel.notebook.shot("studio_running")
    panel.button("Pause").click()
    panel.button("Resume").wait_for()
    panel.button("Resume").click()
    before = panel.changed_from(panel.picture())
    panel.button("Stop").click()
    panel.says("Stopped. Epoch 1")
    wait_until(lambda: panel.button("Stop").is_disabled() and panel.button("Start").is_enabled(), "the buttons follow the words")
    panel.click_track("learning rate", 0.5)
    panel.button("Start").click()
    wait_until(lambda: not panel.words().startswith("Stopped"), "a second run shows itself")
    panel.button("Stop").click()
    panel.says("Stopped.")
    wait_until(lambda: jobs(panel.notebook) == "[]", "no thread is left")


def test_studio_survives_an_infinite_loss(open_cells):
    cell = "from mlinfra.views.training import studio_panel\nbox = studio_panel()\nbox.studio.controls['lr'].max = 8\nbox.studio.controls['lr'].value = 1e8\nbox"
    panel = Panel(open_cells(cell), "studio")
    panel.button("Start").click()
    panel.says("no longer a number", 60)
    panel.button("Stop").click()
    panel.says("Stopped.")


def test_studio_and_a_restarted_kernel(open_cells):
    notebook = open_cells("from mlinfra.views.training import studio_panel\nstudio_panel()")
    panel = Panel(notebook, "studio")
    blank = panel.picture()
    panel.button("Start").click()
    panel.says("iteration")
    panel.changed_from(blank)
    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    notebook.page.wait_for_function("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'")
    notebook.run_all()
    again = Panel(notebook, "studio")
    again.says("Press Start.")
    assert again.picture() == blank and jobs(notebook) == "[]"


def test_studio_in_a_closed_and_reopened_tab(open_cells, server, browser):
    notebook = open_cells("from mlinfra.views.training import studio_panel\nstudio_panel()")
    panel = Panel(notebook, "studio")
    panel.press("epochs", "Home")
    panel.button("Start").click()
    panel.says("iteration")
    notebook.command("docmanager:save")
    url, token, _ = server
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    again = Notebook(context.new_page(), url, token, notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path"))
    notebook.close()
    assert again.error_outputs() == []
    again.run_all()  # replaces the studio whose page is gone
    Panel(again, "studio").says("Press Start.")
    assert again.complaints() == []
    again.command("kernelmenu:shutdown")
    context.close()
