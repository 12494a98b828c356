"""Worked solutions of lesson 20."""
import math
from itertools import product

import numpy as np


def pair_p(a, b):
    differences = np.array(a) - np.array(b)
    means = [abs(np.mean(differences * signs)) for signs in product((1, -1), repeat=len(a))]
    return float(np.mean([mean >= abs(differences.mean()) - 1e-9 for mean in means]))


def expected_best(errors, k):
    n = len(errors)
    return sum(error * math.comb(n - 1 - i, k - 1) / math.comb(n, k) for i, error in enumerate(sorted(errors)))


def fair(a, b):
    k = min(len(a), len(b))
    return "A" if expected_best(a, k) < expected_best(b, k) else "B"


def missing(record):
    found = set()
    kept = not record.get("changed") or record.get("diff")
    if not (record.get("commit") and kept): found.add("code")
    if not record.get("data_sum"): found.add("data")
    if record.get("seed") is None: found.add("seed")
    return found
