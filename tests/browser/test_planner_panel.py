"""The panel of recommendations in a real JupyterLab: by keyboard and mouse, the words against the model."""
from dataclasses import replace

import pytest
from lab import Panel

from mlinfra.engine.planner.clusters import cluster
from mlinfra.planner import JOBS, recommend
from mlinfra.views.planner import describe_recommendation

pytestmark = pytest.mark.browser


def test_planner_panel_recommends(open_cells):
    notebook = open_cells("from mlinfra.views.planner import planner_panel\nplanner_panel()")
    panel, picture = Panel(notebook, "planner"), ""
    now = dict(job="LLaMA, 13B", device="A100 80 GB", global_batch=2048, num_nodes=8, devices_per_node=8,
               inter_node="InfiniBand HDR, 200 Gbit/s", links_per_node=8)

    def select(text, value): panel.control(text).locator("select").select_option(value)

    def says(**changes):
        "The panel's words are the model's for what was just set, and the picture is another one."
        nonlocal picture
        now.update(changes)
        machines = {name: value for name, value in now.items() if name not in ("job", "global_batch")}
        job = replace(JOBS[now["job"]], global_batch=now["global_batch"])
        panel.tells(describe_recommendation(recommend(job, cluster(**machines))), 30)
        picture = panel.changed_from(picture)

    says()
    panel.button("More").click()
    panel.press("cables of a node", "Home")
    says(links_per_node=1)
    select("link between nodes", "Ethernet, 1 Gbit/s")
    says(inter_node="Ethernet, 1 Gbit/s")
    panel.press("batch", "ArrowRight")
    says(global_batch=4096)
    panel.press("devices in a node", "ArrowLeft")
    says(devices_per_node=4)
    select("device", "V100 32 GB")
    says(device="V100 32 GB")
    panel.press("nodes", "Home")
    says(num_nodes=1)
    panel.says("Nothing fits")
    select("job", "ResNet-50")
    says(job="ResNet-50")
    panel.drag("nodes", 1.0)
    panel.says("Nothing divides")
