"""The panel of traces in a real JupyterLab: its timeline is zoomed and moved by keys, wheel, mouse and buttons."""
import json

import pytest
from lab import Panel, wait_until

pytestmark = pytest.mark.browser
CELL = """from mlinfra.views.trace import trace_panel
box = trace_panel()
box"""


@pytest.fixture
def opened(open_cells):
    notebook = open_cells(CELL)
    panel = Panel(notebook, "trace")
    picture = panel.root.locator(".mlinfra-picture")
    wait_until(lambda: picture.get_attribute("aria-label"), "the timeline takes keys")
    return notebook, panel, picture


def window(notebook): return json.loads(notebook.value("box.controls['window'].value"))


def becomes(notebook, begin, end):
    def reached(): return [round(share, 3) for share in window(notebook)] == [begin, end]
    wait_until(reached, f"the window is {begin} to {end}")


def test_keys_zoom_and_move(opened):
    notebook, _, picture = opened
    picture.focus()
    picture.press("+")
    becomes(notebook, 0.25, 0.75)
    picture.press("ArrowRight")
    becomes(notebook, 0.35, 0.85)
    picture.press("-")
    becomes(notebook, 0.0, 1.0)


def test_the_mouse_zooms_where_it_points_and_drags(opened):
    notebook, panel, picture = opened
    box = picture.locator("svg").first.bounding_box()
    left, right = box["x"] + 130 / 720 * box["width"], box["x"] + 708 / 720 * box["width"]
    y = box["y"] + 0.6 * box["height"]
    notebook.page.mouse.click(left + 1, y)           # the wheel scrolls the page until the picture has been clicked
    wait_until(lambda: notebook.page.evaluate("document.activeElement.classList.contains('mlinfra-picture')"), "focus")
    notebook.page.mouse.move(left, y)
    notebook.page.mouse.wheel(0, -100)
    becomes(notebook, 0.0, 0.8)
    notebook.page.mouse.move(right, y)
    notebook.page.mouse.down()
    notebook.page.mouse.move((left + right) / 2, y, steps=4)
    notebook.page.mouse.up()
    becomes(notebook, 0.2, 1.0)
    panel.root.get_by_role("button", name="show the whole step").click()
    becomes(notebook, 0.0, 1.0)


def test_a_path_that_leads_nowhere_leaves_no_picture(opened):
    _, panel, picture = opened
    field = panel.root.get_by_placeholder("path of a file or folder, Enter")
    field.fill("/nowhere.json")
    field.press("Enter")
    wait_until(lambda: "there is no file /nowhere.json" in panel.root.inner_text(), "it is said")
    assert not picture.is_visible() and not panel.root.locator(".mlinfra-kernels").count()
