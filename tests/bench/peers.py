"""The environments of the peers: made when they are missing, and what is in them."""
import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
from notebooks import settings


def bench_requirements() -> tuple[str, ...]:
    return tuple(settings()["bench_requirements"].split())


INSTALL = True  # whether what is missing is installed; a trial leaves it out


@dataclass(frozen=True)
class Environment:
    "A virtual environment beside the project's own."
    folder: Path
    requirements: tuple[str, ...]
    packages: tuple[str, ...]  # whose versions are reported
    modules: tuple[str, ...]   # that must be importable
    ours: bool                 # whether it sees what is installed for the project, such as torch
    changes: tuple[tuple[str, str, str], ...] = ()  # file, text, and what is put in its place after installing

    @property
    def python(self) -> str: return str(self.folder / "bin" / "python")

    def ready(self) -> bool:
        "Whether the modules are there."
        find = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
        return Path(self.python).exists() and subprocess.run([self.python, "-c", find, *self.modules]).returncode == 0

    def make(self) -> bool:
        "Make it if it is missing. Where that fails, one line says so."
        if self.ready(): return True
        if not INSTALL:
            print(f"{', '.join(self.packages)} left out: not installed")
            return False
        print(f"installing {', '.join(self.requirements)} into {self.folder.name}", flush=True)
        try: self._install()
        except subprocess.CalledProcessError as error:
            last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
            print(f"{', '.join(self.packages)} left out: {' '.join(last) or error}")
        return self.ready()

    def _install(self) -> None:
        run = lambda *command: subprocess.run(command, check=True, capture_output=True, text=True)
        run(sys.executable, "-m", "venv", str(self.folder))
        place = Path(run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
        if self.ours: (place / "main.pth").write_text(os.path.realpath(sysconfig.get_path("purelib")) + "\n")
        run(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.requirements)
        for file, old, new in self.changes:
            text = (place / file).read_text()
            if text.count(old) != 1: raise ValueError(f"{old!r} must be in {file} once, got {text.count(old)} times")
            (place / file).write_text(text.replace(old, new))

    def versions(self) -> dict[str, str]:
        "Package -> version."
        ask = "\n".join(("import sys, json", "from importlib.metadata import version",
                         "print(json.dumps({p: version(p) for p in sys.argv[1:]}))"))
        return json.loads(
            subprocess.run([self.python, "-c", ask, *self.packages], check=True, capture_output=True, text=True).stdout
        )


BENCH = Environment(
    ROOT / ".venv-bench",
    bench_requirements(),
    ("lightning", "keras", "tensorflow-cpu", "accelerate"),
    ("torch", "lightning", "keras", "tensorflow", "accelerate"),
    True,
)
# MXNet's last release is from 2022: it needs an old numpy, and with it an old Python
MXNET = Environment(
    ROOT / ".venv-mxnet", ("mxnet==1.9.1", "numpy<1.24", "requests"), ("mxnet",), ("mxnet", "numpy"), False
)
WATCHERS = Environment(
    ROOT / ".venv-watchers",
    ("traceml-ai==0.5.0", "gpuprof==0.7.1"),
    ("traceml-ai", "gpuprof"),
    ("torch", "traceml_ai", "gpuprof"),
    True,
)
# its collector reads an attribute of each object of PyTorch, and without a driver one of them raises an error
_NO_DRIVER = "if isinstance(e, ModuleNotFoundError):"
TRAINCHECK = Environment(
    ROOT / ".venv-traincheck", ("traincheck==0.2.0",), ("traincheck",), ("torch", "traincheck"), True,
    (("traincheck/utils.py", _NO_DRIVER, "if isinstance(e, (ModuleNotFoundError, RuntimeError)):"),),
)
SNAPSHOTS = Environment(
    ROOT / ".venv-snapshots", ("torchsnapshot==0.1.0",), ("torchsnapshot",), ("torch", "torchsnapshot"), True
)
TRACERS = Environment(
    ROOT / ".venv-traces", ("HolisticTraceAnalysis==0.5.0", "torch-tb-profiler==0.4.3"),
    ("HolisticTraceAnalysis", "torch-tb-profiler"), ("hta", "torch_tb_profiler"), False
)
PEERS = {
    "lightning": BENCH,
    "keras_tf": BENCH,
    "mxnet, not hybridized": MXNET,
    "TraceML": WATCHERS,
    "gpuprof": WATCHERS,
    "TrainCheck": TRAINCHECK,
    "torchsnapshot": SNAPSHOTS,
    "HolisticTraceAnalysis": TRACERS,
}  # contender -> where it runs; the others run in ours
