"""Stage the book's pages for Sphinx: notebooks as they are read (nothing is executed), and the pages made from them."""
import ast
import base64
import copy
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from book_guess import CARD, cards, folded, html_of, without_question
from notebooks import INSTALL, ROOT, directives, load

LESSON = re.compile(r"\d\d_\w+")
PANEL = re.compile(r"\b(\w+_panel)\((.*?)\)\s*$", re.S)
GLOSSARY = re.compile(r"(?<=\]\()glossary\.ipynb#([^)\s]+)(?=\))")
NEEDS_KERNEL = '<p class="needs-kernel">This panel needs a kernel: open the page in JupyterLab to use it.</p>'


def anchor(heading:str) -> str:
    "The name that JupyterLab gives to a heading, and so the links in the notebooks."
    return heading.strip().replace(" ", "-")


def plain(heading:str) -> str:
    "A heading's words without its marks: links, code, bold."
    return re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip()


def headings(text:str) -> list[str]:
    "The headings in a Markdown text, without those in fenced code."
    return re.findall(r"^#{1,4} (.+)$", re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.M | re.S), flags=re.M)


@dataclass
class Section:
    "A cell and the heading that it stands under."
    heading:str
    cell:dict


@dataclass
class Page:
    "A notebook of the book, with the heading over each of its cells."
    name:str
    sections:list[Section] = field(default_factory=list)

    @property
    def number(self) -> str: return self.name[:2]

    @property
    def title(self) -> str: return self.sections[0].cell["source"].splitlines()[0].removeprefix("# ").strip()

    @property
    def short(self) -> str: return self.title.split(":")[0]

    def link(self, heading:str) -> str:
        "The address of a section, as it is written in a Markdown page beside the notebooks."
        return f"{self.name}.ipynb#{anchor(plain(heading))}"

    def section_of(self, *patterns:str) -> str|None:
        "The heading of the first section in which one of these regular expressions is found; the first one goes first."
        for pattern in patterns:
            for section in self.sections:
                if re.search(pattern, section.cell["source"]): return section.heading
        return None


def read_page(path:Path) -> Page:
    "The notebook at `path`."
    page, heading = Page(path.stem), ""
    for cell in load(path).cells:
        found = headings(cell["source"]) if cell["cell_type"] == "markdown" else []
        page.sections.append(Section(found[0] if found else heading, cell))
        heading = found[-1] if found else heading
    return page


def lesson_pages(root:Path=ROOT) -> list[Page]:
    "The lessons, in order, without the appendix."
    paths = sorted(p for p in (root / "nbs").glob("[0-9][0-9]_*.ipynb") if p.stem[:2] < "98")
    return [read_page(p) for p in paths]


def more_pages(root:Path=ROOT) -> list[Page]:
    "What a lesson's line does not need: nbs/more, a folder in the book too."
    return [replace(read_page(p), name=f"more/{p.stem}") for p in sorted((root / "nbs/more").glob("[0-9]*.ipynb"))]


# ---- cells

def only_imports(source:str) -> bool:
    "Whether a cell holds nothing but imports."
    try: body = ast.parse(source).body
    except SyntaxError: return False
    def for_types(node): return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    return bool(body) and all(isinstance(n, (ast.Import, ast.ImportFrom)) or for_types(n) for n in body)


def panel_of(source:str) -> tuple[str, str]|None:
    "Name and arguments of the panel that a cell shows."
    match = PANEL.search(source.strip())
    return (match[1].split(".")[-1], " ".join(match[2].split())) if match else None


def picture_html(data:dict) -> str|None:
    "An output's picture as HTML that follows the page's theme; None if it has none."
    svg = data.get("image/svg+xml")
    if svg and ("<style" not in svg or 'class="mlinfra-svg"' in svg): return readable(svg)
    for kind, look in {"image/svg+xml": ' class="on-white"', "image/png": ""}.items():
        if kind not in data: continue
        raw = data[kind] if kind == "image/png" else base64.b64encode(data[kind].encode()).decode()
        return f'<img{look} alt="" src="data:{kind};base64,{"".join(raw.split())}">'
    return None


