"""The glossary: in order, each word taught where it says, each link into it hits a word."""
import json
import re
from pathlib import Path

import pytest

NBS = Path(__file__).resolve().parent.parent / "nbs"
LINK = re.compile(r"\]\((?:\.\./)?glossary\.ipynb#([^)\s]+)\)")
TO_LESSON = re.compile(r"\[([^\]]+)\]\(([^)#]+\.ipynb)\)")


def prose(path):
    "The Markdown of a notebook."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def entries(text):
    "(term, what stands under its heading) in the order of the glossary."
    parts = re.split(r"^### (.+)$|^## .+$", text, flags=re.M)[1:]
    return [(term, body) for term, body in zip(parts[::2], parts[1::2]) if term]


def anchor(term): return term.replace(" ", "-")  # as JupyterLab makes it from a heading


def plain(text):
    "`text` as it is compared: no bold, no link into the glossary, a blank for hyphens and the like, small letters."
    return re.sub(r"[\s_-]+", " ", LINK.sub("", text).translate(str.maketrans("", "", "*[]"))).casefold()


def stands_in(term, text): return re.search(rf"\b{re.escape(plain(term))}", text) is not None


def out_of_order(glossary, _):
    terms = [term.casefold() for term, _ in entries(glossary)]
    yield from (f"{b!r} comes after {a!r}" for a, b in zip(terms, terms[1:]) if a > b)


def repeated(glossary, _):
    terms = [anchor(term).casefold() for term, _ in entries(glossary)]
    yield from (f"{term!r} has {terms.count(term)} headings" for term in sorted(set(terms)) if terms.count(term) > 1)


def taught_nowhere(glossary, lessons):
    words = {name: plain(text) for name, text in lessons.items()}
    for term, body in entries(glossary):
        links = TO_LESSON.findall(body)
        if not links: yield f"{term!r} names no lesson"
        if not TO_LESSON.sub("", body).strip(" ,\n"): yield f"{term!r} is not explained"
        for label, name in links:
            if name not in words: yield f"{term!r} links {name}, which is no lesson"
            elif not stands_in(term, words[name]): yield f"{term!r} does not stand in {name}"
            if label[:3] != f"{Path(name).name[:2]} ": yield f"{term!r} calls {name} {label!r}"


def links_astray(glossary, lessons):
    anchors = {anchor(term) for term, _ in entries(glossary)}
    for name, text in lessons.items():
        for target in LINK.findall(text):
            if target not in anchors: yield f"{name} links {target!r}, which the glossary does not have"


def linked_from_nowhere(glossary, lessons):
    linked = {target for text in lessons.values() for target in LINK.findall(text)}
    yield from (f"no lesson links {term!r}" for term, _ in entries(glossary) if anchor(term) not in linked)


CHECKS = out_of_order, repeated, taught_nowhere, links_astray, linked_from_nowhere


@pytest.fixture(scope="module")
def book():
    "The glossary, and each lesson and each notebook of more/ by its place."
    read = [*sorted(NBS.glob("[0-9][0-9]_*.ipynb")), *sorted(NBS.glob("more/*.ipynb"))]
    return prose(NBS / "glossary.ipynb"), {p.relative_to(NBS).as_posix(): prose(p) for p in read}


def test_it_has_entries(book): assert len(entries(book[0])) > 100


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nothing_is_wrong(book, check): assert list(check(*book)) == []


# ---- each check can fail: a small glossary that is right, and what each damage makes of it

GLOSSARY = """# Glossary

## B

### batch

Samples in one tensor. [01 One](01_one.ipynb)

## P

### page fault

A first touch. [01 One](01_one.ipynb), [02 Two](02_two.ipynb)"""
LESSONS = {
    "01_one.ipynb": "A [**batch**](glossary.ipynb#batch) and a page\nfault.",
    "02_two.ipynb": "[**Page faults**](glossary.ipynb#page-fault)",
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_good_glossary_passes(check): assert list(check(GLOSSARY, LESSONS)) == []


@pytest.mark.parametrize("check, old, new, says", [
    (out_of_order, "### batch", "### queue", "'page fault' comes after 'queue'"),
    (repeated, "### batch", "### Page-fault", "'page-fault' has 2 headings"),
    (taught_nowhere, "### batch", "### tensor", "'tensor' does not stand in 01_one.ipynb"),
    (taught_nowhere, "[01 One](01_one.ipynb)\n", "\n", "'batch' names no lesson"),
    (taught_nowhere, "02_two", "03_three", "'page fault' links 03_three.ipynb, which is no lesson"),
    (taught_nowhere, "02 Two", "01 Two", "'page fault' calls 02_two.ipynb '01 Two'"),
    (taught_nowhere, "A first touch.", "", "'page fault' is not explained"),
    (links_astray, "### page fault", "### page", "02_two.ipynb links 'page-fault', which the glossary does not have"),
    (linked_from_nowhere, "## P", "### page\n\nMemory.\n\n## P", "no lesson links 'page'"),
])
def test_a_check_can_fail(check, old, new, says):
    assert old in GLOSSARY
    assert says in list(check(GLOSSARY.replace(old, new), LESSONS))
