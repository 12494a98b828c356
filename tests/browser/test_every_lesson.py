"""Every lesson in JupyterLab: it opens saved, whole and within its page; its panels and questions run; it is saved, and
what they left in it is shown once what they lived in is gone: in one notebook with those of all lessons. An appendix
that has neither is opened with --everything. test_lessons.py opens lessons that ran to their end again."""
import ast
import builtins
import importlib.util
import shutil

import pytest
from lab import ROOT

pytestmark = pytest.mark.browser
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools/notebooks.py")
spec.loader.exec_module(tool := importlib.util.module_from_spec(spec))
LESSONS = [path.relative_to(ROOT).as_posix() for path in [*tool.lessons(), ROOT / "nbs/glossary.ipynb"]]
WIDTHS = 900, 1920
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
# Runs the cells with these ids, as a reader does who chooses one and presses Run.
RUN = """async ids => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  for (const id of ids) {
    notebook.deselectAll();
    notebook.activeCellIndex = notebook.widgets.findIndex(cell => cell.model.id === id);
    await window.jupyterapp.commands.execute('notebook:run-cell');
  }
}"""
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
        notebook.page.wait_for_function(RENDERED, timeout=30_000, polling=50)
        return notebook
    yield open_
    desk.clear()


def formulas_written(text):
    "How many formulas the Markdown of a notebook holds."
    import test_dollars as dollars
    text = dollars.CODE.sub("", text)
    inline = dollars.FORMULA.findall(dollars.DISPLAYED.sub("", text))
    return len(dollars.DISPLAYED.findall(text)) + len(inline)


