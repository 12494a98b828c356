import math


def global_loss(means, sizes):
    return sum(mean * size for mean, size in zip(means, sizes) if size) / sum(sizes)


def tree_wins_below(latency, bytes_per_s, world_size):
    rounds = math.log2(world_size)
    return latency * bytes_per_s * (world_size - 1 - rounds) / (rounds - (world_size - 1) / world_size)


def most_ranks(compute, communication):
    ranks = 1
    while compute / (2 * ranks) >= communication: ranks *= 2
    return ranks
