import itertools
import math
from collections import deque
from concurrent.futures import ThreadPoolExecutor


def in_flight(images_per_s, read_seconds, images_per_read):
    return max(1, math.ceil(images_per_s / images_per_read * read_seconds))


def read_ahead(read, paths, in_flight):
    paths = iter(paths)
    with ThreadPoolExecutor(in_flight) as pool:
        waiting = deque(pool.submit(read, path) for path in itertools.islice(paths, in_flight))
        while waiting:
            result = waiting.popleft().result()
            for path in itertools.islice(paths, 1): waiting.append(pool.submit(read, path))
            yield result


def next_step(reads_per_s, read_bytes, most_reads_per_s, most_bytes_per_s):
    if reads_per_s * read_bytes >= 0.9 * most_bytes_per_s: return "fewer bytes"
    if reads_per_s >= 0.9 * most_reads_per_s: return "larger reads"
    return "more in flight"
