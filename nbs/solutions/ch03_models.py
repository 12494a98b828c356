from torch import nn

from mlinfra.engine.train.saved_tensors import saved_bytes


def conv_parameters(in_channels, out_channels, kernel, groups=1, bias=True):
    return out_channels * (in_channels // groups * kernel**2 + bias)


def largest_batch(model, sample, memory_bytes):
    left = memory_bytes - 3 * 4 * sum(p.numel() for p in model.parameters())
    return max(left, 0) // saved_bytes(model, sample)


def separable(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
                         nn.Conv2d(inputs, outputs, 1, bias=False))
