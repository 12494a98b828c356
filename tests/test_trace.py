"""Traces that torch.profiler wrote, and some that it might have: shares as moments counted one by one say."""
import gzip
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset, TensorDataset

from mlinfra import cli
from mlinfra.engine.record.recorder import Monitor
from mlinfra.engine.record.run_folder import Run
from mlinfra.engine.record.watch import watch
from mlinfra.engine.report.page import make_report
from mlinfra.engine.trace.profile_steps import traces_of
from mlinfra.engine.trace.trace import read
from mlinfra.engine.trace.trace_advice import TraceAdvice, advise
from mlinfra.engine.trace.trace_tables import PARTS
from mlinfra.engine.train.observers import Observer
from mlinfra.training import fit

STYLES = {  # the profiler's names of 2021, of 2022 and later, and on AMD
    2021: dict(op="Operator", mark="Operator", call="Runtime", kernel="Kernel", copy="Memcpy",
               launch="cudaLaunchKernel"),
    2024: dict(op="cpu_op", mark="user_annotation", call="cuda_runtime", kernel="kernel", copy="gpu_memcpy",
               launch="cudaLaunchKernel"),
    "amd": dict(op="cpu_op", mark="user_annotation", call="cuda_runtime", kernel="kernel", copy="gpu_memcpy",
                launch="hipLaunchKernel"),
}


def span(cat, name, begin, end, lane, **args):
    return dict(ph="X", cat=cat, name=name, ts=int(begin), dur=int(end - begin), pid=lane[0], tid=lane[1], args=args)


def made_up(seed, style, steps=4, length=2000):
    "Steps on two streams, with collectives and copies, some launched early and some late; times are whole numbers."
    rng, names, events = np.random.default_rng(seed), STYLES[style], []
    for step in range(steps):
        begin = 5_000_000 + step * length
        events.append(span(names["mark"], f"ProfilerStep#{step + 7}", begin, begin + length - 3, (9, 9)))
        events.append(span(names["mark"], "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 1,
                           begin + rng.integers(2, 400), (9, 9)))
        events.append(span(names["mark"], "Optimizer.step#SGD.step", begin + 1940, begin + 1970, (9, 9)))
    for number in range(1, 60):
        begin, stream = 5_000_000 + rng.integers(0, steps * length), int(rng.integers(7, 9))
        kind = rng.choice(["gemm", "ncclDevKernel_AllReduce", "copy"])
        called = begin - rng.integers(1, 60)
        events.append(span(names["call"], names["launch"], called, begin, (9, 9), correlation=number))
        events.append(span(names["copy" if kind == "copy" else "kernel"], kind, begin, begin + rng.integers(1, 150),
                           (0, stream), correlation=number, device=0))
    events.append(span(names["op"], "aten::mm", 5_000_010, 5_000_030, (9, 9)))
    return events


def kernel(**other): return span("kernel", "gemm", 5, 9, (0, 7), device=0) | other


def counted(events, steps=4, length=2000):
    "Shares of each step, by looking at each microsecond."
    on = {kind: np.zeros(steps * length, bool) for kind in ("gemm", "ncclDevKernel_AllReduce", "copy")}
    for one in events:
        if one["name"] in on:
            first = one["ts"] - 5_000_000
            on[one["name"]][first:first + one["dur"]] = True
    compute, sends, copies = (x.reshape(steps, length)[:, :] for x in on.values())
    busy = compute | sends | copies
    rows = [[x[i, :length - 3 * (i == steps - 1)].mean() for x in (busy, compute, sends, sends & ~compute, copies)]
            for i in range(steps)]  # the last step ends with its own mark
    return np.array(rows)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(5))
def test_shares_are_those_of_moments_counted_one_by_one(tmp_path, style, seed):
    events = made_up(seed, style)
    with gzip.open(path := tmp_path / "trace.json.gz", "wt") as file: json.dump(dict(traceEvents=events), file)
    steps = read(path).steps
    found = steps[["gpu_busy", "gpu_compute", "communication", "communication_exposed", "copy"]].to_numpy()
    assert np.allclose(found, counted(events), atol=1e-9)
    assert np.allclose(steps[list(PARTS)].sum(axis=1), 1) and list(steps["step"]) == ["7", "8", "9", "10"]


