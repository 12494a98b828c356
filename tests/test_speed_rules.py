"""Rules on speed: each is shown real trainings with a known fault, and must name place and milliseconds by the
training's own clock; and healthy ones, in which it must find nothing."""
import json
import os
import sys
import time
from pathlib import Path
from statistics import median

import pytest
from clocked import clocked
from speed_cases import CASES, FAULTS, HEALTHY, LEAK_BYTES, PERIOD, memory, mlp, run_ours
from virtual_clock import VirtualClock

from mlinfra.debugger import Debugger
from mlinfra.engine.rules.inspection import apply_rules
from mlinfra.lab.rendezvous import run_together
from mlinfra.engine.record.run_folder import Run
from mlinfra.engine.rules.default_rules import SPEED_RULES
from mlinfra.training import fit

HERE = Path(__file__).parent
ALONE = {name: case for name, case in FAULTS.items() if case.ranks == 1 and name != "leak"}


def rules(): return [rule() for rule in SPEED_RULES]


def only(found):
    assert len(found) == 1, [str(f) for f in found]
    return found[0]


def close(figure, truth): return abs(figure - truth) <= 0.1 * truth


def tiny_step(findings, ledger, run):
    "The time of a tiny step."
    found = only([f for f in findings if f.rule == "BatchTooSmall"])
    assert close(found.numbers["work_seconds"], (run.steps.seconds - run.steps.wait)[2:found.step + 1].median())


def second_fault(findings, ledger, run):
    "The second of two faults has its own place and milliseconds."
    stall = only([f for f in findings if f.rule == "PeriodicStall"])
    assert "between two steps" in stall.message and stall.numbers["period"] == PERIOD
    assert close(stall.numbers["stall_seconds"], median(ledger.spent["between"]))


FURTHER = {"tiny model": tiny_step, "two faults at once": second_fault}


@pytest.mark.parametrize("name", [name for name, case in ALONE.items() if case.number or name in FURTHER])
def test_a_fault_is_named_with_its_place_and_milliseconds_in_time(name, tmp_path, monkeypatch):
    "And of a tiny model its time, of two faults at once the second one's place and milliseconds: on a virtual clock."
    VirtualClock(monkeypatch)
    judge(name, tmp_path)


@pytest.mark.parametrize("name", ALONE)
@clocked
def test_a_fault_is_named_on_the_real_clock(name, tmp_path): judge(name, tmp_path, milliseconds=False, late=60)


def judge(name, tmp_path, milliseconds=True, late=0):
    "Whether a training with a fault gives its findings and no others, in time; and their figures."
    # rules on speed leave out steps that the debugger looked at, and how many these are depends on the machine: `late`
    case = FAULTS[name]
    findings, ledger, starts = run_ours(case, tmp_path, rules())
    said = {f.rule: f for f in findings}
    others = [f for f in findings if f.rule not in case.rules]
    assert said.keys() >= set(case.rules) and not others, [str(f) for f in findings]
    if name in FURTHER and milliseconds: FURTHER[name](findings, ledger, Run(tmp_path / "run"))
    if not case.rules: return
    first = said[case.rules[0]]
    assert any(case.words in f.message for f in findings) and first.step <= case.by + late and first.advice, str(first)
    if not case.number or not milliseconds: return
    spent = ledger.spent[case.place]
    injected = {"wait_seconds": lambda: sum(spent[2:first.step + 1]) / (first.step - 1),
                "stall_seconds": lambda: median(spent[:first.numbers.get("period") and (first.step + 1) // PERIOD]),
                "seconds": lambda: sum(spent[:int(first.numbers.get("times", 0))])}[case.number]()
    assert close(first.numbers[case.number], injected), (first, injected)
    if case.number == "stall_seconds": assert first.numbers["period"] == PERIOD


def apart(name, folder, world_size=1):
    "Run a case in processes of their own, each copied from one that has PyTorch in memory and has done nothing."
    env = dict(WORLD_SIZE=str(world_size), PYTHONPATH=os.pathsep.join([str(HERE.parent), str(HERE)]))
    command = [sys.executable, str(HERE / "speed_cases.py"), name, str(folder)]
    told = run_together([command] * world_size, environment=env, forked=True, timeout_seconds=120,
                        environments=[dict(RANK=str(rank)) for rank in range(world_size)])
    assert [process.code for process in told] == [0] * world_size, "\n".join(map(str, told))
    return Run(folder / "run")


@clocked
def test_a_leak_is_named_with_megabytes_and_what_grows(tmp_path):
    "In a process of its own: one that has freed much fills that first."
    found = only([event.data for event in apart("leak", tmp_path).findings])
    assert found["rule"] == "MemoryLeak" and found["step"] <= FAULTS["leak"].by
    assert close(found["numbers"]["mb_per_step"], LEAK_BYTES / 1e6), found
    assert "tensors of shape (250000,)" in found["message"]


@pytest.mark.parametrize("name", [name for name, case in FAULTS.items() if case.ranks > 1])
@clocked
def test_a_straggler_is_named_with_its_cause_and_milliseconds(name, tmp_path):
    case, found = FAULTS[name], apply_rules(apart(name, tmp_path, 2), rules()).findings
    finding = only([f for f in found if f.rule == "Straggler"])
    assert finding.rank == 1 and case.words in finding.message
    spent = json.loads((tmp_path / "ledger-1.json").read_text())[case.place]
    assert close(finding.numbers["extra_seconds"], median(spent)), (str(finding), median(spent))


@pytest.mark.parametrize("name", HEALTHY)
@clocked
def test_a_healthy_run_raises_no_alarm(name, tmp_path):
    case = CASES[name]
    findings = [] if case.ranks > 1 else run_ours(case, tmp_path, rules())[0]
    run = apart(name, tmp_path, case.ranks) if case.ranks > 1 else Run(tmp_path / "run")
    assert not (findings or apply_rules(run, rules()).findings), [str(f) for f in findings]


@clocked
def test_a_slow_validation_of_fit_is_named_as_such_and_not_the_loader():
    def slow_accuracy(outputs, targets):
        time.sleep(0.1)
        return (outputs.argmax(1) == targets).float().mean()

    debugger = Debugger(rules())
    fit(mlp(64, 64, 4), memory(40), observers=[debugger], epochs=4, valid=memory(1), metric=slow_accuracy,
        progress=False, keep_memory=False, device="cpu")
    assert [f.rule for f in debugger.findings] == ["SlowValidation"]
