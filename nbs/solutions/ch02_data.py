import random
import struct
from collections import Counter


def idx_shape(raw): return struct.unpack(f">{raw[3]}I", raw[4:4 + 4 * raw[3]])


def epoch_order(samples, seed, epoch):
    order = list(range(samples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def balancing_weights(labels):
    counts = Counter(labels)
    return [1 / counts[label] for label in labels]
