"""The view of lesson 17 where its notebook cannot show it: odd runs, live runs, a panel that follows."""
import math
import re
import threading
import time

import pytest

from mlinfra.engine.record.run_timeline import edges
from mlinfra.engine.record.run_folder import Run, StepRecord
from mlinfra.engine.record.run_writer import RunWriter
from mlinfra.monitor import look, slowest_moment, waits_for
from mlinfra.views import monitor as view
from mlinfra.views.run_plots import PART_COLORS


def record(n, start, wait=0.25, **other):
    times = dict(copy=0.0, forward=0.25, backward=0.25, update=0.0, other=0.0) | other
    return StepRecord(n, 0, 1, 64, 0.5, start, 0.25, 0.0, 0.0, wait, **times)


def written(folder, steps=8, samples=(), rank=0, world_size=1):
    with RunWriter(folder, rank=rank, world_size=world_size) as writer:
        for n in range(steps): writer.step(record(n, float(n)))
        for at, data in samples: writer.event("sample", at, seconds=1.0, **data)
    return Run(folder)


def well_formed(drawing):
    import xml.etree.ElementTree as tree
    text = str(drawing)
    tree.fromstring(text)
    assert not re.search(r"\b(nan|inf)\b", text)
    return text


@pytest.mark.parametrize("steps, samples", [
    (0, ()), (1, ()), (8, ()), (0, [(1.0, dict(process_cores=1.0))]),
    (8, [(1.0, dict(process_cores=None, machine_cores=None)), (2.0, dict(process_cores=0.5, memory_bytes=10**9))]),
    (3000, [(n + 1.0, dict(process_cores=n % 2, machine_cores=2.0)) for n in range(200)]),
])
def test_any_run_can_be_drawn(tmp_path, steps, samples):
    run = written(tmp_path, steps, samples)
    assert len(well_formed(view.plot_run(run))) < 100_000
    well_formed(view.plot_run(run, 1.0, 3.0, at=2.0))
    assert view.moment_text(run, 1.5).number


def test_where_a_column_stands_for_several_steps_it_is_the_slowest(tmp_path):
    with RunWriter(tmp_path, rank=0, world_size=1) as writer:
        for n in range(1000): writer.step(record(n, float(n)) if n != 501 else record(n, float(n), wait=0.2500001))
    drawn = well_formed(view.plot_run(Run(tmp_path)))
    assert "of 6" in drawn


def test_a_gpu_and_a_network_are_shown_where_they_were_measured(tmp_path):
    gpu = dict(process_cores=1.0, gpus=[dict(index=0, utilisation=0.5)], received_bytes_per_s=5e7, sent_bytes_per_s=0.0)
    text = well_formed(view.plot_run(written(tmp_path / "a", 3, [(1.0, gpu), (2.0, gpu)])))
    assert "GPU busy" in text and "network" in text
    without = well_formed(view.plot_run(written(tmp_path / "b", 3, [(1.0, dict(process_cores=1.0))])))
    assert "GPU busy" not in without and "not measured" in without


def test_ranks_are_drawn_one_at_a_time(tmp_path):
    written(tmp_path, 3, rank=0, world_size=2)
    run = written(tmp_path, 5, rank=1, world_size=2)
    assert len(edges(run, 0)) == 3 and len(edges(run, 1)) == 5
    well_formed(view.plot_run(run, rank=1))


def test_what_a_look_says_adds_up(tmp_path):
    run = written(tmp_path, 8, [(n + 1.0, dict(process_cores=0.0, machine_cores=2.0)) for n in range(8)])
    seen = look(run, 2.0, 6.0)
    assert math.isclose(sum(seen.seconds.values()), 4.0) and seen.own_cores == 0.0 and seen.machine_cores == 2.0
    waiting = look(run, 2.01, 2.2)
    assert waiting.longest == "wait" and waits_for(waiting).startswith("the loader, which is blocked")


