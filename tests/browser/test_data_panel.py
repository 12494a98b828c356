"""The panel of chapter 2 in a real JupyterLab."""
import pytest
from lab import Panel

pytestmark = pytest.mark.browser


def test_order_panel(open_cells):
    panel = Panel(open_cells("from mlinfra.views.data import order_panel\norder_panel()"), "orders")
    panel.says("4 batches an epoch; 0 samples left out")
    before = panel.picture()
    panel.press("seed", "ArrowRight")
    before = panel.changed_from(before)
    panel.root.get_by_text("drop_last").click()
    panel.says("3 batches an epoch; 2 samples left out")
    before = panel.changed_from(before)
    panel.drag("batch size", 1.0)
    panel.says("0 batches an epoch; 20 samples left out")
    panel.press("samples", "Home")
    panel.says("0 batches an epoch; 1 sample left out")
    panel.changed_from(before)
