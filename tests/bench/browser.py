"""How long a reader waits for a picture in a real JupyterLab: from a key press to the next, from Start to the first."""
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers import ROOT
from stages import spread

sys.path.insert(0, str(ROOT / "tests" / "browser"))
from lab import FLAGS, Notebook, Panel, chromium_path, jupyterlab, wait_until, write_notebook

PRESSES, WARM_UP = 20, 3
FIRST_PANELS = ("index", "01_arithmetic", "03_models", "06_workers", "13_pipeline", "22_export")  # each with Start

INTERACT = """\
import matplotlib.pyplot as plt
from ipywidgets import SelectionSlider, interact
from mlinfra.arithmetic import Stages
from mlinfra.views.arithmetic import plot_overlap

def draw(read):
    _, ax = plt.subplots(figsize=(7, 2.6))
    plot_overlap(Stages(read / 1000, 0.038, 0.055), ax=ax)
    plt.show()

milliseconds = [0, 1, 2, 5, 10, 20, 38, 55, 80, 100, 150, 200, 250, 300, 342, 400, 500]
interact(draw, read=SelectionSlider(options=milliseconds, value=342));
"""

# panel -> kind of picture, selector, label of the slider that is moved, cell
PANELS = {
    "interact": ("interact + plt.show()", ".widget-interact", "read", INTERACT),
    "overlap": (
        "SVG",
        ".mlinfra-overlap",
        "read",
        "from mlinfra.views.arithmetic import overlap_panel\noverlap_panel()",
    ),
    "workers": (
        "SVG",
        ".mlinfra-workers",
        "work per image",
        "from mlinfra.views.workers import workers_panel\nworkers_panel()",
    ),
    "schedule": (
        "SVG",
        ".mlinfra-schedule",
        "micro-batch",
        "from mlinfra.views.arithmetic import schedule_panel\nschedule_panel()",
    ),
    "order": ("SVG", ".mlinfra-orders", "seed", "from mlinfra.views.data import order_panel\norder_panel()"),
    "layers": ("SVG", ".mlinfra-layers", "dense", "from mlinfra.views.models import layers_panel\nlayers_panel()"),
}

# Waits for another picture under `root`: another element, or another source of the same image. decode() ends when the
# image is loaded and decoded; the task that a frame's callback queues runs after that frame was painted.
WATCH = """root => { window.painted = new Promise((resolve, reject) => {
  const state = () => { const p = root.querySelector('img, svg'); return [p, p?.src]; };
  const [picture, source] = state();
  let pressed;
  document.addEventListener('keydown', () => { pressed = performance.now(); }, {once: true, capture: true});
  const painted = () => requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - pressed)));
  const observer = new MutationObserver(() => {
    const [now, itsSource] = state();
    if (!now || (now === picture && itsSource === source)) return;
    observer.disconnect();
    now.tagName === 'IMG' ? now.decode().then(painted, reject) : painted();
  });
  observer.observe(root, {childList: true, subtree: true, attributes: true, attributeFilter: ['src']});
  setTimeout(() => reject(new Error('no other picture within 10 s')), 10000);
}); }"""


class Mover:
    "Moves one slider step by step, back and forth over its whole range."
    def __init__(self, page: Any, selector: str, text: str):
        self.page, self.root, self.key = page, page.locator(selector).first, "ArrowRight"
        self.root.wait_for(timeout=30_000)
        self.handle = (
            self.root.locator(".widget-inline-hbox", has=page.locator("label", has_text=text))
            .first.locator(".noUi-handle")
            .first
        )

    def milliseconds(self) -> float:
        "From the next key press to the painted picture."
        self.root.scroll_into_view_if_needed()
        self.handle.focus()
        self.turn()
        self.root.evaluate(WATCH)
        self.page.keyboard.press(self.key)
        seen = self.page.evaluate("() => window.painted")
        self.page.wait_for_timeout(100)  # let kernel and page come to rest
        return seen

    def turn(self) -> None:
        "Turn round at an end of the range."
        low, now, high = (float(self.handle.get_attribute(f"aria-value{name}")) for name in ("min", "now", "max"))
        if now >= high: self.key = "ArrowLeft"
        if now <= low: self.key = "ArrowRight"


