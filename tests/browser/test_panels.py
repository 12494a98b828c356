"""Every panel in a real JupyterLab: by keyboard and by mouse, the number against the formula, the picture against
itself."""

import pytest
from lab import Notebook, Panel, jobs, wait_until

pytestmark = pytest.mark.browser


def test_studio_lives_and_dies_well(open_cells):
    panel = Panel(open_cells("from mlinfra.views.training import studio_panel\nstudio_panel()"), "studio")
    before = panel.picture()
    panel.press("epochs", "End")
    panel.button("Start").click()
    panel.says("Epoch 1 of 20, iteration")
    before = panel.changed_from(before)
    for text, key in (("learning rate", "ArrowLeft"), ("momentum", "ArrowRight"), ("batch (next", "End")):
        panel.press(text, key)
    panel.button("More").click()
    panel.root.locator("select").select_option("bf16")
    panel.button("Pause").click()
    panel.button("Resume").wait_for()
    panel.button("Resume").click()
    before = panel.changed_from(panel.picture())
    panel.button("Stop").click()
    panel.says("Stopped. Epoch 1")
    wait_until(
        lambda: panel.button("Stop").is_disabled() and panel.button("Start").is_enabled(),
        "the buttons follow the words",
    )
    panel.click_track("learning rate", 0.5)
    panel.button("Start").click()
    wait_until(lambda: "Stopped." not in panel.words(), "a second run shows itself")
    panel.button("Stop").click()
    panel.says("Stopped.")
    wait_until(lambda: jobs(panel.notebook) == "[]", "no thread is left")


def test_studio_survives_an_infinite_loss(open_cells):
    cell = """from mlinfra.views.training import studio_panel
box = studio_panel()
box.studio.controls['lr'].max = 8
box.studio.controls['lr'].value = 1e8
box"""
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
    notebook.page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"
    )
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
    again = Notebook(
        context.new_page(),
        url,
        token,
        notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path"),
    )
    notebook.close()
    assert again.error_outputs() == []
    again.run_all()  # replaces the studio whose page is gone
    Panel(again, "studio").says("Press Start.")
    assert again.complaints() == []
    again.empty_kernel()
    context.close()


def test_studio_is_set_back(open_cells):
    panel = Panel(open_cells("from mlinfra.views.training import studio_panel\nstudio_panel()"), "studio")
    panel.press("epochs", "End")
    assert panel.readout("epochs") == "20"
    panel.button("Reset").click()
    wait_until(lambda: panel.readout("epochs") == "3", "the epochs are set back")
