"""What a training costs: the command, tables that are wrong, counters that cannot be read, the page's arithmetic."""
import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from mlinfra import cli
from mlinfra.cost import quote
from mlinfra.engine.cost.energy import EnergyMeter, Nvml, Rapl, modelled_joules
from mlinfra.engine.cost.prices import read_prices
from mlinfra.engine.cost.run_cost import recorded, run_costs, run_energy
from mlinfra.engine.record.run_folder import Run, StepRecord
from mlinfra.engine.record.run_writer import RunWriter
from mlinfra.engine.cost.training_work import WORKS, work_of
from mlinfra.engine.planner.model_specs import TransformerSpec
from mlinfra.training import fit

HEAVY = "torch", "numpy", "pandas", "scipy", "matplotlib", "psutil", "ipywidgets", "pynvml", "IPython", "tqdm"


def write_run(folder, steps=4, ended=True, **config):
    "A run folder of half a second for each step of 64 images."
    settings = dict(model="gluon", batch_size=64, precision="fp32", optimizer="SGD") | config
    writer = RunWriter(folder, config=settings)
    for n in range(steps):
        writer.step(StepRecord(iteration=n, epoch=0, count=1, samples=64, loss=1.0, start=0.5 * n, between=0.0,
                               evaluation=0.0, opening=0.0, wait=0.1, copy=0.0, forward=0.1, backward=0.2, update=0.1,
                               other=0.0))
    if ended: writer.end()
    return writer


@pytest.fixture
def cost(capsys):
    "`mlinfra cost` with these arguments."
    def run(*args):
        try: code = cli.main(["cost", *map(str, args)])
        except SystemExit as ended: code = ended.code
        return SimpleNamespace(code=code, **capsys.readouterr()._asdict())
    return run


