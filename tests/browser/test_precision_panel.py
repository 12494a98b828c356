"""The panel of formats in a real JupyterLab: by keyboard, by mouse and typed into."""
import math

import pytest
from lab import Panel

from mlinfra.precision import FORMATS
from mlinfra.views.precision import describe_value

pytestmark = pytest.mark.browser


def test_formats_panel(open_cells):
    panel = Panel(open_cells("from mlinfra.views.precision import formats_panel\nformats_panel()"), "formats")
    panel.tells(describe_value(FORMATS["fp16"], 0.1))
    before = panel.picture()
    panel.press("exponent", "ArrowRight")
    panel.tells(describe_value(FORMATS["fp16"], 0.2))
    before = panel.changed_from(before)
    panel.drag("exponent", 1.0)
    panel.tells(describe_value(FORMATS["fp16"], 1.6 * 2.0**130))
    before = panel.changed_from(before)
    panel.press("exponent", "Home")
    panel.press("mantissa", "Home")
    panel.tells(describe_value(FORMATS["fp16"], 2.0**-152))
    before = panel.changed_from(before)
    panel.root.locator("select").select_option("bf16")
    panel.tells(describe_value(FORMATS["bf16"], 2.0**-152))
    panel.changed_from(before)


def test_a_typed_number_counts_until_a_slider_moves(open_cells):
    panel = Panel(open_cells("from mlinfra.views.precision import formats_panel\nformats_panel()"), "formats")
    field = panel.root.locator("input[type=text]").first
    def enter(text):
        field.fill(text)
        field.press("Enter")
    enter("70000")
    panel.tells(describe_value(FORMATS["fp16"], 70_000))
    panel.root.locator("select").select_option("fp8 e4m3")
    panel.tells(describe_value(FORMATS["fp8 e4m3"], 70_000))
    enter("ten")
    panel.says("type a number such as 0.1 or 1e-8, got 'ten'")
    enter("nan")
    panel.says("the value must be a number, got nan")
    enter("-inf")
    panel.tells(describe_value(FORMATS["fp8 e4m3"], -math.inf))
    panel.press("exponent", "ArrowRight")
    panel.tells(describe_value(FORMATS["fp8 e4m3"], 0.2))
    assert field.input_value() == ""
