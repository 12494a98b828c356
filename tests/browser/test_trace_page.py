"""The page on a trace in a real Chromium: nothing is asked for, and the timeline zooms by key and tells names."""
import json

import pytest
from test_trace import made_up

from mlinfra import cli

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_timeline_zooms_without_a_network(browser, tmp_path, theme):
    (path := tmp_path / "trace.json").write_text(json.dumps(dict(traceEvents=made_up(0, 2024))))
    assert cli.main(["trace", str(path), "--html", str(tmp_path / "page.html")]) == 0
    context = browser.new_context(offline=True, color_scheme=theme, viewport={"width": 1000, "height": 1400})
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(url := (tmp_path / "page.html").as_uri())
    canvas = page.locator("canvas")
    canvas.focus()
    drawn = lambda: page.evaluate("document.querySelector('canvas').toDataURL()")
    views = [drawn()]
    for key in ("+", "ArrowRight", "0"):
        page.keyboard.press(key)
        views.append(drawn())
    assert len(set(views[:3])) == 3 and views[3] == views[0]
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 160, box["y"] + 8)  # where the loader begins the first step
    assert "DataLoader" in page.locator("output").inner_text()
    assert asked == [url] and said == []
    context.close()
