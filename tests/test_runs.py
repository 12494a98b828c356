"""The run folder where a notebook cannot show it: killed writers, full disks, several processes, clocks that jump."""
import math
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from mlinfra.engine.record import run_folder as runs, run_writer
from mlinfra.engine.record.run_folder import PARTS, STEP_PARTS, Run, StepRecord
from mlinfra.engine.record.run_writer import RunWriter


def record(n, start=0.0, count=1, samples=32, loss=1.0, epoch=0, **parts):
    times = {name: 0.0 for name in StepRecord._fields[6:]} | parts
    return StepRecord(n, epoch, count, samples, loss, start, *times.values())


def lone(folder, **how): return RunWriter(folder, rank=0, world_size=1, **how)


# ---- whatever happens to the writer

WRITES = """
import sys, time
sys.path.insert(0, {tests!r})
from test_runs import lone, record
from mlinfra.engine.record.run_writer import RunWriter
writer = RunWriter(sys.argv[1], rank=int(sys.argv[2]), world_size=int(sys.argv[3]))
for n in range(int(sys.argv[4])): writer.step(record(n, start=writer.now(), forward=0.001))
print("written", flush=True)
time.sleep(60)
"""


def started(folder, rank=0, world_size=1, steps=1_000):
    "A process that has written its steps and sleeps."
    script = WRITES.format(tests=os.path.dirname(__file__))
    arguments = [sys.executable, "-c", script, str(folder), str(rank), str(world_size), str(steps)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "written\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_nothing_is_lost_by_a_kill(tmp_path):
    process = started(tmp_path / "run")
    try:
        live = Run(tmp_path / "run")
        assert live.killed is False and not live.ended
        with pytest.raises(FileExistsError, match=f"process {process.pid} on .* is writing rank 0"):
            lone(tmp_path / "run")
    finally: kill(process)
    run = Run(tmp_path / "run")
    assert list(run.steps.iteration) == list(range(1_000)) and run.killed is True and not run.ended and not run.skipped
    again = lone(tmp_path / "run")
    assert again.recording and again.attempt == 1
    again.end()


def test_a_number_that_another_process_has_now_is_not_the_writer(tmp_path):
    lone(tmp_path)._close()  # as if it had been killed
    events = tmp_path / "events-0.jsonl"
    events.write_text(events.read_text().replace(f'"pid":{os.getpid()}', '"pid":1'))
    assert Run(tmp_path).killed is True


@pytest.mark.parametrize("left", [1, 60, 119])
def test_a_torn_last_record_is_left_out_and_read_when_it_is_whole(tmp_path, left):
    writer = lone(tmp_path)
    for n in range(3): writer.step(record(n))
    steps, whole = tmp_path / "steps-0.bin", (tmp_path / "steps-0.bin").read_bytes()
    steps.write_bytes(whole[:len(whole) - 120 + left])
    run = Run(tmp_path)
    assert list(run.steps.iteration) == [0, 1] and run.skipped == 0
    steps.write_bytes(whole)
    assert run.refresh() and list(run.steps.iteration) == [0, 1, 2]
    writer.end()


def test_a_torn_line_and_a_damaged_record_are_left_out(tmp_path):
    with lone(tmp_path) as writer:
        for n in range(3): writer.step(record(n))
    steps = bytearray((tmp_path / "steps-0.bin").read_bytes())
    steps[32 + 120 + 50] ^= 4
    (tmp_path / "steps-0.bin").write_bytes(steps)
    with open(tmp_path / "events-0.jsonl", "ab") as file: file.write(b'{"kind":"ev\n{"kind":"remark","at":1}\n{"kin')
    run = Run(tmp_path)
    assert list(run.steps.iteration) == [0, 2] and run.skipped == 2 and len(run.events("remark")) == 1


class Full:
    "A disk with room for this many bytes."
    def __init__(self, room): self.room, self.write = room, os.write
    def __call__(self, file, raw):
        taken, self.room = min(self.room, len(raw)), max(self.room - len(raw), 0)
        if not taken: raise OSError(28, "No space left on device")
        return self.write(file, raw[:taken])


def test_a_full_disk_ends_the_recording_once_and_nothing_else(tmp_path, monkeypatch):
    writer = lone(tmp_path)
    monkeypatch.setattr(run_writer.os, "write", Full(10 * 120 + 50))
    with pytest.warns(UserWarning, match="not recorded from here on: cannot write .*the disk is full") as said:
        for n in range(100): writer.step(record(n))
        writer.event("remark", words="x")
        writer.end()
    assert len(said) == 1 and not writer.recording and "disk is full" in writer.remark
    assert list(Run(tmp_path).steps.iteration) == list(range(10))


def test_after_a_torn_record_nothing_more_is_written(tmp_path, monkeypatch):
    writer, room = lone(tmp_path), iter([120, 50])  # then there is room again
    write = os.write
    monkeypatch.setattr(run_writer.os, "write", lambda file, raw: write(file, raw[:next(room, 120)]))
    with pytest.warns(UserWarning, match="the disk is full"):
        for n in range(5): writer.step(record(n))
    assert (tmp_path / "steps-0.bin").stat().st_size == 32 + 120 + 50 and len(Run(tmp_path).steps) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_full(tmp_path):
    writer = lone(tmp_path)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._steps)
    os.close(full)
    with pytest.warns(UserWarning, match="the disk is full"): writer.step(record(0))
    assert not writer.recording


