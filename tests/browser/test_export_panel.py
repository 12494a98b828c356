"""The panel in which one draws a digit, in a real JupyterLab: by mouse, by buttons and keys, over HTTP."""
import pytest
from lab import Panel, wait_until

from mlinfra.data import mnist
from mlinfra.views.digit_canvas import SIDE, centred, decode_drawing, encode_drawing, enlarge

pytestmark = pytest.mark.browser
# The scores are the rows' ink: what it says is known, whatever the machine. Weights of 2 bits hold 0 and 1 exactly.
CELL = """import torch
from mlinfra.views.digit_canvas import centred, decode_drawing
from mlinfra.views.export import describe_digit, digit_panel

class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(28, 1, bias=False)
        torch.nn.init.ones_(self.fc.weight)

    def forward(self, images): return self.fc(images[:, 0, 9:19]).squeeze(-1)

def said():
    image = centred(decode_drawing(box.controls["drawing"].value))
    return describe_digit(box.desk.answer(image), box.desk).number

box = digit_panel(Rows(), bits=2)
box"""
INK = """e => e.getContext('2d').getImageData(0, 0, e.width, e.height).data
  .filter((v, i) => i % 4 === 3 && v > 30).length"""


def said(notebook):
    "What the kernel makes of the drawing that it has."
    return notebook.value("said()").strip("'")


def drawing(notebook): return notebook.value("box.controls['drawing'].value").strip("'")


def sample(digit, number=0):
    "What the panel's button shows."
    test = mnist(train=False)
    return encode_drawing(enlarge(test.images[(test.labels == digit).nonzero().flatten()[number]]))


def stroke(page, canvas, *points):
    "Draw a line through points, given in shares of the canvas."
    box = canvas.bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]: page.mouse.move(*place, steps=6)
    page.mouse.up()


def test_a_digit_is_drawn_by_mouse(open_cells):
    notebook = open_cells(CELL)
    panel = Panel(notebook, "digit")
    canvas = panel.root.locator("canvas")
    assert drawing(notebook) == sample(3)
    panel.says(said(notebook))
    wait_until(lambda: canvas.evaluate(INK) > 100, "the digit that it starts with is on the canvas")
    panel.button("clear the drawing").click()
    panel.says("⚠ draw a digit, or press one of the ten buttons")
    assert canvas.evaluate(INK) == 0
    wait_until(lambda: panel.root.locator(".mlinfra-picture svg").count() == 0, "no stale picture")
    stroke(panel.page, canvas, (0.3, 0.2), (0.7, 0.2), (0.4, 0.8))  # a seven
    panel.says("% certain")
    ink = canvas.evaluate(INK)
    assert ink > 150
    wait_until(lambda: said(notebook) in panel.words(), "the words are about the whole drawing")
    assert (centred_bytes(notebook) > 30).sum() > 30
    before = panel.picture()
    stroke(panel.page, canvas, (0.3, 0.5), (0.7, 0.5))
    panel.changed_from(before)
    assert canvas.evaluate(INK) > ink
    wait_until(lambda: said(notebook) in panel.words(), "the words follow")


def centred_bytes(notebook): return centred(decode_drawing(drawing(notebook)))


def test_buttons_give_digits_and_keys_reach_them(open_cells):
    notebook = open_cells(CELL)
    panel = Panel(notebook, "digit")
    seven = panel.button("a 7 from the test images; press again for another")
    seven.focus()
    seven.press("Enter")
    wait_until(lambda: drawing(notebook) == sample(7), "the seven is in the kernel")
    panel.says(said(notebook))
    before = panel.picture()
    seven.press("Enter")
    wait_until(lambda: drawing(notebook) == sample(7, 1), "another seven")
    panel.changed_from(before)
    panel.press("bits of a weight", "Home")
    panel.says("With 8 bits a weight the model says")
    panel.says("in this kernel")
    panel.root.locator("select").select_option("over HTTP")
    panel.says("over HTTP")
    assert notebook.value("box.desk.server.stats().requests") == "{200: 12}"
    panel.says(said(notebook))
    panel.button("Reset").click()
    panel.says("in this kernel")
    wait_until(lambda: drawing(notebook) == sample(3), "the start")
    panel.says("With 2 bits a weight")
    canvas = panel.root.locator("canvas")
    wait_until(lambda: canvas.evaluate("e => e.width") == SIDE and canvas.evaluate(INK) > 100, "it is on the canvas")
    assert notebook.value("box.desk.close()") == "None"


def test_the_code_it_offers_gives_the_same(open_cells):
    notebook = open_cells(CELL)
    panel = Panel(notebook, "digit")
    panel.button("a 5 from the test images; press again for another").click()
    wait_until(lambda: drawing(notebook) == sample(5), "the five")
    shown = panel.root.locator("details", has_text="as code").locator("pre").first
    code = shown.evaluate("e => e.textContent")
    names = {}
    exec(code.partition("desk = ")[0], names)
    assert names["image"].equal(centred_bytes(notebook))
