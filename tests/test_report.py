"""The report where a notebook cannot show it: killed and torn runs, ranks, the command line."""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import advice
from copies import PYTHON
from test_runs import kill, lone, record, started

from mlinfra import cli, report
from mlinfra.engine.report.compare import compare_runs
from mlinfra.engine.report.gains import predicted_speedup, predicted_gains, step_model
from mlinfra.engine.report.page import make_report
from mlinfra.engine.report.pictures import time_shares
from mlinfra.engine.record.run_folder import Run
from mlinfra.engine.record.run_writer import RunWriter
from mlinfra.engine.record.watch import watch
from mlinfra.engine.report.waterfall import pace, waterfall

VOID = {"meta", "br", "rect", "line", "polyline", "col"}
BLOCKS = {"p", "table", "figure", "section", "div", "h1", "h2"}


def steps_of(writer, count=20, wait=0.02, start=0.5, samples=32, **parts):
    "Steps that lie end to end; returns when the last one ends."
    for n in range(count):
        between = start if n == 0 else 0.002
        begin = start if n == 0 else start + between
        writer.step(record(n, start=begin, between=between, wait=wait, forward=0.01, samples=samples, **parts))
        start = begin + wait + 0.01 + sum(parts.values())
    return start


def whole(folder, count=20, wait=0.02, **config):
    "A run that finished."
    with lone(folder, config=config) as writer:
        end = steps_of(writer, count, wait)
        for n in range(5):
            writer.sample(dict(seconds=0.2, process_cores=0.5, memory_bytes=100 << 20, gpus=None), at=end * n / 4)
    return Run(folder)


def page_of(run):
    "The page, parsed; an error where its tags do not match."
    text = make_report(run).html()
    assert text.startswith("<!DOCTYPE html>\n")
    return ET.fromstring(text.partition("\n")[2]), text


# ---- sums

@pytest.mark.parametrize("seed", range(5))
def test_bars_add_up_to_the_nanosecond(tmp_path, seed):
    import random
    draw = random.Random(seed)
    with lone(tmp_path) as writer:
        start = 0.0
        for n in range(200):
            between, evaluation, opening = draw.random(), draw.random() / 3, draw.random() / 3
            parts = {name: draw.random() for name in ("wait", "copy", "forward", "backward", "update", "other")}
            start += between
            writer.step(record(n, start=start, between=between, evaluation=evaluation, opening=opening, **parts))
            start += sum(parts.values())
        writer.event("remark", at=start + draw.random(), words="later")
    run = Run(tmp_path)
    fall = waterfall(run)
    for level, name in ((1, "wall"), (2, "steps"), (2, "outside")):
        inner, inside = [], False
        for bar in fall.bars:  # parts follow their bar
            if bar.name == name: inside = True
            elif bar.level < level: inside = False
            elif inside and bar.level == level: inner.append(bar.nanoseconds)
        assert sum(inner) == fall[name].nanoseconds
    assert math.isclose(fall["steps"].seconds, run.steps.seconds.sum(), abs_tol=1e-6)
    assert 0 < fall["lost"].seconds < 1.01 and fall["wall"].seconds >= start


def test_pace_leaves_the_first_step_out(tmp_path):
    run = whole(tmp_path, count=11, wait=0.038)
    assert pace(run).steps == 10 and math.isclose(pace(run).seconds_per_step, 0.05)
    assert math.isclose(pace(run).samples_per_s, 32 / 0.05)


