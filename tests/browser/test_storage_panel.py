"""The storage panel in a real JupyterLab: its words against the model, measured, stopped."""
import pytest
from lab import Panel, jobs, wait_until

from mlinfra.engine.base.hardware import STORAGES
from mlinfra.views.storage import LAYOUTS, describe_storage

pytestmark = pytest.mark.browser


def test_storage_panel_predicts_measures_and_stops(open_cells):
    panel = Panel(open_cells("from mlinfra.views.storage import storage_panel\nstorage_panel()"), "storage")
    store, files, shards = STORAGES["object store"], *LAYOUTS
    panel.says(describe_storage(store, 115_000, 8, files).sentence)
    before = panel.picture()
    panel.press("reads in flight", "Home")
    panel.says(describe_storage(store, 115_000, 1, files).sentence)
    before = panel.changed_from(before)
    panel.button("Measure").click()
    wait_until(lambda: "Measured" in panel.status(), "the reads are measured")
    before = panel.changed_from(before)
    panel.root.locator("select").nth(0).select_option("object store, simulated")
    panel.root.locator("select").nth(1).select_option(shards)
    panel.drag("image (bytes)", 1.0)
    panel.says(describe_storage(STORAGES["object store"], 1_048_576, 1, shards).sentence)
    panel.press("image", "Home")
    panel.press("reads in flight", "End")
    panel.says(describe_storage(STORAGES["object store"], 4_096, 1_024, shards).sentence)
    panel.press("reads in flight", "Home")
    panel.button("Measure").click()
    panel.button("Stop").click()
    wait_until(lambda: panel.status() == "Stopped.", "the reads stop")
    wait_until(lambda: jobs(panel.notebook) == "[]", "no thread is left")
    panel.changed_from(before)
