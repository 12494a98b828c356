"""Where nothing is installed: the cell that installs on Colab, Binder's files, and links to both."""
import ast
import builtins
import importlib
import importlib.util
import os
import re
import tempfile
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools/notebooks.py")
spec.loader.exec_module(tool := importlib.util.module_from_spec(spec))
CFG = tool.settings()
LIB = CFG["lib_name"]


def install_cell(git_url):
    "The cell of a book that lives there, as IPython hands it to Python."
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        text = re.sub(r"^git_url =.*", f"git_url = {git_url}", (ROOT / "settings.ini").read_text("utf-8"), flags=re.M)
        (root / "settings.ini").write_text(text, "utf-8")
        return TransformerManager().transform_cell(tool.install_cell(root).source)


HOME = "https://github.com/someone/book"
CELL = install_cell(HOME)


# ---- the cell that installs

@pytest.mark.parametrize("path", tool.lessons(), ids=lambda path: path.stem)
def test_each_lesson_installs_in_its_first_code_cell(path):
    "After the title, and collapsed; the same in all."
    nb = tool.load(path)
    first = next(cell for cell in nb.cells if cell.cell_type == "code")
    assert first == tool.install_cell() == nb.cells[1]
    assert first.metadata.jupyter.source_hidden and first.outputs == []


class Shell:
    "IPython's shell that only notes what it is asked."
    def __init__(self): self.asked = []
    def system(self, command): self.asked.append(command)
    def run_line_magic(self, name, line): self.asked.append(f"{name} {line}")


def run_cell(monkeypatch, found, cell=CELL):
    "What the cell asks of the shell where the package is found, or not."
    shell = Shell()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found[name])
    exec(cell, {})
    return shell.asked


def test_it_does_nothing_where_the_package_is(monkeypatch, capfd):
    assert run_cell(monkeypatch, {LIB: "there"}) == [] and capfd.readouterr() == ("", "")


def test_it_fetches_and_installs_what_lessons_need(monkeypatch):
    "No more than that: an environment that runs notebooks keeps its own Jupyter."
    monkeypatch.setattr("site.main", lambda: None)
    clone, enter, install = run_cell(monkeypatch, {LIB: None})
    assert clone == f"git clone -q --depth 1 --branch {CFG['branch']} {HOME} {LIB}-book"
    assert enter == f"cd -q {LIB}-book/{CFG['nbs_path']}", "lessons read files beside them"
    assert install == 'pip install -q -e "..[lessons]"'
    assert {Requirement(r).name for r in CFG["lab_requirements"].split()} == {"jupyterlab", "ipykernel"}, (
        "what a lesson needs belongs to lessons_requirements: Colab installs these alone")


def test_a_book_without_an_address_fetches_nothing_and_says_what_to_do(monkeypatch):
    cell = install_cell("https://example.org/mlinfra")
    assert run_cell(monkeypatch, {LIB: "there"}, cell) == []
    with pytest.raises(ModuleNotFoundError, match="make lab"): run_cell(monkeypatch, {LIB: None}, cell)


def test_a_failed_install_is_an_error(monkeypatch):
    "`%pip` itself raises nothing."
    def absent(name): raise ModuleNotFoundError(f"No module named {name!r}")
    monkeypatch.setattr("site.main", lambda: None)
    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ModuleNotFoundError, match=LIB): run_cell(monkeypatch, {LIB: None})


def test_it_is_legal_and_imports_the_standard_library_alone():
    names = {alias.name for node in ast.walk(ast.parse(CELL)) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"importlib.util", "site"}


# ---- Binder

def test_binder_installs_what_lessons_need():
    "repo2docker runs pip in the repository's root; `-c` counts from the file itself."
    lines = [line for line in (ROOT / "binder/requirements.txt").read_text().splitlines() if line[:1] != "#"]
    assert lines == ["--extra-index-url https://download.pytorch.org/whl/cpu", "-c ../constraints.txt", "-e .[lessons]"]
    assert (ROOT / "binder" / "../constraints.txt").exists()


def test_binder_has_a_python_that_the_package_takes():
    found = re.fullmatch(r"python-3\.(\d+)\n", (ROOT / "binder/runtime.txt").read_text())
    assert int(CFG["min_python"].split(".")[1]) <= int(found[1]) <= 14


def test_binder_trusts_the_lessons():
    script = ROOT / "binder/postBuild"
    assert os.access(script, os.X_OK) and "jupyter trust nbs/*.ipynb nbs/more/*.ipynb" in script.read_text()


def test_binder_reads_no_other_files():
    assert not (ROOT / ".binder").exists() and not (ROOT / "environment.yml").exists()
    assert {p.name for p in (ROOT / "binder").iterdir()} == {"requirements.txt", "runtime.txt", "postBuild"}


# ---- links

def links(tmp_path, git_url):
    text = (ROOT / "settings.ini").read_text(encoding="utf-8")
    (tmp_path / "settings.ini").write_text(re.sub(r"^git_url =.*", f"git_url = {git_url}", text, flags=re.M))
    return tool.elsewhere_cell(tool.load(ROOT / "nbs/index.ipynb"), tmp_path).source


@pytest.mark.parametrize("ending", ["", ".git", "/"])
def test_a_repository_on_github_opens_on_colab_and_binder(tmp_path, ending):
    words = links(tmp_path, f"https://github.com/someone/book{ending}")
    assert "https://mybinder.org/v2/gh/someone/book/main?urlpath=lab/tree/nbs/index.ipynb" in words
    place = r"https://colab\.research\.google\.com/github/someone/book/blob/main/nbs"
    found = re.findall(rf"\[(\d\d)\]\({place}/(.*?)\)", words)
    names = [path.name for path in tool.lessons() if path.name[:2] < "98" and path.parent.name == "nbs"]
    assert found == [(name[:2], name) for name in names]


def test_another_repository_opens_on_binder_and_names_the_way_to_colab(tmp_path):
    words = links(tmp_path, "https://code.invalid/some/book")
    assert "(https://mybinder.org/v2/git/https%3A%2F%2Fcode.invalid%2Fsome%2Fbook/main?urlpath=" in words
    assert "colab.research" not in words and "On Colab, upload" in words


def test_no_link_is_offered_that_cannot_work(tmp_path):
    assert "](" not in links(tmp_path, "https://example.org/mlinfra")


# ---- VS Code, Colab and Notebook 7 have another page around a panel

SOURCES = sorted((ROOT / LIB).rglob("*.py"))
JUPYTERLAB = re.compile(r"var\(--jp-[\w-]+\s*\)"            # a colour of its theme, without another one for elsewhere
                        r"|jupyterapp|\.jp-[A-Z]")       # its program, or its elements


def test_panels_lean_on_nothing_that_only_jupyterlab_has():
    found = {f"{path.name}: {match[0]}" for path in SOURCES for match in JUPYTERLAB.finditer(path.read_text("utf-8"))}
    assert found == set()


@pytest.mark.parametrize("text", ["color:var(--jp-ui-font-color1)", "window.jupyterapp", "closest('.jp-Cell')"])
def test_what_only_jupyterlab_has_is_found(text): assert JUPYTERLAB.search(text)


def test_a_color_with_a_fallback_is_no_fault(): assert not JUPYTERLAB.search("color:var(--jp-ui-font-color1, #222)")