def run_sweep(notebook: Notebook) -> None:
    "The workers' picture moves only after a sweep; the smallest will do."
    panel = Panel(notebook, "workers")
    panel.press("images", "Home")
    panel.button("Run the sweep").click()
    wait_until(lambda: "5 runs" in panel.status(), "the sweep ends", 300)


def browser(rounds: int, iterations: int) -> dict[str, Any]:
    "All panels in one page, pressed in turn; ratios to `interact` of the same turn."
    from playwright.sync_api import sync_playwright
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home, nbs = Path(folder), Path(folder) / "nbs"
        nbs.mkdir()
        name = write_notebook(nbs / "bench.ipynb", *(cell for *_, cell in PANELS.values())).name
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        with jupyterlab(nbs, home) as (url, token):
            notebook = Notebook(chromium.new_page(viewport={"width": 1280, "height": 1000}), url, token, name).run_all()
            if "workers" in PANELS: run_sweep(notebook)
            turns = measure(notebook)
            notebook.command("kernelmenu:shutdown")
            chromium.close()
    return {panel: summary(panel, turns) for panel in PANELS}


def measure(notebook: Notebook) -> list[dict[str, float]]:
    "Milliseconds of each panel, turn by turn."
    movers = {name: Mover(notebook.page, selector, text) for name, (_, selector, text, _) in PANELS.items()}
    turns = [{name: mover.milliseconds() for name, mover in movers.items()} for _ in range(WARM_UP + PRESSES)]
    if errors := notebook.error_outputs(): raise RuntimeError(f"a cell failed: {errors[0]}")
    return turns[WARM_UP:]


def summary(panel: str, turns: list[dict[str, float]]) -> dict[str, Any]:
    from mlinfra.engine.base.sample_statistics import median
    ratio = spread([turn[panel] / turn["interact"] for turn in turns])
    return dict(kind=PANELS[panel][0], ratio_to_interact=ratio["ratio"], low=ratio["low"], high=ratio["high"],
                milliseconds=median(turn[panel] for turn in turns))


# ---- the first picture

# Ends when the picture of a panel that runs was painted after a click; `performance.now` of the click itself.
FIRST_PICTURE = """() => { window.first_picture = new Promise((resolve, reject) => {
  let clicked;
  document.addEventListener('click', () => { clicked = performance.now(); }, {once: true, capture: true});
  const look = () => {
    if (!document.querySelector('.mlinfra-panel .mlinfra-picture :is(svg, img)')?.checkVisibility()) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve((performance.now() - clicked) / 1000)));
  };
  const observer = new MutationObserver(look);
  observer.observe(document.body, {childList: true, subtree: true, attributes: true});
  setTimeout(() => reject(new Error('no picture within 60 s')), 60000);
}); }"""


def first_picture(rounds: int, iterations: int) -> dict[str, Any]:
    "Seconds from Start to the panel's picture, in a kernel that has just begun and imported nothing."
    from mlinfra.engine.base.sample_statistics import median
    from playwright.sync_api import sync_playwright
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home, book = Path(folder), Path(folder) / "book"
        shutil.copytree(ROOT / "nbs", book / "nbs")
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        with jupyterlab(book, home) as place:
            found = {name: [start(chromium, place, f"nbs/{name}.ipynb") for _ in range(max(rounds, 1))]
                     for name in FIRST_PANELS}
            chromium.close()
    return {name: dict(seconds=median(all_), low=min(all_), high=max(all_)) for name, all_ in found.items()}


def start(chromium: Any, place: tuple[str, str], path: str) -> float:
    "Seconds from the click to the picture."
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    notebook = Notebook(page, *place, path)
    button = page.get_by_role("button", name="▶ Start").first
    button.wait_for()
    page.wait_for_timeout(10_000)  # the first lines are read, and the kernel has imported PyTorch beside them
    page.evaluate(FIRST_PICTURE)
    button.click()
    seconds = page.evaluate("() => window.first_picture")
    if errors := notebook.error_outputs(): raise RuntimeError(f"a cell of {path} failed: {errors[0]}")
    notebook.command("kernelmenu:shutdown")
    page.close()
    return seconds
