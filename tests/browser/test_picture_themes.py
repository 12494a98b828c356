"""Saved pictures in a real JupyterLab: ink for the theme's ground, and values under the mouse."""
import io

import pytest
from lab import Notebook, Panel, wait_until
from PIL import Image

pytestmark = pytest.mark.browser
CELLS = ("""from mlinfra.engine.ui.palette import COLORS
from mlinfra.engine.ui.svg import Svg
Svg(300, 60, "a step").box(0, 30, 200, 20, COLORS["forward"], hover="forward: 20 ms").text(4, 20, "WORDS MMM")""",
         """from mlinfra.engine.ui.figures import figure, label
fig, ax = figure(4, 2)
label(ax, "step", "loss", "MMM one line").plot([0, 1, 2], [2, 1, 0.5], "o-", color=COLORS["forward"])
fig""")
THEME = "theme => void window.jupyterapp.commands.execute('apputils:change-theme', {theme})"


def show(page, theme, light):
    "Change JupyterLab's theme, and wait until the page has it."
    page.evaluate(THEME, theme)
    page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)


def brightness(page, locator):
    "The ground's brightness, and of the pixel that differs most from it, from 0 to 255."
    picture = Image.open(io.BytesIO(locator.screenshot())).convert("L")
    ground = picture.getpixel((picture.width - 2, 2))
    seen = [level for level, count in enumerate(picture.histogram()) if count]
    return ground, max(seen, key=lambda level: abs(level - ground))


@pytest.fixture
def light_again(desk):
    yield
    show(desk.start().page, "JupyterLab Light", "true")


def test_pictures_follow_the_theme_without_a_kernel(open_cells, light_again):
    notebook = open_cells(*CELLS)
    pictures = notebook.page.locator(".jp-RenderedSVG > svg")
    wait_until(lambda: pictures.count() == 2, "both pictures are shown")
    for theme, light in (("JupyterLab Light", "true"), ("JupyterLab Dark", "false")):
        show(notebook.page, theme, light)
        for picture in pictures.all():
            wait_until(lambda: (brightness(notebook.page, picture)[0] > 128) == (light == "true"), f"ground in {theme}")
            ground, ink = brightness(notebook.page, picture)
            assert (ground > 230 and ink < 90) if light == "true" else (ground < 40 and ink > 200), (theme, ground, ink)


UNDER_THE_MOUSE = """svg => {
  const shape = [...svg.querySelectorAll('title')].at(-1).parentElement, box = shape.getBoundingClientRect();
  const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return hit.querySelector(':scope > title')?.textContent;
}"""


def test_a_saved_picture_tells_its_values(open_cells):
    notebook = open_cells(*CELLS)
    notebook.command("docmanager:save")
    notebook.close()
    again = Notebook(notebook.page, notebook.api.url, notebook.api.token, notebook.name)
    pictures = again.page.locator(".jp-RenderedSVG > svg")
    wait_until(lambda: pictures.count() == 2, "both pictures are shown")
    box, curve = (picture.evaluate(UNDER_THE_MOUSE) for picture in pictures.all())
    assert box == "forward: 20 ms" and curve == "step 2, loss 0.5"
    assert again.page.evaluate("window.jupyterapp.shell.currentWidget.context.model.dirty") is False
    again.close()


def test_only_drawings_of_the_package_are_put_into_the_page(open_cells):
    inside = ("<script>window.harmed = 1</script>", "<rect onclick='window.harmed = 1'/>", "<foreignObject/>",
              "<a href='javascript:window.harmed = 1'/>", "<style>body {display: none}</style>",
              "<use href='https://127.0.0.1/x.svg#y'/>", "<rect fill='url(https://127.0.0.1)'/>")
    named = '<svg xmlns="http://www.w3.org/2000/svg" class="mlinfra-svg" width="9" height="9">'
    whole = [f"{named}{part}</svg>" for part in inside]
    whole += [named.replace("width", "onload='window.harmed = 1' width") + "</svg>",
              named.replace("mlinfra-svg", "other") + "<rect/></svg>"]
    notebook = open_cells(f"for svg in {whole}: display({{'image/svg+xml': svg}}, raw=True)")
    wait_until(lambda: notebook.page.locator(".jp-RenderedSVG > img").count() == len(whole), "all are images")
    assert notebook.page.locator(".jp-RenderedSVG > svg").count() == 0
    assert notebook.page.evaluate("window.harmed") is None and notebook.page.locator(".jp-Notebook").is_visible()


@pytest.mark.parametrize("width", [1920, 1280, 900, 390])
def test_a_panel_fits_its_column(open_cells, width):
    notebook = open_cells("from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()")
    page, panel = notebook.page, Panel(notebook, "schedule")
    try:
        page.evaluate("() => window.jupyterapp.shell.collapseLeft()")  # on a phone nobody reads beside a list of files
        page.set_viewport_size(dict(width=width, height=800))
        panel.root.locator("svg").wait_for()
        edges = panel.root.evaluate("""e => {
            const box = e.getBoundingClientRect(), out = e.closest('.jp-OutputArea-output').getBoundingClientRect();
            return [e.scrollWidth - e.clientWidth, box.right - out.right]; }""")
        assert max(edges) <= 1, "the panel is as wide as its column"
        words = panel.root.locator("svg text").evaluate_all("""texts => Math.min(...texts.map(t => {
            const scale = t.ownerSVGElement.getScreenCTM().a;
            return parseFloat(t.getAttribute('font-size')) * scale; }))""")
        assert words >= 10.9, "words can be read"
    finally:
        page.set_viewport_size(dict(width=1280, height=1000))
        page.evaluate("() => window.jupyterapp.shell.expandLeft()")
