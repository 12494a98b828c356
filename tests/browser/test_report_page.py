"""The page on a run in a real Chromium: nothing is asked for, no script, dark and light, on paper."""
import re

import pytest
from test_report import steps_of
from test_runs import lone

from mlinfra.engine.report.page import make_report
from mlinfra.engine.record.run_folder import Run

pytestmark = pytest.mark.browser
STRANGE = {"<script>alert(1)</script>": "</td><img src=x onerror=alert(2)>", "名前": "ü — 🚀 \u0007",
           "long": "x" * 5_000}


@pytest.fixture
def written(tmp_path):
    "The page on a run whose settings are strange."
    folder = tmp_path / "run <b> & 'ä'"
    with lone(folder, config=dict(loader=dict(num_workers=0, batches=20), **STRANGE)) as writer:
        end = steps_of(writer, 60)
        for n in range(9): writer.sample(dict(process_cores=1.0, memory_bytes=(100 + n) << 20), at=end * n / 8)
        (folder / "trace-0-steps-1-to-2.json.gz").write_bytes(b"")
    return make_report(Run(folder)).write(folder / "report.html")


@pytest.fixture
def shown(browser, written):
    "Opens it without script and network."
    contexts = []

    def open_(**how):
        contexts.append(browser.new_context(java_script_enabled=False, offline=True, **how))
        page = contexts[-1].new_page()
        page.asked, page.said = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.said.append(message.text))
        page.goto(written.as_uri())
        return page

    yield open_
    for context in contexts: context.close()


def test_it_needs_no_network_and_no_script(shown, written):
    page = shown(viewport={"width": 900, "height": 1000})
    assert page.asked == [written.as_uri()] and page.said == []
    for key in ("summary", "where", "devices", "findings", "memory", "slowest", "traces", "evidence", "not-measured"):
        assert page.locator(f"#{key}").bounding_box()["height"] > 20, key
    assert page.locator("#where svg").bounding_box()["width"] > 500 and page.locator("#where svg rect").count() >= 5
    assert page.locator("#devices svg polyline").count() == 2
    assert page.locator("a").get_attribute("href") == "trace-0-steps-1-to-2.json.gz"


def test_strange_names_are_words(shown):
    page = shown(viewport={"width": 900, "height": 1000})
    cells = page.locator("#what-ran td").all_inner_texts()
    assert "<script>alert(1)</script>" in cells and STRANGE["<script>alert(1)</script>"] in cells
    assert "ü — 🚀 \ufffd" in cells and any(cell.startswith("xxx") and "5,000 characters" in cell for cell in cells)
    assert page.locator("img, script").count() == 0 and page.locator("h1").inner_text() == "Run run <b> & 'ä'"


@pytest.mark.parametrize("width", [480, 900, 1920])
def test_nothing_sticks_out(shown, width):
    page = shown(viewport={"width": width, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    whole = ".wide, figure, p, h1"  # on a narrow page a wide table or picture scrolls in these
    if width >= 900: whole += ", svg, table"
    for box in (one.bounding_box() for one in page.locator(whole).all()):
        assert 0 <= box["x"] and box["x"] + box["width"] <= width + 1


def luminance(words):
    "Of a colour as the browser says it, from 0 to 1."
    channels = [int(value) / 255 for value in re.findall(r"\d+", words)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_are_read_in_dark_and_in_light(browser, written, scheme):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(written.as_uri())
    style = lambda where, what: page.locator(where).first.evaluate(f"e => getComputedStyle(e).{what}")
    ground = luminance(style(".mlinfra-report", "backgroundColor"))
    assert (ground < 0.1) == (scheme == "dark")
    for where in ("p", "td", "figcaption", "a", "svg"):
        ink = luminance(style(where, "color"))
        assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 4.5, where
    page.emulate_media(media="print")
    assert luminance(style(".mlinfra-report", "backgroundColor")) > 0.9, "paper is white"
    context.close()


def test_it_is_printed_on_a_few_sheets(shown):
    pdf = shown().pdf(format="A4")
    assert pdf[:4] == b"%PDF" and 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6
