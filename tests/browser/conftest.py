"""One JupyterLab and one Chromium for all browser tests; each notebook gets a page of its own."""
import shutil

import pytest
from lab import ROOT, FLAGS, Notebook, chromium_path, jupyterlab, write_notebook


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import Error, sync_playwright
    with sync_playwright() as playwright:
        try: chromium = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        except Error as error: pytest.skip(f"no Chromium starts here: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    "JupyterLab over a copy of the chapters."
    place = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "nbs", place / "repository" / "nbs")
    shutil.copytree(ROOT / "tests" / "bench" / "results", place / "repository" / "tests" / "bench" / "results")
    with jupyterlab(place / "repository", place) as (url, token): yield url, token, place / "repository"


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    yield context.new_page()
    context.close()


@pytest.fixture
def open_cells(page, server, request):
    "Open a notebook with these cells, run them, and at the end see that nothing went wrong."
    url, token, folder = server
    opened = []

    def open_(*cells):
        path = write_notebook(folder / f"{request.node.name.split('[')[0]}.ipynb", *cells)
        opened.append(Notebook(page, url, token, path.name).run_all())
        return opened[-1]

    yield open_
    for notebook in (n for n in opened if not n.closed):
        notebook.shot(request.node.name.split("[")[0])
        assert notebook.error_outputs() == [] and notebook.complaints() == []
        notebook.command("kernelmenu:shutdown")
