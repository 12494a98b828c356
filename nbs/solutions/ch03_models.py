from torch import nn


def conv_parameters(in_channels, out_channels, kernel, groups=1, bias=True):
    return out_channels * (in_channels // groups * kernel**2 + bias)


def forward_share(flops_per_layer):
    forward = sum(flops_per_layer)
    return forward / (3 * forward - flops_per_layer[0])


def largest_batch(table, memory_bytes):
    left = memory_bytes - 3 * 4 * int(table.parameters.sum())
    return max(left, 0) // int(table.activation_bytes.sum())


def separable(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
                         nn.Conv2d(inputs, outputs, 1, bias=False))
