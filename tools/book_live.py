"""Panels that live in the pages of the book: Pyodide, the modules that they import, and their first answers.

    from book_live import prepare
    prepare(Path("_book/source/_static/live"))      the names of the panels that live; [] where there is no Pyodide

Pyodide is fetched by npm once, into .cache/, and checked against the sum below. What is written is the same for the
same commit.
"""
import base64
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIB = "mlinfra"
SOURCES = ROOT / "docs" / "live"  # what is written by hand: live.js, worker.js, live.css
PYODIDE = "314.0.7"
# sha512 of npm's archive, as `npm view pyodide dist.integrity` tells it
SUM = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
CORE = "pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json", "README.md"
MOST_KNOWN = 200_000  # letters of a panel's known positions: 150 KB of gzip
PANELS = {  # the lesson's function -> the module and the function that describe the same panel for the page
    "schedule_panel": "views.arithmetic:live_schedule",
    "overlap_panel": "views.arithmetic:live_overlap",
    "timeline_panel": "views.timeline:live_timeline",
    "formats_panel": "views.precision:live_formats",
    "memory_panel": "views.memory_plan:live_memory",
    "pipeline_panel": "views.pipeline:live_pipeline",
    "planner_panel": "views.planner:live_planner",
    "cost_panel": "views.cost:live_cost",
}

# A process in which nothing but the standard library and the package can be imported: the browser has no more.
DESCRIBE = f"""
import importlib, json, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tools")!r}]
from book_live import positions

class Refused:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != {LIB!r} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{{name}} is not of the standard library, and a page has nothing else")

sys.meta_path.insert(0, Refused())
from {LIB}.engine.ui.live import Desk
makers = json.load(sys.stdin)
desk = Desk(makers)
shown = {{panel: desk.panel(panel).shown() for panel in makers}}
modules = sorted(name for name in sys.modules if name.partition(".")[0] == {LIB!r})
known = {{panel: positions(desk.panel(panel), shown[panel]) for panel in makers}}
json.dump(dict(panels=shown, modules=modules, known=known), sys.stdout)
"""


def positions(panel, shown: dict) -> dict[str, dict]:
    "What the panel shows while one listed control is moved from the start: what has moved, as JSON -> the answer."
    controls, found = shown["controls"], {}
    start = {name: control["start"] for name, control in controls.items()}
    for name, control in controls.items():
        values = [False, True] if control["kind"] == "switch" else range(len(control.get("words", ())))
        for value in values:
            if value == control["start"]: continue
            found[json.dumps({name: value}, separators=(",", ":"))] = panel.answer(start | {name: value})
    return found


def packed(panel: str, known: dict[str, dict]) -> str:
    "Answers as a script that the page reads also where it is a file: base64 of gzip of JSON."
    made = gzip.compress(json.dumps(known, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0)
    return f'(window.mlinfraPositions ??= {{}}).{panel} = "{base64.b64encode(made).decode()}";\n'


def bring(known: dict[str, dict], folder: Path) -> list[str]:
    "Write the answers that are not too many into `folder`; the names of their panels."
    scripts = {panel: packed(panel, answers) for panel, answers in known.items()}
    brought = [panel for panel, text in scripts.items() if len(text) <= MOST_KNOWN]
    if left := sorted(known.keys() - brought): print(f"live panels: too many positions to bring: {', '.join(left)}")
    folder.mkdir()
    for panel in brought: (folder / f"{panel}.js").write_text(scripts[panel], encoding="utf-8")
    return brought


def prepare(folder: Path) -> list[str]:
    "Write all that live panels need into `folder`; the names of those that live."
    core = pyodide()
    if core is None: return []
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCES, folder)
    (folder / "pyodide").mkdir()
    for name in CORE: shutil.copyfile(core / name, folder / "pyodide" / name)
    (folder / "pyodide" / "pyodide-lock.json").write_text(without_packages(core / "pyodide-lock.json"))
    found = describe()
    pack(found["modules"], folder / f"{LIB}.zip")
    known = bring(found["known"], folder / "positions")
    loaded = [folder / f"{LIB}.zip", *(folder / "pyodide" / name for name in CORE if name != "README.md")]
    size = sum(path.stat().st_size for path in loaded)
    data = dict(panels=found["panels"], makers=makers(), known=known, bytes=size)
    script = (SOURCES / "live.js").read_text(encoding="utf-8")
    (folder / "live.js").write_text(f"const mlinfraPanels = {json.dumps(data)};\n{script}", encoding="utf-8")
    return list(PANELS)