def test_what_is_odd_is_told_and_counts_for_what_it_can(tmp_path):
    "Steps that overlap, an event that ends before it begins, two GPUs of one process, and a rank without a trace."
    def mark(number, begin, end): return span("user_annotation", f"ProfilerStep#{number}", begin, end, (9, 9))
    def work(begin, end, gpu): return span("kernel", "gemm", begin, end, (gpu, 7), device=gpu)
    rows = [mark(0, 0, 150), mark(1, 100, 300), mark(2, 100, 200), mark(3, 200, 190), mark(4, 210, 310),
            span("cpu_op", "aten::mm", 250, 260, (9, 9)),
            work(0, 50, 0), work(120, 110, 0), work(100, 200, 1), work(50, 100, 1)]
    header = dict(distributedInfo=dict(rank=0, world_size=3))
    for rank in (0, 2):
        header["distributedInfo"]["rank"] = rank
        (tmp_path / f"{rank}.json").write_text(json.dumps(dict(header, traceEvents=rows)))
    trace = read(tmp_path)
    steps = trace.steps.query("rank == 2").set_index(["gpu", "step"])
    assert steps["seconds"].mul(1e6).round(6)[0].to_dict() == {"0": 100, "2": 100, "3": 10, "4": 100}
    assert steps["gpu_busy"][0].to_dict() == {"0": 0.5, "2": 0, "3": 0, "4": 0}
    assert steps["gpu_busy"][1].to_dict() == {"0": 0.5, "2": 1, "3": 0, "4": 0}
    told = " ".join(trace.remarks)
    assert "2 events of 0.json end before they begin" in told and "no trace of rank 1" in told and "2 GPUs" in told


def recorded(path, loop, **more):
    plan, keep = schedule(wait=1, warmup=1, active=3, repeat=1), lambda p: p.export_chrome_trace(str(path))
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=keep, **more) as profiler:
        for _ in range(5):
            loop()
            profiler.step()
    return read(path)


def batches_of(*size, cost=0):
    "Five batches; a sample's cost is sorting that many numbers."
    def read(i): return torch.randn(*size), torch.rand(cost).sort().values[:1]
    class Samples(Dataset):
        def __len__(self): return 80
        def __getitem__(self, i): return read(i)
    return iter(DataLoader(Samples(), 16))


def mlp():
    model, batches = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)), batches_of(16)
    optimizer = torch.optim.Adam(model.parameters())
    def loop():
        x, _ = next(batches)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return loop


def convolutions():
    model, batches = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), batches_of(3, 16, 16, cost=9_000)
    return lambda: model(next(batches)[0]).mean().backward()


def recurrent():
    model, batches = nn.LSTM(8, 16), batches_of(4, 8, cost=500)
    def loop():
        with record_function("forward"): out, _ = model(next(batches)[0])
        out.sum().backward()
    return loop


@pytest.mark.parametrize("make, operator", [
    (mlp, "aten::addmm"), (convolutions, "aten::conv2d"), (recurrent, "aten::lstm")])
