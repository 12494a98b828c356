"""Every lesson as it opens in JupyterLab: saved, whole, within its page; nothing runs."""
import importlib.util

import pytest
from lab import ROOT

pytestmark = pytest.mark.browser
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools/notebooks.py")
spec.loader.exec_module(tool := importlib.util.module_from_spec(spec))
LESSONS = [path.relative_to(ROOT).as_posix() for path in [*tool.lessons(), ROOT / "nbs/glossary.ipynb"]]
WIDTHS = 900, 1280, 1920
LOOKED_AT = ("index", "13_pipeline", "23_cost")  # whose pictures are taken in both themes

# What has grown out of its column: it ends right of the nearest box that scrolls or cuts, and that box does not scroll.
OUTSIDE = """() => {
  const root = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer'), found = [];
  const wide = root.scrollWidth - root.clientWidth;
  if (wide > 1) found.push(`the page is ${wide} px too wide`);
  for (const element of root.querySelectorAll('svg, img, table, p, li, h1, h2, h3, button')) {
    const right = element.getBoundingClientRect().right;
    if (!element.checkVisibility() || element.closest('.CodeMirror, .cm-editor, svg svg, mjx-container')) continue;
    for (let box = element.parentElement; box && box !== root.parentElement; box = box.parentElement) {
      const look = getComputedStyle(box).overflowX;
      if (look === 'visible') continue;
      if (look !== 'auto' && look !== 'scroll' && right > box.getBoundingClientRect().right + 1.5) {
        found.push(`${element.tagName} ${element.textContent.trim().slice(0, 40)}: `
                   + `${Math.round(right - box.getBoundingClientRect().right)} px are cut off`);
      }
      break;
    }
  }
  return found;
}"""

# Words of a drawing that do not lie within it. Outputs are drawings by themselves or in a page.
CUT = """() => {
  const panel = window.jupyterapp.shell.currentWidget, found = [], frame = document.createElement('div');
  frame.style.cssText = 'position:absolute;left:0;top:0;width:2000px;visibility:hidden';
  document.body.append(frame);
  for (const cell of panel.content.widgets) {
    const { outputs } = cell.model;
    for (let i = 0; i < (outputs?.length ?? 0); i += 1) {
      const data = outputs.get(i).data;
      frame.innerHTML = [data['image/svg+xml'], data['text/html']].flat().filter(Boolean).join('');
      for (const details of frame.querySelectorAll('details')) details.open = true;
      for (const svg of frame.querySelectorAll('svg')) {
        const page = svg.getBoundingClientRect();
        for (const text of svg.querySelectorAll('text')) {
          const box = text.getBoundingClientRect();
          const over = Math.max(page.left - box.left, box.right - page.right, page.top - box.top,
                                box.bottom - page.bottom);
          if (!box.width || over <= 2) continue;
          found.push(`${cell.model.id}: "${text.textContent.trim().slice(0, 50)}", ${Math.round(over)} px`);
        }
      }
    }
  }
  frame.remove();
  return found;
}"""

SOURCES = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === 'markdown').map(cell => cell.model.sharedModel.getSource()).join('\\n\\n')"""
FORMULAS = """() => [...document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden) mjx-container')].map(
  e => e.closest('.jp-MarkdownCell') ? 'prose' : e.closest('.jp-Cell')?.textContent.slice(0, 80))"""
RENDERED = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  return panel.content.widgets.every(cell => cell.model.type !== 'markdown' || cell.rendered)
    && panel.context.model.getMetadata('language_info')?.name === 'python';
}"""


@pytest.fixture(scope="module")
def opened(desk, server):
    "Opens a lesson in the one page, beside a kernel that is there already."
    def open_(path):
        notebook = desk.open(path)
        notebook.page.wait_for_function(RENDERED, timeout=30_000)
        return notebook
    yield open_
    desk.clear()


def formulas_written(text):
    "How many formulas the Markdown of a notebook holds."
    import test_dollars as dollars
    text = dollars.CODE.sub("", text)
    inline = dollars.FORMULA.findall(dollars.DISPLAYED.sub("", text))
    return len(dollars.DISPLAYED.findall(text)) + len(inline)


@pytest.mark.parametrize("path", LESSONS)
def test_a_lesson_opens_whole(opened, path):
    notebook, stem = opened(path), path.rsplit("/", 1)[1].removesuffix(".ipynb")
    page = notebook.page
    try:
        dirty = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
        wrong = page.evaluate(CUT)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            wrong += [f"at {width} px: {what}" for what in page.evaluate(OUTSIDE)]
            if width == 1280 or stem in LOOKED_AT: notebook.shot(f"open_{stem}_{width}")
        assert wrong == [], "\n".join(wrong)
        found = page.evaluate(FORMULAS)
        assert [where for where in found if where != "prose"] == [], "mathematics in an output"
        assert len(found) == formulas_written(page.evaluate(SOURCES)), "mathematics that nobody wrote"
        assert notebook.complaints() == [] and page.locator(".jp-Dialog").count() == 0
        assert page.get_by_text("Error displaying widget").count() == 0
        assert page.evaluate(dirty) is False, "nobody has changed it, and there is something to save"
        if stem in LOOKED_AT: in_the_dark(notebook, stem)
    finally: notebook.close()


def in_the_dark(notebook, stem):
    "A picture of the page in the dark theme."
    change = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
    notebook.page.evaluate(change, "JupyterLab Dark")
    notebook.page.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
    notebook.shot(f"open_{stem}_dark")
    notebook.page.evaluate(change, "JupyterLab Light")
    notebook.page.wait_for_function("() => document.body.dataset.jpThemeLight === 'true'")
