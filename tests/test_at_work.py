"""What lessons say under "At work" as it stands: scripts run, on ranks where they are distributed; job files are
written for every system; commands are read by the program's own parser. A snippet that is new is found here by itself.

A snippet may use names that only its reader has, such as a model and a loader. These stand in `YOURS`, and no others.
"""
import argparse
import ast
import contextlib
import functools
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from copies import PYTHON
from test_launch_files import MEANT, shellcheck

from mlinfra.cli import parser
from mlinfra.engine.launch.job_spec import SYSTEMS, job_from_toml, render_for
from mlinfra.engine.launch.sbatch_options import SBATCH_OPTIONS
from mlinfra.lab.rendezvous import free_port, run_together

ROOT = Path(__file__).resolve().parent.parent
BOOK = sorted(path for folder in ("nbs", "nbs/more") for path in (ROOT / folder).glob("[0-9][0-9]_*.ipynb"))
TEXTS = [*BOOK, ROOT / "nbs/index.ipynb", ROOT / "nbs/glossary.ipynb", ROOT / "docs/questions.md"]


# ---- what is written

@dataclass(frozen=True)
class Snippet:
    "A fenced block of a lesson."
    lesson:str
    number:int    # of those with the same language under the lesson's heading
    language:str
    text:str

    def __str__(self): return f"{self.lesson}-{self.language}-{self.number}"


def markdown(path):
    if path.suffix == ".md": return [path.read_text(encoding="utf-8")]
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def snippets():
    "Those under the heading, up to the next one."
    for path in BOOK:
        text, counts = "\n\n".join(markdown(path)), {}
        for part in re.findall(r"^#+ At work$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
            for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL):
                counts[language] = counts.get(language, -1) + 1
                yield Snippet(path.stem, counts[language], language, body)


ALL = list(snippets())
def of(language): return [one for one in ALL if one.language == language]


def test_every_snippet_has_a_language_that_is_tried():
    assert len(ALL) >= 25 and {one.language for one in ALL} == {"python", "bash", "toml"}
    assert {"11", "12", "13", "14", "16", "21"} <= {one.lesson[:2] for one in ALL}


# ---- commands

def spans():
    "Commands in the running text and in any fence: `torchrun ...` and others, with where they stand."
    for path in TEXTS:
        for text in markdown(path):
            for line in "\n".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)).splitlines():
                if line.split() and line.split()[0] in READERS: yield path.stem, line
            for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
                if span.split()[0] in READERS and len(span.split()) > 1: yield path.stem, span


def lines_of(text):
    "The commands of a script, without comments."
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True): yield words


def torchrun_says(words):
    "What is wrong for torchrun: by its own parser, and that the ranks of several nodes are told where they meet."
    from torch.distributed.run import config_from_args, parse_args
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said): options = parse_args(words)
        config_from_args(options)
    except SystemExit: return said.getvalue().strip().splitlines()[-1]
    except ValueError as error: return str(error)
    least, most = (int(number) for number in (options.nnodes.split(":") * 2)[:2])
    met = options.rdzv_endpoint or options.standalone or any(word.startswith("--master") for word in words)
    if least < most and (options.rdzv_backend == "static" or not options.rdzv_endpoint):
        return "a range of nodes needs a rendezvous that counts them"
    return "" if most == 1 or met else "several nodes must be told where they meet"


def mlinfra_says(words, whole=True):
    "What is wrong for our own command line. A part of a command may leave out what must be given."
    said, numbers = io.StringIO(), [re.sub(r"\bN\b", "1", word) for word in words]
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()): parser().parse_args(numbers)
    except (SystemExit, argparse.ArgumentError) as error:
        why = said.getvalue().strip().splitlines()
        if getattr(error, "code", 1) == 0: return ""
        if not whole and why and re.search("expected (one|at least one) argument|are required", why[-1]): return ""
        return why[-1] if why else str(error)
    return ""


HELP = {name: set(text.split()) for name, text in dict(
    scancel="--signal --batch", squeue="--me --start -j -o", sacct="-j -o", srun="--cpus-per-task").items()}
