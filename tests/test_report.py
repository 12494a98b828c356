"""The report where a notebook cannot show it: a browser, killed and torn runs, ranks, the command line."""
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
from test_runs import kill, lone, record, started

from mlinfra import cli, report
from mlinfra.engine.compare import compare_runs
from mlinfra.engine.gains import remedies
from mlinfra.engine.page import make_report
from mlinfra.engine.pictures import time_shares
from mlinfra.engine.runs import Run, RunWriter
from mlinfra.engine.waterfall import pace, waterfall

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
    assert data["waterfall"][0]["nanoseconds"] == bars and data["remedies"][0]["speedup"] == remedies(run)[0].speedup
    assert texts[1].count("\n## ") == len(report.sections)
    with pytest.raises(ValueError, match=r"\.html"): report.write(tmp_path / "page.txt")
    assert not list(tmp_path.glob("*.part"))


@pytest.fixture(scope="module")
def chromium():
    sys.path.append(str(Path(__file__).parent / "browser"))
    from lab import FLAGS, chromium_path
    from playwright.sync_api import Error, sync_playwright
    with sync_playwright() as playwright:
        try: browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        except Error as error: pytest.skip(f"no Chromium starts here: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


def test_a_browser_shows_it_without_network_and_script(tmp_path, chromium):
    with lone(tmp_path / "run", config=dict(loader=dict(num_workers=0, batches=20))) as writer:
        end = steps_of(writer, 60)
        for n in range(9): writer.sample(dict(process_cores=1.0, memory_bytes=(100 + n) << 20), at=end * n / 8)
        (tmp_path / "run" / "trace-0-steps-1-to-2.json.gz").write_bytes(b"")
    path = make_report(Run(tmp_path / "run")).write(tmp_path / "run" / "report.html")
    context = chromium.new_context(viewport={"width": 900, "height": 1000}, java_script_enabled=False, offline=True)
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(path.as_uri())
    assert asked == [path.as_uri()] and said == []
    for key in ("summary", "where", "devices", "findings", "memory", "slowest", "traces", "evidence", "not-measured"):
        assert page.locator(f"#{key}").bounding_box()["height"] > 20, key
    svg = page.locator("#where svg").bounding_box()
    assert svg["width"] > 500 and page.locator("#where svg rect").count() >= 5
    assert page.locator("#devices svg polyline").count() == 2
    assert page.locator("a").get_attribute("href") == "trace-0-steps-1-to-2.json.gz"
    for box in (one.bounding_box() for one in page.locator("table").all()): assert box["x"] + box["width"] <= 901
    assert page.pdf()[:4] == b"%PDF"
    context.close()


# ---- whatever happened to the run

def test_a_killed_run_has_its_page(tmp_path):
    process = started(tmp_path / "run", steps=300)
    try: alive = make_report(Run(tmp_path / "run")).summary
    finally: kill(process)
    report = make_report(Run(tmp_path / "run"))
    assert "still going on" in alive and "took 300 steps" in report.summary and "was killed" in report.summary
    page_of(Run(tmp_path / "run"))


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
    assert "num_workers" in remedies(whole(tmp_path / "a", loader=dict(num_workers=0, batches=20)))[0].change
    assert not remedies(whole(tmp_path / "b", loader=dict(type="Own", batches=20))), "a loader without workers"
    found = remedies(whole(tmp_path / "c", loader=dict(num_workers=0, batches=20), epochs=1))
    assert "persistent_workers" not in found[0].change, "they would never be used again"
    assert not remedies(whole(tmp_path / "d", wait=0.0001, loader=dict(num_workers=0, batches=20)))


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
    advice = remedies(run)[0]
    found = report.verify(run, training(), folder=tmp_path / "runs")
    assert math.isclose(found.measured.value, 2.5) and found.change == advice.change
    assert math.isclose(found.error, advice.speedup / 2.5 - 1) and found.comparison.verdict == "not slower"
    assert len(list((tmp_path / "runs").glob("*/*/steps-0.bin"))) == 6
    table = report.write(run)["findings"].blocks[-1]
    assert table.rows[0][2].startswith("2.50 times (2.50 to 2.50)")
    own = report.verify(tmp_path / "run", training(), dict(num_workers=3))
    assert own.predicted is None and own.error is None and "nothing was predicted" in str(own)
    assert len(json.loads((tmp_path / "run" / "verified.json").read_text())) == 2


def test_verify_says_what_it_cannot(tmp_path):
    run = whole(tmp_path, wait=0.0001, loader=dict(num_workers=0))
    with pytest.raises(ValueError, match="there is no advice on"): report.verify(run, training())
    with pytest.raises(ValueError, match="repeats must be at least 2, got 1"):
        report.verify(run, training(), dict(num_workers=1), repeats=1)
    (tmp_path / "verified.json").write_text("{torn")
    assert remedies(run) == []


def test_the_three_that_a_reader_calls(tmp_path):
    repeats(tmp_path, a=0.02, b=0.02)
    assert report.compare(tmp_path / "a", tmp_path / "b").exit_code == 0
    assert report.write(tmp_path / "a", tmp_path / "page.md").summary == report.write(Run(tmp_path / "a")).summary
    assert (tmp_path / "a" / "report.html").exists()


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
    whole(tmp_path / "once")
    assert compare(tmp_path / "a", tmp_path / "once") == 3 and "only 1 run" in capsys.readouterr().out
    assert compare(tmp_path / "a", tmp_path / "nothing") == 2
    with pytest.raises(SystemExit) as refused: compare(tmp_path / "a", tmp_path / "slow", "--fail-if-slower", "often")
    assert refused.value.code == 2


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
    done = subprocess.run([Path(sys.executable).with_name("mlinfra"), "report", str(tmp_path / "run")],
                          capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 0 and (tmp_path / "run" / "report.html").stat().st_size > 5_000, done.stderr
