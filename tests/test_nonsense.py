"""Nonsense numbers are refused: every public function and class that can be called with numbers alone, found by its signature."""
import dataclasses
import importlib
import inspect
import math
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

PACKAGE = Path(__file__).parents[1] / "mlinfra"
MODULES = [".".join(("mlinfra", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in sorted(PACKAGE.rglob("*.py"))
           if path.stem not in ("__init__", "__main__", "_modidx")]
NUMBERS = {"int": 4, "float": 0.5, "int|None": 4, "float|None": 0.5}
NONSENSE = {"int": (-1, 2.5, True, math.nan, 10**40), "float": (-1.0, math.nan, math.inf, "1", 1e40)}
MACHINERY = {  # takes numbers from our own code, or makes words of them: not the reader's door
    "engine.ablation.threads", "engine.ablation.busy_words", "engine.checks.ceil_div", "engine.lesson.reveal",
    "engine.layer_costs.LayerCost", "engine.network.lay_cables", "engine.patients.validate_often", "engine.ranks.RankError", "engine.shards.read_shard",
    "engine.stages.P2PChannel", "engine.stages.OperationRecorder", "engine.widgets.duration_text",
    "engine.widgets.bytes_text", "engine.widgets.count_text", "engine.widgets.whole_number_field"}
FREE = {"seed", "loss", "value", "values", "logit", "x", "y", "z"}  # may be negative, or anything


def kind(parameter): return str(parameter.annotation).replace(" ", "").split("|")[0]


def is_record(thing):
    "Whether it only holds what was measured or worked out: a dataclass that checks nothing."
    return isinstance(thing, type) and (issubclass(thing, tuple) or dataclasses.is_dataclass(thing) and not hasattr(thing, "__post_init__"))


def callables():
    "(name, callable, arguments that work) of each one that takes numbers alone, if it has a number to refuse."
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            thing = getattr(loaded, name)
            if not callable(thing) or getattr(thing, "__module__", "") != module or is_record(thing): continue
            if f"{module}.{name}".removeprefix("mlinfra.") in MACHINERY: continue
            try: parameters = inspect.signature(thing).parameters.values()
            except (TypeError, ValueError): continue
            needed = [p for p in parameters if p.default is p.empty]
            plain = all(kind(p) in ("int", "float", "str") and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed)
            if not needed or not plain: continue
            start = {p.name: NUMBERS.get(kind(p), "x") for p in needed}
            yield f"{module}.{name}", thing, start, [p for p in parameters if kind(p) in NONSENSE and p.name not in FREE]


@contextmanager
def at_most(seconds):
    def late(*_): raise TimeoutError(f"still running after {seconds} s")
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try: yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def answer(call, arguments):
    "What comes of a call: None if it returns, else the error."
    try:
        with at_most(5): call(**arguments)
    except Exception as error: return error
    return None


CASES = [pytest.param(call, start, numbers, id=name) for name, call, start, numbers in callables() if numbers]


@pytest.mark.parametrize("call, start, numbers", CASES)
def test_nonsense_numbers_are_refused(call, start, numbers):
    if answer(call, start) is not None: pytest.skip("these numbers do not fit it: the chapter's own tests have fitting ones")
    accepted = [f"{p.name}={bad!r} -> {type(got).__name__ if got else 'accepted'}" for p in numbers for bad in NONSENSE[kind(p)]
                if not isinstance(got := answer(call, start | {p.name: bad}), ValueError)]
    assert not accepted, f"{len(accepted)} times no ValueError: {'; '.join(accepted)}"


@pytest.mark.parametrize("call, start, numbers", CASES)
def test_numbers_of_numpy_and_torch_are_accepted(call, start, numbers):
    if answer(call, start) is not None: pytest.skip("these numbers do not fit it: the chapter's own tests have fitting ones")
    for p in numbers:
        if p.name not in start: continue
        for like in (np.asarray, torch.tensor): assert answer(call, start | {p.name: like(start[p.name])}) is None, f"{p.name} as {like.__name__}"
