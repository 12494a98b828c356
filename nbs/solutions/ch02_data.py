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


def store_as(images, epochs, jpeg_bytes, pixel_bytes, decode_s, bytes_per_s, free_bytes):
    jpeg_s = jpeg_bytes / bytes_per_s + decode_s
    pixel_s = pixel_bytes / bytes_per_s
    faster = jpeg_s + pixel_s + epochs * pixel_s < epochs * jpeg_s
    return "pixels" if faster and images * pixel_bytes <= free_bytes else "jpegs"
