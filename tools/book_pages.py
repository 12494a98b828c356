"""The pages of the book that are no lessons: some written in docs/, some made from the lessons."""
import ast
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import yaml

from book_api import Module, read_module, source_of
from book_slides import slide_list
from book_stage import Page, Stager, more_pages, plain
from notebooks import ROOT, is_placeholder, settings

DOCS = ROOT / "docs"
PARTS = {"01": "I One device", "06": "II Feeding it", "09": "III Numbers in memory", "11": "IV Many devices",
         "17": "V Watching and running"}


def toctree(caption:str, entries:Sequence[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```"])


def front(lessons:Sequence[Page]) -> list[str]:
    "What is added to the index: ways into the book, and the tree of its pages."
    parts = {}
    for page in lessons:
        if page.number in PARTS: part = parts.setdefault(PARTS[page.number], [])
        part.append(f"{page.short} <{page.name}>")
    trees = [toctree("Use it", ["Which chapter answers my question? <questions>", "All panels <panels>",
                                "Your guesses <guesses>", "For teachers <teachers>",
                                "Cite, print, report <take>"])]
    trees += [toctree(caption, entries) for caption, entries in parts.items()]
    trees += [toctree("Look it up", ["Glossary <glossary>", "Public names <api/index>", "Command line <98_cli>",
                                      *(f"{page.short} <{page.name}>" for page in more_pages())]),
              toctree("Work on it", ["The map of the house <house>", "Contributing <contributing>",
                                     "Changes <changelog>"])]
    return ["\n\n".join(trees)]


def pages(lessons:Sequence[Page], stager:Stager, pdf:bool=False) -> dict[str, str]:
    "Name -> text of each page that is no notebook; `pdf` tells whether the book was printed."
    made = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("questions.md", "teachers.md", "house.md")}
    made["house.md"] = made["house.md"].replace("(../CONTRIBUTING.md)", "(contributing.md)")
    made["teachers.md"] = filled(made["teachers.md"], lessons)
    made["panels.md"] = panels_page(lessons, stager)
    made["guesses.md"] = guesses_page(lessons, stager)
    made["take.md"] = take_page(pdf)
    for name in ("CONTRIBUTING", "CHANGELOG"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/(\w+\.md)\)", r"](\1)", text)
        made[f"{name.lower()}.md"] = re.sub(r"\]\((?:nbs/)([\w]+\.ipynb)\)", r"](\1)", text)
    return made


# ---- all panels

@cache
def panel_titles() -> dict[str, str]:
    "Panel -> the question in its title, as its view or what the view calls writes it."
    found = {}
    for path in sorted((ROOT / "mlinfra" / "views").glob("*.py")):
        module = read_module(path)
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_panel"):
                found[node.name] = title_in(module, node) or (ast.get_docstring(node) or node.name).splitlines()[0]
    return found


def title_in(module:Module, node:ast.AST, depth:int=3) -> str|None:
    "The first question among the texts of a definition, or of those that it names."
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and re.fullmatch(r"[A-Z][^\n<{]{12,}\?", str(part.value)): return part.value
    if not depth: return None
    for name in dict.fromkeys(part.id for part in ast.walk(node) if isinstance(part, ast.Name)):
        for home, target in where_defined(module, name):
            if target is not node and (found := title_in(home, target, depth - 1)): return found
    return None


def where_defined(module:Module, name:str) -> Iterator[tuple[Module, ast.AST]]:
    "The definition of a name of ours, in this module or where it is imported from."
    for node in module.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name: yield module, node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(getattr(target, "id", "") == name for target in targets): yield module, node
        if isinstance(node, ast.ImportFrom) and name in [a.asname or a.name for a in node.names]:
            path = source_of(module, node)
            original = next(a.name for a in node.names if (a.asname or a.name) == name)
            if path: yield from where_defined(read_module(path), original)


def panels_page(lessons:Sequence[Page], stager:Stager) -> str:
    "Every panel with its picture, and the lesson that it stands in."
    by_name, titles = {page.name: page for page in lessons}, panel_titles()
    lines = ["# All panels", "",
             "Move a slider, and the picture answers. "
             + ("Those marked *lives here* run in this page, without a kernel. " if stager.live else "")
             + "The others measure on your machine, and need JupyterLab (`make lab`): here is the picture that they "
               "start with.", ""]
    shown = set()
    for name, heading, panel, made in list(stager.shown):
        if panel in shown or name not in by_name: continue
        shown.add(panel)
        page = by_name[name]
        lines += [f"## {titles.get(panel, panel)}", "",
                  f"{'*Lives here.* ' if panel in stager.live else ''}From [{page.short}]({page.link(heading)}); "
                  f"`from mlinfra.views.{page.name[3:]} import {panel}`", "",
                  "```{raw} html", made.replace('id="live-', 'id="all-'), "```", ""]
    rest = {panel: title for panel, title in titles.items() if panel not in shown}
    if rest: lines += ["## Without a picture", "", *(f"- `{panel}`: {title}" for panel, title in rest.items()), ""]
    if stager.live & shown:
        lines += ["```{raw} html", '<link rel="stylesheet" href="_static/live/live.css">',
                  '<script src="_static/live/live.js"></script>', "```", ""]
    return "\n".join(lines)


# ---- the reader's guesses

def guesses_page(lessons:Sequence[Page], stager:Stager) -> str:
    "Where docs/_static/guess.js shows what the reader has guessed, by lesson."
    asked = {}
    for name, key in stager.asked: asked.setdefault(name, []).append(key)
    table = [(page.name, page.short, asked[page.name]) for page in (*lessons, *more_pages()) if page.name in asked]
    lines = ["# Your guesses", "",
             f"The book asks {len(stager.asked)} questions before it measures. What you lock on a card is kept in this "
             "browser and nowhere else; here is how far off you were.", "",
             "```{raw} html", f'<div class="guesses" data-lessons="{html.escape(json.dumps(table))}">'
             "<p>This list needs a script, and yours is switched off. Every question and every answer can be read in "
             "its lesson.</p></div>", "```", ""]
    return "\n".join(lines)


# ---- to cite, to print, to report

def report_address(address:str) -> str|None:
    "Where a reader reports what is wrong, given the repository's address; None where that is a placeholder."
    return None if is_placeholder(address) else f"{address.removesuffix('.git').rstrip('/')}/issues/new"


def bibtex(cited:Mapping, address:str) -> str:
    "What CITATION.cff says, for BibTeX, and where the book lives, if it says so."
    def name(person): return person.get("name") or f"{person['family-names']}, {person['given-names']}"
    day = str(cited["date-released"])
    fields = dict(title=f"{{{cited['title']}}}", author=" and ".join(f"{{{name(p)}}}" for p in cited["authors"]),
                  year=day[:4], version=cited["version"])
    if not is_placeholder(address): fields["url"] = address
    told = ",\n".join(f"  {key:7} = {{{value}}}" for key, value in fields.items())
    return f"@software{{mlinfra,\n{told}\n}}"


def take_page(pdf:bool) -> str:
    "How to cite the book, to print it, to read it elsewhere, and to say what is wrong in it."
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    address = settings()["git_url"]
    printed = ('<a href="mlinfra.pdf">The whole book as a PDF</a>: the lessons and the glossary as they stand here, '
               "with every answer open." if pdf else
               "`make book ARGS=pdf` prints the lessons and the glossary into one file, with every answer open (it "
               "needs Chromium), and a link to it then stands here. Your browser prints a single page.")
    report = ("Point at a heading and choose *report*: the page and the heading are filled in, and the words that you "
              "have selected." if report_address(address) else
              "This copy of the book does not say where its authors can be reached (`git_url` in settings.ini), so it "
              "offers no link to report a mistake.")
    entry = bibtex(yaml.safe_load(text), address)
    return "\n".join(["# Cite, print, report", "", "## Cite", "", "```bibtex", entry, "```", "",
                      "The same as `CITATION.cff`, which reference managers read:", "",
                      "```yaml", text.strip(), "```", "", "## Print", "", printed, "", "## Read elsewhere", "",
                      "Copy the folder `_book/html`: the pages need no server to be read and searched. Panels that "
                      "live in a page need one to compute: in the folder, type `python -m http.server`. A panel's "
                      "button *Link* puts its position into the page's address, to be sent or kept.", "",
                      "## Report", "", report, ""])


# ---- for teachers

def minutes(page:Page) -> int:
    "What the lesson says at its top (tests/test_lesson_shape.py asks for it)."
    said = re.search(r"(\d+) minutes", page.sections[0].cell["source"])
    return int(said[1]) if said else 0


def filled(text:str, lessons:Sequence[Page]) -> str:
    "A page with what is computed from the lessons: {minutes:01,02}, {link:01}, {slides}, {lessons}."
    by_number = {page.number: page for page in lessons}
    def numbers(words): return [by_number[n.strip()] for n in words.split(",")]
    text = re.sub(r"\{minutes:([\d, ]+)\}", lambda m: str(sum(minutes(p) for p in numbers(m[1]))), text)
    text = re.sub(r"\{link:(\d\d)\}", lambda m: f"[{by_number[m[1]].short}]({by_number[m[1]].name}.ipynb)", text)
    text = text.replace("{slides}", slide_list(lessons)).replace("{number}", str(len(lessons)))
    text = text.replace("{total}", f"{sum(map(minutes, lessons)) / 60:.0f}").replace("{machine}", machine())
    return text.replace("{memory}", memory(by_number))


def memory(by_number:dict[str, Page]) -> str:
    "The memory that each lesson took (tools/lesson_memory.py)."
    path = DOCS / "lesson_memory.csv"
    if not path.exists(): return ""
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").split()[1:]]
    known = [(by_number[name[:2]], int(mib)) for name, mib in rows if name[:2] in by_number]
    said = ("The most memory that a lesson took when it was run from top to bottom, with all processes that it starts "
            "(pages that they share are counted once; `python tools/lesson_memory.py` measures it). JupyterLab and the "
            "browser come on top.")
    lines = [f"| [{page.short}]({page.name}.ipynb) | {mib / 1024:.1f} |" for page, mib in known]
    return "\n".join([said, "", "| lesson | GiB |", "|---|---|", *lines])


def machine() -> str:
    "The machine of the committed outputs, from the index."
    from book_stage import read_page
    for section in read_page(ROOT / "nbs" / "index.ipynb").sections:
        if "machine_table" not in section.cell["source"]: continue
        for output in section.cell.get("outputs", []):
            lines = output.get("data", {}).get("text/plain", "").splitlines()[1:]
            rows = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines if line.strip())
            return "\n".join(["| | |", "|---|---|", *(f"| {plain(a)} | {plain(b)} |" for a, b in rows)])
    return ""
