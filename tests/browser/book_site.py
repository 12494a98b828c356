"""The built book, served on this machine."""
import http.server
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial

import pytest
from lab import ROOT

sys.path.insert(0, str(ROOT / "tools"))
BOOK = ROOT / "_book" / "html"


def built():
    """The folder of the book; it is built if it is not there or older than what it is made from. With
    BOOK=as-is the tests read what is there."""
    if os.environ.get("BOOK") == "as-is": return BOOK
    if importlib.util.find_spec("myst_nb") is None: pytest.skip("myst-nb is not installed: it needs Python 3.11")
    import book
    if not book.is_fresh():
        live = ["--require-live"] if shutil.which("npm") else []
        command = [sys.executable, "tools/book.py", "build", *live]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
    return BOOK


class Quiet(http.server.SimpleHTTPRequestHandler):
    "Says nothing, not even of a reader who is gone before a file has ended; files may be kept by the browser."
    protocol_version = "HTTP/1.1"  # one connection for many files

    def end_headers(self):
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_message(self, *args): pass

    def handle(self):
        try: super().handle()
        except (BrokenPipeError, ConnectionResetError): self.close_connection = True


@contextmanager
def served(folder):
    "The address at which `folder` can be read."
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try: yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def only_from(page, address):
    "What the page, or each page of a context, asks of others, as it asks it; it gets nothing (FLAGS)."
    asked = []

    def note(request):
        if not request.url.startswith((address, "data:", "blob:", "file:")): asked.append(request.url)

    page.on("request", note)
    return asked
