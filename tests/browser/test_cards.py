"""What every panel can: be set back, have names, follow the theme. And a JupyterLab without news."""
import re

import pytest
from lab import Panel

pytestmark = pytest.mark.browser

CELL = "from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()"
PIXELS = """from mlinfra.engine.widgets import Canvas, figure, panel, slider
drawn, axes = figure()
line, = axes.plot([0, 1])
panel({"n": slider("n", range(1, 10), 3)}, lambda n: (f"n is {n}", Canvas(drawn, [line])), "pixels")"""


def test_reset_sets_every_control_back(open_cells):
    panel = Panel(open_cells(CELL), "schedule")
    start, picture = panel.words(), panel.picture()
    panel.press("micro-batch", "ArrowRight")
    picture_of_other = panel.changed_from(picture)
    assert panel.words() != start
    panel.button("Reset").click()
    panel.says(start)
    before = r'<g class="mlinfra-before".*?</g>'  # outlines of the state that was left
    assert re.sub(before, "", panel.changed_from(picture_of_other)) == picture


def test_controls_have_names_and_none_is_null(open_cells):
    panel = Panel(open_cells(CELL), "schedule")
    assert panel.root.locator('[title="null"]:visible').count() == 0
    assert panel.root.get_by_title("micro-batch (samples)").count()


def test_pixels_turn_dark_with_the_theme(open_cells):
    notebook = open_cells(PIXELS)
    image = Panel(notebook, "pixels").root.locator("img")
    def filtered(): return image.evaluate("e => getComputedStyle(e).filter")
    assert filtered() == "none"
    change = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
    notebook.page.evaluate(change, "JupyterLab Dark")
    notebook.page.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
    dark = filtered()
    notebook.shot("dark")
    notebook.page.evaluate(change, "JupyterLab Light")  # also for the tests that follow
    notebook.page.wait_for_function("() => document.body.dataset.jpThemeLight === 'true'")
    assert "invert" in dark and filtered() == "none"


def test_jupyterlab_fetches_no_news_and_does_not_ask(open_cells):
    notebook = open_cells("1")
    schema = notebook.page.evaluate("""async () => {
      const {baseUrl, token} = window.jupyterapp.serviceManager.serverSettings;
      const path = 'lab/api/settings/@jupyterlab/apputils-extension:notification';
      const reply = await fetch(baseUrl + path, {headers: {Authorization: `token ${token}`}});
      return (await reply.json()).schema.properties;
    }""")
    assert schema["fetchNews"]["default"] == "false" and schema["checkForUpdates"]["default"] is False