def test_a_place_that_cannot_be_written_ends_the_recording_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="is not recorded: cannot write .*is a file") as said:
        writer = lone(tmp_path / "file" / "run")
    writer.step(record(0))
    writer.event("remark")
    writer.end()
    assert len(said) == 1 and not writer.recording


# ---- several of them

def test_two_ranks_in_processes_of_their_own_are_joined(tmp_path):
    processes = [started(tmp_path, rank, 2, 10) for rank in (0, 1)]
    try:
        run = Run(tmp_path)
        assert run.ranks == (0, 1) and run.world_size == 2 and len(run.steps) == 20 and run.killed is False
        # the second was started after the first had written all, and both read one clock
        last, first = run.steps[run.steps["rank"] == 0].start.max(), run.steps[run.steps["rank"] == 1].start.min()
        assert last < first
    finally:
        for process in processes: kill(process)
    assert Run(tmp_path).killed is True


def test_a_rank_that_comes_later_is_found_by_refresh(tmp_path):
    one = RunWriter(tmp_path, rank=1, world_size=2)
    run = Run(tmp_path)
    zero = RunWriter(tmp_path, rank=0, world_size=2)
    assert run.ranks == (1,) and run.refresh() and run.ranks == (0, 1)
    zero.end()
    assert run.refresh() and not run.ended
    one.end()
    assert run.refresh() and run.ended and run.killed is False


def test_ranks_of_torchrun_are_told_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with RunWriter(tmp_path) as writer: assert (writer.rank, writer.world_size) == (3, 4)
    assert Run(tmp_path).ranks == (3,) and not Run(tmp_path).ended


@pytest.mark.parametrize("boot, gap", [("here", 0.0), ("another machine", 3600.0)])
def test_a_wall_clock_that_jumps_moves_no_rank_of_the_same_machine(tmp_path, monkeypatch, boot, gap):
    zero, wall = RunWriter(tmp_path, rank=0, world_size=2), time.time_ns
    monkeypatch.setattr(run_writer.time, "time_ns", lambda: wall() + 3_600 * 10**9)
    if boot != "here": monkeypatch.setattr(run_writer, "boot_id", lambda: boot)
    one = RunWriter(tmp_path, rank=1, world_size=2)
    for writer in (zero, one): writer.step(record(0, start=1.0))
    starts = Run(tmp_path).steps.start
    assert abs(starts[1] - starts[0] - gap) < 1.0
    zero.end(), one.end()