def test_recorded_on_the_cpu(tmp_path, make, operator):
    "Times, calls and the loader's share, beside a count of the file's own entries."
    trace = recorded(path := tmp_path / "trace.json", make(), profile_memory=True, with_stack=True)
    entries = [one for one in json.loads(path.read_text())["traceEvents"] if one.get("ph") == "X"]
    marks = sorted(one["ts"] for one in entries if one["name"].startswith("ProfilerStep#"))
    assert trace.device == "CPU" and trace.ranks == (0,) and len(trace.steps) == 3
    assert np.allclose(trace.steps["seconds"][:2], np.diff(marks) / 1e6, rtol=1e-6)
    waits = [one for one in entries if one["name"].startswith("enumerate(DataLoader)#")]
    assert trace.steps["loader"].max() > 0.01 and len(waits) == 3
    for step, row in zip(sorted((one["ts"], one["dur"]) for one in entries if one["name"].startswith("ProfilerStep#")),
                         trace.steps.to_dict("records")):
        inside = sum(one["dur"] for one in waits if step[0] <= one["ts"] < step[0] + step[1])
        assert abs(row["loader"] - inside / row["seconds"] / 1e6) < 0.02
    own = [one["dur"] for one in entries if one["name"] == operator]
    row = trace.operators.set_index("name").loc[operator]
    assert row["count"] == len(own) and np.isclose(row["cpu_seconds"], sum(own) / 1e6)
    assert len(trace.memory) and trace.kernels.empty and trace.modules["name"].str.startswith("nn.Module: ").all()


FILES = os.environ.get("MLINFRA_TRACES", "")  # a folder of traces of GPUs, which are not ours to hand on


@pytest.mark.skipif(not FILES, reason="MLINFRA_TRACES names no folder: published traces are not part of the project")
@pytest.mark.parametrize("path", sorted(Path(FILES or ".").glob("*.json.gz")) if FILES else ["none"], ids=str)
def test_shares_of_a_published_trace(path):
    "Busy, computing, exposed communication and copies within 2 points of moments that are looked at one by one."
    with gzip.open(path) as file: entries = json.load(file)["traceEvents"]
    entries = [one for one in entries if one.get("ph") == "X" and "dur" in one]
    steps = read(path).steps
    steps = steps[steps["gpu"] == steps["gpu"].iloc[0]]
    works = [(str(one.get("cat")).lower().removeprefix("gpu_"), one) for one in entries]
    works = [(kind, one) for kind, one in works if kind in ("kernel", "memcpy", "memset")]
    marks = sorted((one["ts"], one["dur"]) for one in entries if one["name"].startswith("ProfilerStep#")
                   and not str(one.get("cat")).startswith("gpu_"))
    first, last = min(one["ts"] for one in entries if kept(one)), max(one["ts"] + one["dur"] for one in entries
                                                                      if kept(one))
    bounds = [begin for begin, _ in marks] + [sum(marks[-1])] if marks else [first, last]
    bounds = np.array(gpu_bounds(entries, bounds))
    assert np.allclose(steps["begin"] * 1e6, bounds[:-1] - first, atol=1)
    assert np.allclose(steps["seconds"] * 1e6, np.diff(bounds), atol=1)
    moments = np.random.default_rng(0).random((len(steps), 20_000)).cumsum(axis=1)
    moments *= np.diff(bounds)[:, None] / moments[:, -1:]
    moments += bounds[:-1, None]
    on = {kind: np.zeros(moments.shape, int) for kind in ("compute", "send", "copy")}
    for kind, one in works:
        place = "copy" if kind != "kernel" else "send" if re.search(SENDS, one["name"], re.I) else "compute"
        first, last = np.searchsorted(moments.ravel(), [one["ts"], one["ts"] + one["dur"]])
        on[place].ravel()[first:last] = 1
    compute, send, copy = on["compute"] > 0, on["send"] > 0, on["copy"] > 0
    counted = [part.mean(axis=1) for part in (compute | send | copy, compute, send, send & ~compute, copy)]
    columns = ["gpu_busy", "gpu_compute", "communication", "communication_exposed", "copy"]
    assert np.abs(steps[columns].to_numpy().T - counted).max() < 0.02


