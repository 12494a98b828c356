"""The house: who may import whom, what loads where, what `make test` refuses, what a wheel holds."""
import ast
import base64
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import PathDistribution
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbformat.v4.rwbase import split_lines
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools/notebooks.py")
spec.loader.exec_module(tool := importlib.util.module_from_spec(spec))

CFG = tool.settings()
LIB = CFG["lib_name"]
GENERATED = {"__init__", "_modidx"}  # nbdev's own
ROOMS = ("engine", "lab", "views")  # folders of nbs/ and of the package; what lies beside them are the lessons
AREAS = tool.areas()
ORDER = list(AREAS)
MAY_IMPORT_UI = [  # pages on a run and on a trace are drawn as panels are
    f"engine.report.{name}" for name in ("page", "page_templates", "pictures", "trace_page", "trace_timeline")]
NOTEBOOKS, LESSONS = tool.notebooks(), set(tool.lessons())
MODULES = sorted(".".join(p.relative_to(ROOT / LIB).with_suffix("").parts) for p in (ROOT / LIB).rglob("*.py")
                 if p.stem not in GENERATED)  # "training", "engine.base.timing", "views.training"


# ---- nbs/areas.toml is the architecture

def homes(path):
    "The modules that a notebook exports to by default."
    return [m for c in tool.load(path).cells for m in re.findall(r"^#\s*\|\s*default_exp\s+([\w.]+)", c.source, re.M)]


@cache
def sources():
    "Module -> the notebook that exports it."
    return {module: path.relative_to(ROOT / "nbs") for path in NOTEBOOKS for module in homes(path)}


def test_the_path_of_a_notebook_is_the_path_of_its_module():
    found = [module for path in NOTEBOOKS for module in homes(path)]
    assert sorted(found) == sorted(set(found)), "two notebooks export one module"
    for module, path in sources().items():
        want = path.with_suffix("").as_posix().replace("/", ".")
        if path.parts[0] not in ("engine", "lab"): want = re.sub(r"(^|\.)\d\d_", r"\1", want)
        assert module == want.replace("main", "__main__") if path.name == "99_main.ipynb" else module == want