def readable(svg:str) -> str:
    "A drawing that does not shrink below 540 pixels on a phone: what does not fit is scrolled."
    if "min-width:" in svg.partition(">")[0]: return svg
    width = re.search(r'<svg[^>]* width="([\d.]+)', svg)
    least = min(540, float(width[1])) if width else 540
    return svg.replace('style="', f'style="min-width:{least:g}px;', 1)


def table_html(text:str) -> str:
    "An HTML output with room to scroll, without what only a notebook needs."
    return re.sub(r"<style scoped>.*?</style>", "", text, flags=re.S).replace(' border="1"', "")


@dataclass
class Stager:
    "Makes staged notebooks, and remembers the panels on the way."
    live:frozenset[str] = frozenset()  # names of the panels that run in the page
    words:dict[str, str] = field(default_factory=dict)  # a place in the glossary -> what it says there
    shown:list[tuple[str, str, str, str]] = field(default_factory=list)  # page, heading, panel, its HTML
    asked:list[tuple[str, str]] = field(default_factory=list)            # page, the name of a question that it asks

    def notebook(self, page:Page, extra:Iterable[dict]=()) -> dict:
        "The notebook of `page` as Sphinx reads it."
        cells = [made for section in page.sections if (made := self.cell(page, section))]
        cells += extra
        if any(panel in self.live for name, _, panel, _ in self.shown if name == page.name):
            cells.append(live_script(page))
        kernel = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"},
                  "language_info": {"name": "python"}}
        return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}

    def cell(self, page:Page, section:Section) -> dict|None:
        "The staged cell; None if it is not for a reader of the book."
        cell = copy.deepcopy(section.cell)
        if cell.get("id") == INSTALL or cell["source"].startswith("<!-- only in JupyterLab -->"): return None
        if cell["cell_type"] == "markdown": return dict(cell, source=relink(cell["source"], self.words))
        if cell["cell_type"] != "code": return cell
        return self.code(page, section, cell)

    def code(self, page:Page, section:Section, cell:dict) -> dict|None:
        "A staged code cell."
        words = directives(cell["source"])
        source = re.sub(r"^\s*#\s*\|.*\n?", "", cell["source"], flags=re.M).strip("\n")
        if "default_exp" in words or not source: return None
        asked = cards(cell["outputs"])
        self.asked += [(page.name, CARD.search(card)[1]) for card in asked]
        rest = without_question(source) if asked else source
        hidden = cell["metadata"].get("jupyter", {}).get("source_hidden") or only_imports(rest) or panel_of(source)
        tags = ["remove-input"] if "hide" in words or not rest else ["hide-input"] if hidden else []
        meta = {"tags": tags, "mystnb": {"image": {"alt": f"picture to: {plain(section.heading)}"}}}
        outputs = [self.relinked(output) for output in self.outputs(page, section, source, cell, asked)]
        return dict(cell, source=rest or source, metadata=meta, outputs=outputs)

    def outputs(self, page:Page, section:Section, source:str, cell:dict, asked:Sequence[str]) -> list[dict]:
        "What a cell shows: a panel under its question, or what it said before it asked."
        questions = list(map(html_output, asked))
        if made := self.panel(page, section, source, cell): return questions + made
        return [staged_output(output) for output in cell["outputs"] if not CARD.search(html_of(output))] + questions

    def relinked(self, output:dict) -> dict:
        "An output whose links lead to the pages of the book; those to the glossary bring a word's explanation."
        text = html_of(output)
        def link(match):
            words = self.words.get(match[4]) if match[2] == "glossary" else None
            return f'href="{match[1]}{match[2]}.html{match[3]}"' + (f' title="{words}"' if words else "")
        text = re.sub(r'href="((?:\.\./)?)(\w+)\.ipynb(#?([^"]*))"', link, text)
        return dict(output, data=dict(output["data"], **{"text/html": text})) if text else output

    def panel(self, page:Page, section:Section, source:str, cell:dict) -> list[dict]:
        "The output of a panel's cell: its still picture, where a live one can take its place."
        found = panel_of(source)
        if not found: return []
        stills = [made for output in cell["outputs"] if (made := picture_html(output.get("data", {})))]
        if not stills: return [html_output(NEEDS_KERNEL)] if not cell["outputs"] else []
        name, args = found
        made = placeholder(name, args, stills[0], sum(known[::2] == (page.name, name) for known in self.shown))
        self.shown.append((page.name, section.heading, name, made))
        return [html_output(made)]


