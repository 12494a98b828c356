"""A process that has imported what lessons import and forks their kernels, which then start in a moment; and other
Pythons that would import PyTorch: what `Kernels.python` names is called as `python` is (forked_python.py).

    python kernel_server.py NUMBER [ADDRESS ALIVE]    serves the socket with this number until its standard input ends;
                                                      ranks come from the fork server at this place (fork_server.py)

A kernel is ipykernel's own, with the command, environment and folder that Jupyter gives it; nothing of mlinfra is
imported before. Each has a keeper, which ends it when whoever asked for it is gone, and tells how it ended.
"""
import ctypes
import json
import os
import runpy
import shlex
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import fork_server
import onnx_registry

IMPORTED = """torch torch._dynamo torch.distributed torch.distributed.run torch.distributed.tensor torch.utils.data
torchvision timm numpy pandas matplotlib.pyplot PIL.Image ipykernel.kernelapp ipykernel.ipkernel ipywidgets anywidget
matplotlib_inline.backend_inline IPython.core.pylabtools""".split()
REQUEST_BYTES = 1 << 18  # at most


def available() -> bool: return hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")


# ---- the server

def main(number, *place):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need no burial
    import importlib
    for name in IMPORTED: importlib.import_module(name)
    onnx_registry.keep()
    import gc
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as listener:
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready: os._exit(0)  # libraries have much to say of an interpreter that ends
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                keep(connection, place)
            connection.close()


def keep(connection, place):
    "Fork the kernel that is asked for; wait until it ends, or end it when nobody is there any more."
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 4)
    asked = json.loads(request)
    began, begins = os.pipe()
    pid = os.fork()
    if pid == 0: become(connection, streams, begins, place, **asked)
    os.close(begins)
    os.read(began, 1)  # whoever is told of the process may ask at once for its group
    connection.sendall(b"%d" % pid)
    for stream in streams: os.close(stream)
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection], [], [])[0]: os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    try: connection.sendall(b"%d %f" % (os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime))
    except OSError: pass
    os._exit(0)


def become(connection, streams, begins, place, command, env, cwd):
    "Be the process that `command` would have started."
    status = 1
    try:
        connection.close()
        os.setsid()
        os.close(begins)
        for number, stream in enumerate(streams[:3]): os.dup2(stream, number)
        if streams[3:]: ctypes.CDLL(None).setns(streams[3], 0)  # into the network of whoever asks
        for stream in streams: os.close(stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd)
        import random

        import numpy
        random.seed()
        numpy.random.seed()
        if threads := env.get("OMP_NUM_THREADS"):  # read when PyTorch was loaded
            import torch
            torch.set_num_threads(int(threads))
        if place and fork_server.SPENT in env: fork_server.use(place[0], int(place[1]))
        run(*command[1:])
        status = 0
    except SystemExit as error: status = error.code if isinstance(error.code, int) else int(bool(error.code))
    except BaseException as error:
        import traceback
        traceback.print_exc()
        sys.last_value = error  # as Python's own end has it
    finally: leave(status)


def run(first, *words):
    "Run the module, code or script, as Python does with these words; its options -u and -X are not needed."
    if first[:2] in ("-u", "-X"): return run(*words)
    home = os.getcwd() if first in ("-m", "-c") else str(Path(first).resolve().parent)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [place for place in sys.path if Path(place) != Path(__file__).parent]
    sys.path[:] = [home, *filter(None, given), *others]
    sys.argv = [first, *words[1:]] if first == "-c" else [*words] if first == "-m" else [first, *words]
    if first == "-m": runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif first == "-c": exec(words[0], {"__name__": "__main__"})
    else: runpy.run_path(first, run_name="__main__")


def leave(status):
    "End as Python ends."
    import atexit
    import threading
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush(), sys.stderr.flush()
    finally: os._exit(status)


# ---- whoever wants kernels

class Kernels:
    "A server; in this process and its forks, kernels come from it. What they took is counted, or written to `notes`."
    def __init__(self, folder, notes=None):
        self.folder, self.notes, self.address, self.cpu_seconds = folder, notes, f"{folder}/kernels", 0.0

    def start(self, place=()):
        "Start the server."
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen(64)  # who connects before it has imported waits
            number = listener.fileno()
            self.server = subprocess.Popen([sys.executable, __file__, str(number), *map(str, place)],
                                           stdin=subprocess.PIPE, pass_fds=[number, *place[1:]], start_new_session=True)
        self.python = f"{self.folder}/python"
        client = [sys.executable, "-I", "-S", str(Path(__file__).with_name("forked_python.py")), self.address]
        Path(self.python).write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n')
        os.chmod(self.python, 0o700)
        return self

    def used(self):
        "Let jupyter_client ask this server for each kernel."
        from jupyter_client.provisioning import local_provisioner
        local_provisioner.launch_kernel = self.launch

    def used_by_jupyter(self):
        "The lines of jupyter_server_config.py that let Jupyter ask this server."
        return (f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\nfrom kernel_server import Kernels\n"
                f"Kernels({self.folder!r}, {os.environ.get(fork_server.SPENT)!r}).used()\n")

    def took(self, cpu_seconds):
        "Note what a kernel took of the processor."
        if not self.notes: self.cpu_seconds += cpu_seconds
        else:
            with open(self.notes, "a") as file: file.write(f"{cpu_seconds}\n")

    def launch(self, command, stdin=None, stdout=None, stderr=None, env=None, cwd=None, **_ignored):
        "In the place of `jupyter_client.launcher.launch_kernel`."
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self.address)
        request = dict(command=command, env=dict(env or os.environ), cwd=str(cwd or os.getcwd()))
        with open(os.devnull) as nothing:
            streams = [nothing.fileno(), *(number if given is None else given for number, given in ((1, stdout),
                                                                                                     (2, stderr)))]
            socket.send_fds(connection, [json.dumps(request).encode()], streams)
        return Kernel(self, connection, command)

    def close(self):
        self.server.stdin.close()
        self.server.wait()


class Kernel:
    "What Jupyter needs of a subprocess.Popen."
    stdin = stdout = stderr = None

    def __init__(self, kernels, connection, args):
        self.kernels, self.connection, self.args, self.returncode = kernels, connection, args, None
        self.pid = int(connection.recv(100))

    def poll(self):
        if self.returncode is None and select.select([self.connection], [], [], 0)[0]: self.wait()
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is not None: return self.returncode
        if not select.select([self.connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout)
        code, cpu_seconds = self.connection.recv(100).split() or (-signal.SIGKILL, 0)
        self.returncode = int(code)
        self.kernels.took(float(cpu_seconds))
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None: os.kill(self.pid, number)

    def terminate(self): self.send_signal(signal.SIGTERM)
    def kill(self): self.send_signal(signal.SIGKILL)


if __name__ == "__main__": main(int(sys.argv[1]), *sys.argv[2:])
