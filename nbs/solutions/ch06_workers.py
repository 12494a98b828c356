import math
import queue
import threading


def workers_needed(load_seconds, compute_seconds, cpu_share=1.0, cores=1_000):
    shortest = max(compute_seconds, load_seconds * cpu_share / cores)
    return math.ceil(load_seconds / shortest - 1e-9)  # less a rounding error: 2.0000000001 workers are two


def prefetched(load, count, depth):
    ready = queue.Queue(maxsize=depth)

    def work():
        for i in range(count): ready.put(load(i))

    threading.Thread(target=work, daemon=True).start()
    for _ in range(count): yield ready.get()


def share(samples, rank, ranks, worker, workers):
    return range(rank * workers + worker, samples, ranks * workers)
