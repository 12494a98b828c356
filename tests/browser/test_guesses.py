"""Guesses in a real JupyterLab: locked before or after the measurement, opened without measuring again, kept."""
import pytest
from lab import Notebook, wait_until, write_notebook

pytestmark = pytest.mark.browser

ASKED = "from mlinfra.engine.ui.lesson import exercise, finding, predict, reveal\n"
MEASURED = """runs = globals().get("runs", 0) + 1
reveal({key!r}, 4.25, 6, called="the rule", spread=0.3, shows=["told at $5 and $6"])"""
# the empty request makes a new kernel tell that it is idle, also if it told so before the page was listening
RESTART = """async () => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  await kernel.restart();
  await kernel.requestExecute({ code: "" }).done;
}"""
IDLE = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"


class Card:
    "A question's card, used by mouse and keyboard."
    def __init__(self, notebook, place=0):
        self.root = notebook.page.locator(".mlinfra-predict").nth(place)
        self.root.wait_for()

    def button(self, text): return self.root.get_by_role("button", name=text, exact=True)
    def slider(self): return self.root.locator(".noUi-handle")
    def shows(self): return self.root.locator(".widget-readout").inner_text()

    def says(self, words):
        self.root.locator(".mlinfra-locked", has_text=words).wait_for()
        return self


def answer(notebook, key): return notebook.page.locator(f'.mlinfra-answer[data-key="{key}"]')


def opens(notebook, key):
    "The answer is there, open."
    answer(notebook, key).locator(":scope > svg").first.wait_for()
    assert answer(notebook, key).locator("details").count() == 0
    return answer(notebook, key).first.inner_text()


def folds(notebook, key):
    "The answer is there, and nothing of it can be seen."
    answer(notebook, key).locator("details").first.wait_for()
    assert not answer(notebook, key).locator("svg").first.is_visible()


def ask(key, unit="ms"): return f"predict({key!r}, 'How many `ms` does a **step** take?', range(1, 11), 3, {unit!r})"


def test_locking_opens_the_answer_without_measuring_again(open_cells):
    notebook = open_cells(ASKED + ask("once"), MEASURED.format(key="once"))
    card = Card(notebook)
    folds(notebook, "once")
    card.slider().press("ArrowRight")
    card.button("Lock my guess").press("Enter")  # by keyboard
    card.says("Locked: 4 ms")
    words = opens(notebook, "once")
    assert "your guess: 4 ms, within the spread" in words and "measured: 4.2 ± 0.3 ms" in words
    assert "told at $5 and $6" in words
    assert "the rule, computed: 6.0 ms, off by +41%" in words and notebook.value("runs") == "1"
    assert answer(notebook, "once").locator("mjx-container").count() == 0, "prices are no mathematics"
    card.button("Guess again").click()
    folds(notebook, "once")
    assert card.button("Lock my guess").is_enabled() and notebook.value("runs") == "1"


def test_a_guess_comes_first_and_outlives_the_kernel(open_cells):
    notebook = open_cells(ASKED + ask("first"), "'nothing is measured yet'")
    card = Card(notebook)
    card.slider().press("End")
    card.button("Lock my guess").click()
    card.says("Locked: 10 ms")
    notebook.page.evaluate(RESTART)
    notebook.page.wait_for_function(IDLE)
    notebook.console.clear()  # JupyterLab's own debugger complains of a restart
    notebook.run_all()
    card = Card(notebook).says("Locked: 10 ms")
    wait_until(lambda: card.shows() == "10", "the slider shows the locked answer")
    assert card.button("Lock my guess").is_disabled()
    card.button("Guess again").click()


def again(notebook):
    "The notebook saved and opened anew, as after a reload: Jupyter knows no longer what it has displayed where."
    notebook.command("docmanager:save")
    notebook.close()
    return Notebook(notebook.page, notebook.api.url, notebook.api.token, notebook.name)


def test_locking_opens_an_answer_that_was_saved(open_cells):
    first = open_cells(ASKED + ask("saved"), MEASURED.format(key="saved"))
    folds(first, "saved")
    notebook = again(first)
    card = Card(notebook)
    folds(notebook, "saved")
    card.button("Lock my guess").click()
    words = opens(notebook, "saved")
    assert "your guess: 3 ms" in words and "measured: 4.2 ± 0.3 ms" in words and notebook.value("runs") == "1"
    card.button("Guess again").click()
    folds(notebook, "saved")
    notebook.close()