def gpu_bounds(entries, marks):
    "When the busiest stream had done what each mark found launched, if that is later by a fifth of a step; else marks."
    calls = {one["args"]["correlation"]: one["ts"] for one in reversed(entries)
             if "runtime" in str(one.get("cat")).lower() and one["args"].get("correlation")}
    on_gpu = "kernel", "memcpy", "memset"
    works = [one for one in entries if str(one.get("cat")).lower().removeprefix("gpu_") in on_gpu]
    spent = {}
    for one in works:
        if str(one["cat"]).lower() == "kernel" and not re.search(SENDS, one["name"], re.I):
            lane = one["pid"], one["tid"]
            spent[lane] = spent.get(lane, 0) + one["dur"]
    works = [one for one in works if (one["pid"], one["tid"]) == max(spent, key=spent.get)]
    known = min(one["ts"] for one in works if one["args"].get("correlation") in calls)
    def launched(one):
        call = calls.get(one["args"].get("correlation"), np.inf)
        return -np.inf if np.isinf(call) and one["ts"] < known else call
    moved = [max([mark, *(one["ts"] + one["dur"] for one in works if launched(one) < mark)]) for mark in marks]
    far = max(np.subtract(moved, marks)) > 0.2 * np.median(np.diff(marks))
    return moved if far else marks


SENDS = "nccl|rccl|multimem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|nvshmem"
KEPT = {"cpu_op", "operator", "user_annotation", "cuda_runtime", "cuda_driver", "hip_runtime", "runtime", "kernel",
        "gpu_memcpy", "memcpy", "gpu_memset", "memset"}


def kept(entry):
    "Whether an entry is one of those from which a trace without marks begins."
    cat, name = str(entry.get("cat")).lower(), entry["name"]
    return cat in KEPT or cat == "python_function" and name.startswith("nn.Module")


def loop_step(load):
    "Milliseconds of a step, and of the GPU's wait for the loader: five short kernels, then five long ones."
    cpu = gpu = 0
    for _ in range(20):
        before, waited = gpu, 0
        cpu = loaded = cpu + load
        for kernel in [2] * 5 + [20] * 5:
            cpu += 8    # a launch
            waited += max(0, loaded - gpu)
            gpu = max(gpu, cpu) + kernel
    return gpu - before, waited


def test_only_what_is_a_bound_is_called_one():
    (slow, waited), (fast, _) = loop_step(80), loop_step(0)
    assert slow - fast > waited > 0, "the lead that the CPU wins also hides late launches"
    row = dict.fromkeys(PARTS, 0.0) | dict(idle_loader=0.1, idle_launch=0.1, idle_synchronise=0.1, copy_exposed=0.1,
                                           communication_exposed=0.1, gpu_compute=0.5)
    steps = pd.DataFrame([row | dict(seconds=0.1, gpu_busy=0.7, loader=0.1)] * 4)
    kernels = pd.DataFrame([dict(kind="compute", seconds=1.0, tensor_cores=True)])
    bound = {one.cause: "At most" in str(one) or "upper bound" in str(one) for one in advise(steps, kernels)}
    assert bound == dict(idle_loader=False, idle_launch=False, idle_synchronise=False, copy_exposed=False,
                         communication_exposed=True)
    assert not str(TraceAdvice("loader", "Read less.", 1.0, 0.1, "of a caller")).startswith("Read less. At most")


def test_what_is_no_trace_is_said(tmp_path, capsys):
    whole = json.dumps(dict(traceEvents=made_up(0, 2024)))
    for name, content, words in (
        ("half.json", whole[:3000].encode(), "ends in the middle"),
        ("half.json.gz", gzip.compress(whole.encode())[:500], "cut off"),
        ("text.json", b"hello", "no trace"), ("empty.json", b"", "is empty"),
        ("empty.json.gz", gzip.compress(b""), "ends in the middle"), ("settings.json", b'{"lr": 1}', "no list traceE"),
        ("numbers.json", b'{"traceEvents": [1, 2]}', "not an object"), ("deep.json", b"[" * 100_000, "one in another"),
        ("nothing.json", b'{"traceEvents": []}', "no event"),
        *((f"{wrong}.json", json.dumps(dict(traceEvents=[kernel(**{wrong: value})])).encode(), words)
          for wrong, value, words in (("ts", math.inf, "no times"), ("dur", math.nan, "no times"), ("name", 7, "text"),
                                      ("args", "x", "not an object"), ("args", dict(correlation=2**70), "too big"))),
        ("rank.json", json.dumps(dict(distributedInfo=dict(rank="one"), traceEvents=[kernel()])).encode(), "rank is"),
    ):
        (path := tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=words): read(path)
        assert cli.main(["trace", str(path)]) != 0 and words in capsys.readouterr().err


