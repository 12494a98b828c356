"""The panel of chapter 3 in a real JupyterLab."""
import pytest
from lab import Panel

from mlinfra.models import GluonCNN, count_parameters

pytestmark = pytest.mark.browser


def test_layers_panel(open_cells):
    panel = Panel(open_cells("from mlinfra.views.models import layers_panel\nlayers_panel()"), "layers")
    panel.says(f"{count_parameters(GluonCNN()):,} parameters")
    before = panel.picture()
    panel.press("dense", "End")
    panel.says(f"{count_parameters(GluonCNN(hidden=4096)):,} parameters")
    before = panel.changed_from(before)
    panel.drag("conv. 2", 1.0)
    panel.says(f"{count_parameters(GluonCNN(channels=(20, 200), hidden=4096)):,} parameters")
    panel.press("batch", "End")
    panel.says("A batch of 60,000 takes")
    panel.says(f"{count_parameters(GluonCNN(channels=(20, 200), hidden=4096)):,} parameters")
    before = panel.changed_from(before)
    for text in ("conv. 1", "conv. 2", "dense", "batch"): panel.press(text, "Home")
    panel.says(f"{count_parameters(GluonCNN(channels=(1, 1), hidden=16)):,} parameters")
    panel.changed_from(before)
