"""Pictures follow the theme of their page: every colour comes from the palette."""
import ast
import re
from pathlib import Path

import pytest

from mlinfra.engine.ui.palette import page_css

ROOT = Path(__file__).resolve().parent.parent
PALETTE = "engine/ui/palette.py"
HEX = re.compile(r"#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})\b(?!-)")
OF_A_PAGE = re.compile(r"var\(--[\w-]+, *#[0-9a-fA-F]+\)")  # a page's own colour, and what stands for it elsewhere
NAMED = {"white", "black", "gray", "grey", "red", "green", "blue", "orange", "yellow", "lightgray", "lightgrey"}
LOOKS = {"color", "c", "facecolor", "edgecolor", "ec", "fc", "mfc", "mec", "markerfacecolor", "markeredgecolor"}


def colours(source):
    "Line and colour of each colour that a module says in its own words."
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in HEX.findall(OF_A_PAGE.sub("", node.value)): yield node.lineno, found
        if isinstance(node, ast.keyword) and node.arg in LOOKS and isinstance(node.value, ast.Constant):
            word = node.value.value
            if word in NAMED or isinstance(word, str) and re.fullmatch(r"C\d|tab:\w+", word):
                yield node.value.lineno, word
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("text", "box", "line", "curve", "dots"):
            words = (one.value for one in node.args[2:] if isinstance(one, ast.Constant))
            yield from ((node.lineno, word) for word in words if word in NAMED)


def drawing_modules():
    return [path for folder in ("views", "lab", "engine") for path in sorted((ROOT / "mlinfra" / folder).rglob("*.py"))
            if not path.as_posix().endswith(PALETTE)]


def test_every_colour_comes_from_the_palette():
    found = [f"{path.relative_to(ROOT)}:{line} says {colour}" for path in drawing_modules()
             for line, colour in colours(path.read_text(encoding="utf-8"))]
    assert not found, "take it from engine/ui/palette:\n" + "\n".join(found)


@pytest.mark.parametrize("source, found", [
    ('box(0, 0, "#0072B2")', ["#0072B2"]), ('f"fill=\\"#fff\\""', ["#fff"]), ('ax.plot(x, color="black")', ["black"]),
    ('drawing.text(0, 0, "words", "middle", 11, "white")', ["white"]), ('ax.bar(x, color="C0")', ["C0"]),
    ('"color: var(--jp-ui-font-color1, #222)"', []), ('drawing.text(0, 0, "a black box")', []), ('"#1 of 3"', []),
])
def test_a_colour_is_seen(source, found): assert [colour for _, colour in colours(source)] == found


def test_a_page_has_the_palette():
    "JupyterLab's is a file of its own; the book's is written when the book is built."
    style = ROOT / "tools/jupyter/labextensions/mlinfra/static/page.css"
    assert page_css() in style.read_text(encoding="utf-8"), f"paste what page_css() of {PALETTE} says"
    assert "--mlinfra-ink:" not in (ROOT / "docs/_static/book.css").read_text(encoding="utf-8"), "said twice"