@pytest.mark.parametrize("epochs, cut", [(2, 0), (2, 7), (3, 7), (10, 0)])
def test_two_epochs_have_the_pace_of_a_hundred(tmp_path, epochs, cut):
    "What happens once an epoch is shared over the steps of a whole epoch, whatever the run recorded of the last one."
    def recorded(name, epochs, cut=0):
        config = dict(epochs=epochs, loader=dict(type="DataLoader", num_workers=0, batches=16))
        with lone(tmp_path / name, config=config) as writer:
            start = 0.0
            for n in range(16 * epochs - cut):
                validation = 0.11 if n and n % 16 == 0 else 0.0
                start += validation
                writer.step(record(n, start=start, between=validation, evaluation=validation, wait=0.046, forward=0.009,
                                   samples=8 if n % 16 == 15 else 32)._replace(epoch=n // 16))
                start += 0.055
        return Run(tmp_path / name)
    few, many = recorded("few", epochs, cut), recorded("many", 100)
    step = 0.055 + 0.11 / 16
    for run in (few, many):
        assert math.isclose(pace(run).seconds_per_step, step)
        assert math.isclose(step_model(run).evaluation, 0.11 / 16) and math.isclose(step_model(run).firsts, 1 / 16)
        after = (0.11 + 0.046 + 15 * 0.046 / 4 + 0.009) / 16  # one wait, and the last batch is computed
        assert math.isclose(predicted_speedup(run, dict(num_workers=4, persistent_workers=True)), step / after)
    assert cut or math.isclose(pace(few).samples_per_s, pace(many).samples_per_s)


def test_the_validation_after_the_last_step_is_drawn(tmp_path):
    with lone(tmp_path) as writer:
        end = steps_of(writer, 10)
        writer.event("evaluation", at=end + 0.001, seconds=0.5)
        writer.event("remark", at=end + 0.501, words="x")
    shares = time_shares(Run(tmp_path), 0, [0.0, end, end + 0.501])
    assert shares["evaluation"][0] == 0 and math.isclose(shares["evaluation"][1], 0.5 / 0.501, rel_tol=1e-6)
    assert math.isclose(sum(share[0] for share in shares.values()), 1, rel_tol=1e-6)


# ---- the page

def test_the_page_is_valid_and_needs_nothing_else(tmp_path):
    run = whole(tmp_path / "a <b> & 'c'", model="<Net>", loader=dict(num_workers=0, batches=20))
    root, text = page_of(run)
    assert root.get("lang") == "en" and root.find("head/title").text == "Run a <b> & 'c'"
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids)) and {"summary", "where", "devices", "findings", "evidence"} <= set(ids)
    for each in root.iter():
        name = each.tag.rpartition("}")[2]
        if name == "p": assert not BLOCKS & {inner.tag for inner in each.iter() if inner is not each}
        if name in VOID: assert not (each.text or "").strip()
        assert not any(attribute.startswith("on") or attribute == "src" for attribute in each.keys())
    tags = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert not tags & {"script", "link", "iframe", "img", "object", "form"}
    style = root.find("head/style").text
    assert "url(" not in style and "@import" not in style and "@media print" in style
    for table in root.iter("table"): assert len({len(row) for row in table.iter("tr")}) == 1


def test_all_formats_say_the_same(tmp_path):
    run = whole(tmp_path, loader=dict(num_workers=0, batches=20))
    report = make_report(run)
    paths = [report.write(tmp_path / f"page{end}") for end in (".html", ".md", ".json")]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    data = json.loads(texts[2])
    assert data["summary"] == list(report["summary"].blocks) and len(data["summary"]) == 3
    for sentence in data["summary"]: assert sentence in texts[1]
    bars = {bar.name: bar.nanoseconds for bar in waterfall(run).bars}
    assert data["waterfall"][0]["nanoseconds"] == bars
    assert data["remedies"][0]["speedup"] == predicted_gains(run)[0].speedup
    assert texts[1].count("\n## ") == len(report.sections)
    with pytest.raises(ValueError, match=r"\.html"): report.write(tmp_path / "page.txt")
    with pytest.raises(ValueError, match="without ~"): report.write("~/page.html")
    assert not list(tmp_path.glob("*.part"))