def test_locking_opens_an_answer_that_another_kernel_measured(open_cells):
    notebook = open_cells(ASKED + ask("older"), MEASURED.format(key="older"))
    notebook.page.evaluate(RESTART)
    notebook.page.wait_for_function(IDLE)
    notebook.console.clear()  # JupyterLab's own debugger complains of a restart
    notebook = again(notebook)
    notebook.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0; }")
    notebook.command("notebook:run-cell")
    card, picture = Card(notebook), answer(notebook, "older").locator("svg").first
    folds(notebook, "older")
    card.button("Lock my guess").click()
    picture.wait_for()
    assert "measured: 4.2 ± 0.3 ms" in answer(notebook, "older").inner_text()
    card.button("Guess again").click()
    picture.wait_for(state="hidden")
    notebook.close()


def test_questions_do_not_answer_one_another(open_cells):
    "Two questions, and one of them twice."
    measured = [MEASURED.format(key=key) for key in ("one", "two")]
    notebook = open_cells(ASKED + ask("one"), ask("two"), ask("one"), *measured)
    first, other, twin = (Card(notebook, place) for place in range(3))
    first.slider().press("Home")
    first.button("Lock my guess").click()
    twin.says("Locked: 1 ms")
    wait_until(lambda: twin.shows() == "1", "both show the answer")
    opens(notebook, "one")
    folds(notebook, "two")
    assert other.button("Lock my guess").is_enabled()
    twin.button("Guess again").click()
    folds(notebook, "one")
    assert first.button("Lock my guess").is_enabled()


def test_a_card_has_a_name(open_cells):
    card = Card(open_cells(ASKED + ask("named"), "1")).root
    wait_until(lambda: card.get_attribute("role") == "group", "screen readers are told where the question is")
    assert "How many ms does a step take?" in card.get_attribute("aria-label")
    slider = card.locator(".noUi-handle")
    assert slider.get_attribute("aria-label") == "your guess (ms)" and slider.get_attribute("tabindex") == "0"


def test_a_card_has_room_for_a_finger(server, browser):
    url, token, folder = server
    path = write_notebook(folder / "touched.ipynb", ASKED + ask("touched"), "1")
    context = browser.new_context(viewport={"width": 900, "height": 1000}, has_touch=True, is_mobile=True)
    notebook = Notebook(context.new_page(), url, token, path.name).run_all()
    card = Card(notebook)
    for part in card.button("Lock my guess"), card.root.locator(".widget-inline-hbox").first:
        assert part.bounding_box()["height"] >= 44
    notebook.command("kernelmenu:shutdown")
    context.close()


def test_a_conclusion_is_text_of_the_page(open_cells):
    sentence = "It costs $5, **not** $6: a [step](glossary.ipynb#step)."
    notebook = open_cells(ASKED + f"finding((False, 'no'), (True, {sentence!r}), otherwise='no')")
    said = notebook.page.locator(".mlinfra-finding")
    said.wait_for()
    assert said.inner_text() == "It costs $5, not $6: a step." and said.locator("b").inner_text() == "not"
    assert said.locator("mjx-container").count() == 0 and "step" in said.locator("a").get_attribute("href")


def test_an_error_in_an_attempt_shows_its_line(open_cells):
    check = "@exercise\ndef check_half(attempt):\n    'half a number'\n    assert attempt(4) == 2, 'half of 4 is 2'\n"
    stub, attempt = (f"def half(n):\n    {body}\n\ncheck_half(half)" for body in ("...", "return n / zero"))
    notebook = open_cells(ASKED + check, stub, attempt)
    verdicts = notebook.page.locator(".mlinfra-verdict")
    verdicts.nth(1).wait_for()
    assert verdicts.nth(0).inner_text() == "to do: write half: half a number"
    said = verdicts.nth(1).inner_text()
    assert said.startswith("✘ not yet: NameError: name 'zero' is not defined") and "line 2, in half" in said
    assert "return n / zero" in said and "assert" not in said
