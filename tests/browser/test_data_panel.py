"""The panel of chapter 2 in a real JupyterLab."""
import pytest
from lab import Panel

pytestmark = pytest.mark.browser


def test_order_panel(open_cells):
    panel = Panel(open_cells("from mlinfra.views.data import order_panel\norder_panel()"), "orders")
    panel.says("4 batches an epoch")
    panel.says("The last batch holds 2 samples instead of 6.")
    before = panel.picture()
    panel.press("seed", "ArrowRight")
    before = panel.changed_from(before)
    panel.root.get_by_text("drop_last").click()
    panel.says("3 batches an epoch")
    panel.says("2 samples left out, other ones in each epoch.")
    before = panel.changed_from(before)
    panel.drag("batch size", 1.0)
    panel.says("20 samples cannot fill a batch of 30")
    panel.button("More").click()
    panel.control("data set").wait_for()
    panel.press("data set", "Home")
    panel.says("1 sample cannot fill a batch of 30")
    panel.changed_from(before)
