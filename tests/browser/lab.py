"""A real JupyterLab in a real Chromium: start it, open a notebook, run its cells, use its panels."""
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "test-output" / "screenshots"
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},  # every cell is in the page, seen or not
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
IN_THE_BROWSER = ("index", "01_arithmetic")  # notebooks that are run whole in a page
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no other machine is found
]


def chromium_path():
    "A Chromium on the PATH, or None for playwright's own."
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def jupyterlab(folder, home, kernels=None):
    "The URL and token of a JupyterLab that serves `folder`, whose kernels are forked by `kernels` (kernel_server.py)."
    settings = home / "settings"
    for name, values in SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    port, token = free_port(), secrets.token_hex(8)
    env = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_PREFER_ENV_PATH": "no",  # what .venv says of the page comes after what is said here
        "MLINFRA_APART": "yes",  # ranks are the kernel's own children, see `ranks`
        "MLINFRA_PROGRESS": str(home / "progress.json"),  # the reader's own guesses are none of ours
    }
    lessons = sorted(map(str, [*folder.glob("nbs/*.ipynb"), *folder.glob("nbs/more/*.ipynb")]))  # as `make lab` does
    trust = [sys.executable, "-m", "jupyter", "trust", *lessons]
    if lessons: subprocess.run(trust, env=env, check=True, capture_output=True)
    configure(home / "config", folder / "tools", kernels)
    command = [
        sys.executable,
        "-m",
        "jupyter",
        "lab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        "--LabApp.expose_app_in_browser=True",
        f"--ServerApp.root_dir={folder}",
    ]
    with open(home / "jupyter.log", "w") as log: server = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/api?token={token}"), "JupyterLab answers", 60)
        yield f"http://127.0.0.1:{port}", token
    finally:
        server.terminate()
        server.wait(30)


def configure(config, tools, kernels):
    "As tools/install.sh tells Jupyter, lessons are shown and saved; kernels are forked where they can be."
    place = (tools if tools.exists() else ROOT / "tools") / "jupyter"
    text = kernels.used_by_jupyter() if kernels else ""
    text += f"load_subconfig('jupyter_server_config.py', path={str(place)!r})\n"
    config.mkdir(parents=True, exist_ok=True)
    (config / "jupyter_server_config.py").write_text(text)


def answers(url):
    try: return urllib.request.urlopen(url).status == 200
    except (urllib.error.URLError, ConnectionError): return False


def wait_until(condition, what, seconds=60):
    "Ask until `condition()` is true, the longer it takes the more rarely; a test fails if it never is."
    start = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - start
        assert waited < seconds, f"never came true in {seconds} s: {what}"
        time.sleep(min(0.05 + waited / 10, 0.5))
    return value


def write_notebook(path, *cells):
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nb.metadata.kernelspec = {"name": "python3", "display_name": "python3", "language": "python"}
    nbformat.write(nb, path)
    return path


FINISHED = """() => {
  const panel = window.jupyterapp.shell.currentWidget, kernel = panel?.sessionContext?.session?.kernel;
  if (!kernel || kernel.status !== 'idle') return false;
  const filled = c => c.model.type === 'code' && c.model.sharedModel.getSource().trim();
  return panel.content.widgets.filter(filled).every(c => c.model.executionCount);
}"""


VALUE = """async expression => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const reply = await kernel.requestExecute({code: '', user_expressions: {value: expression}}).done;
  const found = reply.content.user_expressions.value;
  if (found.status !== 'ok') throw new Error(`${found.ename}: ${found.evalue}`);
  return found.data['text/plain'];
}"""


class Api:
    "The server's REST interface."
    def __init__(self, url, token): self.url, self.token = url, token

    def __call__(self, method, place, **content):
        request = urllib.request.Request(f"{self.url}/api/{place}", json.dumps(content).encode() if content else None,
                                         {"Authorization": f"token {self.token}"}, method=method)
        with urllib.request.urlopen(request) as reply: return json.loads(reply.read() or "null")


EMPTY = """__import__('ipywidgets').Widget.close_all()
for name in set(get_ipython().user_ns) - set(get_ipython().user_ns_hidden): get_ipython().user_ns.pop(name)"""
IDLE = """name => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.context?.path === name && panel.sessionContext?.session?.kernel?.status === 'idle';
}"""