def test_every_area_is_in_the_table():
    folders = {path.name for path in (ROOT / "nbs/engine").iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert folders == set(AREAS) and not list((ROOT / "nbs/engine").glob("*.ipynb"))


def lesson_number(module):
    "The number of the lesson or view that a module belongs to."
    return int(sources()[module].name[:2]) or 99  # 00: cards on the index, which may show anything


def may_import(module, other):
    "Whether the table lets `module` import `other`, both of our package."
    kind, other_kind = kind_of(module), kind_of(other)
    area, other_area = module.split(".")[1:2], other.split(".")[1:2]
    if other_kind == "views": return kind == "views" and lesson_number(other) <= lesson_number(module)
    if other_kind == "lab": return kind in ("lab", "views")
    if kind == "lab": return True
    if other_kind == "lesson":
        if kind == "engine": return lesson_number(other) < AREAS[area[0]]["before"]
        return lesson_number(other) <= lesson_number(module)
    if other_area == ["ui"] and other_area != area: return kind == "views" or module in MAY_IMPORT_UI
    if kind == "engine": return ORDER.index(other_area[0]) <= ORDER.index(area[0])
    return AREAS[other_area[0]]["before"] <= lesson_number(module)


def kind_of(module):
    "engine, lab, views or lesson."
    first, dot, _ = module.partition(".")
    return first if dot and first in ROOMS else "lesson"


def imported(source, package=""):
    "(module, name) of each import from our package in `source`, text or the nodes of a tree, which lies in `package`."
    for node in ast.walk(ast.parse(source)) if isinstance(source, str) else source:
        if isinstance(node, ast.Import):
            yield from ((a.name.removeprefix(f"{LIB}."), "") for a in node.names if a.name.startswith(f"{LIB}."))
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            if base is None: continue
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                yield (inner, "") if inner in MODULES or not base or base in ROOMS else (base, alias.name)


def absolute(node, package):
    "What an import names, without the package's own name: '' for the package itself, None for another's."
    if not node.level:
        top, _, rest = (node.module or "").partition(".")
        return rest if top == LIB else None
    folders = package.split(".") if package else []
    return ".".join([*folders[:len(folders) - node.level + 1], *filter(None, [node.module])])


@pytest.mark.parametrize(
    "source, package, found",
    [
        ("import mlinfra.data", "", [("data", "")]),
        ("from mlinfra.data import x", "", [("data", "x")]),
        ("from .data import x", "", [("data", "x")]),
        ("from . import data, cli", "", [("data", ""), ("cli", "")]),
        ("from mlinfra import data", "", [("data", "")]),
        ("def f():\n    from .data import x", "", [("data", "x")]),
        ("from ..data import x", "views", [("data", "x")]),
        ("from .checks import x", "engine.base", [("engine.base.checks", "x")]),
        ("from ..base import checks", "engine.memory", [("engine.base.checks", "")]),
        ("from ..base.checks import x", "engine.memory", [("engine.base.checks", "x")]),
        ("from .engine.base import checks", "", [("engine.base.checks", "")]),
        ("from mlinfra.views.data import x", "", [("views.data", "x")]),
        ("import torch\nfrom torch.data import x", "", []),
    ],
)
def test_imported_sees_every_form(source, package, found): assert list(imported(source, package)) == found


def folder_of(module): return module.rpartition(".")[0]


def source_of(module): return (ROOT / LIB / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


@cache
def facts_of(module):
    """What a module imports, which names stand for modules of ours in it, private attributes as (name, attribute), its
    sentence, and its classes."""
    tree, package = ast.parse(source_of(module)), folder_of(module)  # is not kept: millions of objects to look through
    nodes = list(ast.walk(tree))
    names = {
        a.asname or a.name
        for n in nodes
        if isinstance(n, ast.ImportFrom)
        for a in n.names
        if absolute(n, package) is not None and f"{absolute(n, package)}.{a.name}".removeprefix(".") in MODULES
    }
    private = [(n.value.id, n.attr) for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
               and is_private(n.attr)]
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return tuple(imported(nodes, package)), names, private, ast.get_docstring(tree), classes


def imports_of(module): return facts_of(module)[0]
def arrows(module): return {m for m, _ in imports_of(module) if m in MODULES and m != module}


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_table(module):
    wrong = sorted(other for other in arrows(module) if not may_import(module, other))
    assert not wrong, f"{module} imports {', '.join(wrong)}, which nbs/areas.toml does not allow"


@pytest.mark.parametrize("module, other, allowed", [
    ("engine.base.checks", "engine.memory.tracker", False), ("engine.memory.tracker", "engine.base.checks", True),
    ("engine.doctor.ablation", "storage", True), ("engine.doctor.ablation", "doctor", False),
    ("doctor", "engine.doctor.ablation", True), ("data", "engine.doctor.ablation", False),
    ("doctor", "lab.patients", False), ("views.doctor", "lab.patients", True), ("lab.patients", "doctor", True),
    ("engine.doctor.ablation", "engine.ui.svg", False), ("views.doctor", "engine.ui.svg", True),
    ("doctor", "views.doctor", False), ("views.doctor", "views.precision", False),
])
def test_an_arrow_up_is_noticed(module, other, allowed): assert may_import(module, other) == allowed


def test_there_is_no_circle():
    left = {module: arrows(module) for module in MODULES}
    while free := [module for module, needs in left.items() if not needs & left.keys()]:
        for module in free: del left[module]
    assert not left, f"these import one another in a circle: {', '.join(sorted(left))}"


@pytest.mark.parametrize("module", MODULES)
def test_no_private_name_of_another_room(module):
    imports, names, private, *_ = facts_of(module)
    taken = [name for other, name in imports if is_private(name) and other != module]
    taken += [f"{name}.{attribute}" for name, attribute in private if name in names]
    assert not taken, f"{module} takes private names: {', '.join(taken)}"


def is_private(name): return name.startswith("_") and not name.startswith("__")


def test_no_two_lessons_share_a_number():
    numbers = [p.name[:2] for p in tool.notebooks() if p.parent == ROOT / "nbs" and p.name[:2].isdigit()]
    assert sorted(set(numbers)) == sorted(numbers)


# ---- what every module has

@pytest.mark.parametrize("module", [m for m in MODULES if m not in ("__main__",)])
def test_a_module_begins_with_its_sentence(module):
    words = facts_of(module)[3]
    assert words and words.endswith("."), f"{sources()[module]}: '# Title' and '> One sentence.' are its first cell"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_read_in_one_sitting(module):
    lines = len(source_of(module).splitlines())
    assert lines <= 450, f"{module} has {lines} lines; 450 are the most"


def test_a_class_name_stands_for_one_thing():
    found = {}
    for module in MODULES:
        for name in facts_of(module)[4]: found.setdefault(name, []).append(module)
    twice = {name: where for name, where in found.items() if len(where) > 1 and name[0] != "_"}
    assert not twice, f"{len(twice)} class names stand for two things: {twice}"


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_exported_by_hand(module):
    text = source_of(module)
    assert not re.search(r"^_all_ = ", text, re.M) and len(re.findall(r"^__all__ = ", text, re.M)) <= 1


# ---- a machine without a browser, and a quick start

NOTEBOOK_ONLY = "ipywidgets", "anywidget", "traitlets", "IPython", "fastcore"
SLOW = "pandas", "matplotlib", "onnx", "ray"
LOAD_EACH = """
import importlib, json, sys, traceback

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked: raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked, slow, modules = json.load(sys.stdin)
sys.meta_path.insert(0, Absent())
report = {}
for name in modules:
    before, module = set(sys.modules), None
    try: module = importlib.import_module(name)
    except Exception: said = "fails:\\n" + traceback.format_exc()
    else: said = ", ".join(sorted((set(sys.modules) - before) & set(slow)))
    report[name] = said, getattr(module, "__file__", None), getattr(module, "__version__", None)
json.dump(report, sys.stdout)
"""


@cache
def places(): return {path.relative_to(ROOT / "nbs"): place for place, path in enumerate(NOTEBOOKS)}


def load_order(module):
    "A module after those that it may import, so that what is slow is put down to who loads it first."
    return places()[sources()[module]]


@pytest.fixture(scope="module")
def loaded(installed, tmp_path_factory):
    """Module -> what went wrong when it was imported ('' for nothing), its file and version: from a wheel, outside the
    repository, in a process that has nothing of Jupyter."""
    names = [LIB, *(f"{LIB}.{m}" for m in sorted(MODULES, key=load_order))]
    out = subprocess.run([sys.executable, "-c", LOAD_EACH], input=json.dumps([NOTEBOOK_ONLY, SLOW, names]),
                         cwd=tmp_path_factory.mktemp("elsewhere"), env={"PYTHONPATH": str(installed)}, text=True,
                         capture_output=True, timeout=300)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout[out.stdout.index("{"):])


@pytest.mark.parametrize("module", [LIB, *(f"{LIB}.{m}" for m in MODULES if m != "__main__")])
def test_it_imports_without_jupyter_and_loads_nothing_slow(module, loaded):
    assert loaded[module][0] == "", f"importing {module} {loaded[module][0]}"


# ---- each check of `make test` can fail

@pytest.fixture(scope="module")
def two_chapters(tmp_path_factory):
    "A house like this one, with two chapters."
    house = tmp_path_factory.mktemp("house")
    for name in ("settings.ini", "nbs/areas.toml", "nbs/index.ipynb", "nbs/01_arithmetic.ipynb", "nbs/99_main.ipynb",
                 f"{LIB}/__init__.py"):
        (house / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, house / name)
    index = house / "nbs/index.ipynb"  # without pictures of lessons that are not there
    index.write_text(re.sub(r"!\[[^]]*\]\(pictures/[^)]*\)", "", index.read_text("utf-8")), "utf-8")
    tool.export(house)
    (house / "README.md").write_text(tool.render_readme(house), encoding="utf-8")
    (house / "docs").mkdir()
    (house / "docs/house.md").write_text(tool.render_map(house), encoding="utf-8")
    return house


@pytest.fixture
def house(two_chapters, tmp_path): return shutil.copytree(two_chapters, tmp_path / "house")


def chapter(house): return next(p for p in tool.notebooks(house) if p.name[0].isdigit())


def change(path, edit):
    nb = tool.load(path)
    edit(nb, next(c for c in nb.cells if c.cell_type == "code"))
    path.write_text(json.dumps(split_lines(nb), sort_keys=True, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def edit_install(house): change(chapter(house), lambda nb, cell: cell.update(source=cell.source + "\n%pip list"))
def drop_install(house):
    path = chapter(house)
    nb = tool.load(path)
    nb.cells = [cell for cell in nb.cells if cell.id != tool.INSTALL]
    path.write_text(tool.dumps(nb), encoding="utf-8")
def replace_readme(house): (house / "README.md").write_text("another\n")
def replace_map(house): (house / "docs/house.md").write_text("another\n")
def drop_readme(house): (house / "README.md").unlink()
def edit_module(house):
    with (house / LIB / f"{MODULES[0]}.py").open("a") as f: f.write("# by hand\n")
def drop_module(house): (house / LIB / f"{MODULES[0]}.py").unlink()
def orphan_module(house): (house / LIB / "orphan.py").write_text("")
def edit_init(house): (house / LIB / "__init__.py").write_text("")
def drop_chapters(house):
    for path in tool.notebooks(house):
        if path.name != "index.ipynb": path.unlink()
def count_executions(house): change(chapter(house), lambda nb, cell: cell.update(execution_count=3))
def drop_id(house): change(chapter(house), lambda nb, cell: cell.pop("id"))
def repeat_id(house):
    change(chapter(house), lambda nb, cell: cell.update(id=nb.cells[0].id) or nb.cells[-1].update(id=nb.cells[0].id))
def keep_tags(house): change(chapter(house), lambda nb, cell: cell.metadata.update(tags=["x"]))
def other_kernel(house):
    change(chapter(house), lambda nb, cell: nb.metadata.update(kernelspec={"name": "mine", "display_name": "Mine"}))
def widget_state(house): change(chapter(house), lambda nb, cell: nb.metadata.update(widgets={"state": {}}))
def indent(house): chapter(house).write_text(json.dumps(json.loads(chapter(house).read_text()), indent=2))
def add(house, **output): change(chapter(house), lambda nb, cell: cell.outputs.append(new_output(**output)))
def widget_view(house):
    add(house, output_type="display_data", data={tool.WIDGET: {"model_id": "1"}, "text/plain": "VBox()"})
def progress_bar(house): add(house, output_type="stream", name="stderr", text="\r 40%|####      | 4/10 [00:01<00:01]")
def other_picture(house):
    "The index shows a lesson's picture, and the file beside it is an older one."
    add(house, output_type="display_data", data={"image/svg+xml": "<svg/>"})
    name = f"{chapter(house).stem}-{next(c.id for c in tool.load(chapter(house)).cells if c.cell_type == 'code')}"
    change(house / "nbs/index.ipynb", lambda nb, cell: nb.cells[0].update(source=f"![new](pictures/{name}.svg)"))
    (house / "nbs/pictures").mkdir()
    (house / f"nbs/pictures/{name}.svg").write_text("<svg>old</svg>", encoding="utf-8")
def big_picture(house):
    add(house, output_type="display_data", data={"image/png": base64.b64encode(bytes(tool.MAX_IMAGE + 1)).decode()})


def test_the_repository_passes_every_check(): assert tool.problems() == []
def test_an_undamaged_house_passes_every_check(house): assert tool.problems(house) == []


@pytest.mark.parametrize("damage, says", [
    (replace_readme, "README.md is not what"), (drop_readme, "README.md is missing"),
    (replace_map, "docs/house.md is not what"),
    (edit_module, f"{LIB}/{MODULES[0]}.py is not what"), (drop_module, f"{LIB}/{MODULES[0]}.py is missing"),
    (orphan_module, f"{LIB}/orphan.py is exported by no notebook"), (edit_init, f"{LIB}/__init__.py is not what"),
    (drop_chapters, "nbs/ holds no chapter"), (count_executions, "execution_count"), (drop_id, "(id missing): id"),
    (repeat_id, ": id"), (keep_tags, ": metadata"), (other_kernel, "its kernel is not python3"),
    (widget_state, "its metadata hold widget state"), (indent, "is not laid out"),
    (edit_install, "(install or elsewhere) is missing or altered"), (drop_install, "is missing or altered"),
    (widget_view, "has a widget in its outputs"), (progress_bar, ": outputs"),
    (other_picture, "is not what the lesson shows"),
    (big_picture, "an image/png of 100 KB; 100 KB is the limit"),
], ids=lambda x: getattr(x, "__name__", None))
def test_a_check_can_fail(house, damage, says):
    damage(house)
    found = []  # until it is found: an export takes as long as all other checks, and comes last
    for check in sorted(tool.CHECKS, key=lambda check: check is tool.stale_export):
        found += check(house)
        if any(says in line for line in found): return
    raise AssertionError(f"{damage.__name__} went unnoticed; found: {found}")


@pytest.mark.parametrize("damage", [count_executions, drop_id, repeat_id, keep_tags, other_kernel, widget_state, indent,
                                    widget_view, progress_bar])
def test_clean_mends_it(house, damage):
    path = chapter(house)
    damage(house)
    path.write_text(tool.dumps(tool.clean(tool.load(path), house)), encoding="utf-8")
    assert list(tool.unclean(house)) == []


def test_nbdev_leaves_a_clean_notebook_as_it_is(house):
    shutil.copytree(ROOT / "nbs", house / "nbs", ignore=shutil.ignore_patterns(".*", "_*_"), dirs_exist_ok=True)
    before = {p: p.read_bytes() for p in tool.notebooks(house)}
    subprocess.run([Path(sys.executable).parent / "nbdev_clean"], cwd=house, check=True)
    assert [p.name for p in before if p.read_bytes() != before[p]] == []


def test_clean_keeps_pictures_text_and_warnings():
    outputs = [new_output("display_data", data={"image/png": "aaaa", "text/plain": "<Figure>"}),
               new_output("stream", name="stdout", text="50%| half\n"),
               new_output("stream", name="stderr", text="\r100%|####| 4/4 [00:01<00:00]\nUserWarning: look\n")]
    nb = tool.clean(new_notebook(cells=[new_code_cell("1", outputs=outputs)]))
    picture, text, warning = nb.cells[0].outputs
    assert picture.data["image/png"] == "aaaa" and text.text == "50%| half\n" and warning.text == "UserWarning: look\n"


# ---- running a chapter

def write(path, *cells):
    nbformat.write(new_notebook(cells=[c if isinstance(c, dict) else new_code_cell(c) for c in cells]), path)
    return path


def test_run_keeps_outputs_and_leaves_marked_cells_alone(tmp_path):
    kept = new_code_cell("#| gpu\nraise SystemError", outputs=[new_output("stream", text="on a GPU\n")])
    saved = "import os\nprint(os.environ['MLINFRA_SAVED_PAGE'])"  # the page is for readers who only read
    path = write(tmp_path / "a.ipynb", "print(6 * 7)", kept, "#| eval: false\n1 / 0", saved)
    tool.run(path)
    outputs = [[o.text for o in c.outputs] for c in tool.load(path).cells]
    assert outputs == [["42\n"], ["on a GPU\n"], [], ["1\n"]]


def test_run_names_the_cell_that_fails_and_leaves_the_file(tmp_path):
    path = write(tmp_path / "a.ipynb", "x = 1", "raise ValueError('so it is')")
    before = path.read_bytes()
    with pytest.raises(SystemExit, match=r"a.ipynb, cell 2 \(id \w+\): ValueError: so it is"): tool.run(path)
    assert path.read_bytes() == before


# ---- what a user installs

@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    "The folder in which a wheel, built from a copy of the repository, is installed."
    source, wheels, target = (tmp_path_factory.mktemp(n) for n in ("source", "wheels", "target"))
    for name in ("settings.ini", "setup.py", "pyproject.toml", "README.md", "LICENSE"): shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / LIB, source / LIB, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tools/jupyter", source / "tools/jupyter")
    def python(*args): subprocess.run([sys.executable, "-m", *args], check=True, capture_output=True, text=True)
    python("build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source))
    python(
        "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", str(target), str(next(wheels.glob("*.whl")))
    )
    return target


def test_a_wheel_imports_outside_the_repository(installed, loaded):
    files = {f"{LIB}.{name}": f"{installed / LIB / name.replace('.', '/')}.py" for name in MODULES}
    assert {name: loaded[name][1] for name in files} == files and loaded[LIB][2] == CFG["version"]


def test_a_wheel_brings_the_page_of_a_lesson(installed):
    "Where JupyterLab and Notebook 7 look, and the server: the same files as here."
    files = lambda folder: {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.*") if p.is_file()}
    assert files(installed / "share/jupyter/labextensions") == files(ROOT / "tools/jupyter/labextensions") != {}
    told = json.loads((installed / "etc/jupyter/jupyter_server_config.d/mlinfra.json").read_text())
    module, = told["ServerApp"]["jpserver_extensions"]
    assert module.removeprefix(f"{LIB}.") in MODULES


MODULE_OF = {  # named unlike the package
    "pillow": "PIL", "pyyaml": "yaml", "opencv-python-headless": "cv2", "nvidia-ml-py": "pynvml",
    "huggingface-hub": "huggingface_hub",
}
READERS = "requirements", "lessons_requirements"  # and where notebooks are run already, no more is installed
BUILDERS = *READERS, "lab_requirements", "dev_requirements", "tracking_requirements"


@cache
def provided(keys):
    "What can be imported where the requirements of these keys of settings.ini are installed."
    names = {Requirement(r).name for key in keys for r in CFG[key].split()}
    return {MODULE_OF.get(name, name.replace("-", "_")) for name in names} | {LIB} | sys.stdlib_module_names


def asked(path):
    "The top modules that a notebook's cells import."
    for cell in tool.load(path).cells:
        if cell.cell_type != "code" or cell.id == tool.INSTALL: continue
        for node in ast.walk(ast.parse("\n".join(l for l in cell.source.splitlines() if l[:1] not in "%!"))):
            if isinstance(node, ast.Import): yield from (alias.name.split(".")[0] for alias in node.names)
            if isinstance(node, ast.ImportFrom) and not node.level: yield node.module.split(".")[0]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_notebook_imports_what_its_reader_has(path):
    "Lessons need no more than their first cell installs on Colab; the other rooms are read by who builds."
    missing = set(asked(path)) - provided(READERS if path in LESSONS else BUILDERS)
    assert not missing, f"{path.name} imports {', '.join(sorted(missing))}, which its reader need not have"


def test_a_wheel_says_what_settings_ini_says(installed):
    dist = PathDistribution(next(installed.glob("*.dist-info")))
    scripts = {f"{e.name}={e.value}" for e in dist.entry_points if e.group == "console_scripts"}
    assert scripts == set(CFG["console_scripts"].split())
    assert dist.metadata["Name"] == LIB and dist.version == CFG["version"]
    assert dist.metadata["Requires-Python"] == f">={CFG['min_python']}"
    required = {str(Requirement(r)) for r in dist.requires if "extra ==" not in r}
    assert required == {str(Requirement(r)) for r in CFG["requirements"].split()}
    for extra, keys in dict(lessons=["lessons"], lab=["lessons", "lab"], dev=["dev"]).items():
        found = {str(Requirement(r.split(";")[0])) for r in dist.requires if f'extra == "{extra}"' in r}
        assert found == {str(Requirement(r)) for key in keys for r in CFG[f"{key}_requirements"].split()}, extra
    held = lambda folder: {
        p.relative_to(folder) for p in (folder / LIB).rglob("*") if p.suffix in (".py", ".csv", ".json")
    }
    assert held(installed) == held(ROOT)


def test_constraints_fit_the_requirements():
    pins = {
        r.name: r
        for r in map(
            Requirement,
            filter(lambda l: l.strip() and l[0] != "#", (ROOT / "constraints.txt").read_text().splitlines()),
        )
    }
    for key in ("requirements", "lessons_requirements", "lab_requirements", "dev_requirements"):
        for want in map(Requirement, CFG[key].split()):
            assert want.name in pins, f"{want.name} has no line in constraints.txt: run `make constraints`"
            assert next(iter(pins[want.name].specifier)).version in want.specifier


# ---- tools/install.sh, with a Python that only notes what it is asked

@pytest.fixture
def install(tmp_path):
    "Run tools/install.sh in a folder whose .venv is a stand-in; gives what it said and the calls of its python."
    for name in ("settings.ini", "setup.py", "pyproject.toml", "constraints.txt"): shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/install.sh", tmp_path / "tools")
    shutil.copytree(ROOT / "tools/jupyter", tmp_path / "tools/jupyter")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/pip").write_text(f"#!{tmp_path}/.venv/bin/python")
    python, calls = tmp_path / ".venv/bin/python", tmp_path / "calls"
    python.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    python.chmod(0o755)

    def run(want):
        calls.write_text("")
        out = subprocess.run(
            ["tools/install.sh", want],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHON": "no-python", "UV": str(tmp_path / "uv")},
            text=True,
            capture_output=True,
            timeout=20,
        )
        return out.stdout + out.stderr, [c for c in calls.read_text().splitlines() if c != "-V"]
    return run


def test_a_second_install_does_nothing(install, tmp_path):
    said, calls = install("lab")
    assert "ready" in said and any("pip install" in c and "-e .[lab] -c constraints.txt" in c for c in calls)
    assert install("lab") == ("", [])
    (tmp_path / ".venv/.lab-stamp").rename(tmp_path / ".venv/.test-stamp")
    assert install("lab") == ("", []), "what `make test` installed holds what `make lab` needs"


def program(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("status, by_pip", [(0, False), (1, True)])
def test_uv_installs_where_it_is_present_and_can(install, tmp_path, status, by_pip):
    said = tmp_path / "uv-calls"
    program(tmp_path / "uv", f'echo "$@" >> {said}\nexit {status}')
    calls = install("lab")[1]
    start, end = "pip install --python .venv/bin/python --index-strategy", "-e .[lab] -c constraints.txt\n"
    assert said.read_text().startswith(start) and said.read_text().endswith(end)
    assert any("pip install" in c for c in calls) == by_pip


def test_pip_fetches_uv_and_uv_asks_where_pip_would(install, tmp_path):
    said, uv = tmp_path / "uv-calls", tmp_path / ".venv/bin/uv"
    program(tmp_path / "made", f'echo "$@" >> {said}')
    program(tmp_path / ".venv/bin/python", f"""case "$*" in
      *"install -q uv"*) cp {tmp_path}/made {uv} ;;
      *"config list"*) echo "global.index-url='https://a/simple'"; echo ":env:.find-links='/wheels'" ;;
    esac""")
    install("lab")
    assert "--default-index=https://a/simple --find-links=/wheels -e .[lab]" in said.read_text()


PAGE = "tools/jupyter/labextensions/mlinfra/static/page.css"


@pytest.mark.parametrize("name", ["settings.ini", "constraints.txt", "setup.py", "pyproject.toml", PAGE])
def test_a_changed_file_installs_again(install, tmp_path, name):
    install("lab")
    with (tmp_path / name).open("a") as f: f.write("\n# changed\n")
    assert "ready" in install("lab")[0]


BASH_4 = re.compile(r"\b(mapfile|readarray|declare -[Ag]|local -[An]|coproc)\b|&>>|\|&|\$\{\w+(,,|\^\^|@[A-Z])|\[-1\]"
                    r"|\b(sha256sum|md5sum|readlink -f|sed -i|stat -c|date -d|grep -P|xargs -r)\b")


def test_install_runs_with_the_bash_and_the_tools_of_macos():
    "That is bash 3.2, and the tools of BSD."
    script = (ROOT / "tools/install.sh").read_text()
    assert [line for line in script.splitlines() if BASH_4.search(line)] == []
    for line in ("mapfile -t where < <(indexes)", "x | sha256sum", "echo ${want^^}", "make &>> log", "a=${b[-1]}"):
        assert BASH_4.search(line)


def test_a_cut_off_install_starts_afresh(install, tmp_path):
    install("lab")
    (tmp_path / ".venv/.installing").touch()
    assert "there is no no-python: install Python 3.10 or later" in install("lab")[0]  # it went to make a new .venv


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_prose_is_not_written_as_comments(path):
    for cell in nbformat.read(path, 4).cells:
        lines = [line for line in cell.source.splitlines() if line]
        if cell.cell_type == "markdown" and len(lines) > 1:
            assert not all(line.startswith("#") for line in lines), f"every line is a heading: {lines[0]}"
