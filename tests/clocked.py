"""For tests that read the clock: of a training that sleeps or computes for a known time."""
from functools import wraps
from pathlib import Path

TRIES = 3


def clocked(test):
    "Another program may take a core from one training: the test has three tries. Broken code fails in each."
    @wraps(test)
    def with_retries(*args, **named):
        folder = named.get("tmp_path")
        for n in range(TRIES):
            if folder is not None: named["tmp_path"] = fresh(folder / str(n))
            try: return test(*args, **named)
            except AssertionError:
                if n + 1 == TRIES: raise
    return with_retries


def fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder
