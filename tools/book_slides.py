"""Slides for teachers: for each lesson one page with its questions and its pictures, shown full-screen or printed."""
import html
import re
import sys
from collections.abc import Iterable, Sequence

from book_guess import ANSWER, cards, folded, html_of
from book_stage import Page, panel_of, picture_html, plain, table_html
from notebooks import ROOT

sys.path.insert(0, str(ROOT))
from mlinfra.engine.ui.palette import css_values  # noqa: E402

PALETTE = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {css_values('dark')} }} }}"  # of drawings
STYLE = PALETTE + """
:root { color-scheme: light dark; --ground: #fff; --ink: #222; --soft: #666; --line: #ccc; }
@media (prefers-color-scheme: dark) { :root { --ground: #16181d; --ink: #e6e6e6; --soft: #a0a0a0; --line: #444; } }
* { box-sizing: border-box; }
html { scroll-snap-type: y mandatory; background: var(--ground); color: var(--ink); --jp-ui-font-color1: var(--ink);
  font: 20px/1.4 system-ui, sans-serif; }
body { margin: 0; }
section { min-height: 100vh; scroll-snap-align: start; padding: 4vh 5vw; display: flex; flex-direction: column;
  justify-content: center; gap: 2vh; border-bottom: 1px solid var(--line); }
h1 { font-size: 2em; line-height: 1.2; margin: 0; } h2 { font-size: 1.4em; margin: 0; }
p { margin: 0; max-width: 60em; } .number, a { color: var(--soft); }
svg, img { display: block; width: auto; height: auto; max-width: 100%; max-height: 62vh; }
svg { width: 100%; min-width: 0 !important; } img { background: #fff; }
.mlinfra-guess { font-size: 1.2em; } details summary { cursor: pointer; }
.number { font-size: .7em; }
@media print { html { color-scheme: light; --ground: #fff; --ink: #222; font-size: 14px; }
  section { min-height: 0; height: 100vh; break-after: page; border: 0; } details::details-content { display: block; } }
@page { size: A4 landscape; margin: 10mm; }
"""
SCRIPT = """
const slides = [...document.querySelectorAll("section")];
const at = () => slides.reduce((best, s, i) =>
  Math.abs(s.getBoundingClientRect().top) < Math.abs(slides[best].getBoundingClientRect().top) ? i : best, 0);
addEventListener("keydown", event => {
  const step = {ArrowRight: 1, ArrowDown: 1, PageDown: 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1}[event.key];
  if (!step) return;
  event.preventDefault();
  slides[Math.max(0, Math.min(slides.length - 1, at() + step))].scrollIntoView();
});
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => d.open = true));
"""


def words_of(text:str) -> str:
    "Markdown as plain words."
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[*`]|\$+", "", text).split())


def first_sentences(text:str, most:int=240) -> str:
    "The first paragraph of a Markdown text that is prose, cut after a whole sentence."
    parts = (p.strip() for p in re.split(r"\n\s*\n", text))
    prose = next((p for p in parts if p and not re.match(r"[#|>\-*]|\d+\.|```|:::|\$\$", p)), "")
    said = ""
    for sentence in re.findall(r".+?[.?!](?=\s|$)", words_of(prose)):
        if said and len(said) + len(sentence) > most: break
        said += sentence
    return said.strip()


def title_slide(page:Page) -> str:
    "The question, the first paragraph and the picture of the panel."
    number, _, question = page.title.partition(": ")
    asked = question[:1].upper() + question[1:]
    intro = next((p for p in page.sections[0].cell["source"].split("\n\n")[1:] if not p.startswith("*")), "")
    panel = next((s.cell for s in page.sections if s.cell["cell_type"] == "code" and panel_of(s.cell["source"])), None)
    still = next(pictures(panel), "") if panel else ""
    return f"<h1>{html.escape(asked or number)}</h1><p>{html.escape(first_sentences(intro, 300))}</p>{still}"


def pictures(cell:dict) -> Iterable[str]:
    "The pictures among the outputs of a cell."
    return filter(None, (picture_html(output.get("data", {})) for output in cell["outputs"]))


def answer(cell:dict) -> str:
    "The folded answer that a reveal shows."
    found = next((text for text in map(html_of, cell["outputs"]) if ANSWER.search(text)), "")
    return folded(table_html(found))


def slides(page:Page) -> Iterable[str]:
    "The slides of a lesson: its question, then its guesses, answers and pictures in the order of the lesson."
    yield title_slide(page)
    cells = page.sections
    for index, section in enumerate(cells):
        if section.cell["cell_type"] != "code" or panel_of(section.cell["source"]): continue
        heading = f"<h2>{html.escape(plain(section.heading))}</h2>"
        for card in cards(section.cell["outputs"]): yield heading + card
        following = next((s.cell["source"] for s in cells[index + 1:] if s.cell["cell_type"] == "markdown"), "")
        caption = f"<p>{html.escape(first_sentences(following))}</p>"
        if found := answer(section.cell): yield heading + found + caption
        for picture in pictures(section.cell): yield heading + picture + caption


def deck(page:Page) -> str:
    "The slides of a lesson as one HTML page, which fetches nothing."
    made = list(slides(page))
    back = f'<a href="../{page.name}.html">{html.escape(page.short)}</a>'
    body = "\n".join(f'<section id="slide-{n}">{text}<div class="number">{back} · {n} / {len(made)}</div></section>'
                     for n, text in enumerate(made, 1))
    head = (f'<meta charset="utf-8"><title>{html.escape(page.title)}</title>'
            '<link rel="icon" href="../_static/favicon.svg">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>')
    return (f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>'
            f"<body>\n{body}\n<script>{SCRIPT}</script></body></html>\n")


def count(page:Page) -> int: return sum(1 for _ in slides(page))


def slide_list(pages:Sequence[Page]) -> str:
    "Links to the slides of each lesson, in Markdown with HTML links (Sphinx does not know these files)."
    def line(page, number):
        address = f'<a href="slides/{page.name}.html">{html.escape(page.short)}</a>'
        return f"- {address}, {number} slide{'s' if number != 1 else ''}"
    return "\n".join(line(page, count(page)) for page in pages)
