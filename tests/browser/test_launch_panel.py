"""The panel of one job in five files in a real JupyterLab: by keyboard and mouse, the files against the renderers."""
from dataclasses import replace

import pytest
from lab import Panel, wait_until

from mlinfra.engine.launch.job_spec import JobSpec, render_for
from mlinfra.views.launch import SHOWN, describe_job, write_files

pytestmark = pytest.mark.browser
CELL = "from mlinfra.views.launch import launch_panel\nlaunch_panel()"
START = JobSpec("python train.py --lr 0.1", nodes=2, devices_per_node=8, cpus=4, memory_gb=256, time_seconds=4 * 3600,
                image="registry.example.org/team/training:1")

FILES = """root => Object.fromEntries([...root.querySelectorAll('section')].map(
  e => [e.dataset.system, e.querySelector('pre').textContent]))"""
LIT = """root => Object.fromEntries([...root.querySelectorAll('section')].map(
  e => [e.dataset.system, [...e.querySelectorAll('mark')].map(row => row.textContent.trimEnd())]))"""
LIT_IN_SIGHT = """root => [...root.querySelectorAll('pre')].filter(e => e.querySelector('mark')).every(e => {
  const row = e.querySelector('mark');
  return row.offsetTop >= e.scrollTop && row.offsetTop < e.scrollTop + e.clientHeight;
})"""
COLUMNS = """root => new Set([...root.querySelectorAll('section')].map(
  e => Math.round(e.getBoundingClientRect().x))).size"""
INSIDE = """root => [...root.querySelectorAll('section')].every(e => {
  const [box, all] = [e.getBoundingClientRect(), root.getBoundingClientRect()];
  return box.width >= 260 && box.right <= all.right + 1 && e.querySelector('pre').scrollWidth <= box.width;
})"""


def test_files_follow_the_controls_and_changes_light_up(open_cells):
    panel = Panel(open_cells(CELL), "launch")
    job = START

    def shows(**changes):
        "The files on the page are the renderers' for what was just set; gives the lines that are lit."
        nonlocal job
        job = replace(job, **changes)
        panel.says(describe_job(job).number)
        wait_until(lambda: panel.root.evaluate(FILES) == write_files(job), f"the files follow {changes}", 20)
        return panel.root.evaluate(LIT)

    assert not any(shows().values()), "nothing has moved"
    panel.press("nodes", "ArrowRight")
    lit = shows(nodes=4)
    assert "#SBATCH --nodes=4" in lit["slurm"] and "NODES = 4" in lit["ray"] and all(lit.values())
    assert panel.root.evaluate(LIT_IN_SIGHT), "a file shows what has changed in it"
    panel.says("Lines changed by the last move: torchrun 1, SLURM 1")

    command = panel.control("command").locator("input")
    command.fill("python train.py --name \"it's $HOME\"")
    command.press("Enter")
    lit = shows(command=("python", "train.py", "--name", "it's $HOME"))
    assert all(any("$HOME" in line for line in lines) for lines in lit.values())

    panel.button("More").click()
    panel.press("restarts", "ArrowRight")
    assert any("--requeue" in line for line in shows(retries=1)["slurm"])
    panel.drag("nodes", 0.0)
    lit = shows(nodes=1)
    assert "#SBATCH --nodes=1" in lit["slurm"]
    panel.control("runs on").locator("select").select_option("CPU")
    shows(device="cpu")
    panel.says("8 processes")

    panel.press("independent copies", "ArrowRight")
    refused = shows(array=2)["sagemaker"]
    assert refused and refused[0].startswith("⚠ refused: array must be 0 for SageMaker")
    panel.says("Refused by SageMaker")
    panel.button("Reset").click()
    job = START
    shows()


def test_a_job_that_is_none_leaves_no_files(open_cells):
    panel = Panel(open_cells(CELL), "launch")
    panel.says("16 ranks on 2 nodes")
    command = panel.control("command").locator("input")
    command.fill("python 'train.py")
    command.press("Enter")
    panel.says("⚠ command must be words that a shell can read")
    wait_until(lambda: panel.root.locator("section").count() == 0, "no file stays")
    assert not panel.shows_a_picture()
    command.fill("python other.py")
    command.press("Enter")
    panel.says("16 ranks on 2 nodes")
    wait_until(lambda: panel.root.evaluate(FILES) == write_files(replace(START, command="python other.py")), "files")


def test_files_are_read_copied_and_reached_by_keys(open_cells):
    notebook = open_cells(CELL)
    panel = Panel(notebook, "launch")
    region = panel.root.get_by_role("region", name="the job for SLURM")
    region.wait_for()
    region.locator("pre").focus()
    region.locator("pre").press("End")
    wait_until(lambda: region.locator("pre").evaluate("e => e.scrollTop") > 0, "the file is scrolled by a key")
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy = panel.root.get_by_role("button", name="copy the file for SLURM")
    copy.focus()
    copy.press("Enter")
    region.get_by_text("Copied").wait_for()
    assert notebook.page.evaluate("() => navigator.clipboard.readText()") == render_for(START, "slurm")
    assert panel.root.get_by_role("slider", name="nodes", exact=True).get_attribute("aria-valuetext") == "2"


@pytest.mark.parametrize("width, columns", [(900, 1), (1280, 2), (1920, 5)])
def test_files_stand_beside_each_other_as_wide_as_the_page_is(open_cells, width, columns):
    panel = Panel(open_cells(CELL), "launch")
    panel.page.set_viewport_size({"width": width, "height": 1000})
    try:
        grid = panel.root.locator(".mlinfra-files")
        wait_until(lambda: grid.evaluate(COLUMNS) >= columns, f"{columns} columns or more")
        assert grid.evaluate(INSIDE), "each file is wide enough and inside the page, its lines folded"
        assert panel.root.locator("section").count() == len(SHOWN)
    finally: panel.page.set_viewport_size({"width": 1280, "height": 1000})