def test_the_panel_computes_where_there_is_only_python(tmp_path):
    program = f"""
import sys
for name in {HEAVY!r}: sys.modules[name] = None
from mlinfra.views.cost import show_cost
said, drawn = show_cost(work={list(WORKS)[2]!r}, offer="p4d.24xlarge", devices=256, bought=False)
print(said.number, "|", "p4d.24x, rented" in str(drawn))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "$" in done.stdout and done.stdout.strip().endswith("| True")


def test_a_recorded_run_is_priced_on_each_machine(cost, tmp_path):
    write_run(tmp_path / "run")
    done = cost(tmp_path / "run", "--csv", tmp_path / "costs.csv", "--region", "France")
    lines = done.out.splitlines()
    assert done.code == 0 and lines[0].startswith("gluon, 256 samples in 2 s: about")
    assert [offer.name for offer in read_prices() if not any(line.startswith(offer.name) for line in lines)] == []
    table = pd.read_csv(tmp_path / "costs.csv")
    priced = table[table.why.isna()]
    assert (priced.dollars_low < priced.dollars).all() and (priced.dollars < priced.dollars_high).all()
    assert set(table.device[table.why.notna()]) == {"TPU v5p 95 GB"}, "Google publishes no rate of fp32"
    assert table.co2_kg[0] == pytest.approx(table.joules[0] / 3.6e6 * 0.056 * 1.1)


def test_a_killed_run_is_priced_too(cost, tmp_path):
    writer = write_run(tmp_path, ended=False)
    assert cost(tmp_path).out.startswith("gluon, 256 samples")
    writer.end()


def test_what_does_not_fit_is_said(cost, tmp_path):
    write_run(tmp_path, batch_size=200_000, model="resnet50")
    out = cost(tmp_path).out
    assert out.count("not here: takes ") == len(read_prices()) - 1
    assert "the rate of TPU v5p 95 GB in fp32 is not known here" in out


def test_a_precision_that_a_device_lacks_is_said(cost, tmp_path):
    write_run(tmp_path, precision="bf16")
    assert cost(tmp_path).out.count("V100 16 GB has no bf16") == 2


def test_your_own_prices(cost, tmp_path):
    write_run(tmp_path / "run")
    mine = tmp_path / "mine.csv"
    assert cost("--copy-prices", mine).code == 0 and read_prices(mine) == read_prices()
    again = cost("--copy-prices", mine)
    assert again.code == 2 and "exists: give another name" in again.err
    lines = mine.read_text().splitlines()
    mine.write_text("\n".join([lines[0], lines[1].replace("12.24", "1.00").replace(",read,", ",yours,"),
                               "mine,me,owned,RTX 4090 24 GB,1,0.2,0,2026,yours,my bill"]))
    before, after = (cost(tmp_path / "run", *more).out for more in ((), ("--prices", mine)))
    row = next(line for line in after.splitlines() if line.startswith("p3.8xlarge"))
    assert row not in before and "the rates of RTX 4090 24 GB are not known here" in after
    mine.write_text("\n".join(lines), encoding="utf-8-sig")  # as a spreadsheet saves it
    assert read_prices(mine) == read_prices()
    mine.write_text("\n".join(lines), encoding="utf-16")
    with pytest.raises(ValueError, match="mine.csv must be in UTF-8"): read_prices(mine)
    mine.write_text("\n".join([lines[0], lines[1].replace("2026-04-08", "2026-13-08")]))
    with pytest.raises(ValueError, match="date must be a year, or a day"): read_prices(mine)
    mine.write_text("\n".join([lines[0], lines[1].replace("12.24", "cheap")]))
    wrong = cost(tmp_path / "run", "--prices", mine)
    assert wrong.code == 2 and "line 2: dollars_per_hour must be a number above 0, got 'cheap'" in wrong.err


@pytest.mark.parametrize("args, words", [
    ((), "name the folder of a recorded run"),
    (("nowhere",), "there is no run in this folder"),
    (("run", "--region", "Mars"), "--region must be one of Norway"),
    (("run", "--program", "fast"), "--program must be one of any, framework, fused"),
    (("run", "--prices", "none.csv"), "none.csv"),
    (("run", "--input-shape", "1,x"), "must be a whole number"),
    (("run", "--input-shape", "3,28,28"), "GluonCNN does not run on a batch of shape (64, 3, 28, 28)"),
    (("unknown",), "hand in the model and the shape of a sample"),
])
def test_wrong_arguments_are_told_in_a_line(cost, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    write_run(tmp_path / "unknown", model="Mine")
    done = cost(*args)
    assert done.code == 2 and words in done.err and "Traceback" not in done.err


def test_a_model_of_ones_own_is_priced(cost, tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text("import torch\ndef make(): return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3))")
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", model="Mine")
    done = cost("run", "--model", "nets:make", "--input-shape", "3,32,32")
    assert done.code == 0 and "RunPod H100 SXM" in done.out


def test_a_folder_without_a_step(cost, tmp_path):
    write_run(tmp_path, steps=0)
    done = cost(tmp_path)
    assert done.code == 2 and "holds no step yet" in done.err


def test_counters_for_root_alone(tmp_path, monkeypatch):
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    for name, text in {"name": "package-0", "max_energy_range_uj": "1000", "energy_uj": "5"}.items():
        (zone / name).write_text(text)
    read = type(zone).read_text

    def refused(path, *args, **kw):
        if path.name == "energy_uj": raise PermissionError(13, "Permission denied")
        return read(path, *args, **kw)

    monkeypatch.setattr(type(zone), "read_text", refused)
    rapl = Rapl(tmp_path)
    assert rapl.joules() is None and "root alone" in rapl.why


def test_a_meter_counts_a_training_and_changes_nothing():
    data = TensorDataset(torch.randn(256, 8), torch.arange(256) % 3)

    def losses(*observers):
        torch.manual_seed(0)
        history = fit(nn.Linear(8, 3), data, epochs=1, device="cpu", observers=observers, progress=False)
        return [step.loss for step in history.steps]

    meter = EnergyMeter(Rapl("/nowhere"), Nvml(SimpleNamespace()))
    assert losses(meter) == losses() and meter.energy.seconds > 0
    assert meter.energy.joules.low < meter.energy.joules.value and "assumed" in meter.energy.how


def write_rank(folder, rank, watts, host, gpus=(0,), accumulation=1):
    """One rank of four steps within ten seconds, on a machine `host` of 4 cores, half of which are busy; each of its
    `gpus` takes `watts`."""
    settings = dict(model="gluon", batch_size=64, accumulation=accumulation)
    writer = RunWriter(folder, rank=rank, world_size=2, config=settings)
    for n in range(4):
        writer.step(StepRecord(iteration=n, epoch=0, count=1, samples=64 * accumulation, loss=1.0, start=2.5 * n,
                               between=0.0, evaluation=0.0, opening=0.0, wait=0.5, copy=0.0, forward=0.5, backward=1.0,
                               update=0.5, other=0.0))
    for at in (0.0, 5.0, 10.0):
        writer.event("sample", at=at, seconds=5.0 if at else None, process_cores=2.0, workers_cores=0.0,
                     gpus=[dict(index=index, power_watts=watts) for index in gpus])
    writer.end()
    path = folder / f"events-{rank}.jsonl"
    first, *rest = path.read_text().splitlines()
    start = json.loads(first) | dict(hostname=host, boot=host, wall=0.0, clock=0.0)
    start["machine"]["cores"] = 4
    path.write_text("\n".join([json.dumps(start), *rest]) + "\n")


@pytest.mark.parametrize("hosts, gpus, cores, devices", [
    (("a", "b"), ((0,), (0,)), 8, 2),      # two machines, each with a GPU 0
    (("a", "a"), ((0,), (1,)), 4, 2),      # one machine, a GPU for each rank
    (("a", "a"), ((0, 1), (0, 1)), 4, 2),  # one machine, whose GPUs both ranks watch
])
def test_each_gpu_and_each_machine_of_a_run_counts_once(tmp_path, hosts, gpus, cores, devices):
    for rank in (0, 1): write_rank(tmp_path, rank, 300.0, hosts[rank], gpus[rank])
    energy = run_energy(Run(tmp_path), 10.0)
    cpu = modelled_joules(10.0, 2 * 2.0 * 10.0, cores).value  # two ranks, each with two busy cores for ten seconds
    assert energy.joules.value == pytest.approx(cpu + devices * 300 * 10)


@pytest.mark.parametrize("local, gpus, machines, devices", [
    (8, (0, 1), 2, 16),                # torchrun told how many ranks a machine has
    (None, tuple(range(8)), 2, 16),    # it did not, and this rank watches all GPUs of its machine
    (None, (), 16, 0),                 # no GPU, and nothing says that two ranks share a machine
])
def test_nodes_with_folders_of_their_own_take_what_this_one_takes(tmp_path, local, gpus, machines, devices):
    write_rank(tmp_path, 0, 300.0, "a", gpus)
    path = tmp_path / "events-0.jsonl"
    first, *rest = path.read_text().splitlines()
    start = json.loads(first) | dict(world_size=16, local_world_size=local)
    path.write_text("\n".join([json.dumps(start), *rest]) + "\n")
    energy, whole = run_energy(Run(tmp_path), 10.0), recorded(Run(tmp_path))
    cpu = modelled_joules(10.0, 16 * 2.0 * 10.0, 4 * machines).value  # 16 ranks, each with two busy cores
    assert energy.joules.value == pytest.approx(cpu + devices * 300 * 10)
    assert "1 of 16 ranks were recorded" in energy.how and whole.samples == 4 * 64 * 16


def spec(layers, hidden, heads, length, words, **more):
    return TransformerSpec(name="a model", layers=layers, hidden=hidden, heads=heads, sequence_length=length,
                           vocabulary=words, dropout=False, fused_attention=True, global_batch=512, **more)


TINY = spec(22, 2048, 32, 2048, 32_000, kv_heads=4, feed_forward=5632, gated=True, tied=False)


@pytest.mark.parametrize("model, tokens, machine, devices, hours", [
    (TINY, 300e9, "p4d.24xlarge", 16, 3456),                                                # TinyLlama's README
    (spec(12, 768, 12, 1024, 50_304), 10e9, "p4de.24xlarge", 8, 12),                        # llm.c, discussion 481
    (spec(32, 2048, 16, 2048, 65_536, tied=False), 38e9, "p5.48xlarge", 8, 264),            # nanochat's README
])
def test_the_bill_of_a_fused_program_lies_in_its_quote(model, tokens, machine, devices, hours):
    offer = next(offer for offer in read_prices() if offer.name == machine)
    for program in ("any", "fused"):
        price = quote(work_of(model, tokens, program), offer, devices).price
        paid = hours * offer.dollars_per_device_hour
        assert price.dollars.low < paid < price.dollars.high, program
        assert price.seconds.low < 3600 * hours / devices < price.seconds.high
    assert price.dollars.high < 3 * price.dollars.low, "who says that it is fused gets a narrower range"


def test_a_mixture_of_experts_is_priced_by_what_a_token_passes():
    active = replace(spec(61, 7168, 128, 4096, 129_280, feed_forward=18_432, gated=True, tied=False),
                     global_batch=15_360)
    offer = next(offer for offer in read_prices() if offer.name == "p5.48xlarge")
    made = work_of(active, 14.8e12, parameters=671 * 10**9)
    asked = quote(made, offer, 2048)
    hours = asked.price.seconds.scaled(2048 / 3600)
    assert hours.low < 2_664_000 < hours.high, "DeepSeek-V3, arXiv:2412.19437, table 1: 2,664,000 H800-hours"
    assert not quote(work_of(active, 14.8e12), offer, 16).why and "at least" in quote(made, offer, 16).why
    assert asked.interruptions.low < asked.interruptions.value < asked.interruptions.high


def test_accumulated_batches_count_as_samples(tmp_path):
    found = {}
    for accumulation in (1, 4):
        for rank in (0, 1): write_rank(folder := tmp_path / str(accumulation), rank, 300.0, "a", (rank,), accumulation)
        found[accumulation] = run_costs(Run(folder))
    one, four = found[1].run, found[4].run
    assert (one.samples, four.samples) == (4 * 64 * 2, 4 * 4 * 64 * 2) and four.batch_size == one.batch_size == 64
    assert four.joules_per_sample == pytest.approx(one.joules_per_sample / 4)
    ratio = (found[4].table.seconds / found[1].table.seconds).dropna()
    assert ((1 < ratio) & (ratio < 4)).all(), "four forward and backward passes, and one update"


def test_a_run_without_samples_still_has_an_energy(tmp_path):
    write_run(tmp_path)
    found = recorded(Run(tmp_path))
    assert found.energy.joules.value > 0 and found.samples == 256