def placeholder(name:str, args:str, still:str, before:int) -> str:
    "A panel's place on a page, which has it that often `before`: its still picture, which a script may replace."
    place = f"live-{name}" + (f"-{before + 1}" if before else "")
    return (f'<div class="live-panel" id="{place}" data-panel="{name}" data-args="{html.escape(args)}">'
            f'<div class="live-still">{still}</div></div>')


def live_script(page:Page) -> dict:
    "What lets the panels of a page live (tools/book_live.py)."
    folder = "../" * page.name.count("/") + "_static/live"
    return markdown_cell(f'```{{raw}} html\n<link rel="stylesheet" href="{folder}/live.css">\n'
                         f'<script src="{folder}/live.js"></script>\n```', "live")


def markdown_cell(source:str, name:str) -> dict:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def html_output(text:str) -> dict:
    return {"output_type": "display_data", "metadata": {}, "data": {"text/html": text}}


def staged_output(output:dict) -> dict:
    "An output with what a page can show."
    data = output.get("data")
    if not data: return output
    if "text/html" in data: return dict(output, data={"text/html": folded(table_html(data["text/html"]))})
    if "image/svg+xml" in data and (picture := picture_html(data)): return html_output(picture)
    return output


def relink(text:str, words:Mapping[str, str]) -> str:
    """Links that hold in nbs/ made to hold in the book: a room of the engine is a section of one page there, a word of
    the glossary brings its explanation."""
    def section(match): return f"](api/engine.md#{match[1].replace('/', '-')})"
    def explained(match): return f'{match[0]} "{words[match[1]]}"' if match[1] in words else match[0]
    text = GLOSSARY.sub(explained, text)
    text = re.sub(r"\]\(((?:engine/\w+|lab|views)/\w+)\.ipynb[^)]*\)", section, text)
    return re.sub(r"\]\(\.\./(?:docs/)?(\w+)\.md\)", lambda m: f"]({m[1].lower()}.md)", text)


# ---- the glossary

def explanations(glossary:Page) -> dict[str, str]:
    "The place of each word -> its explanation in plain words, as the title of a link in Markdown."
    text = "\n".join(section.cell["source"] for section in glossary.sections)
    found = re.findall(r"^### (.+)\n+((?:(?!#|\[\d\d ).+\n?)+)", text, flags=re.M)
    return {anchor(plain(term)): quoted(plain(" ".join(body.split()))) for term, body in found}


def quoted(words:str) -> str:
    "Words that stand between quotation marks in Markdown, and in which nothing is Markdown."
    return re.sub(r'[&"$|<>\\]', lambda found: f"&#{ord(found[0])};", words)


def glossary_links(glossary:Page, lessons:Sequence[Page]) -> Page:
    "The glossary with each lesson's link leading to the section where the word is taught."
    by_file = {f"{page.name}.ipynb": page for page in lessons}
    def entry(match):
        term, body = match[1], match[2]
        def section(link):
            page = by_file.get(link[2])
            words = re.escape(term).replace(r"\ ", r"[\s-]+")
            heading = page and page.section_of(rf"\*\*[^*]*\]\(glossary\.ipynb#{re.escape(anchor(term))}\)",
                                               rf"\]\(glossary\.ipynb#{re.escape(anchor(term))}\)", rf"(?i)\b{words}")
            return f"[{link[1]}]({page.link(heading)})" if heading else link[0]
        return f"### {term}\n" + re.sub(r"\[([^\]]+)\]\(([^)#]+\.ipynb)\)", section, body)
    made = copy.deepcopy(glossary)
    for section in made.sections:
        section.cell["source"] = re.sub(r"^### (.+)\n((?:(?!^##).*\n?)*)", entry, section.cell["source"], flags=re.M)
    return made
