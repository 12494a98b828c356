"""Panels in a page of the book, in Chromium: moved by keys, they show what Python says here for the same values, and
nothing is asked of any other machine."""
import sys

import pytest
from book_site import only_from, served
from lab import ROOT, wait_until

sys.path.insert(0, str(ROOT / "tools"))
import book_live

from mlinfra.engine.ui.live import Desk

pytestmark = pytest.mark.browser
STILL = '<svg width="40" height="20" role="img" aria-label="a still picture"></svg>'
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>panels</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="_static/live/live.css"></head><body>{}
<script src="_static/live/live.js"></script></body></html>"""
HOLDER = ('<div class="live-panel" id="live-{0}-1" data-panel="{0}" data-args="{1}"><div class="live-still">{2}</div>'
          '</div>')
# A control that is moved, and by which key.
MOVES = {
    "schedule_panel": ("world_size", "ArrowLeft"), "overlap_panel": ("preprocess", "End"),
    "timeline_panel": ("workers", "ArrowRight"), "formats_panel": ("exponent", "PageUp"),
    "memory_panel": ("batch_size", "ArrowLeft"), "pipeline_panel": ("micro_batches", "ArrowRight"),
    "planner_panel": ("num_nodes", "ArrowRight"), "cost_panel": ("devices", "ArrowRight"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "A folder with a page that holds every panel, and one with panels that stay as they are."
    folder = tmp_path_factory.mktemp("site")
    live = book_live.prepare(folder / "_static" / "live")
    if not live: pytest.skip("Pyodide could not be fetched by npm: `python tools/book_live.py FOLDER` says why")
    assert set(live) == set(MOVES), "each panel that lives in a page is moved here"
    (folder / "index.html").write_text(PAGE.format("".join(HOLDER.format(name, "", STILL) for name in live)))
    others = HOLDER.format("other_panel", "", STILL) + HOLDER.format(live[0], "model", STILL)
    (folder / "others.html").write_text(PAGE.format(others))
    return folder


@pytest.fixture(scope="module")
def site(folder):
    with served(folder) as url: yield url


class Reader:
    "A page that nothing but this machine's server answers, and what went wrong in it."
    def __init__(self, browser, url, **settings):
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **settings)
        self.page, self.url, self.wrong = self.context.new_page(), url, []
        self.asked = only_from(self.context, url)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.wrong.append(said.text))

    def open(self, path=""):
        self.page.goto(self.url + path)
        return self


@pytest.fixture
def reader(browser, site):
    readers = []

    def make(**settings):
        readers.append(Reader(browser, site, **settings))
        return readers[-1]

    yield make
    for each in readers: each.context.close()


@pytest.fixture(scope="module")
def book(browser, site):
    "A page whose panels are all moved: Python is fetched once."
    reader = Reader(browser, site).open()
    yield reader
    reader.context.close()
    assert (reader.wrong, reader.asked) == ([], [])


@pytest.fixture(scope="module")
def without_python(browser, site):
    "A page that has asked for Python, which never comes."
    reader = Reader(browser, site)
    reader.context.route("**/pyodide.asm.wasm", lambda route: None)
    yield reader.open()
    reader.context.close()


class Panel:
    "One panel of a page, and the same panel here."
    def __init__(self, page, name):
        self.page, self.name = page, name
        self.root = page.locator(f'.live-panel[data-panel="{name}"]')
        self.here = Desk(book_live.makers()).panel(name)

    def control(self, name): return self.root.locator(f'[data-control="{name}"]')

    def sent(self):
        "What the page's controls are set to, as the page sends it."
        return self.root.evaluate("""root => Object.fromEntries([...root.querySelectorAll('[data-control]')].map(c =>
            [c.dataset.control, c.type === 'checkbox' ? c.checked
             : c.type === 'range' || c.tagName === 'SELECT' ? Number(c.value) : c.value]))""")

    def same(self, answer):
        "Whether the page shows this answer; outlines of the state before are not compared."
        return self.root.evaluate("""(root, answer) => {
            const shown = root.querySelector('.live-picture').cloneNode(true), made = html => {
                const box = document.createElement('div');
                box.innerHTML = html;
                return box.innerHTML;
            };
            for (const before of shown.querySelectorAll('.mlinfra-before')) before.remove();
            return !root.hasAttribute('aria-busy')
                && root.querySelector('.live-words').innerHTML === made(answer.words)
                && shown.innerHTML === made(answer.picture)
                && root.querySelector('pre').textContent === answer.code;
        }""", answer)

    def agrees(self):
        "Wait until the page shows what Python gives here for the values of its controls; that answer."
        wait_until(lambda: not self.root.get_attribute("aria-busy") and self.same(self.here.answer(self.sent())),
                   f"{self.name} shows what Python gives here", 60)
        return self.here.answer(self.sent())

    def note(self): return self.root.locator(".live-note").inner_text()


@pytest.mark.parametrize("name", MOVES)
def test_a_panel_moved_by_a_key_shows_what_python_gives(book, name):
    panel, (control, key) = Panel(book.page, name), MOVES[name]
    start = panel.here.shown()
    assert panel.same(start["answer"]), "the first position is there before Python is"
    panel.control(control).focus()
    panel.control(control).press(key)
    answer = panel.agrees()
    assert panel.sent()[control] != start["controls"][control]["start"]
    assert (answer["words"], answer["picture"]) != (start["answer"]["words"], start["answer"]["picture"])
    panel.root.get_by_role("button", name="Reset").click()
    assert panel.agrees()["words"] == start["answer"]["words"]


@pytest.mark.parametrize("name", MOVES)
def test_every_control_has_a_name_and_says_its_value(book, name):
    panel = Panel(book.page, name)
    if panel.here.more: panel.root.get_by_role("button", name="More").click()
    for key, control in panel.here.shown()["controls"].items():
        found = panel.control(key)
        assert found.evaluate("input => input.labels[0].textContent") == control["text"]
        if control["kind"] != "slider": continue
        assert found.get_attribute("aria-valuetext") == control["words"][control["start"]]
    if panel.here.more: panel.root.get_by_role("button", name="More").click()


def test_the_last_value_wins(book):
    panel = Panel(book.page, "planner_panel")
    panel.control("num_nodes").focus()
    for key in ("End", "Home", *["ArrowRight"] * 5, "ArrowLeft"): book.page.keyboard.press(key)
    panel.agrees()
    assert panel.sent()["num_nodes"] == 4
    panel.root.get_by_role("button", name="Reset").click()
    panel.agrees()


def test_a_typed_number_counts_until_a_slider_moves(book):
    panel = Panel(book.page, "formats_panel")
    panel.control("typed").fill("70000")
    panel.control("typed").press("Enter")
    assert "70,000 becomes infinity" in panel.agrees()["words"]
    panel.control("typed").fill("seventy")
    panel.control("typed").press("Enter")
    answer = panel.agrees()
    assert "type a number such as 0.1 or 1e-8" in answer["words"] and answer["picture"] == "", "no stale picture"
    panel.control("mantissa").press("ArrowRight")
    assert "0.1" in panel.agrees()["words"] and panel.sent()["typed"] == ""


def test_a_control_that_sets_nothing_is_hidden(book):
    panel = Panel(book.page, "schedule_panel")
    assert not panel.control("samples").is_visible()
    panel.control("dataset").select_option("own")
    panel.control("samples").wait_for()
    panel.control("samples").fill("200")
    panel.control("samples").press("Enter")
    assert "own" not in panel.agrees()["words"] and panel.sent()["samples"] == "200"
    panel.root.get_by_role("button", name="More").click()
    panel.control("drop_last").press(" ")
    assert "drop_last leaves nothing" in panel.agrees()["words"]
    panel.root.get_by_role("button", name="Reset").click()
    panel.agrees()
    assert not panel.control("samples").is_visible()
    panel.root.get_by_role("button", name="More").click()


def test_nothing_is_fetched_before_a_control_is_touched(reader):
    page = reader().open().page
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.mouse.wheel(0, 2_000)
    assert "is then fetched" in Panel(page, "overlap_panel").note() and asked == []


def test_without_script_the_still_picture_stays(reader):
    page = reader(java_script_enabled=False).open().page
    assert page.get_by_role("img", name="a still picture").count() == len(MOVES)
    assert all(still.is_visible() for still in page.locator(".live-still").all())


def test_panels_that_are_not_known_keep_their_still_picture(reader):
    page = reader().open("others.html").page
    assert page.locator(".live-still:visible").count() == 2 and page.locator(".live-card").count() == 0


@pytest.mark.parametrize("name", MOVES)
def test_the_first_answer_does_not_wait_for_python(without_python, name):
    panel = Panel(without_python.page, name)
    panel.control(MOVES[name][0]).press(MOVES[name][1])
    answer = panel.agrees()
    assert answer != panel.here.shown()["answer"] and "Fetching Python" in panel.note()
    assert "while one control is moved" in panel.note()


def test_a_browser_that_cannot_unpack_what_the_book_knows_asks_python(reader):
    made = reader()
    made.context.add_init_script("delete window.DecompressionStream")
    panel = Panel(made.open().page, "overlap_panel")
    panel.control("read").press("End")
    panel.agrees()
    assert made.wrong == []


def test_what_the_book_does_not_know_waits_for_python(reader):
    made, held = reader(), []
    made.context.route("**/pyodide.asm.wasm", lambda route: held.append(route))
    panel = Panel(made.open().page, "overlap_panel")
    for control in ("read", "preprocess"): panel.control(control).press("End")
    wait_until(lambda: panel.note() and held, "Python is asked for", 60)
    assert panel.root.get_attribute("aria-busy") == "true" and "Fetching Python" in panel.note()
    held[0].continue_()
    panel.agrees()
    assert panel.note() == ""


def test_a_position_has_an_address(book, reader):
    book.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = Panel(book.page, "schedule_panel")
    panel.control("world_size").press("ArrowLeft")
    panel.control("dataset").select_option("own")
    panel.control("samples").fill("1000")
    panel.control("samples").press("Enter")
    panel.root.get_by_role("button", name="More").click()
    panel.control("drop_last").press(" ")
    panel.root.get_by_role("button", name="Link").click()
    wait_until(lambda: "address now holds" in panel.note(), "the page says so", 60)
    address = panel.page.url
    assert panel.page.evaluate("navigator.clipboard.readText()") == address and "samples=1000" in address
    other = Panel(reader().open(address.removeprefix(book.url)).page, "schedule_panel")
    assert other.sent() == panel.sent() and other.control("drop_last").is_visible()
    other.agrees()
    assert other.root.evaluate("e => Math.abs(e.getBoundingClientRect().top)") < 40
    panel.root.get_by_role("button", name="Reset").click()
    panel.root.get_by_role("button", name="More").click()
    panel.agrees()


def test_an_address_with_a_value_that_is_gone_says_so(reader):
    panel = Panel(reader().open("?panel=live-overlap_panel-1&read=1e99+ms#live-overlap_panel-1").page, "overlap_panel")
    assert "1e99 ms" in panel.note() and panel.same(panel.here.shown()["answer"])


@pytest.mark.parametrize("file", ["pyodide.asm.wasm", "mlinfra.zip", "worker.js"])
def test_a_failure_to_load_is_said_and_the_book_still_answers(reader, file):
    made = reader()
    made.context.route(f"**/{file}", lambda route: route.fulfill(status=404, body="gone"))
    panel = Panel(made.open().page, "overlap_panel")
    panel.control("read").press("Home")
    wait_until(lambda: "Python could not be started here" in panel.note(), "the page says so", 60)
    panel.agrees()
    panel.control("preprocess").press("End")
    panel.agrees()
    start = {name: control["start"] for name, control in panel.here.shown()["controls"].items()}
    assert {name for name, value in panel.sent().items() if value != start[name]} == {"preprocess"}, "one at a time"


def test_a_failure_to_load_without_known_positions_leaves_the_first(reader):
    made = reader()
    made.context.route("**/worker.js", lambda route: route.fulfill(status=404, body="gone"))
    made.context.route("**/positions/*", lambda route: route.fulfill(status=404, body="gone"))
    panel = Panel(made.open().page, "overlap_panel")
    panel.control("read").press("Home")
    wait_until(lambda: "Python could not be started here" in panel.note(), "the page says so", 60)
    wait_until(lambda: panel.same(panel.here.shown()["answer"]), "no stale picture", 60)
    assert panel.sent() == {name: control["start"] for name, control in panel.here.shown()["controls"].items()}


def test_a_page_that_is_a_file_answers_what_the_book_knows_and_says_why_no_more(browser, folder):
    context = browser.new_context()
    panel = Panel(context.new_page(), "formats_panel")
    panel.page.goto((folder / "index.html").as_uri())
    panel.control("exponent").press("PageUp")
    answer = panel.agrees()
    assert answer != panel.here.shown()["answer"]
    assert "python -m http.server" in panel.note() and panel.control("typed").is_disabled()
    context.close()
