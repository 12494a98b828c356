"""The memory panel in a real JupyterLab: by keyboard and mouse, the words against the estimate."""
from dataclasses import replace

import pytest
from lab import Panel, wait_until

from mlinfra.engine.base.hardware import DEVICES
from mlinfra.views.memory import MemoryPlan, describe_plan

pytestmark = pytest.mark.browser


def test_memory_panel_fits_does_not_fit_and_measures(open_cells):
    notebook = open_cells("from mlinfra.views.memory import memory_panel\nmemory_panel()")
    panel, plan = (
        Panel(notebook, "memory"),
        MemoryPlan("Transformer, 12 x 768, 512 tokens", "fp32", "adam", 64, 1, False, 0, 1, DEVICES["T4 16 GB"]),
    )
    select = lambda text, value: panel.control(text).locator("select").select_option(value)

    def now(**changes):
        "The plan with what was just set; the panel must say what it says, and draw another picture."
        nonlocal plan, picture
        plan = replace(plan, **changes)
        panel.tells(describe_plan(plan), 60)
        picture = panel.changed_from(picture)

    panel.tells(describe_plan(plan), 60)
    picture = panel.picture()
    panel.button("More").click()
    panel.press("batch", *["ArrowRight"] * 4)
    now(batch_size=1024)
    select("precision", "bf16")
    panel.says("precision bf16 needs compute capability 8.0, T4 16 GB has 7.5")
    select("device", "A100 40 GB")
    now(precision="bf16", device=DEVICES["A100 40 GB"])
    panel.root.get_by_role("checkbox").check()
    now(checkpointing=True)
    select("optimizer", "sgd")
    now(optimizer="sgd")
    select("model", "ResNet-50, 224 px")
    now(model="ResNet-50, 224 px")
    panel.press("micro-batches", "ArrowRight", "ArrowRight")
    now(accumulation=4)
    select("model", "GluonCNN, 28 px")
    now(model="GluonCNN, 28 px")
    panel.drag("world size", 1.0)
    panel.tells(describe_plan(plan := replace(plan, world_size=1024)))
    select("sharding", "ZeRO 3: and weights")
    now(sharding_stage=3)
    panel.button("Measure a step here").click()
    wait_until(lambda: "set the world size to 1" in panel.status(), "one rank cannot measure ZeRO")
    panel.press("world size", "Home")
    now(world_size=1)
    select("device", "H200 141 GB")
    now(device=DEVICES["H200 141 GB"])
    panel.button("Measure a step here").click()
    wait_until(lambda: "Measured" in panel.status(), "the step is measured")
    for key, batch in (("Home", 1), ("End", 16_384)):
        panel.press("batch", key)
        now(batch_size=batch)
