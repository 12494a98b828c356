"""Keep the chapters, the package they export and the README in step.

    python tools/notebooks.py check               say what is not clean, stale or too big
    python tools/notebooks.py clean [NOTEBOOK...] rewrite notebooks in the form in which they are committed
    python tools/notebooks.py run [NOTEBOOK...]   execute in a fresh kernel and keep the outputs
    python tools/notebooks.py export              nbs/**/*.ipynb -> mlinfra/**/*.py
    python tools/notebooks.py readme              nbs/index.ipynb -> README.md; the lessons' pictures it shows
    python tools/notebooks.py map                 the modules' sentences -> docs/house.md
"""
import argparse
import ast
import base64
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from configparser import ConfigParser
from pathlib import Path
from urllib.parse import quote, urlsplit

import nbformat
from nbformat.v4.rwbase import rejoin_lines

try: import tomllib
except ImportError: import tomli as tomllib  # Python 3.10

ROOT = Path(__file__).resolve().parent.parent
WIDGET = "application/vnd.jupyter.widget-view+json"
LIVE = "mlinfra_widget"  # in an output's metadata: what mlinfra.engine.ui.saved_outputs took out of it
INSTALL, ELSEWHERE = "install", "elsewhere"  # ids of the cells that are written from settings.ini
KERNEL = {"display_name": "python3", "language": "python", "name": "python3"}
MAX_IMAGE = 100 * 1024  # bytes
CELL_TIMEOUT = 600      # seconds
PICTURE = re.compile(r"pictures/(\w+)-(\w+)\.svg")  # on the index: what a cell of a lesson shows, by its id
PROGRESS = re.compile(r"\d+%\||\d+it \[\d\d:\d\d")  # what tqdm writes: " 40%|####      | 4/10" or "4it [00:01"


# ---- reading and writing

def settings(root=ROOT):
    config = ConfigParser(delimiters=["="], interpolation=None)
    config.read(root / "settings.ini", encoding="utf-8")
    return config["DEFAULT"]


def notebooks(root=ROOT):
    """The book in reading order: areas before the lesson that areas.toml names, then the lesson, its views, and what a
    lesson's line does not need; no name starts with _ or a dot."""
    found = (p.relative_to(root / "nbs") for p in (root / "nbs").rglob("*.ipynb"))
    kept = [p for p in found if not any(part[0] in "_." for part in p.parts)]
    table, last = areas(root), "99"
    order = list(table)

    def place(path):
        folder = path.parts[0] if len(path.parts) > 1 else ""
        if folder == "engine": return f"{table[path.parts[1]]['before']:02d}", 0, order.index(path.parts[1]), path.name
        number = path.name[:2] if path.name[:2].isdigit() and folder != "lab" else last
        return number, {"": 1, "views": 2, "more": 3, "lab": 0}.get(folder, 4), 0, path.name

    return [root / "nbs" / p for p in sorted(kept, key=place)]


def areas(root=ROOT):
    "The table of the engine's areas, in their order: name -> sentence and the lesson `before` which it stands."
    return tomllib.loads((root / "nbs/areas.toml").read_text(encoding="utf-8"))


def load(path): return rejoin_lines(nbformat.from_dict(json.loads(path.read_text(encoding="utf-8"))))


def dumps(nb): return nbformat.writes(nb).rstrip("\n") + "\n"


def directives(source):
    "The words of a cell's `#| ...` lines: {'hide': '', 'eval:': 'false'}."
    lines = re.findall(r"^\s*#\s*\|\s*(\S+)[ \t]*(.*)$", source, flags=re.M)
    return {word: rest.strip() for word, rest in lines}


def where(nb, index): return f"cell {index + 1} (id {nb.cells[index].get('id', 'missing')})"


# ---- the form in which a notebook is committed

