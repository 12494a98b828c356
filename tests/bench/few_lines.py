"""The same script on two ranks by parallelize, accelerate and Lightning Fabric: lines, equality, seconds of a step.

The scripts lie in tests/bench/scripts. Their data set is chosen so that the last batch of an epoch has three samples.
"""
import difflib
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from peers import BENCH, ROOT
from stages import spread

SCRIPTS = Path(__file__).parent / "scripts"
TOOLS = {"parallelize": "with_parallelize.py", "accelerate": "with_accelerate.py", "Lightning Fabric": "with_fabric.py"}


def changed_lines(script: Path) -> int:
    "Lines of the plain script that were changed, and lines that were added; without the first, which says what it is."
    old, new = ((SCRIPTS / name).read_text().splitlines()[1:] for name in ("plain.py", script.name))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in blocks if kind != "equal")


def weights_of(python: str, script: str, ranks: int) -> dict[str, Any]:
    "Run a script, and read what it saved."
    import torch
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, *launcher, str(SCRIPTS / script)], cwd=folder, env=env, check=True, capture_output=True)
        return torch.load(Path(folder, "model.pt"))


def few_lines(rounds: int, iterations: int) -> dict[str, Any]:
    "A row for each tool: lines, the largest difference of a weight from one process, and ratios of step times."
    python = peers_python()
    if not python: return {}
    plain, rows = weights_of(python, "plain.py", 1), {}
    for tool, script in TOOLS.items():
        found = weights_of(python, script, 2)
        away = max(float((found[name] - tensor).abs().max()) for name, tensor in plain.items())
        rows[tool] = dict(lines=changed_lines(SCRIPTS / script), largest_difference=away)
    found = step_times(python, rounds, iterations)
    better = min((found[tool] for tool in ("accelerate", "Lightning Fabric")), key=median)
    for tool, seconds in found.items():
        rows[tool] |= dict(step_ms=1e3 * median(seconds))
        rows[tool] |= spread([own / other for own, other in zip(seconds, better)], "better_peer_")
    return rows


def peers_python() -> str:
    "A Python that has both peers: this one, or that of their environment; empty where there is none."
    if find_spec("accelerate") and find_spec("lightning"): return sys.executable
    return BENCH.python if BENCH.make() else ""


def step_times(python: str, rounds: int, iterations: int) -> dict[str, list[float]]:
    "Seconds of a step of each tool's loop, in turn in one pair of ranks."
    command = [python, __file__, str(min(60, iterations)), str(4 * rounds)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


# ---- in the peers' environment: every function is one of two ranks

def parts(steps: int, batch: int) -> tuple[Any, Any, Any]:
    "Model, loader and optimizer of a plain script."
    import torch
    from mlinfra.data import to_float
    from mlinfra.engine.dist.rank_data import first_digits
    from mlinfra.models import GluonCNN
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    digits, model = first_digits(128 * steps), GluonCNN()
    loader = DataLoader(TensorDataset(to_float(digits.images), digits.labels), batch, shuffle=True)
    return model, loader, torch.optim.SGD(model.parameters(), 0.01)


def by_parallelize(steps: int) -> tuple[Any, Any, Any, Any]:
    from mlinfra.engine.parallel.parallelize import parallelize
    model, loader, optimizer = parts(steps, 128)
    return *parallelize(model, loader, "ddp", optimizer, device="cpu"), lambda loss: loss.backward()


def by_accelerate(steps: int) -> tuple[Any, Any, Any, Any]:
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
    return *accelerator.prepare(*parts(steps, 128)), accelerator.backward


def by_fabric(steps: int) -> tuple[Any, Any, Any, Any]:
    from lightning.fabric import Fabric
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    model, loader, optimizer = parts(steps, 64)
    model, optimizer = fabric.setup(model, optimizer)
    return model, fabric.setup_dataloaders(loader), optimizer, fabric.backward


LOOPS = {"parallelize": by_parallelize, "accelerate": by_accelerate, "Lightning Fabric": by_fabric}


def epoch(model: Any, loader: Any, optimizer: Any, backward: Any) -> float:
    "Seconds of a step of the plain loop."
    import torch
    steps, start = 0, time.perf_counter()
    for x, y in loader:
        backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    return (time.perf_counter() - start) / steps


def loops(steps: int, rounds: int) -> dict[str, list[float]]:
    "Seconds of a step of each, in turn; the first round warms up."
    import torch.distributed as dist
    made, found = {name: make(steps) for name, make in LOOPS.items()}, {name: [] for name in LOOPS}
    for round in range(rounds + 1):
        for name, ready in made.items():
            dist.barrier()
            seconds = epoch(*ready)
            if round: found[name].append(seconds)
    return found


if __name__ == "__main__":
    from mlinfra.engine.dist.ranks import run_ranks
    print(json.dumps(run_ranks(loops, 2, int(sys.argv[1]), int(sys.argv[2]), share_cores=True, timeout_seconds=900)[0]))
