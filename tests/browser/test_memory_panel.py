"""The memory panel in a real JupyterLab: by keyboard and mouse, the words against the estimate."""
import pytest
from lab import Panel, wait_until

from mlinfra.memory import DEVICES, Plan, describe_plan

pytestmark = pytest.mark.browser


def test_memory_panel_fits_does_not_fit_and_measures(open_cells):
    notebook = open_cells("from mlinfra.memory import memory_panel\nmemory_panel()")
    panel, t4 = Panel(notebook, "memory"), DEVICES["T4 16 GB"]
    select = lambda place, value: panel.root.locator("select").nth(place).select_option(value)
    panel.says(describe_plan(Plan("ResNet-50, 224 px", "fp32", "adam", 64, "none", 1, t4)), 60)
    before = panel.picture()
    panel.press("batch", "ArrowRight", "ArrowRight")
    panel.says(describe_plan(Plan("ResNet-50, 224 px", "fp32", "adam", 256, "none", 1, t4)))
    before = panel.changed_from(before)
    select(1, "bf16, sgd")
    panel.says(describe_plan(Plan("ResNet-50, 224 px", "bf16", "sgd", 256, "none", 1, t4)), 60)
    before = panel.changed_from(before)
    notebook.shot("memory_resnet50")
    select(0, "GluonCNN, 28 px")
    select(2, "ZeRO stage 3")
    panel.drag("world size", 1.0)
    panel.says(describe_plan(Plan("GluonCNN, 28 px", "bf16", "sgd", 256, "ZeRO stage 3", 1024, t4)), 60)
    before = panel.changed_from(before)
    panel.button("Measure a step here").click()
    wait_until(lambda: "choose another saver" in panel.status(), "one rank cannot measure ZeRO")
    select(2, "none")
    select(3, "H200 141 GB")
    panel.says("H200 141 GB has")
    panel.button("Measure a step here").click()
    wait_until(lambda: "Measured" in panel.status(), "the step is measured")
    for text in ("batch", "world size"): panel.press(text, "Home")
    panel.says(describe_plan(Plan("GluonCNN, 28 px", "bf16", "sgd", 1, "none", 1, DEVICES["H200 141 GB"])))
    panel.press("batch", "End")
    panel.says(describe_plan(Plan("GluonCNN, 28 px", "bf16", "sgd", 16_384, "none", 1, DEVICES["H200 141 GB"])))
    panel.changed_from(before)