VERBS = ("show hostnames", "show job", "show node", "requeue")  # of scontrol


@functools.cache
def slurm_conf():
    "A configuration with which SLURM's programs read their options, and no cluster."
    file = tempfile.NamedTemporaryFile("w", suffix=".conf")
    file.write("ClusterName=x\nSlurmctldHost=localhost\nNodeName=a\nPartitionName=p Nodes=a\n")
    file.flush()
    return file


def slurm_says(words):
    "What the program does not know, in its own words; where it is not installed, what is not listed here."
    name, *rest = words
    if name == "scontrol": return "" if " ".join(rest).startswith(VERBS) else f"unknown: {' '.join(rest)}"
    if shutil.which(name):  # which reads them one after the other, and then helps
        done = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "SLURM_CONF": slurm_conf().name})
        return "\n".join(line for line in done.stderr.splitlines() if re.search("unrecognized|invalid option", line))
    known = {f"--{option}" for option in SBATCH_OPTIONS} if name == "sbatch" else HELP[name]
    return ", ".join(sorted({word.split("=")[0] for word in rest if word.startswith("-")} - known))


# of "PYTORCH ProcessGroupNCCL Environment Variables" in PyTorch's documentation, and of c10d/FlightRecorder.hpp
NCCL_VARIABLES = {"TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"}


def export_says(words):
    "The variables that PyTorch's documentation does not know."
    return ", ".join({word.partition("=")[0] for word in words[1:]} - NCCL_VARIABLES)


def flight_recorder_says(words):
    "What PyTorch's own program for the flight recorder does not know."
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told): JobConfig().parse_args(words[1:])
    except SystemExit: return told.getvalue() or "refused"
    return ""


READERS = dict(export=export_says, torchfrtrace=flight_recorder_says,
               torchrun=lambda words: torchrun_says(words[1:]), mlinfra=lambda words: mlinfra_says(words[1:]),
               **dict.fromkeys(["sbatch", "scontrol", *HELP], slurm_says))


@pytest.mark.parametrize("snippet", of("bash"), ids=str)
def test_a_command_is_read_by_its_program(snippet):
    assert shellcheck(snippet.text) == "", MEANT
    for words in lines_of(snippet.text):
        assert words[0] in READERS, f"{words[0]}: who says whether this command is right?"
        assert READERS[words[0]](words) == "", " ".join(words)


def test_commands_in_the_text_are_read_by_their_program():
    found = list(spans())
    assert len(found) > 20 and len({span.split()[0] for _, span in found}) > 4
    wrong = [f"{where}: `{span}`: {said}" for where, span in found if (said := read_span(span))]
    assert wrong == []


def read_span(span):
    try: words = shlex.split(span, comments=True)
    except ValueError: return "" if "$(" in span else "quotes"
    if words[0] == "mlinfra": return mlinfra_says([word for word in words[1:] if word != "..."], whole=False)
    if words[0] == "torchrun": words = [re.sub(r"\$\w+", "1", word) for word in words]
    if words[0] == "torchrun": return torchrun_says([*words[1:]] if words[-1].endswith(".py") else [*words[1:], "x.py"])
    return READERS[words[0]](words)


@pytest.mark.parametrize("command", [
    "torchrun --nnodes=1:4 --max-restarts=3 train.py", "torchrun --nnodes=2 --nproc-per-node=8 train.py",
    "torchrun --nproc-per-device=8 train.py", "mlinfra launch job.toml --on slrm", "mlinfra train --sav x",
    "sbatch --exclusve job.sh", "squeue --mine", "scontrol restart 1",
    "torchrun --nnodes=1:4 --rdzv-backend=static --rdzv-endpoint=a:1 train.py"])
def test_a_wrong_command_is_found(command): assert read_span(command) != ""


@pytest.mark.parametrize("program", HELP)
def test_the_listed_options_are_those_of_the_program(program):
    if not shutil.which(program): pytest.skip(f"{program} is not installed (Debian: slurm-client)")
    for option in HELP[program]: assert slurm_says([program, option, "1"]) == "", option
    assert "--nosuch" in slurm_says([program, "--nosuch"])


