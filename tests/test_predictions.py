"""Each measurement is asked for first: a card before it, an answer after it, nothing before the card that tells it."""
import ast
import html
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlinfra.engine.ui.reveals import KINDS, figure_text

NBS = Path(__file__).parents[1] / "nbs"
LESSONS = [path for path in sorted(NBS.glob("[0-9][0-9]_*.ipynb")) if path.name[:2] not in ("98", "99")]
BY_CHANCE = {  # other figures that may be equal
    "08.gain": "a gain of 1.8 times may equal another of the diagnosis",
    "13.split": "four equal stages of 1F1B are idle for 27%, as a table before it says",
    "24.all": "a training from scratch with other pictures comes to the same accuracy",
}
TAG = re.compile(r'<div class="mlinfra-(guess|answer)" ([^>]*)>')


def cells_of(path): return json.loads(path.read_text(encoding="utf-8"))["cells"]
def source(cell): return "".join(cell["source"])
def code_of(path): return "\n".join(source(cell) for cell in cells_of(path) if cell["cell_type"] == "code")


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_each_reveal_follows_its_question(path):
    code = code_of(path)
    asked = {m[1]: m.start() for m in re.finditer(r'predict\(\s*"([\w.]+)"', code)}
    revealed = {m[1]: m.start() for m in re.finditer(r'reveal\(\s*"([\w.]+)"', code)}
    assert asked and asked.keys() == revealed.keys()
    assert all(asked[key] < revealed[key] for key in asked)


# ---- what the committed pages hold

def data_of(output):
    "What an output holds, by its kind, as text."
    return {kind: "".join(parts) for kind, parts in output.get("data", {}).items()}


def marked(cell):
    "The cards and answers in a cell's outputs: which of the two, and its facts."
    for output in cell.get("outputs", ()):
        for kind, attributes in TAG.findall(data_of(output).get("text/html", "")):
            yield kind, {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="([^"]*)"', attributes)}


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_page_that_only_lies_there_asks_and_answers(path):
    seen = [(kind, facts) for cell in cells_of(path) for kind, facts in marked(cell)]
    guesses, answers = ({facts["key"]: facts for kind, facts in seen if kind == which} for which in ("guess", "answer"))
    keys = set(re.findall(r'predict\(\s*"([\w.]+)"', code_of(path)))
    assert guesses.keys() == answers.keys() == keys
    for facts in guesses.values():
        options = json.loads(facts["options"])
        assert len(options) > 1 and json.loads(facts["start"]) in options, facts
    for key, facts in answers.items():
        assert facts["how"] in KINDS and facts["unit"] == guesses[key]["unit"], facts
        assert float(facts["measured"]) == float(facts["measured"]), f"{key}: not a number"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_question_stands_alone_in_a_hidden_cell(path):
    "Its code would be cut off, and it is not what a reader should read; the card is."
    for cell in cells_of(path):
        if cell["cell_type"] != "code" or not re.search(r"^predict\(", source(cell), re.M): continue
        assert cell["metadata"].get("jupyter", {}).get("source_hidden"), source(cell)
        assert len(ast.parse(source(cell)).body) <= 2, f"more than a question: {source(cell)}"
        first = source(cell).splitlines()[0]  # all that JupyterLab shows of a collapsed cell
        assert len(first) < 60, f"{first!r} is cut off beside the card"


@dataclass
class Answer:
    "What a page tells, as it tells it."
    text:str
    unit:str

    def stands_in(self, words):
        """Whether the answer can be read in `words`: a figure with three digits that count, or one with two and its
        unit. What this does not see: an answer in a picture of pixels, in other words, or rounded otherwise; one digit
        that counts, as in 4 or 100%, which stand everywhere."""
        before, after = r"(?<![\w.,/])", r"(?!\d|[.,]\d|/)"
        figure = re.escape(self.text)
        unit = r"\s?(?:%|percent)" if self.unit in ("%", "percent") else rf"\s{re.escape(self.unit)}\b"
        digits = self.text.lstrip("-0.,").replace(",", "").replace(".", "")
        if "." not in self.text: digits = digits.rstrip("0")
        if len(digits) < 2 or len(digits) == 2 and not self.unit: return False
        if len(digits) == 2: figure += unit
        return re.search(before + figure + after, words) is not None


def told(cell):
    "What a reader sees of a cell: its source unless it is hidden, and the words of its outputs. Cards tell nothing."
    seen = [] if cell["metadata"].get("jupyter", {}).get("source_hidden") else [source(cell)]
    for output in cell.get("outputs", ()):
        data = data_of(output)
        shown = next((data[kind] for kind in ("text/html", "image/svg+xml", "text/plain") if kind in data), "")
        if 'class="mlinfra-guess"' in shown: continue
        shown = re.sub(r"<style.*?</style>|<img[^>]*>", "", shown, flags=re.S)
        seen += [html.unescape(re.sub(r"<[^>]*>", " ", shown)), "".join(output.get("text", ""))]
    return "\n".join(seen)


def spoilers(cells):
    "A line for each answer that stands before its card."
    asked = {facts["key"]: place for place, cell in enumerate(cells) for kind, facts in marked(cell) if kind == "guess"}
    for cell in cells:
        for kind, facts in marked(cell):
            if kind == "guess" or facts["key"] not in asked or facts["key"] in BY_CHANCE: continue
            spread = float(facts["spread"]) if "spread" in facts else None
            answer = Answer(figure_text(float(facts["measured"]), spread), facts["unit"])
            for place, before in enumerate(cells[:asked[facts["key"]]]):
                if answer.stands_in(told(before)):
                    yield f"{facts['key']}: {answer.text} {answer.unit} stands in cell {place} (id {before['id']})"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_nothing_before_a_card_tells_its_answer(path): assert list(spoilers(cells_of(path))) == []


def test_an_answer_before_its_card_is_noticed():
    def shown(words): return [dict(output_type="display_data", data={"text/html": [words]}, metadata={})]
    def cell(words, kind="code", **jupyter):
        return dict(cell_type=kind, id="x", source=["a = 4.25"], metadata=dict(jupyter=jupyter), outputs=shown(words))

    def lesson(words, measured="27.31", unit="ms", **jupyter):
        asked = f'<div class="mlinfra-guess" data-key="k" data-unit="{unit}">27.3 ms</div>'
        answer = f'<div class="mlinfra-answer" data-key="k" data-measured="{measured}" data-unit="{unit}">'
        return [cell(words, **jupyter), cell(asked), cell(answer)]

    assert list(spoilers(lesson("a step of 27.3 ms"))) == ["k: 27.3 ms stands in cell 0 (id x)"]
    assert list(spoilers(lesson("<text>27.3</text>"))) and list(spoilers(lesson("", "4.25", "")))
    assert not list(spoilers(lesson("127.3, 27.31, 1/27.3")))
    assert not list(spoilers(lesson("", "4.25", "", source_hidden=True))), "nobody sees that code"
    assert list(spoilers(lesson("27% idle", "27", "%"))) and not list(spoilers(lesson("27 ranks", "27", "%")))
    assert list(spoilers(lesson("12 runs", "12", "runs"))) and not list(spoilers(lesson("12 of 20 runs", "12", "runs")))
    assert not list(spoilers(lesson("100 runs", "100", "runs"))), "one digit that counts"