def clean(nb, root=ROOT):
    "A copy of `nb` as it is committed: nbdev's cleaning, no widgets or progress bars, an id for each cell."
    from nbdev.clean import clean_nb  # takes a second, and readers without the dev extra need the rest of this file
    nb, cfg = rejoin_lines(nbformat.from_dict(copy.deepcopy(nb))), settings(root)
    name_cells(nb)
    clean_nb(nb, allowed_metadata_keys=cfg.get("allowed_metadata_keys", "").split(),
             allowed_cell_metadata_keys=cfg.get("allowed_cell_metadata_keys", "").split(),
             clean_ids=cfg.getboolean("clean_ids", True))
    nb.metadata = nbformat.from_dict({**nb.metadata, "kernelspec": KERNEL})  # else JupyterLab asks for a kernel
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        if cell.cell_type == "code": cell.outputs = [o for o in map(clean_output, cell.outputs) if o]
    return nb


def name_cells(nb):
    "Give an id to cells that lack one or share one (a copied cell), always the same for the same notebook."
    seen = set()
    for index, cell in enumerate(nb.cells):
        if cell.get("id") in {None, *seen}:
            cell["id"] = hashlib.sha256(f"{index} {cell.source}".encode()).hexdigest()[:8]
        seen.add(cell["id"])


def clean_output(output):
    "`output` without widgets and progress bars; None if nothing else is left."
    if output.output_type == "stream" and output.name == "stderr":
        kept = [line for line in re.split(r"(?<=\n)|\r", output.text) if not PROGRESS.search(line)]
        output.text = "".join(kept)
        return output if output.text.strip() else None
    lived = [output.get("metadata", {}).pop(LIVE, None), output.get("data", {}).pop(WIDGET, None)]
    if any(lived) and not set(output.data) - {"text/plain"}: return None  # the text is the widget's repr
    return output


def pre_save(model, path, contents_manager, **_):
    "Jupyter's hook: a chapter is clean from the moment it is saved (tools/install.sh registers it)."
    if model["type"] != "notebook" or model["content"]["nbformat"] != 4: return
    if (Path(contents_manager.root_dir) / path.strip("/")).resolve().is_relative_to(ROOT / "nbs"):
        model["content"] = clean(model["content"])


# ---- where nothing is installed: Colab and Binder

def lessons(root=ROOT):
    "What a reader opens: nbs/ but for the glossary and the last, which only starts the package, and nbs/more."
    return [path for path in notebooks(root) if path.parent in (root / "nbs", root / "nbs/more")
            and path.name != "glossary.ipynb" and not path.name.startswith("99")]


def install_cell(root=ROOT):
    """The first code cell of every lesson. An editable install, because data and results lie beside the package;
    Python reads what such an install adds to its path only when it starts, or when it is told to."""
    cfg = settings(root)
    lib = cfg["lib_name"]
    source = f"""# Where {lib} is missing, as on Colab: fetch the book and install what its lessons need.
import importlib.util
if importlib.util.find_spec("{lib}") is None:
    !git clone -q --depth 1 --branch {cfg["branch"]} {cfg["git_url"]} {lib}-book
    %cd -q {lib}-book/{cfg["nbs_path"]}
    %pip install -q -e "..[lessons]"
    import site
    site.main()
    importlib.import_module("{lib}")  # if the install has failed, it is said here"""
    if is_placeholder(cfg["git_url"]): source = f"""# Where {lib} is missing: what to do.
import importlib.util
if importlib.util.find_spec("{lib}") is None:
    raise ModuleNotFoundError("this kernel has no {lib}: in the book's folder run `make lab`, "
                              "or `pip install -e '.[lessons]'`")"""
    return nbformat.from_dict({"cell_type": "code", "execution_count": None, "id": INSTALL, "outputs": [],
                               "metadata": {"jupyter": {"source_hidden": True}}, "source": source})


def is_placeholder(address:str) -> bool:
    "Whether nobody answers at an address: its host is reserved for examples (RFC 2606)."
    host = (urlsplit(address).hostname or "").rpartition("example")
    return not urlsplit(address).hostname or bool(host[1]) and host[2] in ("", ".org", ".com", ".net")


