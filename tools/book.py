"""Build the book: every lesson as a page with its committed outputs, which needs no kernel and no network to be read.

    python tools/book.py build      stage, build, check; --require-live: an error where no panel can live in its page
    python tools/book.py pdf        build, print the lessons and the glossary into one PDF, and link it
    python tools/book.py check      check the links of what is built, and that a reader's browser asks nobody else
    python tools/book.py serve      show it on this machine (panels in a page need a server; the rest opens as files)
"""
import argparse
import functools
import importlib.util
import http.server
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import book_api
import book_check
import book_pages
import book_slides
import book_stage
from notebooks import ROOT

sys.path.insert(0, str(ROOT))
from mlinfra.engine.ui.palette import page_css  # noqa: E402

BOOK = ROOT / "_book"
SOURCE, HTML, TREES = BOOK / "source", BOOK / "html", BOOK / "doctrees"
DOCS = ROOT / "docs"
STAMP = BOOK / "stamp"
PDF = SOURCE / "_extra" / "mlinfra.pdf"


def write(path:Path, text:str) -> Path:
    "Write `text` unless the file holds it already: Sphinx reads again what is newer. Returns the path."
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def live_panels(required:bool) -> frozenset[str]:
    "Names of the panels that run in the page; their files are put beside the others."
    if not (ROOT / "tools" / "book_live.py").exists(): return frozenset()
    from book_live import prepare
    live = frozenset(prepare(SOURCE / "_static" / "live"))
    if required and not live: raise SystemExit("no panel can live in its page: the reason is above")
    return live


def stage(live:frozenset[str]) -> set[Path]:
    "Write the pages that Sphinx reads. Returns their paths."
    lessons = book_stage.lesson_pages()
    glossary = book_stage.read_page(ROOT / "nbs" / "glossary.ipynb")
    stager = book_stage.Stager(live, book_stage.explanations(glossary))
    made = {PDF}

    def notebook(page, extra=()):
        text = json.dumps(stager.notebook(page, extra), ensure_ascii=False, indent=1)
        made.add(write(SOURCE / f"{page.name}.ipynb", text))

    front = [book_stage.markdown_cell(text, f"front-{n}") for n, text in enumerate(book_pages.front(lessons))]
    notebook(book_stage.read_page(ROOT / "nbs" / "index.ipynb"), front)
    for path in (ROOT / "nbs/pictures").glob("*.svg"):
        made.add(write(SOURCE / "pictures" / path.name, path.read_text(encoding="utf-8")))
    for page in lessons: notebook(page)
    for page in (*book_stage.more_pages(), book_stage.read_page(ROOT / "nbs/98_cli.ipynb")): notebook(page)
    notebook(book_stage.glossary_links(glossary, lessons))

    for name, text in book_pages.pages(lessons, stager, PDF.exists()).items(): made.add(write(SOURCE / name, text))
    for page in lessons:
        views = book_api.view_files(page.number)
        made.add(write(SOURCE / "api" / f"{page.name[3:]}.md", book_api.lesson_page(page, views)))
        made.add(write(SOURCE / "_extra" / "slides" / f"{page.name}.html", book_slides.deck(page)))
    made.add(write(SOURCE / "api" / "index.md", book_api.index_page(lessons)))
    made.add(write(SOURCE / "api" / "engine.md", book_api.engine_page()))
    return made


def drop_old(made:set[Path]) -> None:
    "Remove pages that are made no more."
    for path in SOURCE.rglob("*"):
        if path.is_file() and path not in made and "_static" not in path.parts: path.unlink()


def sphinx(jobs:int) -> int:
    "Run Sphinx; a warning is an error, and all of them are said."
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", str(jobs), "-b", "html",
               "-c", DOCS, "-d", TREES, SOURCE, HTML]
    return subprocess.run(list(map(str, command)), check=False).returncode


