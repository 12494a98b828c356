"""Guesses in the book: a question is a card that takes an answer (docs/_static/guess.js), and its answer is folded."""
import ast
import html
import json
import re
from collections.abc import Iterable, Sequence

CARD = re.compile(r'<div (?:id="[^"]*" )?class="mlinfra-guess"[^>]*?data-key="([^"]*)"')
ANSWER = '<div class="mlinfra-answer"'
FOLDED = re.compile(r"<details><summary>Lock your guess.*?</summary>")  # how a running notebook folds an answer
ASKED = "key", "question", "options", "start", "unit"                    # what `predict` takes, in this order


def calls(source:str, name:str) -> list[ast.Call]:
    "The calls of the function `name` in a cell."
    try: tree = ast.parse(source)
    except SyntaxError: return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name]


def value_of(node:ast.expr) -> object:
    "What an expression of plain figures, ranges and comprehensions gives; ValueError where it takes more to know."
    made = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id not in {*made, "range"} or isinstance(part, ast.Attribute):
            raise ValueError(f"{ast.unparse(node)} needs more than is written there")
    return eval(compile(ast.Expression(node), "<guess>", "eval"), {"__builtins__": {"range": range}})


def asked_in(source:str) -> tuple[str, str, list[float], float, str]|None:
    "Key, question, options, start and unit of what a cell asks, where its text alone tells."
    for call in calls(source, "predict")[:1]:
        nodes = dict(zip(ASKED, call.args)) | {word.arg: word.value for word in call.keywords}
        try: key, question, options, start, unit = (value_of(nodes[n]) if n in nodes else "" for n in ASKED)
        except ValueError: return None
        return key, question, list(options), start, unit
    return None


def card_html(key:str, question:str, options:Sequence[float], start:float, unit:str="") -> str:
    "The card of a question, as `predict` writes it into a saved page."
    data = dict(key=key, options=json.dumps(list(options)), start=f"{start:g}", unit=unit)
    told = " ".join(f'data-{name}="{html.escape(value)}"' for name, value in data.items())
    scale = f"{options[0]:g} … {options[-1]:g} {unit}".rstrip()
    return f'<div class="mlinfra-guess" {told}><p>{html.escape(question)}</p><p>{html.escape(scale)}</p></div>'


def cards(source:str, outputs:Iterable[dict]) -> list[str]:
    "The cards of a cell: those that it saved; before it was run, the one that its text tells."
    saved = [text for output in outputs if CARD.search(text := output.get("data", {}).get("text/html", ""))]
    asked = None if saved else asked_in(source)
    return list(map(named, [card_html(*asked)] if asked else saved))


def named(card:str) -> str:
    "A card with a name that a link may lead to, without what it says to somebody who could run its cell."
    card = re.sub(r'<div class="mlinfra-run".*?</div>', "", card, flags=re.S)
    return CARD.sub(lambda found: found[0].replace("<div ", f'<div id="guess-{found[1]}" ', 1), card, count=1)


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


def folded(text:str, source:str) -> str:
    "An answer as the book shows it: folded, and named after its question, so that its card can open it."
    call = next(iter(calls(source, "reveal")), None)
    key = call.args[0].value if call and call.args and isinstance(call.args[0], ast.Constant) else ""
    head = f'<details class="answer" data-key="{html.escape(str(key))}"><summary>The answer</summary>'
    if ANSWER in text: return f"{head}{text}</details>"
    return FOLDED.sub(lambda _: head, text)