def elsewhere_cell(index, root=ROOT):
    "In the index: where the book opens in a browser without being installed."
    cfg = settings(root)
    url, branch = cfg["git_url"].rstrip("/"), cfg["branch"]
    if is_placeholder(url): return nbformat.from_dict({
        "cell_type": "markdown", "id": ELSEWHERE, "metadata": {}, "source":
        "This copy has no public address yet. If you publish it, write the address into `settings.ini` (`git_url`); "
        "`make clean-nbs` then puts links to Binder and Colab here."})
    hub = re.fullmatch(r"https://github\.com/([^/]+/[^/]+?)(\.git)?", url)
    place = f"gh/{hub[1]}" if hub else f"git/{quote(url, safe='')}"
    binder = f"https://mybinder.org/v2/{place}/{branch}?urlpath=lab/tree/nbs/index.ipynb"
    colab = ("On Colab, upload a lesson's file from `nbs/`." if not hub else
             "A lesson on Colab: " + " ".join(colab_links(hub[1], branch, index)) + ".")
    words = (f"To open the book without installing it: [all of it on Binder]({binder}). {colab} The first cell of a "
             "lesson fetches what is missing there, and does nothing where the book is installed.")
    return nbformat.from_dict({"cell_type": "markdown", "id": ELSEWHERE, "metadata": {}, "source": words})


def colab_links(repository, branch, index):
    "A link for each lesson in the index's table."
    words = "\n".join(cell.source for cell in index.cells)
    for name in re.findall(r"^\| \[\d\d [^]]*\]\((\d\d_\w+\.ipynb)\)", words, re.M):
        yield f"[{name[:2]}](https://colab.research.google.com/github/{repository}/blob/{branch}/nbs/{name})"


def with_written_cells(nb, path, root=ROOT):
    "`nb` with the cells that are written from settings.ini; they stay where they are, or come where they belong."
    if path not in lessons(root): return nb
    put(nb, install_cell(root), 1)  # after the title
    if path.name == "index.ipynb":
        start = [i for i, cell in enumerate(nb.cells) if cell.source.startswith("## Start")]
        put(nb, elsewhere_cell(nb, root), start[0] + 1 if start else 2)
    return nb


def put(nb, cell, index):
    places = [i for i, c in enumerate(nb.cells) if c.get("id") == cell["id"]]
    if places: nb.cells[places[0]] = cell
    else: nb.cells.insert(index, cell)


def stale_cells(root):
    for path in lessons(root):
        nb = load(path)
        want = with_written_cells(copy.deepcopy(nb), path, root)
        if want != nb:
            yield (f"{path.relative_to(root)}: a cell that settings.ini writes ({INSTALL} or {ELSEWHERE}) is missing "
                   "or altered. `make clean-nbs` mends it.")


# ---- checks: each yields one line for each thing that is wrong

def unclean(root):
    for path in notebooks(root):
        text, nb, name = path.read_text(encoding="utf-8"), load(path), path.relative_to(root)
        good = clean(nb, root)
        if text == dumps(good): continue
        reasons = list(differences(nb, good)) or ["its JSON is not laid out as nbdev writes it"]
        yield f"{name} is not clean: {'; '.join(reasons[:3])}. `make clean-nbs` mends it."


