"""The sharding panel in a real JupyterLab: the words against the model, and two real ranks started from it."""
import pytest
from lab import Panel, jobs, ranks, wait_until

from mlinfra.views.sharding import ShardPlan, describe_sharding
from mlinfra.engine.base.text import bytes_text

pytestmark = pytest.mark.browser
CELL = "from mlinfra.views.sharding import sharding_panel\nprobe = sharding_panel()\nprobe"


def test_sharding_panel_predicts_and_measures_two_ranks(open_cells):
    notebook = open_cells(CELL)
    panel, now = Panel(notebook, "sharding"), dict(model="Transformer, 12 x 768, 512 tokens", sharding_stage=3,
                                                   world_size=8, precision="fp32", optimizer="adam", batch_size=1)
    select = lambda text, value: panel.control(text).locator("select").select_option(value)

    def says(**changes):
        "The panel's words are the model's for what was just set, and the picture is another one."
        nonlocal picture
        now.update(changes)
        panel.tells(describe_sharding(ShardPlan(**now)), 30)
        picture = panel.changed_from(picture)

    panel.tells(describe_sharding(ShardPlan(**now)), 60)
    picture = panel.picture()
    panel.button("More").click()
    panel.press("world size", "ArrowRight")
    says(world_size=16)
    select("sharding", "ZeRO 1: optimizer")
    says(sharding_stage=1)
    select("optimizer", "momentum")
    says(optimizer="momentum")
    panel.press("batch", "ArrowRight")
    says(batch_size=2)
    select("precision", "bf16")
    says(precision="bf16")
    panel.press("world size", "Home")
    panel.says("nobody to share with")
    picture = panel.picture()
    panel.drag("world size", 1.0)
    says(world_size=1024)
    panel.press("batch", *["ArrowRight"] * 3)
    says(batch_size=16)
    select("sharding", "ZeRO 3: and weights")
    says(sharding_stage=3)
    panel.button("Measure two ranks here").click()
    wait_until(lambda: "predicted" in panel.status(), "two ranks are measured", 120)
    panel.tells(describe_sharding(ShardPlan(**now)))  # the controls stay
    assert "choose GluonCNN, 28 px, 2 ranks and fp32" in panel.status()
    select("model", "GluonCNN, 28 px")
    says(model="GluonCNN, 28 px")
    panel.press("world size", "Home", "ArrowRight")
    says(world_size=2)
    select("precision", "fp32")
    says(precision="fp32")
    guess = ShardPlan(**now).footprint(3)
    for words, part in (("weights", guess.params), ("gradients", guess.grads), ("activations", guess.activations)):
        assert f"{words} {bytes_text(part)}, predicted {bytes_text(part)}" in panel.status()
    assert "measured here, the fuller of two real ranks" in panel.picture()
    panel.press("batch", "ArrowRight")
    says(batch_size=32)
    assert "measured here" not in picture, "a measurement stands beside its own plan only"
    panel.button("Measure two ranks here").click()
    wait_until(lambda: "ranks" in panel.status(), "the ranks start", 60)
    panel.button("Stop").click()
    wait_until(lambda: "Stopped" in panel.status(), "the ranks are stopped", 60)
    assert ranks(notebook) == "[]" and wait_until(lambda: jobs(notebook) == "[]", "the job ends", 20)
