"""Guesses in the book: a question is a card that takes an answer (docs/_static/guess.js), and its answer is folded."""
import ast
import re
from collections.abc import Iterable

CARD = re.compile(r'<div (?:id="[^"]*" )?class="mlinfra-guess"[^>]*?data-key="([^"]*)"')  # engine/ui/guesses
ANSWER = re.compile(r'<div class="mlinfra-answer"[^>]*?data-key="([^"]*)"')               # engine/ui/reveals


def html_of(output:dict) -> str: return output.get("data", {}).get("text/html", "")


def cards(outputs:Iterable[dict]) -> list[str]:
    "The cards of the questions that a cell has asked, as the book shows them."
    return [named(text) for output in outputs if CARD.search(text := html_of(output))]


def named(card:str) -> str:
    "A card with a name that a link may lead to, without what it says to somebody who could run its cell."
    card = re.sub(r'<div class="mlinfra-run".*?</div>', "", card, flags=re.S)
    return CARD.sub(lambda found: found[0].replace("<div ", f'<div id="guess-{found[1]}" ', 1), card, count=1)


def folded(text:str) -> str:
    "HTML in which an answer is folded, under the name of its question."
    found = ANSWER.search(text)
    if not found: return text
    return f'<details class="answer" data-key="{found[1]}"><summary>The answer</summary>{text}</details>'


def without_question(source:str) -> str:
    "A cell's text without the statements that only ask: the reader sees the card."
    try: body = ast.parse(source).body
    except SyntaxError: return source
    lines = source.splitlines()
    for node in reversed(body):
        call = node.value if isinstance(node, ast.Expr) else None
        while isinstance(call, ast.Call) and getattr(call.func, "id", "") == "display" and len(call.args) == 1:
            call = call.args[0]
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "predict":
            del lines[node.lineno - 1:node.end_lineno]
    return "\n".join(lines).strip("\n")