def imports_and_cards(path):
    """The ids of a lesson's cells that only import, and of those that show a panel or a question and use nothing that
    another cell has computed."""
    known, imports, cards = set(dir(builtins)), [], []
    for cell in tool.load(ROOT / path).cells:
        if cell.cell_type != "code" or cell.id == tool.INSTALL: continue
        try: tree = ast.parse(cell.source)
        except SyntaxError: continue  # a command of IPython
        nodes, last = list(ast.walk(tree)), tree.body[-1:]
        called = getattr(getattr(getattr(last[0], "value", None), "func", None), "id", "") if last else ""
        brought = {(alias.asname or alias.name).split(".")[0]
                   for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
        if last and all(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body):
            known |= brought
            imports.append(cell.id)
        elif called == "predict" or called.endswith("_panel"):
            used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
            made = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            if used <= known | brought | made: cards.append(cell.id)
    return imports, cards


@pytest.fixture
def readers_copy(server):
    "Copies a lesson beside the book's, where the hook of who builds the book does not clean what is saved."
    def copy(path):
        copied = server[2] / "reader" / path
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(server[2] / path, copied)
        return copied
    return copy


@pytest.fixture(scope="module")
def left(): return {}  # lesson -> its cells with panels and questions, as they were saved


@pytest.fixture
def opens_and_saves(opened, desk, server, readers_copy, left):
    "Opens a lesson, runs its panels and questions, and saves it."
    def try_(path):
        copied, stem, left[path] = readers_copy(path), path.rsplit("/", 1)[1].removesuffix(".ipynb"), []
        notebook = opened(name := copied.relative_to(server[2]).as_posix())
        try:
            opens_whole(notebook, stem)
            imports, cards = imports_and_cards(path)
            if not cards: return
            live(notebook, imports, cards)
            if stem in LOOKED_AT: notebook.shot(f"live_{stem}")
            notebook.command("docmanager:save")
            notebook.empty_kernel()  # like another one, it knows no panel
        finally: notebook.close()
        assert "vnd.jupyter.widget-view" not in copied.read_text(encoding="utf-8")
        cells = desk.api("GET", f"contents/{name}")["content"]["cells"]
        left[path] = [cell for cell in cells if cell["id"] in cards]
        assert [cell["id"] for cell in left[path]] == cards
    return try_


def plain_ones_rarely(path):
    plain = "/more/" in path and not imports_and_cards(path)[1]
    return pytest.param(path, marks=pytest.mark.rarely) if plain else path


@pytest.mark.parametrize("path", map(plain_ones_rarely, LESSONS))
def test_a_lesson_opens_whole_and_its_panels_live(opens_and_saves, path): opens_and_saves(path)


def test_what_panels_and_questions_left_is_shown_without_them(opens_and_saves, opened, desk, left):
    "The cells of all lessons, as Jupyter saved and trusts them, in one notebook."
    for path in LESSONS:
        if path not in left and imports_and_cards(path)[1]: opens_and_saves(path)
    cells = [cell | dict(id=f"{number}-{cell['id']}") for number, found in enumerate(left.values()) for cell in found]
    made = dict(cells=cells, metadata=tool.load(ROOT / "nbs/index.ipynb").metadata, nbformat=4, nbformat_minor=5)
    desk.start().api("PUT", "contents/reader/left.ipynb", type="notebook", format="json", content=made)
    notebook = opened("reader/left.ipynb")
    try:
        still(notebook, [cell["id"] for cell in cells])
        notebook.shot("left")
    finally: notebook.close()


def opens_whole(notebook, stem):
    "Nothing is cut off, at no width, and nothing is in it that nobody wrote."
    page = notebook.page
    wrong = page.evaluate(CUT)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        wrong += [f"at {width} px: {what}" for what in page.evaluate(OUTSIDE)]
        if stem in LOOKED_AT: notebook.shot(f"open_{stem}_{width}")
    assert wrong == [], "\n".join(wrong)
    found = page.evaluate(FORMULAS)
    assert [where for where in found if where != "prose"] == [], "mathematics in an output"
    assert len(found) == formulas_written(page.evaluate(SOURCES)), "mathematics that nobody wrote"
    saved(notebook)
    if stem in LOOKED_AT: in_the_dark(notebook, stem)


def saved(notebook):
    "There is nothing to save, and nothing has gone wrong."
    dirty = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
    assert notebook.complaints() == [] and notebook.page.locator(".jp-Dialog").count() == 0
    assert notebook.page.get_by_text("Error displaying widget").count() == 0
    assert notebook.page.evaluate(dirty) is False, "nobody has changed it, and there is something to save"


def live(notebook, imports, cards):
    "Panels and questions answer, and fit, at every width."
    page, wrong = notebook.page, []
    page.evaluate(RUN, [*imports, *cards])
    alive = page.locator(".mlinfra-panel, .mlinfra-predict")
    alive.nth(len(cards) - 1).wait_for(timeout=30_000)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        wrong += [f"at {width} px: {what}" for what in page.evaluate(OUTSIDE)]
    assert wrong == [], "\n".join(wrong)
    assert alive.count() == len(cards)
    assert notebook.error_outputs() == [] and notebook.complaints() == []


def still(notebook, cards):
    "What the cells with these ids showed is there as pictures and posters, or words that say to run the cell again."
    saved(notebook)
    assert notebook.page.locator(".mlinfra-panel, .mlinfra-predict").count() == 0, "the kernel knows them no more"
    assert cards and notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets"
                                            ".every(cell => cell.model.trusted)")
    shown = notebook.page.evaluate("""ids => window.jupyterapp.shell.currentWidget.content.widgets
      .filter(cell => ids.includes(cell.model.id))
      .map(cell => cell.node.querySelector('.jp-OutputArea-output :is(img, svg, p, .mlinfra-guess)')?.checkVisibility())
      """, cards)
    assert shown == [True] * len(cards)


def in_the_dark(notebook, stem):
    "A picture of the page in the dark theme."
    change = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
    notebook.page.evaluate(change, "JupyterLab Dark")
    notebook.page.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
    notebook.shot(f"open_{stem}_dark")
    notebook.page.evaluate(change, "JupyterLab Light")
    notebook.page.wait_for_function("() => document.body.dataset.jpThemeLight === 'true'")
