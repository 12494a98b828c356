"""The page on a trace in a real Chromium: nothing is asked for, and the timeline zooms by key and tells names."""
import json

import pytest
from lab import wait_until
from test_trace import made_up

from mlinfra import cli
from mlinfra.engine.ui.palette import HUES

pytestmark = pytest.mark.browser
PIXELS = """() => {
  const canvas = document.querySelector('canvas');
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height), found = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) {
    found.add('#' + [...data.slice(i, i + 3)].map(part => part.toString(16).padStart(2, '0')).join(''));
  }
  return [...found];
}"""


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
    data = json.loads(page.locator(".mlinfra-timeline script").text_content())
    for ground in (theme, "light" if theme == "dark" else "dark"):  # as drawn, and drawn again when the theme changes
        page.emulate_media(color_scheme=ground)
        wanted = {getattr(hue, ground) for hue in HUES for color in data["colors"] if f"--mlinfra-{hue.name}," in color}
        assert len(wanted) > 2
        wait_until(lambda: wanted <= set(page.evaluate(PIXELS)), f"the lanes have the colours of the {ground} page")
    context.close()
