"""Every public function that takes a number refuses nonsense in a sentence and takes numpy's and torch's integers.

The functions are found by walking the package and reading signatures, so that new ones are covered. Each call gets
valid arguments, built from defaults, from `NUMBERS` by a parameter's name and from `OBJECTS` by its annotation; then
one number after the other is replaced by each nonsense value. What is meaningful although it looks like nonsense
stands in `MEANINGFUL`, with the reason.
"""
import ast
import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
import multiprocessing.process
import signal
import sys
import threading
import warnings
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import cache, cached_property
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import torch.distributed.launcher.api
from torch import nn

import mlinfra

# ---- the functions


class Number(NamedTuple):
    "A parameter that is a number, or holds some."
    name: str
    kind: type         # int or float
    many: bool         # a sequence of numbers
    default: Any


class Target(NamedTuple):
    "A public function, class or method, and its numbers."
    name: str          # "arithmetic.Schedule", "arithmetic.Schedule.duration"
    function: Any
    owner: Any         # the class of a method, or None
    numbers: tuple[Number, ...]

    def __str__(self): return self.name


MANY = {"Sequence", "Iterable", "Collection", "list", "tuple"}


def number_of(annotation):
    "(int or float, whether many) of an annotation; None where it is no number."
    if annotation in (int, float): return annotation, False
    text = getattr(annotation, "__forward_arg__", annotation)
    if not isinstance(text, str): return None
    try: tree = ast.parse(text, mode="eval").body
    except SyntaxError: return None
    members = [tree]
    while any(isinstance(m, ast.BinOp) for m in members):
        members = [side for m in members for side in ((m.left, m.right) if isinstance(m, ast.BinOp) else (m,))]
    scalars = {m.id for m in members if isinstance(m, ast.Name)} & {"int", "float"}
    if scalars: return (float if "float" in scalars else int), False
    for member in members:
        if not isinstance(member, ast.Subscript) or ast.unparse(member.value).split(".")[-1] not in MANY: continue
        inner = member.slice.elts[0] if isinstance(member.slice, ast.Tuple) and member.slice.elts else member.slice
        if isinstance(inner, ast.Name) and inner.id in ("int", "float"): return {"int": int, "float": float}[inner.id], True
    return None


def numbers_in(function):
    try: parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError): return ()
    found = [(p, number_of(p.annotation)) for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return tuple(Number(p.name, *kind, p.default) for p, kind in found if kind)


@cache
def modules():
    names = [info.name for info in pkgutil.walk_packages(mlinfra.__path__, "mlinfra.")]
    return [importlib.import_module(name) for name in names if name.split(".")[-1][0] != "_"]


def targets():
    for module in modules():
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if getattr(thing, "__module__", "") != module.__name__ or not callable(thing): continue
            if inspect.isclass(thing) and (name in RESULTS or issubclass(thing, tuple)): continue  # a NamedTuple has no door
            place = f"{module.__name__.removeprefix('mlinfra.')}.{name}"
            if numbers := numbers_in(thing): yield Target(place, thing, None, numbers)
            if not inspect.isclass(thing): continue
            for method, function in vars(thing).items():
                if method[0] == "_" or not inspect.isfunction(function): continue
                if numbers := numbers_in(function): yield Target(f"{place}.{method}", function, thing, numbers)


# ---- what is meaningful although it looks like nonsense

RESULTS = {  # made by the package and handed to its user: their numbers are measured or computed
}

MEANINGFUL = [  # (function.parameter, what is taken, why)
    ("*.seed", "zero negative", "any integer is a seed"),
]


def taken(target, number):
    "What of the nonsense is meaningful for this parameter."
    place = f"{target.name}.{number.name}"
    return {word for pattern, words, _ in MEANINGFUL if fnmatch(place, pattern) for word in words.split()}


NONSENSE = {int: {"zero": 0, "negative": -1, "nan": math.nan, "infinite": math.inf, "half": 1.5, "absurd": 10**31},
            float: {"zero": 0.0, "negative": -1.0, "nan": math.nan, "infinite": math.inf}}


# ---- valid arguments

NUMBERS = {"world_size": 2, "batch_size": 4, "heads": 2, "width": 8, "hidden": 8, "stage": 1, "side": 8, "kernel": 3, "dim": 0}
STRINGS = {"precision": "fp32", "optimizer": "adam", "rule": "linear"}


def valid_number(number, owner=""):
    if number.default not in (inspect.Parameter.empty, None) and not number.many:
        if isinstance(number.default, (int, float)) and not isinstance(number.default, bool): return number.default
    one = NUMBERS.get(number.name, 4 if number.kind is int else 0.5)
    return [one, one] if number.many else one


class Objects:
    "Small valid objects, by annotation."
    def __init__(self, folder): self.folder = folder

    @cached_property
    def images(self):
        data = importlib.import_module("mlinfra.data")
        return data.Images(torch.randint(0, 256, (8, 1, 28, 28), dtype=torch.uint8), torch.arange(8) % 10)

    def of(self, annotation, name, module):
        text = str(getattr(annotation, "__forward_arg__", annotation))
        for word in re.findall(r"[\w.]+", text):
            if (made := self.named(word.split(".")[-1], name, module)) is not None: return made
        if name in ("train", "valid", "test", "data", "dataset"): return self.images
        if name == "loader": return [(torch.rand(4, 1, 28, 28), torch.arange(4))]
        return MagicMock(name=name)  # a function that checks its numbers first does not look at it

    def named(self, word, name, module):
        if word == "str" and name in ("path", "root", "folder"): return str(self.folder / "x")
        if word == "str": return STRINGS.get(name, "x")
        if word == "Path": return self.folder / "x"
        if word == "bool": return False
        if word == "Module": return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        if word == "Tensor": return torch.rand(4, 1, 28, 28)
        if word == "Images" or word == "Dataset": return self.images
        if word == "device": return torch.device("cpu")
        if word == "Callable": return lambda *args: 1.0
        if word == "dtype": return torch.float32
        thing = vars(module).get(word)
        return self.instance(thing) if inspect.isclass(thing) and thing.__module__.startswith("mlinfra") else None

    def instance(self, thing):
        "An object of a class of ours; an empty one where its arguments are hard to have."
        try: return thing(**self.arguments(thing))
        except Exception: return thing.__new__(thing)

    def arguments(self, function, skip=0):
        "The required arguments of a function."
        found = {}
        for parameter in list(inspect.signature(function).parameters.values())[skip:]:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.default is not parameter.empty: continue
            kind = number_of(parameter.annotation)
            found[parameter.name] = valid_number(Number(parameter.name, *kind, None)) if kind else self.of(parameter.annotation, parameter.name, sys.modules[function.__module__])
        return found


# ---- calls

class TooLong(BaseException):
    "The call has begun to work."


def begins(*_, **__): raise TooLong


@contextmanager
def held_back():
    "No ranks, workers or threads: whoever starts one has let the nonsense in."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing.process.BaseProcess, "start", begins)
        patch.setattr(torch.distributed.launcher.api.elastic_launch, "__call__", begins)
        patch.setattr(threading.Thread, "start", begins)
        yield


