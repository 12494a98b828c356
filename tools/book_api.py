"""The API reference, read from the exported modules without importing them: docments become tables."""
import ast
import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from book_stage import Page
from notebooks import ROOT, areas, public_names


@dataclass(frozen=True)
class Row:
    "A parameter or field."
    name:str
    type:str
    default:str
    words:str


@dataclass(frozen=True)
class Entry:
    "A public name."
    name:str
    kind:str          # "function", "class", "data"
    module:str
    signature:str     # with brackets
    returns:str       # a type
    holds:str         # what that is
    words:str         # its docstring
    rows:tuple[Row, ...]
    members:tuple["Entry", ...] = ()


@dataclass
class Module:
    "An exported module: its tree, its comments by line, where its names come from."
    name:str
    tree:ast.Module
    comments:dict[int, str]

    @property
    def public(self) -> list[str]:
        "The names in __all__, and those handed on by `import name as name`."
        return public_names(self.tree)


@cache
def read_module(path:Path) -> Module:
    "The module at `path`, parsed."
    text = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {t.start[0]: t.string.lstrip("# ").strip() for t in tokens if t.type == tokenize.COMMENT}
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return Module(name, ast.parse(text), comments)


def docstring(node:ast.AST) -> str: return " ".join((ast.get_docstring(node) or "").split())


def is_class(node:ast.AST) -> bool: return isinstance(node, ast.ClassDef)


def is_function(node:ast.AST) -> bool: return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def text_of(node:ast.AST|None) -> str: return "" if node is None else ast.unparse(node)


def arguments(function:ast.FunctionDef) -> list[tuple[ast.arg, str]]:
    "The parameters in order, each with its default; a star is in the name."
    spec = function.args
    plain = spec.posonlyargs + spec.args
    defaults = [None] * (len(plain) - len(spec.defaults)) + spec.defaults
    found = [(a, text_of(d)) for a, d in zip(plain, defaults)]
    if spec.vararg: found.append((spec.vararg, ""))
    found += [(a, text_of(d)) for a, d in zip(spec.kwonlyargs, spec.kw_defaults)]
    return found + ([(spec.kwarg, "")] if spec.kwarg else [])


def _short(default:ast.AST|None) -> ast.AST|None:
    hard = default is not None and any(isinstance(n, (ast.comprehension, ast.Lambda)) for n in ast.walk(default))
    return ast.Constant(...) if hard else default


def own_arguments(function:ast.FunctionDef) -> list[tuple[ast.arg, str]]:
    return [pair for pair in arguments(function) if pair[0].arg not in ("self", "cls")]


def signature(function:ast.FunctionDef) -> str:
    "The brackets of a call, without types: they stand in the table."
    bare = ast.parse("def f(): ...").body[0]
    bare.args = ast.parse(f"def f({ast.unparse(function.args)}): ...").body[0].args
    everyone = [*bare.args.posonlyargs, *bare.args.args, *bare.args.kwonlyargs, bare.args.vararg, bare.args.kwarg]
    for argument in filter(None, everyone): argument.annotation = None
    spec = bare.args  # what Sphinx's parser of signatures does not know stands in the table only
    spec.defaults, spec.kw_defaults = [list(map(_short, d)) for d in (spec.defaults, spec.kw_defaults)]
    return "(" + re.sub(r"^(self|cls)(, )?", "", ast.unparse(bare.args)) + ")"


def function_entry(module:Module, node:ast.FunctionDef, kind:str="function") -> Entry:
    "A function or method with its docments: a comment belongs to the one parameter that stands on its line."
    found = own_arguments(node)
    lines = [argument.end_lineno for argument, _ in found]
    rows = []
    for (argument, default), line in zip(found, lines):
        words = module.comments.get(line, "") if lines.count(line) == 1 and line != node.lineno else ""
        rows.append(Row(argument.arg, text_of(argument.annotation), default, words))
    below = node.returns is not None and node.body[0].lineno > node.returns.end_lineno
    holds = module.comments.get(node.returns.end_lineno, "") if below else ""
    return Entry(node.name, kind, module.name, signature(node), text_of(node.returns), holds, docstring(node),
                 tuple(rows))


