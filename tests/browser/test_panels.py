"""Every panel in a real JupyterLab: by keyboard and by mouse, the number against the formula, the picture against itself."""
import re

import pytest
from lab import Notebook, Panel, jobs, wait_until

from mlinfra.engine.hardware import STORAGES
from mlinfra.views.storage import LAYOUTS, describe_storage
from mlinfra.engine.widgets import duration_text

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


def alone(curve, extra):
    "Seconds of a step without workers, from the curve as the kernel shows it."
    return sum(float(re.search(rf"\b{name}=([^,)]+)", curve)[1].removeprefix("np.float64(")) for name in ("load", "compute")) + extra


def test_workers_panel_predicts_measures_and_stops(open_cells):
    notebook = open_cells("from mlinfra.views.workers import workers_panel\nbox = workers_panel()\nbox")
    panel = Panel(notebook, "workers")
    panel.says("usable cores")
    panel.press("images", "Home")
    before = panel.picture()
    panel.button("Run the sweep").click()
    wait_until(lambda: "5 runs" in panel.status(), "the sweep ends", 180)
    assert "pay here" in panel.words()
    before = panel.changed_from(before)
    notebook.shot("workers_measured")
    panel.drag("work per image", 1.0)
    curve, blur = (notebook.value(f"box.sweep.last.{name}") for name in ("curve", "blur_seconds"))
    panel.says(f"Predicted: {duration_text(10 * alone(curve, 200 * 64 * float(blur)))} without workers")  # 640 images in batches of 64
    before = panel.changed_from(before)
    panel.click_track("work per image", 0.5)
    panel.says(f"Predicted: {duration_text(10 * alone(curve, 10 * 64 * float(blur)))} without workers")
    panel.changed_from(before)
    panel.press("images", "End")
    panel.button("Run the sweep").click()
    wait_until(lambda: "workers" in panel.status(), "progress is shown")
    panel.button("Stop").click()
    wait_until(lambda: panel.status() == "Stopped.", "the sweep stops", 60)
    wait_until(lambda: jobs(notebook) == "[]", "no thread is left")


def test_storage_panel_predicts_measures_and_stops(open_cells):
    panel = Panel(open_cells("from mlinfra.views.storage import storage_panel\nstorage_panel()"), "storage")
    volume, files, shards = STORAGES["network block volume"], *LAYOUTS
    panel.says(describe_storage(volume, 110_000, 8, files))
    before = panel.picture()
    panel.press("reads in flight", "Home")
    panel.says(describe_storage(volume, 110_000, 1, files))
    before = panel.changed_from(before)
    panel.button("Measure").click()
    wait_until(lambda: "Measured" in panel.status(), "the reads are measured")
    before = panel.changed_from(before)
    panel.notebook.shot("storage_measured")
    panel.root.locator("select").nth(0).select_option("object store")
    panel.root.locator("select").nth(1).select_option(shards)
    panel.drag("image (bytes)", 1.0)
    panel.says(describe_storage(STORAGES["object store"], 1_048_576, 1, shards))
    panel.press("image", "Home")
    panel.press("reads in flight", "End")
    panel.says(describe_storage(STORAGES["object store"], 4_096, 256, shards))
    panel.press("reads in flight", "Home")
    panel.button("Measure").click()
    panel.button("Stop").click()
    wait_until(lambda: panel.status() == "Stopped.", "the reads stop")
    wait_until(lambda: jobs(panel.notebook) == "[]", "no thread is left")
    panel.changed_from(before)


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