def makers() -> dict[str, str]: return {panel: f"{LIB}.{maker}" for panel, maker in PANELS.items()}


def describe() -> dict:
    "What the page shows of each panel, and the modules that its answers need; kept for the same package and Python."
    files = sorted(path for path in (ROOT / LIB).rglob("*") if path.suffix in (".py", ".json", ".csv"))
    key = hashlib.sha256(f"{sys.version}{makers()}".encode())
    for path in (Path(__file__), *files): key.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    kept = ROOT / ".cache" / f"live-panels-{key.hexdigest()[:16]}.json"
    if not kept.exists():
        text = json.dumps(described())
        for old in kept.parent.glob("live-panels-*.json"): old.unlink(missing_ok=True)
        kept.parent.mkdir(exist_ok=True)
        fresh = kept.with_suffix(f".{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.rename(kept)
        return json.loads(text)
    return json.loads(kept.read_text(encoding="utf-8"))


def described() -> dict:
    "The same, asked anew."
    out = subprocess.run([sys.executable, "-S", "-c", DESCRIBE], input=json.dumps(makers()), text=True,
                         capture_output=True)
    if out.returncode: raise SystemExit(f"a panel cannot live in the page:\n{out.stderr}")
    return json.loads(out.stdout)


def pack(modules: list[str], path: Path) -> None:
    "The modules, and the tables that lie beside them and that they name, in an archive."
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for module in modules:
            place = ROOT.joinpath(*module.split("."))
            source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            text = source.read_text(encoding="utf-8")
            tables = [p for p in sorted(source.parent.iterdir()) if p.suffix in (".json", ".csv") and p.name in text]
            for file in (source, *tables):
                name = str(file.relative_to(ROOT))
                if name not in archive.namelist():
                    archive.writestr(zipfile.ZipInfo(name), file.read_bytes(), zipfile.ZIP_DEFLATED)


def without_packages(lock: Path) -> str:
    "Pyodide's list of packages, empty: panels need none, and nothing is to be asked for."
    return json.dumps(json.loads(lock.read_text(encoding="utf-8")) | dict(packages={}))


def pyodide() -> Path | None:
    "The folder of Pyodide's core, fetched by npm where it is not there yet; None, and a reason, where that fails."
    folder = ROOT / ".cache" / f"pyodide-{PYODIDE}"
    if (folder / "package").exists(): return folder / "package"
    if shutil.which("npm") is None:
        print("live panels: there is no npm to fetch Pyodide with (Debian: apt-get install npm)")
        return None
    fresh = folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    out = subprocess.run(["npm", "pack", f"pyodide@{PYODIDE}", "--silent"], cwd=fresh, text=True, capture_output=True)
    if out.returncode:
        print(f"live panels: npm could not fetch Pyodide: {(out.stderr or out.stdout).strip()[-300:]}")
        return None
    archive = next(fresh.glob("*.tgz"))
    if (found := base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()) != SUM:
        raise SystemExit(f"{archive.name} is not the archive that was tested: its sha512 is {found}")
    with tarfile.open(archive) as files:
        for name in CORE: files.extract(f"package/{name}", fresh)
    archive.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    return folder / "package"


if __name__ == "__main__": print(", ".join(prepare(Path(sys.argv[1]))) or "none")
