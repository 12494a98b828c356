"""Ranks on this machine: all-reduce over sizes and world sizes with the line that predicts it, and DDP against one process."""
from typing import Any

from stages import spread

SIZES = [2**n for n in range(10, 27)]  # 1 KiB to 64 MiB
ENDS = (2**12, 2**24)                  # fitted; the rest is predicted
WORLDS = (2, 4)


def allreduce(rounds: int, iterations: int) -> dict[str, Any]:
    "Milliseconds of each size, the spread of the rounds to their median, what the line of two sizes says, and the ring written in the book."
    from mlinfra.data_parallel import all_reduce_seconds, fit_network, in_turn, run_ranks, slowest
    from mlinfra.ui import median
    rows, repeats = {}, max(3, min(3 * rounds, iterations))
    for world_size in WORLDS:
        calls = [(all_reduce_seconds, SIZES, repeats), (all_reduce_seconds, SIZES[::4], repeats, "ring")]
        found = run_ranks(in_turn, world_size, calls, share_cores=True, seconds=600).values()
        library, ring = (slowest(calls[i] for calls in found) for i in (0, 1))
        network = fit_network({size: median(library[size]) for size in ENDS}, world_size)
        for size, times in library.items():
            middle = median(times)
            row = dict(ms=1e3 * middle, low=min(times) / middle, high=max(times) / middle, predicted_ratio=network.all_reduce(size, world_size) / middle, fitted=size in ENDS)
            rows[f"{world_size} ranks, {size} bytes"] = row | ({"ring_ratio": median(ring[size]) / middle} if size in ring else {})
        rows[f"{world_size} ranks, link"] = dict(latency_us=1e6 * network.latency, gigabytes_per_s=network.bytes_per_s / 1e9)
    return rows


def ddp(rounds: int, iterations: int) -> dict[str, Any]:
    "A step of two ranks with a thread each over that of one process with two threads, and the share of averaging, in turn in one group."
    from mlinfra.data_parallel import run_ranks, step_seconds
    rows = {}
    for batch in (64, 128, 256):
        seconds = run_ranks(step_seconds, 2, batch, min(20, iterations), 3 * rounds, share_cores=True, seconds=600)[0]
        ratios = [both / one for both, one in zip(seconds["ddp"], seconds["one process"])]
        shares = [1 - quiet / sent for quiet, sent in zip(seconds["no averaging"], seconds["ddp"])]
        rows[f"global batch {batch}"] = spread(ratios) | spread(shares, "averaging_")
    return rows