def test_the_slowest_moment_includes_what_came_before_the_step_and_is_asked_on_each_rank(tmp_path):
    for rank in (0, 1):
        with RunWriter(tmp_path, rank=rank, world_size=2) as writer:
            for n in range(20):
                times = dict(start=2.0 * n, between=0.1, wait=0.1, copy=0.0, forward=0.1, backward=0.1)
                if n == 1: times |= dict(between=1.8)  # the run begins: not looked at
                if n == 15: times |= dict(wait=1.4) if rank else dict(backward=1.4)
                writer.step(StepRecord(n, 0, 1, 64, 0.5, evaluation=0.0, opening=0.0, update=0.0, other=0.0, **times))
            for n in range(400): writer.event("sample", n / 10, seconds=0.1, process_cores=0.0, machine_cores=0.0)
    run = Run(tmp_path)
    assert waits_for(slowest_moment(run, 1)).startswith("the loader, which is blocked")
    assert waits_for(slowest_moment(run)) == "another rank or a device, in backward"


def test_the_slowest_moment_finds_a_checkpoint_between_steps_and_a_run_of_one_step(tmp_path):
    with RunWriter(tmp_path / "saves", rank=0, world_size=1) as writer:
        for n in range(8): writer.step(record(n, 2.0 * n, wait=0.1)._replace(between=1.2 if n == 6 else 0.1))
    seen = slowest_moment(Run(tmp_path / "saves"))
    assert seen.longest == "between" and math.isclose(seen.start, 12 - 1.2) and math.isclose(seen.end, 12.6)
    assert slowest_moment(written(tmp_path / "one", 1)).end == 0.75
    with pytest.raises(ValueError, match="no step"): slowest_moment(written(tmp_path / "none", 0))


def test_samples_that_lie_half_in_a_wait_do_not_tell_of_it(tmp_path):
    with RunWriter(tmp_path, rank=0, world_size=1) as writer:
        writer.step(StepRecord(0, 0, 1, 64, 0.5, 1.0, 1.0, 0.0, 0.0, 0.4, 0.0, 0.6, 0.0, 0.0, 0.0))
        for at, busy in ((0.95, 16.0), (1.05, 8.0), (1.15, 0.1), (1.25, 0.2), (1.5, 16.0)):
            writer.event("sample", at, seconds=0.1 if at < 1.5 else 0.2, process_cores=busy, machine_cores=16.0)
    seen, run = look(Run(tmp_path), 1.0, 1.4), Run(tmp_path)
    assert seen.apart and math.isclose(seen.own_cores, 0.15) and seen.machine_cores == 16.0
    assert waits_for(seen).startswith("the loader, which is blocked")
    mixed = look(run, 1.3, 1.4)  # only the last sample covers it
    assert not mixed.apart and mixed.own_cores == 16.0 and "too long to say" in waits_for(mixed)


def test_a_wait_in_a_crowd_does_not_say_whether_the_loader_works(tmp_path):
    with RunWriter(tmp_path, rank=0, world_size=1) as writer:
        writer.step(StepRecord(0, 0, 1, 64, 0.5, 1.0, 1.0, 0.0, 0.0, 0.4, 0.0, 0.6, 0.0, 0.0, 0.0))
        writer.event("sample", 1.3, seconds=0.2, process_cores=0.1, machine_cores=4.0, cores=[1.0] * 4)
    assert waits_for(look(Run(tmp_path), 1.0, 1.4)) == "the loader, or cores for it: other programs use 3.9"


