"""The panel of recommendations in a real JupyterLab: by keyboard and mouse, the words against the model."""
from dataclasses import replace

import pytest
from lab import Panel

from mlinfra.engine.clusters import cluster
from mlinfra.planner import JOBS, recommend

pytestmark = pytest.mark.browser


def test_planner_panel_recommends(open_cells):
    notebook = open_cells("from mlinfra.views.planner import planner_panel\nplanner_panel()")
    panel, now = Panel(notebook, "which-one"), dict(job="LLaMA-like, 70B", device="A100 80 GB", batch=1024, nodes=8, node=8, between="InfiniBand HDR, 200 Gbit/s")
    select = lambda text, value: panel.control(text).locator("select").select_option(value)

    def says(**changes):
        "The panel's words are the model's for what was just set, and the picture is another one."
        nonlocal picture
        now.update(changes)
        panel.says(recommend(replace(JOBS[now["job"]], batch=now["batch"]), cluster(now["device"], now["nodes"], now["node"], now["between"])).summary, 30)
        picture = panel.changed_from(picture)

    picture = ""
    says()
    notebook.shot("planner")
    select("link between nodes", "Ethernet, 1 Gbit/s")
    says(between="Ethernet, 1 Gbit/s")
    panel.press("batch", "ArrowRight")
    says(batch=2048)
    panel.press("devices in a node", "ArrowLeft")
    says(node=4)
    select("device", "V100 32 GB")
    says(device="V100 32 GB")
    panel.press("nodes", "Home")
    says(nodes=1)
    panel.says("Nothing fits")
    notebook.shot("planner_nothing_fits")
    select("job", "ResNet-50")
    says(job="ResNet-50")
    panel.drag("nodes", 1.0)
    panel.says("Nothing divides")