@contextmanager
def limit(seconds):
    def stop(*_): raise TooLong
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call(target, objects, changes=()):
    instance = () if target.owner is None else (objects.instance(target.owner),)
    arguments = {**objects.arguments(target.function, skip=len(instance)), **dict(changes)}
    with limit(1.0), held_back(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return target.function(*instance, **arguments)


def outcome(target, objects, number, word):
    "'' where nonsense is refused as it should be; else what happened."
    value = NONSENSE[number.kind][word]
    try: call(target, objects, {number.name: [value] if number.many else value})
    except TooLong: return "begins to work"
    except TypeError as error: return "" if number.kind is int and isinstance(value, float) else f"TypeError: {first_line(error)}"
    except ValueError as error: return "" if number.many or re.search(rf"\b{number.name}\b", str(error)) else f"ValueError: {first_line(error)}"
    except Exception as error: return f"{type(error).__name__}: {first_line(error)}"
    return "accepted"


def first_line(error): return str(error).partition("\n")[0][:100]


def taken_nonsense(target, objects):
    "Each nonsense that this function does not refuse, a line for each number."
    for number in target.numbers:
        found = {}
        for word in NONSENSE[number.kind]:
            if word not in taken(target, number) and (what := outcome(target, objects, number, word)): found.setdefault(what, []).append(word)
        if found: yield f"{target.name}({number.name}): " + "; ".join(f"{', '.join(words)} -> {what}" for what, words in found.items())


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    import torch._dynamo  # else an optimizer's first use imports it within the time limit of a call
    return Objects(tmp_path_factory.mktemp("numbers"))


@pytest.mark.parametrize("target", targets(), ids=str)
def test_nonsense_is_refused(target, objects, capfd): assert not (found := list(taken_nonsense(target, objects))), "\n".join(["", *found])


def others(target, objects, number):
    "The same whole number as numpy and torch write it."
    value = valid_number(number)
    if number.many or value != int(value) or not 0 < value < 128: return
    yield from (np.int8(value), np.int64(value), np.uint8(value), torch.tensor(value))


@pytest.mark.parametrize("target", [t for t in targets() if any(n.kind is int and not n.many for n in t.numbers)], ids=str)
def test_integers_of_numpy_and_torch_are_numbers(target, objects, capfd):
    try: plain = call(target, objects, {n.name: valid_number(n) for n in target.numbers})
    except (Exception, TooLong): return  # this file has no arguments with which it can be called here
    for number in target.numbers:
        for value in others(target, objects, number):
            found = call(target, objects, {number.name: value})
            if isinstance(plain, (int, float, str)) or dataclasses.is_dataclass(plain): assert repr(found) == repr(plain) or found == plain
