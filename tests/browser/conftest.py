"""One JupyterLab, one Chromium, one page and one kernel for all panels; a lesson has a page and a kernel of its own."""
import shutil

import pytest
from book_site import built, served
from lab import FLAGS, ROOT, Api, Notebook, chromium_path, jupyterlab, write_notebook


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    "Note on the test that it failed, for the fixtures that end after it."
    report = yield
    if report.failed: item.stash[FAILED] = True
    return report


@pytest.fixture
def failed(request):
    "Tells whether the test has failed."
    return lambda: request.node.stash.get(FAILED, False)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import Error, sync_playwright
    with sync_playwright() as playwright:
        try: chromium = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        except Error as error: pytest.skip(f"no Chromium starts here: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory, kernels):
    "JupyterLab over a copy of the chapters."
    place = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "nbs", place / "repository" / "nbs")
    shutil.copytree(ROOT / "tests" / "bench" / "results", place / "repository" / "tests" / "bench" / "results")
    shutil.copytree(ROOT / "tools", place / "repository" / "tools")
    shutil.copy(ROOT / "settings.ini", place / "repository")
    with jupyterlab(place / "repository", place, kernels) as (url, token): yield url, token, place / "repository"


@pytest.fixture(scope="session")
def book_site():
    "The address of the book, which is built if it has to be."
    with served(built()) as address: yield address


@pytest.fixture
def page(browser):
    "An empty page."
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    yield context.new_page()
    context.close()


class Desk:
    "A page with JupyterLab, and a kernel that has imported what panels import: made once, and anew after a failure."
    def __init__(self, browser, url, token):
        self.browser, self.api, self.context, self.kernel = browser, Api(url, token), None, None

    def start(self):
        "Have a page and a kernel."
        if self.context is not None: return self
        self.context = self.browser.new_context(viewport={"width": 1280, "height": 1000})
        self.page, self.kernel = self.context.new_page(), self.api("POST", "kernels", name="python3")["id"]
        return self

    def open(self, path):
        self.start()
        self.api("POST", "sessions", path=path, name=path, type="notebook", kernel=dict(id=self.kernel))
        return Notebook(self.page, self.api.url, self.api.token, path)

    def clear(self):
        "The next notebook gets a new page and a new kernel."
        if self.context is None: return
        self.context.close()
        self.api("DELETE", f"kernels/{self.kernel}")
        self.context = None


@pytest.fixture(scope="session")
def desk(browser, server):
    desk = Desk(browser, *server[:2])
    yield desk
    desk.clear()


@pytest.fixture
def open_cells(desk, server, request, failed):
    "Open a notebook with these cells, run them, and at the end see that nothing went wrong."
    name, opened = request.node.name.split("[")[0], []

    def open_(*cells):
        path = write_notebook(server[2] / f"{name}.ipynb", *cells)
        opened.append(desk.open(path.name).run_all())
        return opened[-1]

    yield open_
    whole = False
    try:
        for notebook in (n for n in opened if not n.closed):
            if failed(): notebook.shot(name)
            assert notebook.error_outputs() == [] and notebook.complaints() == []
            notebook.empty_kernel()
            notebook.close()
        whole = not failed()
    finally:
        if not whole: desk.clear()
