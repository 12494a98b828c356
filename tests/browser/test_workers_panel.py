"""The sweep panel in a real JupyterLab: predicted, measured, stopped."""
import re

import pytest
from lab import Panel, jobs, wait_until

from mlinfra.engine.base.text import duration_text

pytestmark = pytest.mark.browser


def alone(curve, extra):
    "Seconds of a step without workers, from the curve as the kernel shows it."
    return (
        sum(float(re.search(rf"\b{name}=([^,)]+)", curve)[1]) for name in ("load_seconds", "compute_seconds")) + extra
    )


def test_workers_panel_predicts_measures_and_stops(open_cells):
    notebook = open_cells("from mlinfra.views.workers import workers_panel\nbox = workers_panel()\nbox")
    panel = Panel(notebook, "workers")
    panel.says("Press Run")
    panel.press("images", "Home")
    before = panel.picture()
    panel.button("Run the sweep").click()
    wait_until(lambda: "5 runs" in panel.status(), "the sweep ends", 180)
    assert "pay here" in panel.words()
    before = panel.changed_from(before)
    panel.drag("work per image", 1.0)
    curve, blur = (notebook.value(f"box.sweep.last.{name}") for name in ("curve", "blur_seconds"))
    panel.says(", predicted")
    before = panel.changed_from(before)
    heavy, light = (duration_text(10 * alone(curve, times * 64 * float(blur))) for times in (200, 10))
    wait_until(lambda: f"0 workers: {heavy}, predicted" in panel.picture(), "640 images in batches of 64")
    panel.click_track("work per image", 0.5)
    panel.changed_from(before)
    wait_until(lambda: f"0 workers: {light}, predicted" in panel.picture(), "lighter images")
    panel.press("images", "End")
    panel.button("Run the sweep").click()
    wait_until(lambda: "workers" in panel.status(), "progress is shown")
    panel.button("Stop").click()
    wait_until(lambda: panel.status() == "Stopped.", "the sweep stops", 60)
    wait_until(lambda: jobs(notebook) == "[]", "no thread is left")


def test_the_timeline_follows_its_sliders(open_cells):
    panel = Panel(open_cells("from mlinfra.views.timeline import timeline_panel\ntimeline_panel()"), "timeline")
    panel.says("The device works 67% of the time")
    assert "60 ms a step" in panel.words()
    before = panel.picture()
    panel.press("workers", "Home")
    panel.says("The device works 40% of the time")
    assert "100 ms a step" in panel.words()
    before = panel.changed_from(before)
    panel.press("workers", "ArrowRight", "ArrowRight")
    panel.says("The device works 100% of the time: all loading is hidden")
    assert "worker 1" in panel.changed_from(before)
    panel.press("cores for workers", "Home")
    panel.says("60 ms a step")