def steps_of(call, launch, wait, **more):
    "Three steps of 1 ms: a kernel of 500 us that a call has launched, idle for 300 us after a wait, a copy of 50 us."
    rows = []
    for step in range(3):
        at = 5_000_000 + 1000 * step
        rows += [span("user_annotation", f"ProfilerStep#{step}", at, at + 990, (9, 9)),
                 span(call, launch, at + 10, at + 20, (9, 9), correlation=2 * step + 1),
                 span("kernel", "gemm", at + 100, at + 600, (0, 7), correlation=2 * step + 1, **more),
                 span(call, wait, at + 590, at + 601, (9, 9)),
                 span(call, launch, at + 890, at + 895, (9, 9), correlation=2 * step + 2),
                 span("gpu_memcpy", "Memcpy HtoD", at + 900, at + 950, (0, 7), correlation=2 * step + 2, **more)]
    return rows


def as_ascend(rows):
    "As Huawei's profiler writes it: a bare list, times as texts, and no category but for operators."
    tasks = dict(gemm="AI_CORE", **{"Memcpy HtoD": "MEMCPY_ASYNC"})
    yield dict(ph="M", name="process_name", pid=0, args=dict(name="Ascend Hardware"))
    for row in rows:
        args = dict(connection_id=row["args"].get("correlation", 0))
        if row["name"] in tasks: args["Task Type"] = tasks[row["name"]]
        name = row["name"].replace("launch", "Node@launch").replace("wait", "AscendCL@aclrtSynchronizeStream")
        yield dict(ph="X", name=name, ts=f"{row['ts']}.000", dur=row["dur"], pid=row["pid"], tid=row["tid"], args=args)
        if row["name"] == "gemm":
            yield dict(ph="X", name="EVENT_WAIT", ts=f"{row['ts'] - 90}.000", dur=90, pid=0, tid=8,
                       args={"Task Type": "EVENT_WAIT"})
            yield dict(ph="X", name="hcom_allReduce_", ts=f"{row['ts']}.000", dur=700, pid=3, tid=1, args={})


@pytest.mark.parametrize("maker", ["Intel XPU", "Ascend NPU"])
def test_other_makers_devices(tmp_path, maker):
    "Their calls and tasks have other names; nothing is advised that only NVIDIA's cores can do."
    rows = steps_of("xpu_runtime", "urEnqueueKernelLaunch", "urQueueFinish", device=0)
    sends = 0.2 if maker == "Ascend NPU" else 0.0  # 700 us, of which the first 500 are hidden
    if sends: rows = list(as_ascend(steps_of("", "launch", "wait")))
    (path := tmp_path / "trace.json").write_text(json.dumps(rows))
    trace = read(path)
    own = trace.steps.iloc[0]
    assert trace.device.startswith(f"{maker} 0") and len(trace.steps) == 3 and not trace.remarks
    assert np.allclose(own[["gpu_compute", "copy", "communication_exposed"]].astype(float), [0.5, 0.05, sends])
    assert np.isclose(own["idle_synchronise"], 0.0 if sends else 0.3) and own["idle_unexplained"] == 0
    assert trace.kernels["tensor_cores"].isna().all() and not any("tensor cores" in str(one) for one in trace.advice)


