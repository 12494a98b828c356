"""What every panel can: be set back, have names, keep its keys, show the state before; JupyterLab without news."""
import re

import pytest
from lab import Panel, wait_until

pytestmark = pytest.mark.browser

CELL = "from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()"
BARS = """from mlinfra.engine.ui.controls import Dropdown, Slider
from mlinfra.engine.ui.panel import Said, panel
from mlinfra.engine.ui.svg import Svg
def update(n, kind):
    return Said(f"{n} ms", f"of {kind}"), Svg(600, 40, scale="ms").box(0, 0, 40 * n, 30, "#0072B2", hover=f"{n} ms")
panel({"n": Slider("time (ms)", range(1, 13), 3), "kind": Dropdown("kind", ["work", "rest"], "work")}, update, "bars",
      title="How long does it take?", more=["kind"], code=lambda n, kind: f"{n} / 1000  # seconds of {kind}")"""

SMALLEST_TEXT = """svg => {
  const shrunk = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return Math.min(...[...svg.querySelectorAll('text')].map(e => shrunk * parseFloat(getComputedStyle(e).fontSize)));
}"""


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


def test_words_and_lines_follow_the_theme(open_cells):
    notebook = open_cells(CELL)
    words = Panel(notebook, "schedule").root.locator("svg text").first
    def color(): return words.evaluate("e => getComputedStyle(e).fill")
    light = color()
    change = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
    splash = notebook.page.locator("#jupyterlab-splash")  # JupyterLab takes it away late; two at a time are an error
    notebook.page.evaluate(change, "JupyterLab Dark")
    notebook.page.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
    dark = color()
    splash.wait_for(state="detached")
    notebook.page.evaluate(change, "JupyterLab Light")  # also for the tests that follow
    notebook.page.wait_for_function("() => document.body.dataset.jpThemeLight === 'true'")
    splash.wait_for(state="detached")
    assert light != dark and color() == light


def test_keys_stay_in_the_panel(open_cells):
    notebook = open_cells(BARS)
    panel, count = Panel(notebook, "bars"), "() => window.jupyterapp.shell.currentWidget.content.widgets.length"
    before = notebook.page.evaluate(count)
    panel.press("time", "b", "a", "x", "d", "d", "ArrowRight")
    assert notebook.page.evaluate(count) == before and panel.readout("time") == "4"
    panel.press("time", "Control+s")
    notebook.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")


def test_a_slider_tells_its_name_and_its_value(open_cells):
    panel = Panel(open_cells(CELL), "schedule")
    handle = panel.root.get_by_role("slider", name="micro-batch (samples)")
    assert handle.get_attribute("aria-valuetext") == panel.readout("micro-batch") == "32"
    handle.press("ArrowRight")
    wait_until(lambda: handle.get_attribute("aria-valuetext") == "64", "the value is told, not its place in the list")


def test_more_code_and_the_state_before(open_cells):
    panel = Panel(open_cells(BARS), "bars")
    assert panel.root.get_by_text("How long does it take?").is_visible() and panel.root.locator("select").is_hidden()
    assert panel.root.locator(".mlinfra-before").count() == 0
    panel.button("More").click()
    panel.root.locator("select").select_option("rest")
    panel.says("of rest")
    panel.press("time", "ArrowRight")
    before = panel.root.locator(".mlinfra-before rect")
    before.wait_for(state="attached")
    assert before.get_attribute("width") == "120.00" and panel.root.locator("svg > rect > title").inner_html() == "4 ms"
    panel.root.get_by_text("as code").click()
    assert panel.root.locator("pre").inner_text() == "4 / 1000  # seconds of rest"
    panel.notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.button("Copy").click()
    panel.root.get_by_text("Copied").wait_for()
    assert panel.notebook.page.evaluate("() => navigator.clipboard.readText()") == "4 / 1000  # seconds of rest"


@pytest.mark.parametrize("width", [900, 1920])
def test_words_stay_readable(open_cells, width):
    panel = Panel(open_cells(CELL), "schedule")
    panel.page.set_viewport_size({"width": width, "height": 1000})
    smallest = panel.root.locator("svg").first.evaluate(SMALLEST_TEXT)
    panel.page.set_viewport_size({"width": 1280, "height": 1000})
    assert smallest >= 9


def test_jupyterlab_fetches_no_news_and_does_not_ask(open_cells):
    notebook = open_cells("1")
    schema = notebook.page.evaluate("""async () => {
      const {baseUrl, token} = window.jupyterapp.serviceManager.serverSettings;
      const path = 'lab/api/settings/@jupyterlab/apputils-extension:notification';
      const reply = await fetch(baseUrl + path, {headers: {Authorization: `token ${token}`}});
      return (await reply.json()).schema.properties;
    }""")
    assert schema["fetchNews"]["default"] == "false" and schema["checkForUpdates"]["default"] is False