def differences(nb, good):
    if "widgets" in nb.metadata: yield "its metadata hold widget state"
    if nb.metadata.get("kernelspec") != KERNEL: yield "its kernel is not python3"
    extra = set(nb.metadata) - set(good.metadata) - {"widgets"}
    if extra: yield f"its metadata hold {', '.join(sorted(extra))}"
    for index, (ours, theirs) in enumerate(zip(nb.cells, good.cells)):
        parts = [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
        if not parts: continue
        widget = any(WIDGET in o.get("data", {}) for o in ours.get("outputs", ()))
        yield f"{where(nb, index)} has a widget in its outputs" if widget else f"{where(nb, index)}: {', '.join(parts)}"


def big_images(root):
    for path in notebooks(root):
        for index, kind, size in images(nb := load(path)):
            if size > MAX_IMAGE:
                yield (f"{path.relative_to(root)}, {where(nb, index)}: an {kind} of {size / 1024:.0f} KB; "
                       f"{MAX_IMAGE // 1024} KB is the limit (a smaller figure, or fewer points)")


def images(nb):
    "(cell index, mime type, bytes) of every picture in the outputs."
    for index, cell in enumerate(nb.cells):
        for output in cell.get("outputs", ()):
            for mime, data in output.get("data", {}).items():
                if mime == "image/svg+xml": yield index, mime, len(data.encode())
                elif mime.startswith("image/"): yield index, mime, len(base64.b64decode(data))


def stale_export(root):
    lib = settings(root)["lib_name"]
    with tempfile.TemporaryDirectory() as tmp:
        fresh = Path(tmp)
        shutil.copy(root / "settings.ini", fresh)
        for path in notebooks(root):
            copied = fresh / path.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copied)
        try: export(fresh)
        except subprocess.CalledProcessError as error:
            yield f"nbdev_export fails: {error.output.strip().splitlines()[-1]}"
            return
        want, have = modules(fresh / lib), modules(root / lib)
    for name in sorted({*want, *have}):
        if name not in want: yield f"{lib}/{name} is exported by no notebook: delete it, or write its chapter"
        elif name not in have: yield f"{lib}/{name} is missing: run `make export`"
        elif want[name] != have[name]: yield f"{lib}/{name} is not what the notebooks export: run `make export`"


def modules(folder): return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.py")}


def stale_readme(root):
    if not (root / "nbs/index.ipynb").exists(): yield "nbs/index.ipynb, the source of README.md, is missing"
    elif not (root / "README.md").exists(): yield "README.md is missing: run `make export`"
    elif (root / "README.md").read_text(encoding="utf-8") != render_readme(root):
        yield "README.md is not what nbs/index.ipynb renders to: run `make export`"


def stale_pictures(root):
    for path, svg in front_pictures(root):
        if not svg: yield f"nbs/index.ipynb shows {path.name}, and no saved output of that cell is a picture"
        elif not path.exists() or path.read_text(encoding="utf-8") != svg:
            yield f"{path.relative_to(root)} is not what the lesson shows: run `make export`"


def stale_map(root):
    path = root / "docs/house.md"
    if not path.exists() or path.read_text(encoding="utf-8") != render_map(root):
        yield "docs/house.md is not what the modules' sentences say: run `make export`"


def no_chapter(root):
    if not any("default_exp" in directives(c.source) for p in notebooks(root) for c in load(p).cells):
        yield "nbs/ holds no chapter: no notebook has a `#| default_exp` cell"


CHECKS = no_chapter, unclean, stale_cells, big_images, stale_export, stale_readme, stale_pictures, stale_map


def problems(root=ROOT): return [line for find in CHECKS for line in find(root)]


# ---- what is made from the notebooks

