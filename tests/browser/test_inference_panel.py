"""The server panel in a real JupyterLab: its words against the simulation, a real run, a stop."""
import pytest
from lab import Panel, jobs, wait_until

from mlinfra.engine.serve.request_queue import Policy, ServiceTime
from mlinfra.views.inference import describe_server

pytestmark = pytest.mark.browser
EXAMPLE, CNN, RESNET = ServiceTime(0.0004, 0.0001), ServiceTime(0.0005, 0.0001), ServiceTime(0.008, 0.002)
CELL = """from mlinfra.engine.serve.request_queue import ServiceTime; from mlinfra.views.inference import server_panel
box = server_panel(services={"GluonCNN": ServiceTime(0.0005, 0.0001), "ResNet-18": ServiceTime(0.008, 0.002)})
box"""


def test_server_panel_predicts_measures_and_stops(open_cells):
    notebook = open_cells(CELL)
    panel = Panel(notebook, "server")
    panel.says(describe_server(EXAMPLE, Policy(), 1_800).number)
    panel.root.locator("select").select_option("GluonCNN, this machine")
    panel.says(describe_server(CNN, Policy(), 1_800).sentence)
    panel.root.locator("select").select_option("ResNet-18, this machine")
    panel.says(describe_server(RESNET, Policy(), 1_800).sentence)
    panel.press("requests per second", "Home", *["ArrowRight"] * 7)
    panel.says(describe_server(RESNET, Policy(), 100).sentence)
    before = panel.picture()
    panel.press("requests per second", "ArrowLeft")
    panel.says(describe_server(RESNET, Policy(), 68).sentence)
    before = panel.changed_from(before)
    panel.drag("maximum batch", 1.0)
    panel.says(describe_server(RESNET, Policy(64), 68).sentence)
    before = panel.changed_from(before)
    panel.press("maximum wait", "End")
    panel.says(describe_server(RESNET, Policy(64, 0.1), 68).sentence)
    before = panel.changed_from(before)
    panel.root.locator("select").select_option("GluonCNN, this machine")
    panel.says(describe_server(CNN, Policy(64, 0.1), 68).sentence)
    before = panel.changed_from(before)
    panel.press("requests per second", "Home", "ArrowRight")
    panel.says(describe_server(CNN, Policy(64, 0.1), 15).sentence)
    before = panel.changed_from(before)
    panel.button("Send requests").click()
    wait_until(lambda: "Measured 45 requests" in panel.status(), "the requests are answered", 30)
    panel.changed_from(before)
    panel.press("requests per second", "Home")
    panel.button("Send requests").click()
    wait_until(lambda: "requests answered" in panel.status(), "progress is shown")
    panel.button("Stop").click()
    wait_until(lambda: panel.status() == "Stopped.", "the stream stops")
    wait_until(lambda: jobs(notebook) == "[]", "no thread is left")


def test_server_panel_measures_a_model_when_it_is_chosen(open_cells):
    notebook = open_cells(
        "from mlinfra.engine.serve.request_queue import Policy\n"
        "from mlinfra.views.inference import describe_server, server_panel\n"
        "box = server_panel()\nbox"
    )
    panel = Panel(notebook, "server")
    panel.says("1,800 requests/s are 90% of the 2,000")
    assert notebook.value("[*box.desk.predictors]") == "[]", "nothing is measured before it is chosen"
    panel.press("requests per second", "End")
    panel.says("turned away")
    panel.root.locator("select").select_option("ResNet-18, this machine")
    panel.press("requests per second", "Home")
    panel.press("maximum batch", "Home")
    panel.says("10 requests/s are")
    said = notebook.value("describe_server(box.desk.services['ResNet-18'], Policy(), 10).sentence").strip("'")
    panel.says(said)
