"""Traces that torch.profiler wrote, and some that it might have: shares as moments counted one by one say."""
import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset

from mlinfra import cli
from mlinfra.engine.trace.trace import read
from mlinfra.engine.trace.trace_tables import PARTS

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


def recorded(path, loop, **more):
    plan, keep = schedule(wait=1, warmup=1, active=3, repeat=1), lambda p: p.export_chrome_trace(str(path))
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=keep, **more) as profiler:
        for _ in range(5):
            loop()
            profiler.step()
    return read(path)


def mlp():
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer, batches = torch.optim.Adam(model.parameters()), iter(DataLoader(TensorDataset(torch.randn(80, 16)), 16))
    def loop():
        (x,) = next(batches)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return loop


def convolutions():
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), torch.randn(4, 3, 16, 16)
    return lambda: model(x).mean().backward()


def recurrent():
    model, x = nn.LSTM(8, 16), torch.randn(12, 4, 8)
    def loop():
        with record_function("forward"): out, _ = model(x)
        out.sum().backward()
    return loop


@pytest.mark.parametrize("make, operator", [
    (mlp, "aten::addmm"), (convolutions, "aten::conv2d"), (recurrent, "aten::lstm")])
def test_recorded_on_the_cpu(tmp_path, make, operator):
    "Times and calls, beside a count of the file's own entries."
    trace = recorded(path := tmp_path / "trace.json", make(), profile_memory=True, with_stack=True)
    entries = [one for one in json.loads(path.read_text())["traceEvents"] if one.get("ph") == "X"]
    marks = sorted(one["ts"] for one in entries if one["name"].startswith("ProfilerStep#"))
    assert trace.device == "CPU" and trace.ranks == (0,) and len(trace.steps) == 3
    assert np.allclose(trace.steps["seconds"][:2], np.diff(marks) / 1e6, rtol=1e-6)
    own = [one["dur"] for one in entries if one["name"] == operator]
    row = trace.operators.set_index("name").loc[operator]
    assert row["count"] == len(own) and np.isclose(row["cpu_seconds"], sum(own) / 1e6)
    assert len(trace.memory) and trace.kernels.empty and trace.modules["name"].str.startswith("nn.Module: ").all()


def test_what_is_no_trace_is_said(tmp_path, capsys):
    whole = json.dumps(dict(traceEvents=made_up(0, 2024)))
    for name, content, words in (
        ("half.json", whole[:3000].encode(), "ends in the middle"),
        ("half.json.gz", gzip.compress(whole.encode())[:500], "cut off"),
        ("text.json", b"hello", "no trace"), ("empty.json", b"", "ends in the middle"),
        ("numbers.json", b'{"traceEvents": [1, 2]}', "not an object"),
        ("nothing.json", b'{"traceEvents": []}', "no event"),
    ):
        (path := tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=words): read(path)
        assert cli.main(["trace", str(path)]) != 0 and words in capsys.readouterr().err


def test_memory_stays_below_the_file(tmp_path):
    "As one list of objects the same file takes about ten times its size."
    told = {"External id": 7, "Input Dims": [[64, 64], [64]]}
    events = [span("cpu_op", f"aten::op{i % 50}", i, i + 1, (1, 1), **told) for i in range(60_000)]
    (path := tmp_path / "trace.json").write_text(json.dumps(dict(traceEvents=events)))
    code = ("import tracemalloc, pandas; from mlinfra.engine.trace.trace import read; tracemalloc.start(); "
            f"read({str(path)!r}); print(tracemalloc.get_traced_memory()[1])")
    peak = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert peak < 4 * path.stat().st_size
