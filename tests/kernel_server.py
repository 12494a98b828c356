"""A process that has imported what lessons import and forks their kernels, which then start in a moment.

    python kernel_server.py NUMBER    serves the socket with this number until its standard input ends

A kernel is ipykernel's own, with the command, environment and folder that Jupyter gives it; nothing of mlinfra is
imported before. Each has a keeper, which ends it when whoever asked for it is gone, tells how it ended, and notes what
it took of the processor.
"""
import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

IMPORTED = """torch torch._dynamo torch.distributed torch.utils.data numpy pandas matplotlib.pyplot PIL.Image
ipykernel.kernelapp ipykernel.ipkernel ipywidgets anywidget matplotlib_inline.backend_inline IPython.core.pylabtools
""".split()
REQUEST_BYTES = 1 << 18  # at most


def available() -> bool: return hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")


# ---- the server

def main(number):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need no burial
    import importlib
    for name in IMPORTED: importlib.import_module(name)
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
                keep(connection)
            connection.close()


def keep(connection):
    "Fork the kernel that is asked for; wait until it ends, or end it when nobody is there any more."
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
    asked = json.loads(request)
    notes = Path(asked.pop("notes"))
    pid = os.fork()
    if pid == 0: become_kernel(connection, streams, **asked)
    lead(pid)
    note(notes, f"{pid} runs")
    connection.sendall(b"%d" % pid)
    for stream in streams: os.close(stream)
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection], [], [])[0]: os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    note(notes, f"{pid} {usage.ru_utime + usage.ru_stime}")
    try: connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    except OSError: pass
    os._exit(0)


def lead(pid):
    "Let the process have a group of its own, to which Jupyter sends signals; whoever comes second finds it done."
    with contextlib.suppress(OSError): os.setpgid(pid, pid)


def note(notes, line):
    with notes.open("a") as file: file.write(f"{line}\n")


def become_kernel(connection, streams, command, env, cwd):
    "Be the process that `command` would have started."
    status = 1
    try:
        connection.close()
        lead(os.getpid())
        for number, stream in enumerate(streams): os.dup2(stream, number)
        for stream in streams: os.close(stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd)
        sys.path[:] = [str(Path(cwd)), *(place for place in sys.path if Path(place) != Path(__file__).parent)]
        import random

        import numpy
        random.seed()
        numpy.random.seed()
        module = command[command.index("-m") + 1]
        sys.argv = [module, *command[command.index("-m") + 2:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error: status = error.code if isinstance(error.code, int) else int(bool(error.code))
    except BaseException:
        import traceback
        traceback.print_exc()
    finally: leave(status)


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
    "Kernels of the server at `address`; what they took is noted in a file of this process and its children."
    def __init__(self, address, notes=None): self.address, self.given_notes = address, notes

    @property
    def notes(self): return self.given_notes or f"{self.address}-{os.getpid()}"

    def start(self):
        "Start the server."
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen(64)  # who connects before it has imported waits
            number = listener.fileno()
            self.server = subprocess.Popen([sys.executable, __file__, str(number)], stdin=subprocess.PIPE,
                                           pass_fds=[number], start_new_session=True)
        return self

    def used(self):
        "Let jupyter_client ask this server for each kernel."
        from jupyter_client.provisioning import local_provisioner
        local_provisioner.launch_kernel = self.launch

    def used_by_jupyter(self):
        "The lines of jupyter_server_config.py that let a Jupyter ask this server."
        return (f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                f"from kernel_server import Kernels\nKernels({self.address!r}, {self.notes!r}).used()\n")

    def cpu_seconds(self) -> float:
        "What kernels of this process have taken of the processor."
        if not Path(self.notes).exists(): return 0.0
        taken = dict(line.split() for line in Path(self.notes).read_text().splitlines())
        return sum(live_seconds(int(pid)) if spent == "runs" else float(spent) for pid, spent in taken.items())

    def launch(self, command, stdin=None, stdout=None, stderr=None, env=None, cwd=None, **_ignored):
        "In the place of `jupyter_client.launcher.launch_kernel`."
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self.address)
        request = dict(command=command, env=dict(env or os.environ), cwd=str(cwd or os.getcwd()), notes=self.notes)
        with open(os.devnull) as nothing:
            streams = [nothing.fileno(), *(number if given is None else given for number, given in ((1, stdout),
                                                                                                     (2, stderr)))]
            socket.send_fds(connection, [json.dumps(request).encode()], streams)
        return Kernel(connection, command)

    def close(self):
        self.server.stdin.close()
        self.server.wait()


def live_seconds(pid) -> float:
    "What a process that runs, and its children, have taken of the processor."
    import psutil
    seconds = 0.0
    with contextlib.suppress(psutil.Error):
        kernel = psutil.Process(pid)
        for process in (kernel, *kernel.children(recursive=True)):
            with contextlib.suppress(psutil.Error): seconds += sum(process.cpu_times()[:4])
    return seconds


class Kernel:
    "What Jupyter needs of a subprocess.Popen."
    stdin = stdout = stderr = None

    def __init__(self, connection, args):
        self.connection, self.args, self.returncode = connection, args, None
        self.pid = int(connection.recv(100))

    def poll(self):
        if self.returncode is None and select.select([self.connection], [], [], 0)[0]: self.wait()
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is not None: return self.returncode
        if not select.select([self.connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout)
        self.returncode = int(self.connection.recv(100) or -signal.SIGKILL)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None: os.kill(self.pid, number)

    def terminate(self): self.send_signal(signal.SIGTERM)
    def kill(self): self.send_signal(signal.SIGKILL)


if __name__ == "__main__": main(int(sys.argv[1]))
