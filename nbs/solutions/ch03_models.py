def conv_parameters(in_channels, out_channels, kernel, groups=1, bias=True):
    return out_channels * (in_channels // groups * kernel**2 + bias)


def forward_share(flops_per_layer):
    forward = sum(flops_per_layer)
    return forward / (3 * forward - flops_per_layer[0])


def largest_batch(table, memory_bytes): return memory_bytes // int(table.activation_bytes.sum())