def class_entry(module:Module, node:ast.ClassDef) -> Entry:
    "A class: its fields or the parameters of __init__, and its public methods."
    fields = [n for n in node.body if isinstance(n, ast.AnnAssign) and not getattr(n.target, "id", "_").startswith("_")]
    rows = tuple(Row(n.target.id, text_of(n.annotation), text_of(n.value), module.comments.get(n.end_lineno, ""))
                 for n in fields)
    init = next((n for n in node.body if is_function(n) and n.name == "__init__"), None)
    if init and not rows: rows = function_entry(module, init).rows
    brackets = signature(init) if init else "(" + ", ".join(_call(row) for row in rows) + ")"
    methods = [n for n in node.body if is_function(n) and not n.name.startswith("_") and docstring(n)]
    members = tuple(function_entry(module, n, "property" if _is_property(n) else "method") for n in methods)
    return Entry(node.name, "class", module.name, brackets, "", "", docstring(node), rows, members)


def _call(row:Row) -> str: return f"{row.name}={row.default}" if row.default else row.name


def _is_property(node:ast.FunctionDef) -> bool:
    return any("property" in text_of(d) for d in node.decorator_list)


def definition(module:Module, name:str) -> Entry|None:
    "The entry of a public name, followed to the module that defines it."
    for node in module.tree.body:
        if is_class(node) and node.name == name: return class_entry(module, node)
        if is_function(node) and node.name == name: return function_entry(module, node)
        if isinstance(node, ast.ImportFrom) and name in [a.asname or a.name for a in node.names]:
            original = next(a.name for a in node.names if (a.asname or a.name) == name)
            source = source_of(module, node)
            return definition(read_module(source), original) if source else None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(getattr(t, "id", "") == name for t in targets):
            words = module.comments.get(node.lineno, "")
            return Entry(name, "data", module.name, "", "", "", words, ())
    return None


def source_of(module:Module, node:ast.ImportFrom) -> Path|None:
    "The file that an import of ours names."
    parts = module.name.split(".")[:-node.level] if node.level else []
    parts += (node.module or "").split(".")
    path = ROOT.joinpath(*parts).with_suffix(".py")
    return path if parts[0] == "mlinfra" and path.exists() else None


# ---- Markdown

def cell(text:str) -> str: return text.replace("|", "\\|").replace("\n", " ")


def code(text:str) -> str: return f"`{cell(text)}`" if text else ""


def table(rows:Sequence[Row]) -> list[str]:
    "Parameters as a Markdown table; no column that is empty."
    if not any(row.type or row.default or row.words for row in rows): return []
    lines = ["", "| name | type | default | |", "|---|---|---|---|"]
    return lines + [f"| `{r.name}` | {code(r.type)} | {code(r.default)} | {cell(escaped(r.words))} |" for r in rows]


def escaped(words:str) -> str: return re.sub(r"([*_$<\[])(?![^`]*`(?:[^`]*`[^`]*`)*[^`]*$)", r"\\\1", words)


def entry_lines(entry:Entry, fence:str="`````") -> list[str]:
    "An entry as a directive of Sphinx's Python domain."
    arrow = f" -> {entry.returns}" if re.fullmatch(r"[\w., \[\]|]+", entry.returns) else ""
    if entry.kind in ("property", "data"): head = entry.name
    else: head = entry.name + entry.signature + arrow
    lines = [f"{fence}{{py:{entry.kind}}} {head}", ""]
    if entry.words: lines += [escaped(entry.words)]
    lines += table(entry.rows)
    if entry.holds: lines += ["", f"Returns: {escaped(entry.holds)}"]
    for member in entry.members: lines += ["", *entry_lines(member, fence[:-1])]
    return [*lines, fence, ""]