def export(root=ROOT):
    subprocess.run([Path(sys.executable).parent / "nbdev_export"], cwd=root, check=True, text=True,
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def render_readme(root=ROOT):
    "nbs/index.ipynb in Markdown: prose, code, and the outputs that are text."
    from nbconvert import MarkdownExporter
    nb = load(root / "nbs/index.ipynb")
    nb.metadata["language_info"] = {"name": "python"}
    nb.cells = [c for c in nb.cells if not hidden(c)]
    for cell in nb.cells:
        if cell.cell_type == "markdown": cell.source = relink(cell.source, root)
        if cell.cell_type == "code":
            cell.outputs = [o for o in map(text_only, cell.outputs) if o]
            cell.source = re.sub(r"^\s*#\s*\|.*\n?", "", cell.source, flags=re.M).strip("\n")
    body, _ = MarkdownExporter().from_notebook_node(nb)
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    return f"<!-- Written from nbs/index.ipynb by `make export`: change it there. -->\n\n{body}\n"


def front_pictures(root=ROOT):
    "The pictures that the index takes from lessons: the file in nbs/pictures and what belongs in it."
    for lesson, cell_id in PICTURE.findall((root / "nbs/index.ipynb").read_text(encoding="utf-8")):
        path = root / f"nbs/{lesson}.ipynb"
        shown = [picture_in(output.get("data", {})) for cell in (load(path).cells if path.exists() else ())
                 if cell.id == cell_id for output in cell.get("outputs", [])]
        yield root / f"nbs/pictures/{lesson}-{cell_id}.svg", next(filter(None, shown), None)


def picture_in(data):
    "The drawing in an output, or in the page that it is; None if there is none."
    found = re.search(r"<svg.*?</svg>", data.get("text/html", ""), re.S)
    return data.get("image/svg+xml") or (found[0] if found else None)


def write_pictures(root=ROOT):
    "Write them, and remove those that it shows no more."
    made = dict(front_pictures(root))
    for path in (root / "nbs/pictures").glob("*.svg"):
        if path not in made: path.unlink()
    for path, svg in made.items():
        if svg is None: raise SystemExit(f"{path.name}: no saved output of that cell is a picture")
        path.parent.mkdir(exist_ok=True)
        path.write_text(svg, encoding="utf-8")


def sentence(module):
    "The first sentence of a module: what it is for."
    return " ".join((ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").split())


def public_names(tree):
    "Names that a module offers: those of __all__, and those that it hands on by `import name as name`."
    defined, handed = [], []
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            defined = ast.literal_eval(node.value)
        if isinstance(node, ast.ImportFrom): handed += [a.name for a in node.names if a.asname == a.name]
    return [*defined, *handed]


def render_map(root=ROOT):
    "Areas and modules with their sentences, in Markdown."
    package = root / settings(root)["lib_name"]
    lines = ["<!-- Written from nbs/areas.toml and the modules by `make export`: change their sentences there. -->", "",
             "# The map of the house", "",
             "Every module with its sentence. `engine/AREA/module` comes from `nbs/engine/AREA/module.ipynb`; lessons, "
             "views and the lab likewise. An area imports the areas above it and lessons with a lower number than the "
             "one it stands before; `tests/test_house.py` holds that. [Contributing](../CONTRIBUTING.md) says how to "
             "add something.", "", "## Lessons", "", "What a reader reads, in order.", ""]
    lines += module_rows(root, [p for p in notebooks(root) if p.parent == root / "nbs"], package)
    lines += ["", "## Engine", "", "What lessons, views and users' trainings stand on."]
    for name, area in areas(root).items():
        found = [p for p in notebooks(root) if p.parent == root / "nbs/engine" / name]
        lines += ["", f"### {name}", "", f"{area['sentence']} Before lesson {area['before']:02d}.", ""]
        lines += module_rows(root, found, package)
    for folder, words in (("lab", "Experiments and stand-ins that exist for a lesson; nothing but lessons, views and "
                                  "tests imports them."), ("views", "Pictures and panels of the lessons.")):
        found = [p for p in notebooks(root) if p.parent == root / "nbs" / folder]
        lines += ["", f"## {folder.title()}", "", words, "", *module_rows(root, found, package)]
    return "\n".join(lines) + "\n"


def module_rows(root, paths, package):
    "A table's rows: each module with its sentence, in alphabetical order but for lessons."
    yield from ("| module | holds |", "|---|---|")
    for path in paths:
        place = path.relative_to(root / "nbs").with_suffix("")
        module = package / place.parent / f"{re.sub(r'^[0-9]{2}_', '', place.name)}.py"
        if module.exists(): yield f"| {place.name} | {sentence(module)} |"


def hidden(cell):
    if cell.get("id") == INSTALL: return True
    if cell.cell_type == "markdown": return cell.source.startswith("<!-- only in JupyterLab -->")
    words = directives(cell.source)
    return "hide" in words or "default_exp" in words or words.get("include:") == "false"


def text_only(output):
    if output.output_type == "stream": return output if output.name == "stdout" else None
    if any(mime.startswith("image/") for mime in output.get("data", {})): return None
    output.data = {k: v for k, v in output.get("data", {}).items() if k in ("text/plain", "text/markdown")}
    return output if output.data else None


def relink(text, root):
    "Links that hold from nbs/ made to hold from the root."
    def move(match):
        target = match[1]
        if target.startswith("../"): return f"]({target[3:]}"
        return f"](nbs/{target}" if (root / "nbs" / target).exists() else match[0]
    return re.sub(r"\]\(([^)\s#]+)", move, text)


# ---- running

def run(path, root=ROOT, flags=()):
    """Execute the notebook at `path` in a fresh kernel and keep its outputs, a lesson's as a page for readers who only
    read; leave it as it was if a cell fails."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    start, nb = time.perf_counter(), with_written_cells(load(path), path.resolve(), root)
    client = chapter_client(nb, path, set(settings(root).get("tst_flags", "").split()) - set(flags))
    is_page = not {"engine", "lab", "views"} & set(path.resolve().parts[-3:-1])  # its answers stand open (ui/guesses)
    page = {"MLINFRA_SAVED_PAGE": "1"} if is_page else {}
    try: client.execute(env=os.environ | page)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise SystemExit(f"{error}\n{path.name}, {where(nb, client.at)}: {headline(error)}. The file is unchanged.")
    good = clean(nb, root)
    path.write_text(dumps(good), encoding="utf-8")
    print(
        f"{path.name}: {sum(c.cell_type == 'code' for c in nb.cells)} code cells, {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    for index, kind, size in images(good):
        if size > MAX_IMAGE:
            print(f"  {where(good, index)}: its {kind} has {size / 1024:.0f} KB, over the limit of 100")


def headline(error):
    if hasattr(error, "ename"): return f"{error.ename}: {error.evalue}"
    return str(error).strip().splitlines()[0]


def chapter_client(nb, path, skip):
    """nbclient's client, which knows what cell it is `at` and leaves those marked `eval: false` or with a flag in
    `skip`."""
    from nbclient import NotebookClient

    class Client(NotebookClient):
        at = 0

        async def async_execute_cell(self, cell, cell_index, **kwargs):
            self.at, words = cell_index, directives(cell.source)
            if words.get("eval:") == "false" or skip & set(words): return cell  # its outputs stay as they are
            return await super().async_execute_cell(cell, cell_index, **kwargs)

    return Client(nb, timeout=CELL_TIMEOUT, kernel_name="python3", coalesce_streams=True,
                  resources={"metadata": {"path": str(path.parent)}})


# ---- the command line

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "clean", "run", "export", "readme", "map"])
    parser.add_argument("notebook", nargs="*", type=Path, help="default: all")
    parser.add_argument("--flags", default="", help="run cells with these flags too, such as gpu")
    args = parser.parse_args()
    chosen = [p.resolve() for p in args.notebook] or notebooks()
    for path in chosen:
        if not path.exists(): parser.error(f"there is no notebook {path}")

    if args.command == "check":
        found = problems()
        for line in found: print(line, file=sys.stderr)
        if found: raise SystemExit(1)
        print(f"{len(chosen)} notebooks are clean; the package and README.md are what they export")
    elif args.command == "clean":
        for path in chosen: path.write_text(dumps(clean(with_written_cells(load(path), path))), encoding="utf-8")
    elif args.command == "run":
        for path in chosen: run(path, flags=args.flags.split())
    elif args.command == "export":
        try: export()
        except subprocess.CalledProcessError as error: raise SystemExit(error.output)
    elif args.command == "map": (ROOT / "docs/house.md").write_text(render_map(), encoding="utf-8")
    elif args.command == "readme":
        write_pictures()
        (ROOT / "README.md").write_text(render_readme(), encoding="utf-8")


if __name__ == "__main__": main()