# ---- job files

@pytest.mark.parametrize("snippet", of("toml"), ids=str)
def test_a_job_file_is_written_for_every_system(snippet):
    job = job_from_toml(snippet.text)
    files = {system: render_for(job, system) for system in SYSTEMS if system in ("local", "torchrun", "slurm", "ray")}
    for system in ("local", "torchrun", "slurm"): assert shellcheck(files[system]) == "", system
    compile(files["ray"], "ray_job.py", "exec")
    for option in re.findall(r"^#SBATCH --([a-z-]+)", files["slurm"], re.MULTILINE): assert option in SBATCH_OPTIONS


# ---- scripts

@dataclass(frozen=True)
class Yours:
    "What only the reader has: Python that runs before the snippet, and what must hold after it."
    before:str=""
    after:str=""
    ranks:int=1
    forked:bool=True  # from a process that has PyTorch; with workers of its own a script is a process like others


MODEL = """
import torch
from torch import nn
torch.manual_seed(0)
class Images(torch.utils.data.Dataset):
    tensors = (torch.randn(64, 1, 28, 28), torch.arange(64) % 10)
    def __len__(self): return 64
    def __getitem__(self, i): return self.tensors[0][i], self.tensors[1][i]
images = data = valid = validation = Images()
loader = torch.utils.data.DataLoader(images, 16)
model, loss_fn = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), nn.functional.cross_entropy
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
LAYERS = """
import torch
from torch import nn
torch.manual_seed(0)
model, micro_batch = nn.Sequential(*(nn.Linear(16, 16) for _ in range(19))), torch.randn(4, 16)
loader, loss_fn = [(torch.randn(32, 16), torch.randn(32, 16))] * 2, nn.functional.mse_loss
"""
BLOCKS = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 4)
    def forward(self, x):
        for layer in self.layers: x = layer(x).relu()
        return self.head(x)
build = Net
def initialise(module):
    if hasattr(module, "reset_parameters"): module.reset_parameters()
loss_fn, loader = nn.functional.cross_entropy, [(torch.randn(4, 8), torch.arange(4))] * 2
import torch.distributed as dist
ended = []
dist.destroy_process_group = lambda: ended.append(1)
"""
WRAPPED = """
from torch.distributed.checkpoint.state_dict import get_model_state_dict
names = {f"{part}.{name}" for part in ("layers.0", "layers.1", "layers.2", "head") for name in ("weight", "bias")}
assert set(model.state_dict()) != names == set(get_model_state_dict(model)), "prefixes, and none"
assert model.head.weight.to_local().shape == (2, 8) and ended == [1]
"""
LANGUAGE = """
import os
import torch
from mlinfra.engine.train.transformer import Transformer
torch.manual_seed(0)
dataset, built = torch.utils.data.TensorDataset(*torch.randint(32, (2, 16, 8))), []
whole = Transformer(32, 16, 4, 2)
if os.environ["RANK"] == "0": torch.save(whole.state_dict(), "weights.pt")
def build():
    model = Transformer(32, 16, 4, 2)
    built.append({p.device.type for p in model.parameters()})
    return model
"""
CUT = """
assert built == [{"meta"}], "no rank has held the whole model"
block = model.blocks[0]
assert block.attention.query.weight.to_local().shape == (8, 16), "half of the outputs"
whole_adam = torch.optim.AdamW(whole.parameters())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for tokens, targets in DataLoader(dataset, batch_size=4, sampler=sampler):
        whole_adam.zero_grad()
        torch.nn.functional.cross_entropy(whole(tokens).flatten(0, 1), targets.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
        whole_adam.step()
for name in ("blocks.0.attention.query.weight", "blocks.1.mlp.2.bias", "blocks.0.norm2.weight", "norm.bias"):
    found = model.get_parameter(name).full_tensor()
    torch.testing.assert_close(found, whole.get_parameter(name), rtol=1e-3, atol=1e-4, msg=name)
"""
SAME = """
import torch.distributed as dist
weights = [torch.empty_like(next(model.parameters())) for _ in range(2)]
dist.all_gather(weights, next(model.parameters()).detach())
assert torch.equal(*weights) and len(loader) == 1, "32 of 64 images for each rank"
assert all(p.grad.any() for p in model.parameters())
"""
TOKENS = MODEL + """
from types import SimpleNamespace
my_dataset, my_tokens = images, [dict(ids=torch.arange(4)) for _ in range(256)]
def MyModel(): return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
class MyTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(4, 4)
    def forward(self, ids): return SimpleNamespace(loss=self.words(ids).square().mean())
"""
JPEGS = """
import os
from PIL import Image
for i in range(8):
    os.makedirs(f"mnt/train/{i % 2}", exist_ok=True)
    Image.new("RGB", (64, 64), (i, 0, 0)).save(f"mnt/train/{i % 2}/{i}.jpg")
"""
SHARD = """
import os
import webdataset
from PIL import Image
with webdataset.TarWriter("one.tar") as tar:
    for i in range(64): tar.write({"__key__": str(i), "jpg": Image.new("RGB", (64, 64), (i, 0, 0)), "cls": i % 10})
with open("aws", "w") as program:  # each shard of the bucket is this one
    program.write('#!/bin/sh\\ncase "$*" in "s3 cp s3://my-bucket/train/"??????".tar -") cat one.tar;; esac\\n')
os.chmod("aws", 0o755)
os.environ["PATH"] = os.getcwd() + os.pathsep + os.environ["PATH"]
def transform(image): return image[:, :32, :32]
"""
TRIALS = MODEL + """
valid = loader
def objective(trial): return trial.params["lr"]
def train_and_measure(seed, lr): return seed / 10 + lr
"""
EXPORTED = MODEL + """
from torch.utils.data import TensorDataset
batch, calibration = images.tensors[0][:4], images.tensors[0]
test = TensorDataset(*images.tensors)
"""
REPORTED = MODEL + """
from mlinfra.monitor import Monitor
from mlinfra.training import fit
dataset = data
def make_model(): return model
fit(model, loader, epochs=2, observers=[Monitor("runs/last")])
"""
PHOTOS = """
model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 10))
loader = [(torch.randn(4, 3, 224, 224), torch.arange(4))]
"""
PORTRAITS = """
from PIL import Image
labels = [0, 1] * 6
pictures = [Image.new("RGB", (80, 60), (200 * label, 10 * i, 90)) for i, label in enumerate(labels)]
new_pictures = pictures[:2]
import timm
from mlinfra.pretrained import pretrained
published = pretrained("tf_efficientnet_lite0", weights="hub").model
timm.create_model = lambda name, pretrained: published.train() if pretrained else None  # as timm's, without a network
"""
STEPPED = """
import torch
def make_dataset(): return torch.utils.data.TensorDataset(torch.randn(3_200, 8), torch.arange(3_200) % 3)
def make_step():
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    def step(batch):
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
    return step
"""
ROWS = """
import torch
from torch.utils.data import TensorDataset
class Shifted(TensorDataset):
    def __getitem__(self, row): return super().__getitem__(row)[0] + torch.rand(1)   # augmented from the generator
dataset = Shifted(torch.arange(640.0))
"""
RESUMED = """
def run(epoch, done):
    for batch in batches_of(dataset, epoch, done): yield batch.squeeze(), torch.rand(1)   # and a dropout's number
torch.manual_seed(0)
whole, state = [], None
for epoch in range(2):
    for n, one in enumerate(run(epoch, 0)):
        whole.append(one)
        if (epoch, n) == (0, 3): state = torch.get_rng_state()
torch.manual_seed(1)
torch.set_rng_state(state)
resumed = [*run(0, 4), *run(1, 0)]
assert len(whole) == 20 and len(resumed) == 16
assert all(torch.equal(a, b) for one, other in zip(whole[4:], resumed) for a, b in zip(one, other))
rows = [torch.cat([batch for batch, _ in whole[at:at + 10]]) for at in (0, 10)]
assert all(torch.allclose(one.sort().values, torch.arange(640.0), atol=1.01) for one in rows)   # each row once
assert (rows[0] - rows[1]).abs().max() > 2                                                     # in another order
"""
SAVED = """
import numpy as np
import random
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
kind, keys, *rest = np.random.get_state()
state = dict(epoch=3, model=model.state_dict(), optimizer=optimizer.state_dict(), python=random.getstate(),
             numpy=[kind, keys.tolist(), *rest], torch=torch.get_rng_state(), cuda=[])
torch.save(state, "run.pt")
torch.save(state | dict(optimizer=torch.optim.Adam(model.parameters()).state_dict()), "again.pt")   # not put back
"""
RESUMABLE = "\n".join(one.text for one in snippets() if str(one) in (
    "21_checkpoint-python-0", "21_checkpoint-python-1")) + f"""
LOOP = {next(one.text for one in snippets() if str(one) == "21_checkpoint-python-2")!r}
same, epochs, every, trained = torch.equal, 2, 100, []
dataset = torch.utils.data.TensorDataset(torch.randn(64 * 130, 4, generator=torch.Generator().manual_seed(0)))
def anew():
    global model, optimizer, scheduler
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [150, 240])
def train_step(batch):
    if len(trained) == killed: raise KeyboardInterrupt
    trained.append(batch[0])
    optimizer.zero_grad()
    (model(batch[0]) - 1).square().mean().backward()
    optimizer.step()
    scheduler.step()
killed = None
anew(), exec(LOOP)
whole = model[2].weight.detach().clone()
os.remove("run.pt")
killed, trained = 120, []
anew()
try: exec(LOOP)
except KeyboardInterrupt: pass
killed, trained = None, []
anew(), torch.rand(3)
"""
YOURS = {
    "01_arithmetic-python-0": Yours(STEPPED, "if __name__ == '__main__': assert plan.iterations == 10_000 and "
                                    "0 < waiting < each", forked=False),
    "02_data-python-0": Yours(JPEGS + MODEL + PHOTOS, "assert model(x).shape == (8, 10)",
                             forked=False),
    "04_training-python-0": Yours(MODEL, "assert len(history.epochs) == 3"),
    "05_inference-python-0": Yours(MODEL),
    "06_workers-python-0": Yours(TOKENS, forked=False),
    "07_storage-python-0": Yours(SHARD, "assert images.shape == (256, 3, 32, 32) and labels.max() == 9", forked=False),
    "09_precision-python-0": Yours(MODEL, "assert scaler.get_scale() > 0 and i == 4"),
    "10_memory-python-0": Yours(MODEL + PHOTOS),
    "11_data_parallel-python-0": Yours(
        MODEL + "seed, epochs = 0, 2\ndef make_model(): return model\n"
        "import torch.distributed as dist\nended = []\ndist.destroy_process_group = lambda: ended.append(1)",
        "assert ended == [1]\n" + SAME, 2),  # the group is needed once more, to compare the weights
    "12_sharding-python-0": Yours(BLOCKS, WRAPPED, 2, forked=False),
    "13_pipeline-python-0": Yours(LAYERS, "assert len(cut.bounds) == 5"),
    "13_pipeline-python-1": Yours(
        LAYERS, "assert all(p.grad.any() for p in part.parameters()) and len(losses) == 16 * (rank == 3)", 4),
    "14_tensor_parallel-python-0": Yours(
        LANGUAGE + "ended = []\ntorch.distributed.destroy_process_group = lambda: ended.append(1)\n",
        CUT + "assert ended == [1]\n", 2, forked=False),  # the group is needed once more, to compare the weights
    "16_launch-python-0": Yours(MODEL, "assert run is not None and len(list(loader))", 2),
    "17_monitor-python-0": Yours(MODEL, "assert run.steps.loss.notna().all()"),
    "18_debugger-python-0": Yours(MODEL + "loss = loss_fn(model(images.tensors[0]), images.tensors[1])"),
    "19_report-python-0": Yours(MODEL + "dataset = data", forked=False),
    "19_report-python-1": Yours(REPORTED, "assert gain.change == dict(num_workers=2) and gain.predicted",
                                forked=False),
    "20_experiments-python-0": Yours(TRIALS),
    "21_checkpoint-python-0": Yours(
        "", "save_state('run.pt', epoch=3)\nfirst, drawn = np.random.rand(), (random.random(), torch.rand(1))\n"
        "assert load_state('run.pt')['epoch'] == 3 and not os.path.exists('run.pt.part')\n"
        "assert (first, *drawn) == (np.random.rand(), random.random(), torch.rand(1))",
        forked=False),
    "21_checkpoint-python-1": Yours(ROWS, RESUMED),
    "21_checkpoint-python-2": Yours(RESUMABLE, "assert same(whole, model[2].weight) and len(trained) == 30 + 130"),
    "21_checkpoint-python-3": Yours(
        SAVED, "assert [part for part in saved if not same(saved[part], again[part])] == ['optimizer']", forked=False),
    "21_checkpoint-python-4": Yours(
        MODEL, "from mlinfra.checkpoint import latest\nassert latest('runs/7/checkpoints').step == 10 * len(loader)"),
    "21_interruptions-python-0": Yours(MODEL + "valid = loader", "assert best('runs/7/checkpoints')"),
    "22_export-python-0": Yours(EXPORTED),
    "24_pretrained-python-0": Yours(
        PORTRAITS, "assert len(seen) == len(scores) == 8 and len(answers) == 2 and not model.training", forked=False),
    "25_trace-python-0": Yours(MODEL + "device = \"cpu\"; loader = torch.utils.data.DataLoader(images, 4)",
                               'assert len(read("trace.json").steps) == 3'),
}
NEEDS = {"24_pretrained-python-1": "weights from the network"}
HERE = {"/mnt/data": "mnt", "budget_seconds=600": "budget_seconds=2"}  # what a test has less of