def test_what_a_trace_of_another_device_leaves_out_is_said(tmp_path):
    def told(*rows, **header):
        (path := tmp_path / "trace.json").write_text(json.dumps(dict(header, traceEvents=rows)))
        try: return " ".join(read(path).remarks)
        except ValueError as error: return str(error)
    xla = dict(ph="M", name="process_name", pid=3, args=dict(name="/device:TPU:0"))
    fusion = dict(ph="X", name="fusion.1", pid=3, tid=1, ts=1.0, dur=5.0, args={})
    operator = span("cpu_op", "aten::mm", 0, 9, (9, 9))
    assert "XLA's profiler wrote it" in told(xla, fusion) and "/device:TPU:0" in told(xla, fusion)
    assert "'npu_thing' (1)" in told(span("npu_thing", "gemm", 0, 9, (0, 7)))
    assert "'npu_thing' (1)" in told(operator, span("npu_thing", "gemm", 0, 9, (0, 7)))
    assert "Apple" in told(operator, span("cpu_op", "aten::_mps_convolution", 0, 9, (9, 9)))
    assert "ProfilerActivity" in told(operator, deviceProperties=[dict(id=0, name="NVIDIA H100")])
    assert told(operator) == "" and "ProfilerActivity" not in told(operator, kernel())


def test_memory_stays_below_the_file(tmp_path):
    "As one list of objects the same file takes about ten times its size."
    told = {"External id": 7, "Input Dims": [[64, 64], [64]]}
    events = [span("cpu_op", f"aten::op{i % 50}", i, i + 1, (1, 1), **told) for i in range(60_000)]
    (path := tmp_path / "trace.json").write_text(json.dumps(dict(traceEvents=events)))
    code = ("import tracemalloc, pandas; from mlinfra.engine.trace.trace import read; tracemalloc.start(); "
            f"read({str(path)!r}); print(tracemalloc.get_traced_memory()[1])")
    peak = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert peak < 4 * path.stat().st_size


# ---- traces of a loop that runs

def watched(folder, body, epochs=1, batches=8, **more):
    "Losses of a loop under `watch`, whose `body` is called in each step."
    torch.manual_seed(0)
    model, losses = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1)), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.randn(4 * batches, 4)), 4, shuffle=True)
    with watch(folder, model, optimizer, **more) as w:
        for _ in range(epochs):
            for (x,) in w(loader):
                body(w, len(losses))
                loss = model(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses


def asked_at(step, count):
    asked = []
    def body(w, number):
        if number == step: asked.append(w.trace(count))
    return asked, body


def marks_of(path):
    with gzip.open(path) as file: entries = json.load(file)["traceEvents"]
    return sorted(int(one["name"].partition("#")[2]) for one in entries if one["name"].startswith("ProfilerStep#"))


def told(folder): return [event.data for event in Run(folder).events("trace")]


def test_a_trace_changes_no_loss_and_says_what_it_saw(tmp_path, capsys):
    asked, body = asked_at(2, 3)
    assert watched(tmp_path / "traced", body) == watched(tmp_path / "plain", lambda *_: None)
    assert asked[0].path.name == "trace-0-steps-4-to-6.json.gz" and marks_of(asked[0].path) == [4, 5, 6]
    assert "a step took" in asked[0].words and asked[0].words in capsys.readouterr().out
    assert told(tmp_path / "traced")[0]["words"] == asked[0].words and not told(tmp_path / "plain")
    assert not torch.autograd._profiler_enabled() and read(tmp_path / "traced").device == "CPU"


@pytest.mark.parametrize("epochs, name, marks", [
    (1, "trace-0-steps-6-to-7.json.gz", [6, 7]),     # fewer than were asked for
    (2, "trace-0-steps-6-to-7.json.gz", [6, 7])])    # the end of a loop ends it: a validation may follow
def test_a_trace_of_more_steps_than_there_are(tmp_path, epochs, name, marks):
    asked, body = asked_at(4, 30)
    watched(tmp_path, body, epochs)
    assert asked[0].path.name == name and marks_of(asked[0].path)[:2] == marks
    assert len(read(asked[0].path).steps) == 2


def test_a_trace_that_is_asked_for_too_late_waits_for_the_next_epoch(tmp_path):
    asked, body = asked_at(7, 2)
    watched(tmp_path, body, epochs=2)
    assert asked[0].path.name == "trace-0-steps-9-to-10.json.gz"
    with pytest.warns(UserWarning, match="the training ended before"): watched(tmp_path / "last", body)
    assert "the training ended before" in told(tmp_path / "last")[0]["words"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_loop_that_fails_closes_the_profiler(tmp_path, error):
    def body(w, number):
        if number == 1: w.trace(5)
        if number == 5: raise error("now")
    with pytest.raises(error): watched(tmp_path, body)
    assert not torch.autograd._profiler_enabled() and marks_of(traces_of(tmp_path)[0])[:2] == [3, 4]


@pytest.mark.filterwarnings("ignore:no trace was kept")
def test_a_loop_that_is_left_closes_the_profiler_before_what_follows(tmp_path):
    with watch(tmp_path) as w:
        for (x,) in w(DataLoader(TensorDataset(torch.randn(8, 4)))):
            if w.trace(6).path or torch.autograd._profiler_enabled(): break
        assert not torch.autograd._profiler_enabled()


def test_another_profiler_keeps_its_trace(tmp_path):
    asked, body = asked_at(1, 2)
    with profile(activities=[ProfilerActivity.CPU]) as other, pytest.warns(UserWarning, match="another profiler"):
        losses = watched(tmp_path, body)
    assert len(losses) == 8 and "another profiler" in asked[0].words and asked[0].path is None
    assert {"aten::addmm"} <= {one.key for one in other.key_averages()}


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of a file's size stands for a full disk")
def test_a_full_disk_ends_no_training(tmp_path):
    import resource
    asked, body = asked_at(1, 3)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, before[1]))
    try:
        with pytest.warns(UserWarning, match="no trace was kept"): losses = watched(tmp_path, body)
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert losses == watched(tmp_path / "plain", lambda *_: None) and "no trace was kept" in asked[0].words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events-0.jsonl", "plain", "steps-0.bin"]
    assert not torch.autograd._profiler_enabled()


