"""The scaling panel in a real JupyterLab: the words against the model, and two real ranks started from it."""
import pytest
from lab import Panel, jobs, ranks, wait_until

from mlinfra.lab.rank_workload import WORKLOADS
from mlinfra.engine.base.hardware import NETWORKS
from mlinfra.views.data_parallel import HERE, LINK_HERE, describe_scaling

pytestmark = pytest.mark.browser
CELL = ("from mlinfra.engine.dist.ranks import run_ranks\n"
        "from mlinfra.views.data_parallel import scaling_panel\n"
        "probe = scaling_panel()\nprobe")


def test_scaling_panel_predicts_and_measures_two_ranks(open_cells):
    notebook = open_cells(CELL)
    panel, network = Panel(notebook, "scaling"), NETWORKS["Ethernet, 10 Gbit/s"]
    now = dict(job=WORKLOADS["ResNet-50, P100"], network=network,
               world_size=256, batch_size=32, strong=False, overlap=True)
    select = lambda text, value: panel.control(text).locator("select").select_option(value)
    box = lambda text: panel.root.locator("label", has_text=text).get_by_role("checkbox")

    def says(**changes):
        "The panel's words are the model's for what was just set, and the picture is another one."
        nonlocal picture
        now.update(changes)
        panel.tells(describe_scaling(**now), 30)
        picture = panel.changed_from(picture)

    panel.tells(describe_scaling(**now), 60)
    picture = panel.picture()
    panel.button("More").click()
    select("network", "Ethernet, 1 Gbit/s")
    says(network=NETWORKS["Ethernet, 1 Gbit/s"])
    panel.press("world size", "ArrowLeft")
    says(world_size=128)
    panel.drag("batch", 1.0)
    says(batch_size=8192)
    box("messages overlap").uncheck()
    says(overlap=False)
    box("of all ranks together").check()
    says(strong=True)
    panel.press("batch", "Home")
    panel.says("without an image")
    box("of all ranks together").uncheck()
    says(strong=False, batch_size=1)
    select("job", "ResNet-50, one M40")
    says(job=WORKLOADS["ResNet-50, one M40"])
    panel.press("batch", *["ArrowRight"] * 5)
    says(batch_size=32)
    select("network", LINK_HERE)
    panel.says("has not been measured")
    select("network", "Ethernet, 1 Gbit/s")
    panel.button("Measure two ranks here").click()
    wait_until(lambda: "measured" in panel.status(), "two ranks are measured", 120)
    wait_until(lambda: "measured on 2 ranks" in panel.picture(), "the measured point is drawn, whatever is chosen")
    select("network", LINK_HERE)
    assert notebook.value("probe.controls['job'].value") == repr("ResNet-50, one M40"), "the controls stay"
    select("job", HERE)
    wait_until(lambda: "measured on 2 ranks" in panel.picture(), "the measured point is drawn")
    panel.button("Measure two ranks here").click()
    wait_until(lambda: "ranks" in panel.status(), "the ranks start", 60)
    panel.button("Stop").click()
    wait_until(lambda: "Stopped" in panel.status(), "the ranks are stopped", 60)
    assert ranks(notebook) == "[]" and wait_until(lambda: jobs(notebook) == "[]", "the job ends", 20)


def test_ranks_from_a_cell_and_an_interrupt(open_cells):
    notebook = open_cells("from mlinfra.engine.dist.process_group import rank_and_world_size\n"
                          "from mlinfra.engine.dist.ranks import run_ranks\n"
                          "from mlinfra.lab.rank_faults import faulty\n"
                          "found = run_ranks(rank_and_world_size, 2, share_cores=True)",
                          "import _thread\n"
                          "def interrupt(share, words): 'at work' in words and _thread.interrupt_main()\n"
                          "try: run_ranks(faulty, 2, 'hangs', share_cores=True, report=interrupt)\n"
                          "except KeyboardInterrupt: ended = 'interrupted'")
    assert notebook.value("found") == "{0: (0, 2), 1: (1, 2)}" and notebook.value("ended") == "'interrupted'"
    assert ranks(notebook) == "[]"
