"""No dollar in prose but around a formula: JupyterLab makes mathematics of what stands between two, escaped or not."""
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

NBS = Path(__file__).resolve().parent.parent / "nbs"
NOTEBOOKS = sorted(path for path in NBS.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)
DISPLAYED = re.compile(r"\$\$.+?\$\$", re.S)
FORMULA = re.compile(r"(?<!\\)\$(?![\s\d])[^$\n]{1,80}?(?<![\s\\])\$(?!\d)")  # begins with no digit, ends with no blank
DOLLAR = re.compile(r"\$")
WORDS = re.compile(r"(?<!\\)\b[a-z]{4,}\b(?! *\()")  # in a formula, words are set with a command: \text{share}


def is_formula(match):
    "Whether what stands between two dollars is meant as mathematics."
    return not WORDS.search(re.sub(r"\\text\{[^}]*\}|\\\w+", "", match[0]))


def money_in_markdown(text):
    "Places where a dollar is no part of a formula. Escaping does not help: Markdown takes the backslash away first."
    text = DISPLAYED.sub("", CODE.sub("", text))
    text = FORMULA.sub(lambda match: "" if is_formula(match) else match[0], text)
    return [text[max(0, match.start() - 20):match.end() + 20] for match in DOLLAR.finditer(text)]


class Typeset(HTMLParser):
    "The texts of an output in which JupyterLab looks for mathematics, each between two tags."
    skipped, empty = {"script", "noscript", "style", "textarea", "pre", "code"}, {"br", "img", "hr", "input", "wbr"}

    def __init__(self, page):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        ignored = "mathjax_ignore" in (dict(attrs).get("class") or "").split()
        if tag not in self.empty: self.open.append((tag, ignored or tag in self.skipped))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag: pass

    def handle_data(self, data):
        if not any(skipped for _, skipped in self.open): self.texts.append(data)


def money_in_html(page):
    "Texts of an output in which two dollars or more would be typeset."
    return [text for text in Typeset(page).texts if text.count("$") > 1]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_money_becomes_mathematics(path):
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown": found += money_in_markdown("".join(cell["source"]))
        for output in cell.get("outputs", ()):
            data = {mime: "".join(text) for mime, text in output.get("data", {}).items() if mime.startswith("text/")}
            found += money_in_markdown(data.get("text/markdown", "")) + money_in_html(data.get("text/html", ""))
    assert found == [], "write 5 dollars; in an output, `engine.ui.prose` keeps dollars apart"


# ---- what is found, and what is not

@pytest.mark.parametrize("text", [
    "Four V100s cost $1,750. Four A100s cost $250.", "from $5 to the $", r"a \$5 and a \$6 in one",
    "cost $2.69 at the small provider and $31", "the $work of an hour$ costs"])
def test_money_is_found(text): assert money_in_markdown(text)


@pytest.mark.parametrize("text", [
    "With work $W$, interval $t$ and $t + s$ seconds", "$$\\frac{W}{t} \\cdot M e^{R/M}$$", "cost 1,750 dollars",
    "`$HOME` and `$PATH`", "```bash\necho $A $B\n```", "$\\text{idle share} = p - 1$", "$e^{(t+s)/M} - 1$"])
def test_a_formula_is_no_money(text): assert money_in_markdown(text) == []


@pytest.mark.parametrize("page", [
    "<table><td>$1 to $2</td></table>", "<p>from $229,563 to <b>x</b> $3, $316,298</p>",
    '<table class="dataframe tex2jax_ignore"><td>$1, $2</td></table>'])
def test_money_in_an_output_is_found(page): assert money_in_html(page)


@pytest.mark.parametrize("page", [
    "<table><th>$/hour</th><th>$/device-hour</th></table>", "<p><span>$</span>1 and <span>$</span>2</p>",
    '<p class="mathjax_ignore">$1 <br> or $1, $2</p>', "<pre>$1 and $2</pre>", "<p>$1</p>", "<p>no money</p>"])
def test_an_output_that_is_not_typeset_is_none(page): assert money_in_html(page) == []