def test_a_trace_is_asked_for_from_outside(tmp_path, capsys):
    "The command leaves a request in the folder of a run that goes on; one that has ended is refused."
    def body(w, number):
        if number == 1: assert cli.main(["trace", str(tmp_path), "--record", "2"]) == 0
        if number == 2: w._recorder.live_trace.look()  # as the sampler does
    watched(tmp_path, body)
    assert [path.name for path in traces_of(tmp_path)] == ["trace-0-steps-4-to-5.json.gz"]
    assert cli.main(["trace", str(tmp_path), "--record", "2"]) != 0 and "no run is writing" in capsys.readouterr().err
    assert cli.main(["trace", str(tmp_path)]) == 0


def test_monitor_records_a_trace_of_fit(tmp_path):
    monitor, data = Monitor(tmp_path), TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    class Ask(Observer):
        def on_step(self, run, step):
            if step.iteration == 2: self.asked = monitor.trace(2)
    fit(nn.Linear(4, 2), data, batch_size=8, observers=[monitor, ask := Ask()], progress=False, keep_memory=False,
        device="cpu")
    assert ask.asked.path.name == "trace-0-steps-5-to-6.json.gz" and told(tmp_path)[0]["file"] == ask.asked.path.name


def test_pages_on_a_trace_and_on_its_run(tmp_path, capsys):
    "The command's page, one beside the other, and the section of the report on the run that holds the trace."
    asked, body = asked_at(1, 2)
    watched(run := tmp_path / "run", body)
    page, path = tmp_path / "page.html", str(asked[0].path)
    assert cli.main(["trace", path, "--compare", str(run), "--html", str(page)]) == 0
    assert str(page) in capsys.readouterr().out
    assert page.read_text().count('class="mlinfra-timeline"') == 2 and "beside" in page.read_text()
    report = make_report(Run(run))
    assert any("a step took" in block for block in report["traces"].blocks if isinstance(block, str))
    assert json.loads(report.json())["traces"][0]["file"] == asked[0].path.name
    asked[0].path.write_bytes(b"{")
    assert "ends in the middle" in " ".join(map(str, make_report(Run(run))["traces"].blocks))