def entries(path:Path) -> list[Entry]:
    "The public names of a module."
    module = read_module(path)
    return [e for name in module.public if not name.startswith("_") and (e := definition(module, name))]


def section_for(page:Page|None, name:str) -> str|None:
    "Where a lesson builds a name."
    word = re.escape(name)
    return page and page.section_of(rf"(?m)^(?:async )?(?:def|class) {word}\b", rf"(?m)^{word}\b *[:=]")


def lesson_page(page:Page, views:Iterable[Path]) -> str:
    "The reference of one lesson: its module, then its pictures and panels."
    name = page.name[3:]
    lines = [f"# mlinfra.{name}", "", f"From lesson [{page.short}](../{page.name}.ipynb).", ""]
    for path in [ROOT / "mlinfra" / f"{name}.py", *views]:
        found = entries(path) if path.exists() else []
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if not found: continue
        heading = "What the lesson builds" if path.parent.name == "mlinfra" else "Pictures and panels"
        lines += [f"## {heading}: `{module}`", "", f"```{{py:module}} {module}", "```", ""]
        for entry in found:
            lines += entry_lines(entry)
            heading = section_for(page, entry.name) if path.parent.name == "mlinfra" else None
            if heading: lines += [f"*Built in [{heading}](../{page.link(heading)}).*", ""]
    return "\n".join(lines)


def view_files(number:str) -> list[Path]:
    "The views of a lesson."
    found = sorted((ROOT / "nbs" / "views").glob(f"{number}_*.ipynb"))
    return [ROOT / "mlinfra" / "views" / f"{path.stem[3:]}.py" for path in found]


def engine_page() -> str:
    "A list of the rooms behind the lessons, each with its public names."
    lines = ["# Engine, lab and views", "",
             "What the lessons stand on. Each module is a notebook in `nbs/engine/`, `nbs/lab/` or `nbs/views/`, with "
             "examples and assertions.", ""]
    for name, area in areas().items():
        lines += [f"## engine.{name}", "", area["sentence"], ""]
        for path in sorted((ROOT / "nbs/engine" / name).glob("*.ipynb")): lines += room_lines(path)
    for folder, sentence in (("lab", "Experiments and stand-ins that exist for a lesson."),
                             ("views", "Pictures and panels of the lessons.")):
        lines += [f"## {folder}", "", sentence, ""]
        for path in sorted((ROOT / "nbs" / folder).glob("*.ipynb")): lines += room_lines(path)
    return "\n".join(lines)


def room_lines(path:Path) -> list[str]:
    "One module: its sentence and its public names."
    place = path.relative_to(ROOT / "nbs").with_suffix("")
    name = re.sub(r"(^|\.)\d\d_", r"\1", ".".join(place.parts))
    module = ROOT / "mlinfra" / Path(*name.split(".")).with_suffix(".py")
    if not module.exists(): return []
    lines = [f"({'-'.join(place.parts)})=", f"### {name}", "", escaped(docstring(read_module(module).tree)), ""]
    lines += [f"- `{e.name}{e.signature if len(e.signature) < 60 else '(…)'}` {escaped(e.words)}"
              for e in entries(module)]
    return [*lines, ""]


def index_page(pages:Sequence[Page]) -> str:
    "The list of the public names."
    lines = ["# Reference of the public names", "",
             "What each lesson takes to work, with the parameters. `from mlinfra.NAME import ...`; all names in "
             "alphabetical order are in the {ref}`genindex`.", "", "| module | names |", "|---|---|"]
    for page in pages:
        names = [e.name for e in entries(ROOT / "mlinfra" / f"{page.name[3:]}.py")]
        lines.append(f"| [mlinfra.{page.name[3:]}]({page.name[3:]}.md) | {', '.join(f'`{n}`' for n in names)} |")
    tree = [f"{page.name[3:]}" for page in pages]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *tree, "engine", "```", ""])