def test_other_programs_are_blamed_only_where_no_core_is_free(tmp_path):
    for name, shares in (("free", [0.9, 0.1, 0.0, 0.0]), ("full", [1.0, 1.0, 1.0, 0.9])):
        with RunWriter(tmp_path / name, rank=0, world_size=1) as writer:
            writer.step(StepRecord(0, 0, 1, 64, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
            writer.event("sample", 0.9, seconds=0.5, process_cores=1.0, machine_cores=60.0, cores=shares)
    free, full = (look(Run(tmp_path / name), 0.0, 1.0) for name in ("free", "full"))
    assert math.isclose(free.unused_cores, 3.0) and math.isclose(full.unused_cores, 0.1)
    assert waits_for(free) == "nothing: it computes" and waits_for(full) == "cores: other programs use 59.0"


def test_a_validation_after_the_last_step_is_drawn(tmp_path):
    with RunWriter(tmp_path, rank=0, world_size=1) as writer:
        writer.step(record(0, 1.0))
        writer.event("evaluation", 2.0, seconds=3.0)
    run = Run(tmp_path)
    assert view.end_of(run) == 5.0 and len(edges(run)) == 1
    assert PART_COLORS["evaluation"] in well_formed(view.plot_run(run)).partition("step (ms)")[2]


def test_the_panel_follows_a_live_run_until_it_ends(tmp_path):
    writer = RunWriter(tmp_path / "live", rank=0, world_size=1)
    writer.step(record(0, 0.0))
    box = view.monitor_panel(tmp_path / "live", every_seconds=0.05)
    try:
        assert "live: running" in box.words.value
        for n in range(1, 30): writer.step(record(n, float(n)))
        wait_for(lambda: box.controls["moment"].value > 28)
        box.controls["moment"].value = 3.5
        assert box.screen.pause.value and "At 3.50 s" in box.words.value
        writer.step(record(30, 30.0))
        wait_for(lambda: box.controls["moment"].max > 30)
        assert box.controls["moment"].value == 3.5, "it stays where the reader looks"
        writer.end()
        box.screen.job.join(10)
        assert not box.screen.job.running
    finally: box.screen.stop()


def test_a_look_at_a_live_run_does_not_undo_what_the_reader_chose_meanwhile(tmp_path, monkeypatch):
    writer, end_of = RunWriter(tmp_path / "live", rank=0, world_size=1), view.end_of
    for n in range(10): writer.step(record(n, float(n)))
    box, looking, go_on = view.monitor_panel(tmp_path / "live", 0.05), threading.Event(), threading.Event()
    def slow(run):
        if threading.current_thread().name == "mlinfra-job":
            looking.set()
            go_on.wait(20)
        return end_of(run)
    try:
        monkeypatch.setattr(view, "end_of", slow)
        writer.step(record(10, 10.0))
        assert looking.wait(20)  # it is about to move to the end
        moment = box.controls["moment"]
        reader = threading.Thread(target=setattr, args=(moment, "value", 3.5))
        reader.start()
        wait_for(lambda: moment.value == 3.5)
        go_on.set()
        reader.join(20)
        writer.step(record(11, 11.0))
        wait_for(lambda: moment.max > 11.0)
        assert moment.value == 3.5 and box.screen.pause.value and "At 3.50 s" in box.words.value
    finally:
        go_on.set()
        box.screen.stop()
        writer.end()


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_past_runs_are_offered_the_latest_first(tmp_path):
    for name in ("a", "b"): written(tmp_path / name)
    (tmp_path / "no run").mkdir()
    assert {path.name for path in view.runs_beside(tmp_path / "a")} == {"a", "b"}
    assert view.runs_beside(tmp_path / "nowhere") == []
    box = view.monitor_panel(tmp_path / "a")
    choice = next(w for w in box.children if getattr(w, "description", "") == "run")
    choice.value = tmp_path / "b"
    assert re.search("b: finished", box.words.value)


@pytest.mark.parametrize("fault", view.FAULTS)
def test_each_fault_trains(tmp_path, fault):
    run = view.train_with(fault, tmp_path / "run", steps=44)
    assert run.ended and 40 <= len(run.steps) <= 48 and run.config["fault"] == fault
    if fault.startswith("the loader"): assert run.steps.wait.max() >= 0.4
    if fault == "long validations": assert len(run.table("evaluation")) == 4


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no run"): view.monitor_panel(tmp_path)
    with pytest.raises(ValueError, match="every_seconds"): view.monitor_panel(every_seconds=0)
