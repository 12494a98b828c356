"""The panel on what a training costs in a real JupyterLab: by keyboard and mouse, the words against the plan."""
from dataclasses import replace

import pytest
from lab import Panel

from mlinfra.engine.cost.prices import read_prices
from mlinfra.engine.cost.training_work import NOTES_RUN
from mlinfra.views.cost import CostPlan, describe_cost

pytestmark = pytest.mark.browser


def test_cost_panel_says_and_draws_what_is_set(open_cells):
    panel = Panel(open_cells("from mlinfra.views.cost import cost_panel\ncost_panel()"), "cost")
    start = plan = CostPlan(work="Llama 3, 8B, 100 billion tokens", offer="Lambda 8x B200", devices=8, bought=False)
    panel.tells(describe_cost(plan))
    picture = panel.picture()
    assert "Lambda 8x B200, rented" in picture

    def now(**changes):
        "The plan with what was just set; the panel must say what it says, and draw another picture."
        nonlocal plan, picture
        plan = replace(plan, **changes)
        panel.tells(describe_cost(plan))
        picture = panel.changed_from(picture)

    panel.root.locator("select").first.select_option(NOTES_RUN.name)
    now(work=NOTES_RUN.name)
    panel.root.locator("select").nth(1).select_option(index=[o.name for o in read_prices()].index("p4d.24xlarge"))
    now(offer="p4d.24xlarge")
    panel.press("devices", "ArrowRight")
    now(devices=16)
    assert "no time is known for 16 devices" in panel.words() and "rented" not in picture
    panel.root.locator("select").first.select_option("LLaMA-like, 7B, 1 trillion tokens")
    now(work="LLaMA-like, 7B, 1 trillion tokens")
    panel.press("devices", "Home")
    now(devices=1)
    assert "does not run" in panel.words() and "rented" not in picture
    panel.press("devices", *["ArrowRight"] * 6)
    now(devices=64)
    panel.button("More").click()
    panel.press("rent (% of the table's)", "Home")
    now(price_percent=5.0)
    assert "never pays" in panel.words()
    panel.button("Reset").click()
    panel.tells(describe_cost(start))
