"""Guesses on a page of the book, as the notebooks save them: bars with signed errors, a browser that keeps nothing,
several tabs; and the link to report a mistake, which the book has where its authors can be reached."""
import html
import json
import sys
from urllib.parse import parse_qs, urlsplit

import pytest
from book_site import only_from, served
from lab import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import book_guess

from mlinfra.engine.ui.guesses import Question
from mlinfra.engine.ui.reveals import Reveal

pytestmark = pytest.mark.browser
STATIC = ROOT / "docs" / "_static"
QUESTIONS = {  # key -> options, start, unit, what its answer holds
    "01.days": ([1, 2, 5, 10], 2, "days", dict(measured=4, modelled=5, called="the formula")),
    "01.change": ([-20, -10, 0, 10], 0, "ms", dict(measured=-10, how="computed")),
    "01.share": ([10, 20, 30], 20, "%", dict(measured=22, modelled=21.5, spread=1)),
    "01.none": ([0, 1, 2], 1, "requests", dict(measured=0)),
    "01.far": ([1e-5, 2e6], 1e-5, "", dict(measured=1234.56, spread=30)),
}
PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>A lesson</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="_static/book.css">
<script src="_static/book.js" data-report="https://code.test/mlinfra/issues/new"></script>
<script src="_static/guess.js"></script></head><body><article class="bd-article">
<section id="The-step"><h2>The step<a class="headerlink" href="#The-step">#</a></h2><p id="words">It takes 5 ms.</p>
{}</section></article></body></html>"""


def written(key, options, start, unit, answer):
    "A question and its answer as a notebook saves them, and as they stand on a page."
    card = Question(key, f"How much is {key}?", tuple(options), start, unit).poster()
    return book_guess.named(card) + book_guess.folded(Reveal(unit=unit, key=key, **answer)._repr_html_())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLINFRA_SAVED_PAGE", "1")
        cards = "".join(written(key, *rest) for key, rest in QUESTIONS.items())
    folder = tmp_path_factory.mktemp("guesses")
    (folder / "_static").symlink_to(STATIC)
    (folder / "lesson.html").write_text(PAGE.format(cards))
    lessons = html.escape(json.dumps([["lesson", "01 One", list(QUESTIONS)], ["more/other", "02 Two", ["02.x"]]]))
    (folder / "guesses.html").write_text(PAGE.format(f'<div class="guesses" data-lessons="{lessons}"></div>'))
    with served(folder) as url: yield url


@pytest.fixture
def context(browser, site):
    context = browser.new_context()
    asked = only_from(context, site)
    yield context
    assert asked == []
    context.close()


def open_page(context, site, name="lesson"):
    page = context.new_page()
    page.goto(f"{site}{name}.html")
    return page


class Card:
    "A question on a page, and its answer."
    def __init__(self, page, key):
        self.root = page.locator(f'.mlinfra-guess[data-key="{key}"]')
        self.answer = page.locator(f'details[data-key="{key}"]')
        self.slider = self.root.get_by_role("slider")

    def lock(self, *keys):
        for key in keys: self.slider.press(key)
        self.root.get_by_role("button", name="Lock").click()
        return self

    @property
    def is_open(self): return self.answer.evaluate("details => details.open")

    @property
    def rows(self): return [row.inner_text().split("\n") for row in self.answer.locator(".guess-row").all()]


def test_guess_model_and_measurement_stand_on_one_scale(context, site):
    card = Card(open_page(context, site), "01.days")
    assert card.slider.get_attribute("aria-valuetext") == "2 days" and not card.is_open
    card.lock("End")
    assert card.is_open
    words = [[name, said] for name, *_, said in card.rows]
    assert words == [["your guess", "10 days, off by +150%"], ["the formula", "5 days, off by +25%"],
                     ["measured", "4 days"]]
    widths = [bar.bounding_box()["width"] for bar in card.answer.locator(".guess-bar").all()]
    assert abs(widths[1] / widths[0] - 0.5) < 0.02 and abs(widths[2] / widths[0] - 0.4) < 0.02


def test_percent_differ_by_points_and_within_the_spread_by_nothing(context, site):
    rows = Card(open_page(context, site), "01.share").lock("End").rows
    assert [row[-1] for row in rows] == ["30 %, off by +8 points", "21.5 %, within the spread", "22.0 ± 1.0 %"]


def test_figures_are_shown_in_full_and_a_measurement_to_its_spread(context, site):
    card = Card(open_page(context, site), "01.far")
    assert card.root.locator("output").inner_text() == "0.00001"
    assert [row[-1] for row in card.lock("End").rows] == ["2,000,000, off by +161,901%", "1,230 ± 30"]


def test_a_figure_below_zero_and_a_measured_zero(context, site):
    page = open_page(context, site)
    change, none = Card(page, "01.change").lock("Home"), Card(page, "01.none").lock("End")
    assert [row[-1] for row in change.rows] == ["-20 ms, off by -100%", "-10 ms"] and change.rows[1][0] == "computed"
    assert [row[-1] for row in none.rows] == ["2 requests, off by +2 requests", "0 requests"]
    bars = [bar.bounding_box() for bar in change.answer.locator(".guess-bar").all()]
    ends = [bar["x"] + bar["width"] for bar in bars]
    assert abs(ends[0] - ends[1]) < 1, "both end at zero"


def test_a_guess_is_kept_in_other_tabs_too_until_it_is_forgotten(context, site):
    first, second = open_page(context, site), open_page(context, site)
    Card(first, "01.days").lock("Home")
    other = Card(second, "01.days")
    other.root.get_by_role("button", name="Guess again").wait_for()
    assert other.is_open and other.slider.is_disabled() and other.root.locator("output").inner_text() == "1 days"
    all_of_them = open_page(context, site, "guesses")
    cells = all_of_them.locator("tr", has_text="01 One").locator("td").all_inner_texts()
    assert cells == ["01 One", "1 of 5", "75%"]
    assert "How much is 01.days? Your guess: 1 days; measured 4 days, off by -75%." in all_of_them.inner_text("ul")
    all_of_them.get_by_role("button", name="Forget all").click()
    other.root.get_by_role("button", name="Lock").wait_for()
    assert not other.is_open and other.slider.is_enabled() and not other.rows


def test_the_median_of_two_lies_between_them(context, site):
    page = open_page(context, site)
    Card(page, "01.days").lock("Home"), Card(page, "01.change").lock("End")
    page = open_page(context, site, "guesses")
    assert page.locator("tr", has_text="01 One").locator("td").last.inner_text() == "138%"


def test_a_page_that_has_heard_nothing_of_another_loses_none_of_its_guesses(context, site):
    context.add_init_script("addEventListener('storage', event => event.stopImmediatePropagation())")
    first, second = open_page(context, site), open_page(context, site)
    Card(first, "01.days").lock("Home")
    second.wait_for_function("'01.days' in JSON.parse(localStorage['mlinfra-guesses'] ?? '{}')")
    Card(second, "01.share").lock("End")
    assert set(second.evaluate("Object.keys(JSON.parse(localStorage['mlinfra-guesses']))")) == {"01.days", "01.share"}


def test_a_browser_that_keeps_nothing_says_so(context, site):
    context.add_init_script("Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })")
    card = Card(open_page(context, site), "01.days").lock()
    assert card.is_open and "keeps nothing" in card.root.locator("p[role=status]").inner_text()


def test_a_heading_is_reported_with_what_is_selected(context, site):
    page = open_page(context, site)
    link = page.get_by_role("link", name="report")
    page.locator("#words").select_text()
    page.get_by_role("heading", name="The step").hover()
    link.hover()
    found = urlsplit(link.get_attribute("href"))
    assert found.netloc + found.path == "code.test/mlinfra/issues/new"
    sent = {name: value[0] for name, value in parse_qs(found.query).items()}
    assert sent["title"] == "A lesson: The step"
    assert "Page: lesson.html#The-step" in sent["body"] and "> It takes 5 ms." in sent["body"]
