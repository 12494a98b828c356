"""The panels of chapter 1 in a real JupyterLab: by keyboard and by mouse, the number against the formula."""
from dataclasses import replace

import pytest
from lab import Panel, wait_until

from mlinfra.arithmetic import Schedule, Stages
from mlinfra.views.arithmetic import describe_overlap, describe_choice

pytestmark = pytest.mark.browser
IMAGENET, IMAGE = 1_280_000, 0.01375  # images, and seconds of one


def test_schedule_panel_by_keyboard_and_mouse(open_cells):
    panel = Panel(open_cells("from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()"), "schedule")
    panel.tells(describe_choice(Schedule(IMAGENET, 32, epochs=100, world_size=8), 32 * IMAGE))
    before = panel.picture()
    panel.press("micro-batch", "ArrowRight", "ArrowRight")
    panel.tells(describe_choice(Schedule(IMAGENET, 128, epochs=100, world_size=8), 128 * IMAGE))
    before = panel.changed_from(before)
    panel.click_track("accumulation", 0.56)
    def moved(): return panel.readout("accumulation") not in ("", "1") and panel.readout("accumulation")
    accumulation = int(wait_until(moved, "the click moves the slider"))
    plan = Schedule(IMAGENET, 128, epochs=100, accumulation=accumulation, world_size=8)
    panel.tells(describe_choice(plan, 128 * IMAGE))
    panel.drag("world size", 1.0)
    panel.tells(describe_choice(replace(plan, world_size=4096), 128 * IMAGE))
    panel.changed_from(before)


def test_schedule_panel_at_its_extremes(open_cells):
    panel = Panel(open_cells("from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()"), "schedule")
    panel.button("More").click()
    panel.control("epochs").wait_for()  # a hidden slider takes no keys
    for text in ("micro-batch", "accumulation", "world size", "epochs"): panel.press(text, "End")
    panel.tells(describe_choice(Schedule(IMAGENET, 4096, epochs=300, accumulation=512, world_size=4096), 4096 * IMAGE))
    panel.root.get_by_text("drop_last", exact=True).click()
    panel.says("drop_last leaves nothing: the global batch 8,589,934,592 exceeds the 1,280,000 samples")
    for text in ("micro-batch", "accumulation", "world size", "epochs"): panel.press(text, "Home")
    panel.tells(describe_choice(Schedule(IMAGENET, 1, drop_last=True), IMAGE))


def test_schedule_panel_counts_a_real_loop(open_cells):
    panel = Panel(open_cells("from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()"), "schedule")
    panel.root.locator("select").first.select_option("MNIST")
    panel.press("world size", "ArrowRight")
    plan = Schedule(60_000, 32, epochs=100, world_size=16)
    panel.tells(describe_choice(plan, 32 * IMAGE))
    panel.button("Count a real loop").click()
    wait_until(lambda: "they agree" in panel.status(), "the count ends")
    assert f"counted {plan.iterations_per_epoch:,} iterations" in panel.status()


def test_schedule_panel_refuses_to_count_forever_and_can_be_stopped(open_cells):
    panel = Panel(open_cells("from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()"), "schedule")
    for text in ("micro-batch", "accumulation"): panel.press(text, "Home")
    panel.press("world size", "End")
    panel.says("4,096 = 4,096")
    panel.button("Count a real loop").click()
    wait_until(lambda: "rank" in panel.status(), "progress is shown")
    panel.button("Stop").click()
    wait_until(lambda: panel.status() == "Stopped.", "the count stops")
    panel.root.locator("select").first.select_option("own")
    own = panel.root.locator("input[type=number]").first
    own.fill("1000000000000")
    own.press("Enter")
    panel.tells(describe_choice(Schedule(10**12, 1, epochs=100, world_size=4096), IMAGE))
    panel.button("Count a real loop").click()
    wait_until(lambda: "would take hours" in panel.status(), "too much is refused")


def test_overlap_panel(open_cells):
    panel = Panel(open_cells("from mlinfra.views.arithmetic import overlap_panel\noverlap_panel()"), "overlap")
    panel.tells(describe_overlap(Stages(0.23, 0.15, 0.055), 4_000_000))
    before = panel.picture()
    panel.press("read", "ArrowLeft")
    panel.tells(describe_overlap(Stages(0.2, 0.15, 0.055), 4_000_000))
    before = panel.changed_from(before)
    panel.drag("compute", 1.0)
    panel.tells(describe_overlap(Stages(0.2, 0.15, 0.5), 4_000_000))
    panel.changed_from(before)
    for text in ("read", "preprocess", "compute"): panel.press(text, "Home")
    panel.says("at least one stage must take time")
    for text in ("read", "preprocess", "compute"): panel.press(text, "End")
    panel.tells(describe_overlap(Stages(0.5, 0.5, 0.5), 4_000_000))
