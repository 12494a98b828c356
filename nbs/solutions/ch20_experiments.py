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


def stops_at(a, b):
    for n in range(6, len(a) + 1):
        if pair_p(a[:n], b[:n]) <= 0.05: return n
    return None
