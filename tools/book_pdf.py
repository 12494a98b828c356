"""Print the built book into one PDF with an outline: its pages joined into one, printed by Chromium."""
import posixpath
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

STYLE = """
body { background: #fff; font-size: 10.5pt; } article { break-before: page; max-width: none; padding: 0; }
article:first-of-type { break-before: auto; } .cell_output, .live-panel, .live-still { overflow: visible; }
.live-still svg, .cell_output svg { min-width: 0 !important; max-width: 100%; }
"""
FOOT = ('<div style="width:100%;font-size:8px;text-align:center;color:#666"><span class="pageNumber"></span> / '
        '<span class="totalPages"></span></div>')


def article(html:Path, name:str) -> str:
    "What a page says, with names of places that no other page has, and with its answers open."
    text = (html / f"{name}.html").read_text(encoding="utf-8")
    found = re.search(r'<article class="bd-article"[^>]*>(.*?)</article>', text, flags=re.S)
    if not found: raise ValueError(f"{name}.html has no article")
    here = name.replace("/", "-")
    def link(match):
        page = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1])).removesuffix(".html")
        return f'href="#{page.replace("/", "-") if match[1] else here}--{match[2] or ""}"'
    text = re.sub(r'\bid="([^"]*)"', rf'id="{here}--\1"', found[1])
    text = re.sub(r'\bhref="((?:\.\./)?[\w/]+\.html|)(?:#([^"]*))?"', link, text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{here}--\1)", text).replace('="../', '="')
    text = text.replace('<details class="answer"', '<details open class="answer"')
    return f'<article class="bd-article" id="{here}--">{text}</article>'


def joined(html:Path, names:Sequence[str]) -> str:
    "These pages as one."
    found = [sheet.relative_to(html) for folder in ("_static", "_static/styles")
             for sheet in sorted((html / folder).glob("*.css"))]
    sheets = "".join(f'<link rel="stylesheet" href="{sheet}">' for sheet in found)
    body = "\n".join(article(html, name) for name in names)
    return ('<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>mlinfra</title>'
            f"{sheets}<style>{STYLE}</style></head><body>{body}</body></html>")


def print_book(html:Path, names:Sequence[str], path:Path) -> None:
    "Write the pages `names` of the book in the folder `html` into the PDF at `path`."
    try: from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise SystemExit("a PDF needs Chromium: pip install playwright; playwright install chromium") from error
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    one = html / "_print.html"
    one.write_text(joined(html, names), encoding="utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(one.as_uri(), wait_until="load", timeout=300_000)
            page.set_default_timeout(300_000)
            page.pdf(path=path, format="A4", outline=True, tagged=True, display_header_footer=True,
                     header_template="<i></i>", footer_template=FOOT,
                     margin=dict.fromkeys(("top", "bottom", "left", "right"), "16mm"))
            browser.close()
    finally: one.unlink()