def test_strange_names_are_words_in_every_format(tmp_path):
    strange = {"<script>": "</td><script>alert(1)</script>", "名": "ü 🚀 \x00\x1b\udcff",
               "a|b": "[x](javascript:y) `z`\n# h"}
    with lone(tmp_path / "a|b <i>", config=dict(model="<script>", **{"k" * 900: "v" * 9_000}, **strange)) as writer:
        steps_of(writer)
        writer.event("remark", words="<script>")
        writer.event("finding", rule="<b>", step=1, tensor="<i>\x00", message="]]> \udcff", advice="`|", cost=0.5)
    run = Run(tmp_path / "a|b <i>")
    root, text = page_of(run)
    assert "<script" not in text and not {"b", "i"} & {each.tag for each in root.iter()}
    cells = [" ".join(each.itertext()) for each in root.iter("td")]
    assert strange["<script>"] in cells and any(cell.startswith("ü 🚀") for cell in cells)
    report = make_report(run)
    for end in (".html", ".md", ".json"):
        written = report.write(tmp_path / f"page{end}").read_text(encoding="utf-8")
        assert "\x00" not in written and len(written) < 100_000
    marked = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "<script" not in marked and "\n# h" not in marked
    assert "\\[x\\](javascript" in marked, "no link"


def test_a_page_has_a_bound(tmp_path):
    "Two thousand settings and 20,000 steps and samples, twenty times as many: a page of the same length."
    sizes = {}
    for name, steps in dict(short=1_000, long=20_000).items():
        config = {f"setting {n}": n for n in range(steps // 10)}
        with lone(tmp_path / name, config=config | dict(loader=dict(num_workers=0))) as writer:
            end = steps_of(writer, steps)
            for n in range(steps): writer.sample(dict(process_cores=n % 7 / 7), at=end * n / steps)
            for n in range(steps // 100): writer.event("finding", rule="R", step=n, tensor=f"t{n}", message="m", cost=1)
        sizes[name] = len(make_report(Run(tmp_path / name)).html())
    assert sizes["long"] < min(150_000, 1.2 * sizes["short"]), sizes


# ---- whatever happened to the run

def test_a_killed_run_has_its_page(tmp_path):
    process = started(tmp_path / "run", steps=300)
    try: alive = make_report(Run(tmp_path / "run")).summary
    finally: kill(process)
    report = make_report(Run(tmp_path / "run"))
    assert "still going on" in alive and "took 300 steps" in report.summary and "was killed" in report.summary
    page_of(Run(tmp_path / "run"))


def test_a_run_of_no_use_gets_no_advice_on_its_speed_first(tmp_path):
    with watch(tmp_path) as w:
        for n in w(range(40)):
            w.loss(2.0 if n < 20 else float("inf"))
    summary = make_report(Run(tmp_path)).summary
    assert summary.endswith("Before its speed see to NonFinite, at step 20: the loss is inf."), summary


def test_a_killed_run_gets_no_advice_on_its_speed(tmp_path):
    config = dict(loader=dict(type="DataLoader", num_workers=0, batches=20), epochs=2, device="cpu")
    for name, lost in (("hung", 5.0), ("at once", 0.0)):
        writer = RunWriter(tmp_path / name, rank=0, world_size=1, config=config)
        end = steps_of(writer)
        writer.event("remark", words="a last sign of life", at=end + lost)
        assert predicted_gains(Run(tmp_path / name)) and "Try num_workers" in make_report(Run(tmp_path / name)).summary
        del writer
        run = Run(tmp_path / name)
        page = make_report(run)
        assert run.killed and predicted_gains(run) == [] and "num_workers=" not in page.html()
        assert "InputBound" in page.html(), "what was found is still said"
        assert "No change is advised" in page.summary
        assert ("no step ended in its last 5 s" in page.summary) == (lost > 0)
        with pytest.raises(ValueError, match="which was killed: name a change"): report.verify(run, training())


def test_a_torn_run_says_what_is_missing(tmp_path):
    whole(tmp_path, count=30)
    steps, events = bytearray((tmp_path / "steps-0.bin").read_bytes()), tmp_path / "events-0.jsonl"
    steps[32 + 120 * 10 + 50] ^= 4
    (tmp_path / "steps-0.bin").write_bytes(steps[:-40])
    with open(events, "ab") as file: file.write(b'{"kind":"fin')
    run = Run(tmp_path)
    report = make_report(run)
    assert any("1 record" in words and "damaged" in words for words in report["not-measured"].blocks)
    fall = waterfall(run)
    assert fall["lost"].seconds > 0 and fall["wall"].nanoseconds == sum(bar.nanoseconds for bar in fall.parts())
    page_of(run)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_step_and_no_sample(tmp_path, count):
    with lone(tmp_path) as writer: steps_of(writer, count)
    report = make_report(Run(tmp_path))
    assert len(report["summary"].blocks) == 3 and ("nothing can be said of its pace" in report.summary) == (count < 2)
    assert any("no sample" in words for words in report["not-measured"].blocks)
    json.loads(report.json())
    page_of(Run(tmp_path))


def test_two_ranks_and_the_slow_one(tmp_path):
    for rank, (forward, update) in enumerate([(0.01, 0.03), (0.035, 0.005)]):  # the first waits for the second
        with RunWriter(tmp_path, rank=rank, world_size=2) as writer:
            for n in range(20): writer.step(record(n, start=0.05 * n, between=0.01, forward=forward, update=update))
    run = Run(tmp_path)
    report = make_report(run)
    assert "on 2 ranks" in report.summary
    rows = report["ranks"].blocks[1]
    at = rows.columns.index("forward (ms)")
    assert [row[at] for row in rows.rows] == ["10.00", "35.00"]
    assert pace(run).samples == 2 * 19 * 32
    assert [fall["rank"] for fall in report.data["waterfall"]] == [0, 1]
    page_of(run)


def test_a_rank_that_never_wrote_is_named(tmp_path):
    with RunWriter(tmp_path, rank=0, world_size=2) as writer: steps_of(writer)
    assert any("Rank 1" in words for words in make_report(Run(tmp_path))["not-measured"].blocks)


def test_advice_is_legal(tmp_path):
    assert "num_workers" in predicted_gains(whole(tmp_path / "a", loader=dict(num_workers=0, batches=20)))[0].change
    assert not predicted_gains(whole(tmp_path / "b", loader=dict(type="Own", batches=20))), "a loader without workers"
    found = predicted_gains(whole(tmp_path / "c", loader=dict(num_workers=0, batches=20), epochs=1))
    assert "persistent_workers" not in found[0].change, "they would never be used again"
    assert not predicted_gains(whole(tmp_path / "d", wait=0.0001, loader=dict(num_workers=0, batches=20)))


@pytest.mark.parametrize("loader", [dict(num_workers=0), dict(num_workers=0, pin_memory=False, batch_size=32),
                                    dict(num_workers=2, persistent_workers=False, batch_size=32, pin_memory=False),
                                    dict(num_workers=2, persistent_workers=True, prefetch_factor=4)])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_loader_takes_every_advice(tmp_path, loader, device):
    "PyTorch builds a DataLoader with the settings that the advice leads to."
    from torch.utils.data import DataLoader
    with lone(tmp_path, config=dict(device=device, epochs=2, loader=dict(batches=10, **loader))) as writer:
        end = steps_of(writer, 20, wait=0.05, copy=0.02, update=0.02, evaluation=0.0)
        for n in range(2): writer.event("loader", at=n * end / 2, seconds=0.1)
    for one in predicted_gains(Run(tmp_path)):
        settings = loader | {k: v for k, v in one.change.items() if k not in ("loading", "validation")}
        if device == "cpu": assert "pin_memory" not in one.change, "there is nothing to copy to"
        DataLoader(range(64), **(settings | dict(pin_memory=False)))
        assert one.speedup >= 1.05 and one.saved_seconds > 0 and one.because
    pins = [one for one in predicted_gains(Run(tmp_path)) if one.change == dict(pin_memory=True)]
    waits = loader["num_workers"] > 0  # for its workers: copies are not what it waits for
    assert len(pins) == (device == "cuda" and loader.get("pin_memory") is False and not waits)
    assert all("at most" in one.because for one in pins)


def test_gains_that_follow_from_the_parts(tmp_path):
    "Steps of 20 ms of loading, 10 ms forward and 30 ms update; 60 ms of validation for each of them."
    with lone(tmp_path, config=dict(loader=dict(num_workers=0, batch_size=32))) as writer:
        start = 0.0
        for n in range(30):
            validation = 0.6 if n and n % 10 == 0 else 0.0
            writer.step(record(n, start=start + validation, between=validation, evaluation=validation, wait=0.02,
                               forward=0.01, update=0.03))
            start += validation + 0.06
    run, mean = Run(tmp_path), 0.06 + 2 * 0.6 / 29
    gain = lambda **change: predicted_speedup(run, change)
    assert math.isclose(gain(loading=0.5), mean / (mean - 0.01)) and math.isclose(gain(loading=1), 1)
    assert math.isclose(gain(validation=0), mean / 0.06)
    assert math.isclose(gain(batch_size=64), 2 * mean / (2 * mean - 0.03)), "the update is paid half as often"
    assert math.isclose(gain(num_workers=2), mean / (mean - 0.02)), "one worker already hides the loading"
    changes = [one.change for one in predicted_gains(run)]
    assert "num_workers" in changes[0] and dict(batch_size=64) in changes and dict(validation=0.5) in changes


def test_short_batches_tell_what_does_not_grow(tmp_path):
    "12 ms and 1 ms a sample; the last batch of each epoch holds 8 of 32."
    with lone(tmp_path, config=dict(loader=dict(num_workers=0, batch_size=32))) as writer:
        for n in range(30):
            size = 8 if n % 10 == 9 else 32
            writer.step(record(n, start=0.05 * n, samples=size, forward=0.012 + 0.001 * size))
    assert math.isclose(step_model(Run(tmp_path)).fixed, 0.012, rel_tol=1e-6)
    assert [one.change for one in predicted_gains(Run(tmp_path))] == [dict(batch_size=64)]


@pytest.mark.parametrize("case", advice.CASES, ids=str)
def test_the_rerun_agrees(case, tmp_path):
    "Costs that are known since they are slept; where other programs have the cores, only a wrong model fails."
    for epochs in (2, 6):
        found, busy = advice.rerun(case, tmp_path / f"{epochs}", epochs)
        if abs(found.error) <= (0.15 if busy <= 0.2 else 0.5): return
        assert busy > 0.2 and epochs == 2, f"{found}; other programs kept {busy:.1f} cores busy"


def test_findings_of_the_folder_are_ranked_and_said_once(tmp_path):
    with lone(tmp_path) as writer:
        steps_of(writer)
        for rule, cost in (("Small", 0.01), ("Large", 0.5), ("Small", 0.01)):
            writer.event("finding", rule=rule, step=3, message=f"{rule} | <b>", advice="do", cost=cost, gain=2.0)
    rows = make_report(Run(tmp_path))["findings"].blocks[0].rows
    rules = [row[1] for row in rows]
    assert rules.count("Large") == rules.count("Small") == 1 and rules.index("Large") < rules.index("Small")
    assert rows[rules.index("Large")][-1] == "2.00 times" and "InputBound" in rules, "rules read the folder, too"
    page_of(Run(tmp_path))


# ---- a change, verified

def training(fast=0.012, slow=0.03):
    "A training whose steps are shorter with workers."
    def train(folder, num_workers=0, persistent_workers=False):
        with lone(folder) as writer: steps_of(writer, wait=(fast if num_workers else slow) - 0.012)
    return train


def test_verify_measures_and_keeps_what_it_found(tmp_path):
    run = whole(tmp_path / "run", loader=dict(num_workers=0, batches=20))
    advice = predicted_gains(run)[0]
    found = report.verify(run, training(), folder=tmp_path / "runs")
    assert math.isclose(found.measured.value, 2.5) and found.change == advice.change
    assert math.isclose(found.error, advice.speedup / 2.5 - 1) and found.comparison.verdict == "not slower"
    assert len(list((tmp_path / "runs").glob("*/*/steps-0.bin"))) == 6
    table = report.write(run)["findings"].blocks[-1]
    assert table.rows[0][2].startswith("2.50 times (2.50 to 2.50)")
    own = report.verify(tmp_path / "run", training(), dict(num_workers=3))
    assert own.predicted == predicted_speedup(run, dict(num_workers=3))
    def train(folder, resize=None): training()(folder, num_workers=resize is not None)
    unknown = report.verify(run, train, dict(resize="nearest"))
    assert unknown.predicted is None and unknown.error is None and "nothing was predicted" in str(unknown)
    told = report.verify(run, train, dict(resize="nearest"), like=dict(loading=0.5))
    assert math.isclose(told.predicted, 0.032 / 0.022) and told.like == dict(loading=0.5)
    assert len(json.loads((tmp_path / "run" / "verified.json").read_text())) == 3


def test_verify_says_what_it_cannot(tmp_path):
    run = whole(tmp_path, wait=0.0001, loader=dict(num_workers=0))
    with pytest.raises(ValueError, match="there is no advice on"): report.verify(run, training())
    with pytest.raises(ValueError, match="repeats must be at least 2, got 1"):
        report.verify(run, training(), dict(num_workers=1), repeats=1)
    for wrong, said in [(dict(persistent_workers=True), "persistent_workers needs workers"), ({}, "change must name"),
                        (dict(prefetch_factor=2), "prefetch_factor needs workers"), ([1], "change must name"),
                        (dict(num_workers=-1), "num_workers must be at least 0, got -1")]:
        with pytest.raises(ValueError, match=said): report.verify(run, training(), wrong)
    with pytest.raises(ValueError, match="train must be a function"): report.verify(run, "train", dict(num_workers=1))
    (tmp_path / "verified.json").write_text("{torn")
    assert predicted_gains(run) == []


def test_the_three_that_a_reader_calls(tmp_path):
    repeats(tmp_path, a=0.02, b=0.02)
    assert report.compare(tmp_path / "a", tmp_path / "b").exit_code == 0
    assert report.write(tmp_path / "a", tmp_path / "page.md").summary == report.write(Run(tmp_path / "a")).summary
    assert (tmp_path / "a" / "report.html").exists()


@pytest.mark.parametrize("call, said", [
    (lambda run: report.write(None), "run must be a Run or the path"),
    (lambda run: report.write(run, 3), "path must be"),
    (lambda run: report.write(run, "x.pdf"), r"\.html, \.htm, \.md, \.json, got '\.pdf'"),
    (lambda run: report.verify(3, training()), "run must be"), (lambda run: report.compare(None, run), "runs must be"),
    (lambda run: report.compare(run, []), "at least one run"), (lambda run: report.compare([run, 1], run), "got 1"),
    (lambda run: report.compare(run, run, True), "fail_if_slower must be"),
    (lambda run: waterfall(run, 7), "rank must be one of 0, got 7")])
def test_nonsense_is_told(tmp_path, call, said):
    with pytest.raises(ValueError, match=said): call(whole(tmp_path))


# ---- the command line

def test_the_page_from_a_shell(tmp_path, capsys):
    whole(tmp_path / "run")
    assert cli.main(["report", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "took 20 steps" in said[0] and said[-1] == str(tmp_path / "run" / "report.html")
    assert cli.main(["report", str(tmp_path / "run"), "--to", str(tmp_path / "x.md")]) == 0
    assert (tmp_path / "x.md").read_text().startswith("# Run run")
    assert cli.main(["report", str(tmp_path / "nothing")]) == 2 and "there is no run" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "run"), "--to", str(tmp_path / "x.pdf")]) == 2


def repeats(home, **waits):
    "Three runs of each, in turn."
    for scatter in (1.0, 1.004, 0.997):
        for name, wait in waits.items():
            with lone(home / name) as writer: steps_of(writer, wait=wait * scatter)


def test_a_comparison_for_ci(tmp_path, capsys):
    repeats(tmp_path, a=0.02, same=0.02, slow=0.03)
    compare = lambda *args: cli.main(["compare", *(str(arg) for arg in args)])
    assert compare(tmp_path / "a", tmp_path / "same", "--fail-if-slower", "5%") == 0
    assert compare(tmp_path / "a", tmp_path / "slow", "--fail-if-slower", "5%") == 1
    said = capsys.readouterr().out
    assert "not slower" in said and re.search(r"slower: b takes 13\d\.\d% of the time of a", said)
    assert compare(tmp_path / "a", tmp_path / "slow", "--fail-if-slower", "50%") == 0
    assert compare(tmp_path / "slow", tmp_path / "a") == 0, "faster is not slower"
    once = whole(tmp_path / "once").folder
    assert compare(once, tmp_path / "once") == 3, "one run of each"
    said = capsys.readouterr().out
    assert "cannot tell: b takes 100.0% of the time of a, but there is only 1 run of one side" in said
    assert compare(tmp_path / "a", tmp_path / "once") == 3 and "only 1 run" in capsys.readouterr().out
    assert compare(tmp_path / "a", tmp_path / "nothing") == 2
    with pytest.raises(SystemExit) as refused: compare(tmp_path / "a", tmp_path / "slow", "--fail-if-slower", "often")
    assert refused.value.code == 2


def test_several_folders_on_each_side(tmp_path, capsys):
    for n, scatter in enumerate((1.0, 1.004, 0.997)):
        for name, wait in dict(a=0.02, b=0.03).items():
            with lone(tmp_path / f"{name}{n}") as writer: steps_of(writer, wait=wait * scatter)
    a, b = ([str(tmp_path / f"{name}{n}") for n in range(3)] for name in "ab")
    assert cli.main(["compare", *a, "--with", *b]) == 1 and "13" in capsys.readouterr().out
    assert cli.main(["compare", *b, "--with", *a, "--fail-if-slower", "5%"]) == 0
    assert cli.main(["compare", *a[:1], "--with", *b]) == 3 and "only 1 run" in capsys.readouterr().out
    assert cli.main(["compare", *a]) == 2 and "--with" in capsys.readouterr().err
    assert report.compare(a, b).exit_code == 1 and report.compare([Run(one) for one in a], b).exit_code == 1


def test_only_slower_ends_with_1(tmp_path, monkeypatch, capsys):
    "A mistake of ours is no verdict on theirs."
    def broken(*_): raise KeyError("x")
    monkeypatch.setattr("mlinfra.engine.report.compare.compare_runs", broken)
    assert cli.main(["compare", str(tmp_path), str(tmp_path)]) == 2 and "KeyError" in capsys.readouterr().err


def test_help_names_the_codes(capsys):
    with pytest.raises(SystemExit): cli.main(["compare", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for words in ("0: B is not slower", "1: it is", "3: the runs cannot tell", "2: the command"): assert words in said


def test_runs_that_cannot_be_compared(tmp_path):
    repeats(tmp_path, a=0.02)
    repeats(tmp_path, b=0.02)
    assert "ran before the other" in compare_runs(tmp_path / "a", tmp_path / "b").why
    repeats(tmp_path / "other", a=0.02, b=0.02)
    for path in (tmp_path / "other" / "b").glob("events-*"):
        path.write_text(re.sub(r'"cores":\d+', '"cores":999', path.read_text(), count=1))
    assert "different machines" in compare_runs(tmp_path / "other" / "a", tmp_path / "other" / "b").why
    shutil.move(tmp_path / "other" / "a", tmp_path / "moved")
    with pytest.raises(ValueError, match="fewer than two steps"):
        with lone(tmp_path / "short") as writer: steps_of(writer, 1)
        compare_runs(tmp_path / "moved", tmp_path / "short")


def test_the_command_as_a_shell_runs_it(tmp_path):
    whole(tmp_path / "run")
    command = [PYTHON, Path(sys.executable).with_name("mlinfra"), "report", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 0 and (tmp_path / "run" / "report.html").stat().st_size > 5_000, done.stderr
