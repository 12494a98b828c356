import copy
from statistics import median

import torch


def to_int8(weight):
    largest = weight.abs().flatten(1).amax(1)
    scales = torch.where(largest > 0, largest / 127, torch.ones_like(largest))
    wide = scales.view(-1, *[1] * (weight.dim() - 1))
    return (weight / wide).round().to(torch.int8), scales


def merged(conv, norm):
    made = copy.deepcopy(conv)
    factor = norm.weight / (norm.running_var + norm.eps).sqrt()
    bias = 0 if conv.bias is None else conv.bias
    with torch.no_grad():
        made.weight.mul_(factor.view(-1, 1, 1, 1))
        made.bias = torch.nn.Parameter((bias - norm.running_mean) * factor + norm.bias)
    return made


def times_as_fast(a, b, rounds, clock):
    def seconds(work):
        start = clock()
        work()
        return clock() - start
    seconds(a), seconds(b)
    return median([seconds(a) / seconds(b) for _ in range(rounds)])
