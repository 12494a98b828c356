"""The panel of tensor parallelism in a real JupyterLab: the words against the model, and two real ranks that share a
block."""
from dataclasses import replace

import pytest
from lab import Panel, jobs, wait_until

from mlinfra.engine.base.hardware import NETWORKS, ROOFLINES
from mlinfra.lab.tensor_costs import TensorParallelCost
from mlinfra.views.tensor_parallel import LINK_HERE, THREAD_HERE, describe_cost, measured_h200

pytestmark = pytest.mark.browser


def test_tensor_panel_predicts_and_measures_two_ranks(open_cells):
    notebook = open_cells("from mlinfra.views.tensor_parallel import tensor_panel\nprobe = tensor_panel()\nprobe")
    panel, cost = (
        Panel(notebook, "tensor"),
        TensorParallelCost(4096, 8192, 8, measured_h200(), NETWORKS["NVLink 4 (H100)"], context=2048),
    )
    def select(text, value): panel.control(text).locator("select").select_option(value)

    def now(**changes):
        "The cost with what was just set; the panel must say what it says, and draw another picture."
        nonlocal cost, picture
        cost = replace(cost, **changes)
        panel.tells(describe_cost(cost), 30)
        picture = panel.changed_from(picture)

    panel.tells(describe_cost(cost), 60)
    picture = panel.picture()
    panel.button("More").click()
    select("link", "Ethernet, 50 Gbit/s")
    now(network=NETWORKS["Ethernet, 50 Gbit/s"])
    panel.press("width", "ArrowRight")
    now(width=8192)
    panel.press("ranks that share", "ArrowLeft", "ArrowLeft")
    now(world_size=2)
    panel.drag("tokens", 0.0)
    now(tokens=64)
    select("device", "V100 32 GB")
    panel.says("precision must be one of fp32, fp16 for V100 32 GB, got 'bf16'")
    select("precision", "fp16")
    now(device=ROOFLINES["V100 32 GB"], precision="fp16")
    panel.drag("tokens", 1.0)
    now(tokens=65536)
    panel.button("Run two ranks here").click()
    wait_until(lambda: "measured" in panel.status(), "two ranks have run", 120)
    assert panel.status().startswith("Two ranks, width 512, 512 tokens: ") and "predicted" in panel.status()
    panel.tells(describe_cost(cost))  # the controls stay
    select("precision", "fp32")
    select("device", THREAD_HERE)
    select("link", LINK_HERE)
    panel.press("width", *["ArrowLeft"] * 4)
    panel.press("tokens", *["ArrowLeft"] * 7)
    panel.says(f"A block of width 512, 512 tokens in fp32 on {THREAD_HERE}: 2 ranks take")
    wait_until(lambda: ">measured " in panel.picture(), "the measurement is drawn under its prediction")
    panel.button("Run two ranks here").click()
    wait_until(lambda: "ranks" in panel.status(), "the ranks start", 60)
    panel.button("Stop").click()
    wait_until(lambda: "Stopped" in panel.status(), "the ranks are stopped", 60)
    assert wait_until(lambda: jobs(notebook) == "[]", "the job ends", 20)