class Notebook:
    "A notebook open in a page: in a JupyterLab that the page shows already, or else in a new one."
    def __init__(self, page, url, token, name):
        self.page, self.api, self.name, self.console, self.closed = page, Api(url, token), name, [], False
        self.listeners = {"console": lambda m: self.console.append(m.text) if m.type == "error" else None,
                          "pageerror": lambda e: self.console.append(e.stack or str(e))}
        for event, listener in self.listeners.items(): page.on(event, listener)
        if page.url.startswith(f"{url}/lab"):
            page.evaluate("path => void window.jupyterapp.commands.execute('docmanager:open', {path})", name)
        else: page.goto(f"{url}/lab/workspaces/{secrets.token_hex(4)}/tree/{name}?token={token}")
        page.wait_for_function(IDLE, arg=name, timeout=60_000, polling=50)  # not in each frame

    def close(self):
        "Close the notebook's tab in JupyterLab; the kernel lives on."
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.dispose()")
        for event, listener in self.listeners.items(): self.page.remove_listener(event, listener)
        self.closed = True

    def empty_kernel(self):
        "Forget all variables and widgets; what was imported stays."
        self.page.evaluate("""async code => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
                              .requestExecute({code}).done""", EMPTY)

    def command(self, name): return self.page.evaluate("name => window.jupyterapp.commands.execute(name)", name)

    def run_all(self, seconds=120):
        "Run every cell and wait for the last."
        self.command("notebook:run-all-cells")
        self.page.wait_for_function(FINISHED, timeout=1000 * seconds, polling=200)
        return self

    def value(self, expression):
        "What the kernel says of `expression`, as `repr` writes it."
        return self.page.evaluate(VALUE, expression)

    def error_outputs(self):
        return self.page.eval_on_selector_all(
            '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]',
            "es => es.map(e => e.textContent)",
        )

    def complaints(self):
        "What the browser's console complained of, beyond JupyterLab's own search for optional files."
        return [
            text
            for text in self.console
            if not re.search(r"Failed to load resource.*(404|403)|net::ERR_|ResizeObserver", text)
        ]

    def shot(self, name):
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")


def jobs(notebook):
    "The names of the kernel's threads that work for a panel."
    return notebook.value("[t.name for t in __import__('threading').enumerate() if t.name == 'mlinfra-job']")


# Ranks are children of the server that forks them, or of the kernel itself where the system has no such server.
RANKS = """[p.cmdline() for child in __import__('psutil').Process().children()
 for p in ([child] if 'spawn_main' in ''.join(child.cmdline()) else child.children(recursive=True))]"""


def ranks(notebook):
    "The commands of the kernel's ranks that run."
    return notebook.value(" ".join(RANKS.split()))


PIXELS = """async image => {
  const source = image.src;
  try { await image.decode(); } catch (error) { if (image.src !== source) return null; throw error; }
  const canvas = document.createElement('canvas');
  canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas.toDataURL();
}"""


class Panel:
    "A panel in a notebook, used by mouse and keyboard."
    def __init__(self, notebook, name):
        self.notebook, self.page, self.root = notebook, notebook.page, notebook.page.locator(f".mlinfra-{name}").first
        self.root.wait_for(timeout=30_000)

    def words(self): return self.root.locator(".mlinfra-words").inner_text()
    def status(self): return self.root.locator(".mlinfra-status").inner_text()

    def picture(self):
        "The picture as it is on the page: the SVG's text, or the pixels. One replaced while it is read is read again."
        svg, image = self.root.locator("svg"), self.root.locator("img")
        wait_until(lambda: svg.count() + image.count(), "a picture is shown", 20)
        if svg.count(): return svg.first.evaluate("e => e.outerHTML")
        return wait_until(lambda: image.first.evaluate(PIXELS), "an image stays to be read", 20)

    def shows_a_picture(self): return any(drawn.is_visible() for drawn in self.root.locator("svg, img").all())

    def control(self, text):
        return self.root.locator(".widget-inline-hbox", has=self.page.locator("label", has_text=text)).first

    def handle(self, text):
        "The slider's handle, once it can be seen: a key that goes to a hidden one is lost."
        handle = self.control(text).locator(".noUi-handle").first
        handle.wait_for()
        return handle

    def press(self, text, *keys):
        for key in keys: self.handle(text).press(key)

    def click_track(self, text, share):
        "Click the slider's track at `share` of its length, from 0 to 1."
        box = self.control(text).locator(".noUi-target").bounding_box()
        self.page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)

    def drag(self, text, share):
        "Drag the slider's handle to `share` of its length."
        start, box = self.handle(text).bounding_box(), self.control(text).locator(".noUi-target").bounding_box()
        self.page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=8)
        self.page.mouse.up()

    def button(self, text): return self.root.get_by_role("button", name=text, exact=True)
    def readout(self, text): return self.control(text).locator(".widget-readout").inner_text()

    def says(self, expected, seconds=20):
        "Wait until the words contain `expected`."
        try: wait_until(lambda: expected in self.words(), expected, seconds)
        except AssertionError: raise AssertionError(f"expected {expected!r}, the panel says {self.words()!r}") from None

    def tells(self, said, seconds=20):
        "Wait until the panel shows this number and this sentence."
        for part in filter(None, (said.number, said.sentence)): self.says(part, seconds)

    def changed_from(self, picture):
        return wait_until(lambda: self.picture() != picture and self.picture(), "the picture changes", 20)
