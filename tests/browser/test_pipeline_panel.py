"""The pipeline panel in a real JupyterLab: by keyboard and mouse, the words against the simulator, and two real
ranks started from it."""
from dataclasses import replace

import pytest
from lab import Panel, jobs, ranks, wait_until

from mlinfra.views.pipeline import PipelineSetup

pytestmark = pytest.mark.browser


def test_pipeline_panel_follows_its_controls_and_runs_two_ranks(open_cells):
    notebook = open_cells("from mlinfra.views.pipeline import pipeline_panel\npipeline_panel()")
    panel, setup = Panel(notebook, "pipeline"), PipelineSetup("GPipe", 4, 8)
    select = lambda value: panel.control("schedule").locator("select").select_option(value)

    def now(**changes):
        "The setup with what was just set; the panel must say what it says, and draw another picture."
        nonlocal setup, picture
        setup = replace(setup, **changes)
        panel.tells(setup.describe())
        picture = panel.changed_from(picture)

    panel.tells(setup.describe())
    picture = panel.picture()
    panel.button("More").click()
    panel.press("moment", *["ArrowLeft"] * 3)
    wait_until(lambda: ">backward 7<" in panel.picture() and "has finished" in panel.picture(), "it is cut at 30")
    panel.root.locator(".jupyter-widgets.widget-play button").first.click()
    wait_until(lambda: ">forward " in panel.picture(), "it plays, from the start", 30)
    panel.press("micro-batches", "ArrowRight", "ArrowRight")
    now(micro_batches=16)
    select("1F1B")
    now(schedule="1F1B")
    panel.press("ranks", "ArrowLeft", "ArrowLeft")
    now(world_size=2)
    panel.press("ranks", "End")
    now(world_size=8)
    select("zero-bubble")
    now(schedule="zero-bubble")
    panel.press("stages on a rank", "ArrowRight")
    now(stages_per_rank=2)
    select("GPipe")
    panel.says("⚠ GPipe has one stage on a rank, not 2")
    wait_until(lambda: not panel.shows_a_picture(), "what cannot be drawn leaves no picture of what was set before")
    select("interleaved 1F1B")
    now(schedule="interleaved 1F1B")
    panel.drag("last rank", 1.0)
    now(slow=3.0)
    panel.press("backward", "End")
    now(backward=3.0)
    panel.press("micro-batches", "End")
    now(micro_batches=32)
    panel.button("Run it here").click()
    wait_until(
        lambda: "ranks must be at most 4 to be started here, got 8" in panel.status(), "too many processes are refused"
    )
    panel.press("stages on a rank", "Home")
    now(stages_per_rank=1)
    select("1F1B")
    now(schedule="1F1B")
    panel.press("ranks", "Home", "ArrowRight")
    now(world_size=2)
    panel.press("micro-batches", "Home", "ArrowRight", "ArrowRight", "ArrowRight")
    now(micro_batches=4)
    panel.button("Run it here").click()
    wait_until(lambda: "1F1B on 2 ranks with 4 micro-batches: measured" in panel.status(), "two processes run", 120)
    assert (
        "measured: forward of micro-batch 0" in panel.picture()
        and ranks(notebook) == "[]"
        and wait_until(lambda: jobs(notebook) == "[]", "the job ends", 20)
    )
