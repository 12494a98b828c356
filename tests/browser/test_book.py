"""The book as a reader has it: on a phone, in the dark, on paper, without a script, without a network."""
import re
from pathlib import Path

import pytest
from book_site import BOOK, only_from

PHONE = {"width": 390, "height": 800}
LESSONS = sorted(p.stem for p in (Path(__file__).parents[2] / "nbs").glob("[0-9][0-9]_*.ipynb") if p.stem != "99_main")
OTHERS = ["index", "glossary", "questions", "panels", "guesses", "take", "teachers", "house", "changelog",
          "contributing", "genindex", "api/index", "api/engine", "api/arithmetic", "slides/01_arithmetic"]


@pytest.fixture
def reader(browser, book_site):
    "Open pages with what a reader has: `open(page, **context)`; nobody else is asked, nothing is complained of."
    contexts, asked, complaints = [], [], []

    def open_(name, **options):
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options))
        page = contexts[-1].new_page()
        page.on("console", lambda m: complaints.append(f"{name}: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(f"{name}: {error}"))
        asked.append(only_from(page, book_site))
        page.goto(f"{book_site}{name}.html" if "." not in name else f"{book_site}{name}")
        return page

    yield open_
    for context in contexts: context.close()
    assert sum(asked, []) == [] and complaints == []


def test_the_book_can_be_built(book_site):
    "Also where no browser is."
    assert book_site and (BOOK / "index.html").exists()


def test_no_page_is_wider_than_a_phone(reader, book_site):
    page, wide = reader("index", viewport=PHONE, is_mobile=True, java_script_enabled=False), {}
    for name in [*LESSONS, *OTHERS]:
        page.goto(f"{book_site}{name}.html")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]: wide[name] = width
    assert wide == {}


def test_a_drawing_on_a_phone_keeps_its_letters_and_scrolls_by_itself(reader):
    page = reader("03_models", viewport=PHONE)
    drawing = page.locator(".live-still svg").first
    assert drawing.bounding_box()["width"] >= 540
    box = drawing.evaluate("e => { while (e.scrollWidth <= e.clientWidth) e = e.parentElement; return e.className; }")
    assert "live" in box or "cell_output" in box or "output" in box


def brightness(page, expression):
    red, green, blue = map(float, re.findall(r"[\d.]+", page.evaluate(expression))[:3])
    return 0.3 * red + 0.6 * green + 0.1 * blue


def test_light_and_dark(reader):
    page = reader("01_arithmetic", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    drawn = "getComputedStyle(document.querySelector('.bd-article svg text')).fill"
    assert brightness(page, ground) > 200 and brightness(page, drawn) < 80
    page.get_by_role("button", name="Color mode").first.click()
    page.get_by_role("button", name="Dark").first.click()
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert brightness(page, ground) < 60 and brightness(page, drawn) > 180
    assert page.evaluate("document.body.dataset.jpThemeLight") == "false"  # outputs made for JupyterLab know it


def test_a_drawing_takes_the_colours_of_the_theme(reader):
    page = reader("index", color_scheme="light")
    fills = """() => [...new Set([...document.querySelectorAll('.live-picture rect')].map(e =>
        getComputedStyle(e).fill))].filter(fill => fill !== 'none').join()"""
    light = page.evaluate(fills)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert light and page.evaluate(fills) != light


def test_the_system_says_dark(reader):
    page = reader("glossary", color_scheme="dark")
    assert brightness(page, "getComputedStyle(document.body).backgroundColor") < 60


def test_on_a_phone_a_panels_controls_and_picture_are_seen_together(reader):
    page = reader("index", viewport=PHONE, has_touch=True, is_mobile=True)
    card = page.locator(".live-card").first
    controls, picture = card.locator(".live-controls"), card.locator(".live-picture svg")
    card.evaluate("e => window.scrollTo(0, scrollY + e.getBoundingClientRect().top - 64)")
    box = controls.bounding_box()
    assert box["y"] + box["height"] <= PHONE["height"], "they stay at the window's edge"
    picture.evaluate("e => window.scrollTo(0, scrollY + e.getBoundingClientRect().top - 64)")
    controls, picture = controls.bounding_box(), picture.bounding_box()
    assert 0 <= controls["y"] and controls["y"] + controls["height"] <= PHONE["height"]
    assert picture["y"] + picture["height"] <= controls["y"] + 1, "the whole picture stands over the controls"
    for target in card.locator("input:visible, select:visible, button:visible").all():
        assert target.bounding_box()["height"] >= 44, target.evaluate("e => e.outerHTML")
    guess = reader("01_arithmetic", viewport=PHONE, has_touch=True, is_mobile=True).locator(".mlinfra-guess").first
    for target in guess.locator("input:visible, button:visible").all(): assert target.bounding_box()["height"] >= 44


def test_search_finds_the_lesson_of_a_word(reader):
    page = reader("search.html?q=straggler")
    found = page.locator("ul.search li a")
    found.first.wait_for()
    assert {"06_workers", "11_data_parallel", "glossary"} & {
        a.get_attribute("href").split(".html")[0].split("/")[-1] for a in found.all()}
    page.goto(page.url.replace("straggler", "zzyzx"))
    page.get_by_text("did not match any documents").wait_for()


def test_folded_code_unfolds(reader):
    page = reader("01_arithmetic")
    folded = page.locator("details.hide", has_text="assert iterations == 40_000")
    code = folded.locator("pre").first
    assert not code.is_visible()
    folded.locator("summary").click()
    assert code.is_visible()


def card_with_answer(page):
    "The first question of a lesson whose answer is there, and that answer."
    key = page.evaluate("""() => [...document.querySelectorAll('.mlinfra-guess')].map(e => e.dataset.key).find(key =>
        document.querySelector(`details.answer[data-key="${CSS.escape(key)}"]`))""")
    return page.locator(f'.mlinfra-guess[data-key="{key}"]'), page.locator(f'details.answer[data-key="{key}"]')


def test_a_locked_guess_opens_its_answer_and_is_kept(reader):
    page = reader("01_arithmetic")
    card, details = card_with_answer(page)
    answer = details.locator(".mlinfra-answer")
    assert not answer.is_visible()
    card.get_by_role("slider").press("ArrowRight")
    said = card.locator("output").inner_text()
    card.get_by_role("button", name="Lock").click()
    assert answer.is_visible() and said in answer.locator(".guess-row", has_text="your guess").inner_text()
    page.reload()
    assert answer.is_visible() and card.locator("output").inner_text() == said
    assert card.get_by_role("slider").is_disabled()
    page.goto(page.url.replace("01_arithmetic", "guesses"))
    row = page.locator("tr", has_text="01 Arithmetic")
    assert row.locator("td").nth(1).inner_text().startswith("1 of ")
    assert said in page.locator(".guesses li").inner_text()
    page.locator(".guesses li a").click()
    page.wait_for_url("**/01_arithmetic.html#guess-*")
    card.get_by_role("button", name="Guess again").click()
    assert not answer.is_visible() and card.get_by_role("slider").is_enabled()
    page.reload()
    assert card.get_by_role("slider").is_enabled()


def test_a_question_and_its_answer_need_no_script(reader):
    page = reader("01_arithmetic", java_script_enabled=False)
    assert page.locator(".mlinfra-guess").first.is_visible() and not page.locator(".mlinfra-guess input").count()
    answer = page.locator("details.answer").first
    assert not answer.locator("svg").first.is_visible()
    answer.locator("summary").first.click()
    assert answer.locator("svg").first.is_visible()


def test_code_is_copied(reader):
    page = reader("01_arithmetic", permissions=["clipboard-read", "clipboard-write"])
    code = page.locator("div.highlight:visible").first
    code.hover()
    code.get_by_role("button", name="Copy").click()
    code.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == code.locator("pre").inner_text().rstrip()


def test_a_word_is_explained_where_it_stands(reader):
    page = reader("01_arithmetic")
    word, tip = page.get_by_role("link", name="iteration", exact=True).first, page.get_by_role("tooltip")
    word.hover()
    assert "updating the weights once" in tip.inner_text()
    page.mouse.move(0, 0)
    assert not page.locator("#word-tip").is_visible()
    word.focus()
    assert tip.is_visible() and word.get_attribute("aria-describedby") == "word-tip"
    word.press("Escape")
    assert not page.locator("#word-tip").is_visible()
    plain = reader("01_arithmetic", java_script_enabled=False).get_by_role("link", name="iteration", exact=True).first
    assert "updating the weights once" in plain.get_attribute("title")


def test_the_book_says_how_to_cite_it_and_reports_to_no_placeholder(reader):
    page = reader("take")
    assert "@software{mlinfra" in page.locator("pre").first.inner_text()
    assert page.locator(".report-link").count() == 0


def test_a_word_leads_to_the_glossary_and_back_to_its_section(reader):
    page = reader("01_arithmetic")
    page.get_by_role("link", name="iteration", exact=True).first.click()
    page.wait_for_url("**/glossary.html#*")
    entry = page.locator("section", has=page.locator(":scope > h3", has_text=re.compile("^iteration")))
    assert entry.locator("h3").first.evaluate("e => e.getBoundingClientRect().top") < 300
    entry.get_by_role("link", name="01 Arithmetic").first.click()
    page.wait_for_url("**/01_arithmetic.html#*")
    heading = page.locator(":target > h2, h2:target").first
    assert "One multiplication" in heading.inner_text()


def test_formulas_are_drawn_without_a_script(reader):
    page = reader("more/21_interruptions", java_script_enabled=False)
    formulas = page.locator("math")
    assert formulas.count() > 5 and formulas.first.bounding_box()["height"] > 5
    assert "$" not in " ".join(page.locator(".bd-article p", has_text="Daly (2006)").all_inner_texts())


def test_without_a_script_everything_is_there(reader):
    page = reader("01_arithmetic", java_script_enabled=False)
    assert page.locator(".live-still svg").first.is_visible()
    page.locator("details.hide summary").first.click()
    assert page.locator("details.hide pre").first.is_visible()
    assert page.locator("nav a", has_text="02 Data").first.is_visible()


def test_every_panel_of_a_lesson_has_a_still_picture(reader):
    page = reader("panels", java_script_enabled=False)
    stills = page.locator(".live-still")
    assert stills.count() >= 20
    for still in stills.all(): assert still.locator("svg, img").first.bounding_box()["height"] > 40


def test_paper(reader):
    page = reader("05_inference", color_scheme="light")
    page.emulate_media(media="print")
    for gone in (".bd-sidebar-primary", ".bd-header-article"):
        assert not any(e.is_visible() for e in page.locator(gone).all()), gone
    assert page.locator("h1").first.is_visible()
    pdf = page.pdf(format="A4")
    assert 8 < len(re.findall(rb"/Type\s*/Page\b", pdf)) < 60


def test_slides_move_by_keys_and_print_one_on_a_page(reader):
    page = reader("slides/01_arithmetic")
    count = page.locator("section").count()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.getElementById('slide-2').getBoundingClientRect().top < 20")
    assert not page.locator("#slide-2 details[open]").count()
    pdf = page.pdf(prefer_css_page_size=True)
    assert count <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= count + 3


def test_a_page_opens_as_a_file(browser):
    context = browser.new_context()
    page = context.new_page()
    asked = only_from(page, "file:")
    page.goto((BOOK / "01_arithmetic.html").as_uri())
    assert page.locator(".live-panel svg").locator("visible=true").count()
    page.get_by_role("link", name="index", exact=True).first.click()
    page.wait_for_url("**/index.html")
    assert page.locator("h1").first.inner_text().startswith("mlinfra") and asked == []
    context.close()