def left_behind(text):
    "Names of a batch that a loop uses without moving them, where the model was moved: no test without a GPU sees it."
    tree, found = ast.parse(text), []
    def moves(node): return isinstance(node, ast.Attribute) and node.attr in ("to", "cuda")
    if not any(map(moves, ast.walk(tree))): return []
    for loop in ast.walk(tree):
        if not (isinstance(loop, ast.For) and isinstance(loop.target, ast.Tuple)): continue
        batch = next((one for one in loop.target.elts if isinstance(one, ast.Tuple)), loop.target)  # beside a number
        names = {name.id for name in batch.elts}
        moved = {id(node.value) for part in loop.body for node in ast.walk(part) if moves(node)}
        found += [node.id for part in loop.body for node in ast.walk(part)
                  if isinstance(node, ast.Name) and node.id in names and id(node) not in moved]
    return found


def test_a_batch_that_is_not_moved_is_found():
    loop = "model.to(device)\nfor x, y in loader: loss(model({}), y.to(device))"
    assert left_behind(loop.format("x")) == ["x"] and left_behind(loop.format("x.to(device)")) == []
    assert left_behind(loop.format("x").replace("x, y in loader", "n, (x, y) in enumerate(loader)")) == ["x"]
    assert [one for one in of("python") if left_behind(one.text)] == []


@pytest.mark.parametrize("snippet", of("python"), ids=str)
def test_a_script_runs_as_it_stands(snippet, tmp_path):
    compile(snippet.text, str(snippet), "exec")
    if str(snippet) in NEEDS: pytest.skip(f"it needs {NEEDS[str(snippet)]}; it is compiled only")
    own, text = YOURS.get(str(snippet), Yours()), snippet.text
    for there, here in HERE.items(): text = text.replace(there, here)
    (tmp_path / "train.py").write_text("\n".join([own.before, text, own.after]))
    common = dict(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    if sys.platform == "linux": common["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [dict(RANK=str(i), LOCAL_RANK=str(i), WORLD_SIZE=str(own.ranks), LOCAL_WORLD_SIZE=str(own.ranks))
             for i in range(own.ranks)] if own.ranks > 1 else [{}]
    told = run_together([[PYTHON, "train.py"]] * own.ranks, folder=tmp_path, environment=common, environments=ranks,
                        forked=own.forked, timeout_seconds=120)
    assert [one.code for one in told] == [0] * own.ranks, "\n".join(one.output for one in told)
