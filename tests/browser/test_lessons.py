"""Lessons run whole in a real JupyterLab: no error, no complaint in the browser's console."""
import pytest
from lab import IN_THE_BROWSER, Notebook

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("lesson", IN_THE_BROWSER)
def test_a_whole_lesson_runs_in_the_browser(page, server, lesson):
    url, token, _ = server
    notebook = Notebook(page, url, token, f"nbs/{lesson}.ipynb").run_all(240)
    assert notebook.error_outputs() == [] and notebook.complaints() == []
    notebook.shot(f"lesson_{lesson}")
    notebook.command("kernelmenu:shutdown")