def sources() -> list[Path]:
    "What the book is made from."
    found = [p for folder in ("nbs", "docs", "mlinfra", "tools") for p in (ROOT / folder).rglob("*")
             if p.is_file() and "__pycache__" not in p.parts and ".ipynb_checkpoints" not in p.parts]
    return [*found, *(ROOT / name for name in ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "settings.ini"))]


def is_fresh() -> bool:
    "Whether the built book is newer than everything that it is made from."
    return STAMP.exists() and all(p.stat().st_mtime <= STAMP.stat().st_mtime for p in sources() if p.exists())


def build(jobs:int, require_live:bool, clean:bool=False, keep_pdf:bool=False) -> None:
    "Make the book, from nothing if `clean`, and check it; a PDF of a book that was before goes, unless it is kept."
    if importlib.util.find_spec("myst_nb") is None:
        raise SystemExit("Sphinx or myst-nb is not installed: make book installs them, for Python 3.11 or later")
    start = time.perf_counter()
    began = time.time()
    STAMP.unlink(missing_ok=True)
    if not keep_pdf: PDF.unlink(missing_ok=True)
    if clean and BOOK.exists(): shutil.rmtree(BOOK)
    (SOURCE / "_static").mkdir(parents=True, exist_ok=True)
    write(SOURCE / "_static" / "palette.css", page_css() + "\n")
    drop_old(stage(live_panels(require_live)))
    staged = time.perf_counter()
    if sphinx(jobs): raise SystemExit("Sphinx said the above: the book is not whole")
    built = time.perf_counter()
    check()
    STAMP.touch()
    os.utime(STAMP, (began, began))  # what changed meanwhile is newer
    size = sum(p.stat().st_size for p in HTML.rglob("*") if p.is_file())
    print(f"{len(list(HTML.rglob('*.html')))} pages, {size / 2**20:.0f} MiB in {HTML.relative_to(ROOT)}: staged in "
          f"{staged - start:.0f} s, built in {built - staged:.0f} s, checked in {time.perf_counter() - built:.0f} s")


def pdf(jobs:int, require_live:bool) -> None:
    "Print the book, and build it once more with a link to what was printed."
    import book_pdf
    if not is_fresh(): build(jobs, require_live)
    start = time.perf_counter()
    pages = [*book_stage.lesson_pages(), *book_stage.more_pages()]
    book_pdf.print_book(HTML, ["index", *(page.name for page in pages), "glossary"], PDF)
    print(f"{PDF.stat().st_size / 2**20:.0f} MiB printed in {time.perf_counter() - start:.0f} s")
    build(jobs, require_live, keep_pdf=True)


def check() -> None:
    "Say what is wrong with the built book, and stop if anything is."
    if not HTML.exists(): raise SystemExit(f"there is no {HTML}: run make book first")
    said, own, others = book_check.problems(HTML)
    for line in said: print(line, file=sys.stderr)
    if said: raise SystemExit(f"{len(said)} problems in the built book")
    print(f"{own} links and files of the book's own lead somewhere, {others} links to other sites are well formed, "
          "and no page fetches anything from another host")


def serve(port:int) -> None:
    "Show the book on this machine until Ctrl-C."
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=HTML)
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}/ (Ctrl-C ends it)", flush=True)
        try: server.serve_forever()
        except KeyboardInterrupt: print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["build", "pdf", "check", "serve"])
    parser.add_argument("--require-live", action="store_true", help="an error where no panel can live in its page")
    parser.add_argument("--clean", action="store_true", help="build all pages anew")
    parser.add_argument("--jobs", type=int, default=2, help="processes of Sphinx")
    parser.add_argument("--port", type=int, default=8000, help="for serve; 0 takes a free one")
    args = parser.parse_args()
    if args.command == "build": build(args.jobs, args.require_live, args.clean)
    elif args.command == "pdf": pdf(args.jobs, args.require_live)
    elif args.command == "check": check()
    else: serve(args.port)


if __name__ == "__main__": main()