def forked(writer, folder):
    writer.step(record(99))
    writer.event("remark")
    writer.end()
    os._exit(0 if not writer.recording else 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_writes_nothing(tmp_path):
    with lone(tmp_path) as writer:
        writer.step(record(0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = multiprocessing.get_context("fork").Process(target=forked, args=(writer, tmp_path))
            child.start()
        child.join()
        assert child.exitcode == 0
        writer.step(record(1))
    run = Run(tmp_path)
    assert list(run.steps.iteration) == [0, 1] and [e.kind for e in run.events()] == ["start", "end"]


def test_threads_write_whole_lines(tmp_path):
    with lone(tmp_path) as writer:
        def work(name):
            for n in range(200): writer.event("remark", who=name, n=n)
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads: thread.start()
        for n in range(500): writer.step(record(n))
        for thread in threads: thread.join()
    run = Run(tmp_path)
    assert len(run.events("remark")) == 800 and len(run.steps) == 500 and not run.skipped


@pytest.mark.parametrize("wrong, says", [
    (dict(rank=-1), "rank must be at least 0"), (dict(rank=2), "rank must be below 2, got 2"),
    (dict(rank=0.5), "rank must be a whole number"), (dict(world_size=0), "world_size must be at least 1"),
    (dict(limit_bytes=0), "limit_bytes must be at least 1"),
])
def test_nonsense_is_refused(tmp_path, wrong, says):
    with pytest.raises(ValueError, match=says): RunWriter(tmp_path / "run", **(dict(rank=0, world_size=2) | wrong))
    assert not (tmp_path / "run").exists()


# ---- what it says

def test_thinning_keeps_totals_the_slowest_and_its_limit(tmp_path):
    rng, count, limit = np.random.default_rng(0), 20_000, 200_000
    waits, forwards, gaps = rng.exponential(size=(3, count))
    waits[15_000] = 500.0
    with lone(tmp_path, limit_bytes=limit) as writer:
        for n in range(count): writer.step(record(n, float(n), wait=waits[n], forward=forwards[n], between=gaps[n]))
    run = Run(tmp_path)
    assert (tmp_path / "steps-0.bin").stat().st_size <= limit and len(run.steps) < count / 5
    assert run.steps["count"].sum() == count and run.steps.samples.sum() == 32 * count
    for part, true in dict(wait=waits, forward=forwards, between=gaps).items():
        assert math.isclose(run.seconds()[part], math.fsum(true), rel_tol=1e-9)
    slowest = run.steps[run.steps.wait == 500.0]
    assert list(slowest.iteration) == [15_000] and list(slowest["count"]) == [1], "kept whole"
    strides = [event.data["stride"] for event in run.events("thinned")]
    assert strides[:2] == [8, 64] and strides == sorted(strides)


def test_samples_are_thinned_to_means(tmp_path):
    with lone(tmp_path, limit_bytes=40_000) as writer:
        for n in range(3_000): writer.sample(dict(cpu_cores=float(n % 4), cores=[1.0, None], gpus=[dict(index=0, w=2)]))
    run = Run(tmp_path)
    assert (tmp_path / "events-0.jsonl").stat().st_size < 60_000 and run.events("thinned")
    assert run.samples.cpu_cores.iloc[-1] == 1.5 and run.samples.cores.iloc[-1] == [1.0, None]


def test_shares_sum_to_the_wall_clock(tmp_path):
    start, at = time.perf_counter(), 0.0
    with lone(tmp_path) as writer:
        for n in range(50):
            began = writer.now()
            time.sleep(0.001)
            waited = writer.now()
            writer.step(record(n, began, between=began - at, wait=waited - began))
            at = waited
        wall = time.perf_counter() - start
    run = Run(tmp_path)
    total = math.fsum(run.seconds(0).values())
    assert math.isclose(total, at, rel_tol=1e-12) and total < wall and math.isclose(sum(run.shares().values()), 1)
    steps = run.steps
    ends = (steps.start + steps.seconds).to_numpy()[:-1] + steps.between.to_numpy()[1:]
    np.testing.assert_allclose(ends, steps.start.to_numpy()[1:], atol=1e-12)


def test_what_was_not_measured_is_no_number(tmp_path):
    nothing = dict.fromkeys(("copy", "forward", "backward", "update"), math.nan)
    with lone(tmp_path) as writer: writer.step(record(0, wait=0.25, other=0.75, loss=math.nan, **nothing))
    run = Run(tmp_path)
    assert run.steps.forward.isna().all() and run.steps.seconds[0] == 1.0 and run.shares()["other"] == 0.75


def test_later_formats_and_foreign_files_are_refused_in_a_sentence(tmp_path):
    lone(tmp_path).end()
    events = tmp_path / "events-0.jsonl"
    events.write_text(events.read_text().replace('"format":1', '"format":7', 1))
    with pytest.raises(ValueError, match=r"later version of mlinfra \(format 7, and this one reads up to 1\)"):
        Run(tmp_path)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "events-0.jsonl").write_text("")
    (tmp_path / "foreign" / "steps-0.bin").write_bytes(bytes(500))
    with pytest.raises(ValueError, match="is not a file of a run"): Run(tmp_path / "foreign")
    with pytest.raises(FileNotFoundError, match="there is no run in this folder"): Run(tmp_path / "empty")


def test_the_format_is_what_it_was():
    "A change to the layout needs another FORMAT, and a reader of this one."
    raw = runs.pack_step(record(1, 2.0, wait=3.0))
    assert len(raw) == 120 and struct.unpack_from("<qiiqdd", raw) == (1, 0, 1, 32, 1.0, 2.0) and runs.FORMAT == 1
    assert PARTS == ("opening", "evaluation", "between", *STEP_PARTS)


# ---- the GPU's clock, without a GPU

class Device:
    "A GPU whose queue runs behind the host: an event happens when the work before it is done."
    def __init__(self): self.host, self.busy_until = 100.0, 0.0
    def work(self, seconds): self.busy_until = max(self.busy_until, self.host) + seconds
    def event(self): return Event(self, max(self.busy_until, self.host))


class Event:
    def __init__(self, device, at): self.device, self.at = device, at
    def query(self): return self.device.host >= self.at
    def synchronize(self): self.device.host = max(self.device.host, self.at)
    def elapsed_time(self, other): return 1000 * (other.at - self.at)


def gpu_steps(monkeypatch, loader_seconds, step_seconds, host_seconds=0.001):
    "Steps on such a device by the clock of `fit`, and the device."
    from mlinfra.engine.train import step_clock as clocks
    device, readings = Device(), []
    monkeypatch.setattr(clocks, "_recorded_event", device.event)
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: device.host)
    empty = torch.empty
    monkeypatch.setattr(clocks.torch, "empty", lambda *size, pin_memory=False, **kind: empty(*size, **kind))
    clock = clocks.CudaClock(("wait", "forward"))
    for n in range(6):
        clock.start()
        device.host += loader_seconds
        clock.lap("wait")
        device.host += host_seconds
        device.work(step_seconds)
        clock.lap("forward")
        clock.finish(n, torch.tensor(1.0))
        readings += clock.ready()
        device.host += host_seconds
        if n == 2:  # an epoch ends, and there is an evaluation
            readings += clock.ready(block=True)
            device.host += 5.0
    return readings + list(clock.ready(block=True)), device


@pytest.mark.parametrize("loader_seconds, step_seconds", [(0.002, 0.05), (0.05, 0.002)])
def test_steps_of_a_gpu_lie_end_to_end_on_the_hosts_axis(monkeypatch, loader_seconds, step_seconds):
    readings, device = gpu_steps(monkeypatch, loader_seconds, step_seconds)
    ends = [reading.start + sum(reading.seconds.values()) for reading in readings]
    for end, after in zip(ends, readings[1:]): assert math.isclose(end + after.between, after.start)
    assert readings[0].start == 100.0 and readings[0].between == 0.0 and readings[3].between >= 5.0
    assert math.isclose(ends[-1], device.busy_until)
