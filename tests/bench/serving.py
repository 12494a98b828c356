"""A model behind HTTP: what the server answers beside the same model in a loop, and latencies at 70% of its load.

Server and loop have all cores but one, which is the client's: else the client's work would count as the server's, and
for a small model it is as much. The server has a worker with one thread for each of its cores."""
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stages import FULL

LOAD = 0.7            # of what the server answers at most
LOADS = 0.3, LOAD
LIMIT_BATCHES = 3     # the limit of p95, in times of a full batch: one that is at work, one's own, and one to spare
QUICK = 0.010         # seconds that HTTP may add to that


def models() -> dict[str, Callable]:
    from mlinfra.models import GluonCNN, resnet18
    return {"GluonCNN": GluonCNN, "ResNet-18, small stem": lambda: resnet18(10, "small")}


# model -> images in a request, requests on their way, seconds of each measurement
REQUESTS = {"GluonCNN": ((64, 4, 1.0), (1, 128, 1.5)), "ResNet-18, small stem": ((64, 4, 3.0), (1, 128, 3.0))}

SATURATIONS = 5       # measurements of what the server answers at most; their median is what the loads are planned by

REQUESTS_AT_REST = {"GluonCNN": 150, "ResNet-18, small stem": 50}  # of one image, to size the measurements


CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []   # none: not Linux, all share
SERVERS, CLIENTS = (CORES[1:], CORES[:1]) if len(CORES) > 1 else (CORES, CORES)


@contextmanager
def on(cores: list[int]) -> Iterator[None]:
    "This thread runs on these cores, and so does what it starts."
    before = os.sched_getaffinity(0) if cores else ()
    if cores: os.sched_setaffinity(0, cores)
    try: yield
    finally:
        if cores: os.sched_setaffinity(0, before)


@contextmanager
def server_of(model: Any) -> Iterator[Any]:
    "The server that is measured, on its cores; whoever asks it is on the client's."
    import torch
    from mlinfra.engine.http.server import serve
    from mlinfra.engine.base.machine import usable_cores
    with on(SERVERS):
        torch.set_num_threads(usable_cores())   # of the loop
        server = serve(model, max_batch=64, queue_limit=512, workers=usable_cores(), threads=1)
    with server, on(CLIENTS): yield server


def serving(rounds: int, iterations: int) -> dict[str, Any]:
    """Model and images in a request -> images a second in a loop of 64 and from the server, in turn, and their ratio:
    medians over the rounds."""
    import torch
    from mlinfra.inference import Predictor
    torch.manual_seed(0)
    table, share = {}, 1.0 if iterations == FULL else 0.1
    for name, make in models().items():
        model = make()
        in_process = Predictor(model)
        for batch, lanes, seconds in REQUESTS[name]:
            with server_of(model) as server:
                work = server.url, in_process, batch, lanes, share * seconds
                one_round(*work)  # warm-up: connections are opened, code runs for the first time
                found = [one_round(*work) for _ in range(2 * rounds + 1)]
                stats = server.stats()
            table[f"{name}, {batch} a request"] = row(found, stats.mean_batch_size)
        print(f"  {name}: {2 * rounds + 1} rounds of each size", flush=True)
    return table


def one_round(url: str, in_process: Callable, batch: int, lanes: int, seconds: float) -> tuple[float, float]:
    "Images a second in a loop and from the server, each for about so long; the loop half before and half after."
    import torch
    from mlinfra.engine.http.load_client import saturation
    from mlinfra.engine.base.timing import rounds, timed
    images = torch.rand(64, 1, 28, 28)

    def loop() -> list[float]:
        with on(SERVERS): return rounds(lambda: timed(lambda: in_process(images), 1, 0)[0], seconds / 2)

    before = loop()
    requests = max(2 * lanes, int(seconds * 64 / min(before) / batch))
    served = saturation(url, batch, lanes, requests)
    both = before + loop()
    return 64 * len(both) / sum(both), served


def row(found: list[tuple[float, float]], mean_batch_size: float) -> dict[str, float]:
    from mlinfra.engine.base.sample_statistics import median
    ratios = sorted(served / looped for looped, served in found)
    return dict(in_process_images_per_s=median(looped for looped, _ in found),
                served_images_per_s=median(served for _, served in found), ratio=median(ratios),
                lowest_ratio=ratios[0], highest_ratio=ratios[-1], mean_batch_size=mean_batch_size)


def latencies(rounds: int, iterations: int) -> dict[str, Any]:
    """Model and load -> latencies of requests of one image that come at random: medians over the rounds, with the
    lowest and the highest p95. Each load is offered once before that, as a warm-up."""
    import torch
    torch.manual_seed(0)
    table, seconds = {}, 5.0 if iterations == FULL else 0.5
    for name, make in models().items():
        with server_of(make()) as server:
            most = at_most(server, name)
            for load in LOADS: one_load(server, name, most, load, seconds, 0)
            rows = {load: [] for load in LOADS}
            for seed in range(1, 2 * rounds):
                for load in LOADS: rows[load].append(one_load(server, name, most, load, seconds, seed))
        for load, found in rows.items(): table[f"{name}, load {load:g}"] = summary_of(found)
        print(f"  {name}: a warm-up and {2 * rounds - 1} rounds of two loads", flush=True)
    return table


def at_most(server: Any, name: str) -> float:
    """Images a second in requests of one image that never cease: the median of several measurements, since a short one
    can be off by a factor of two on a machine that others use."""
    from mlinfra.engine.http.load_client import saturation
    from mlinfra.engine.base.sample_statistics import median
    return median(saturation(server.url, 1, 128, 20 * REQUESTS_AT_REST[name]) for _ in range(SATURATIONS))


def one_load(server: Any, name: str, most: float, load: float, seconds: float, seed: int) -> dict[str, float]:
    "What happens under this load, and what the server takes at most afterwards."
    from mlinfra.engine.http.load_client import offer_load, saturation
    result = offer_load(server.url, load * most, seconds, seed=seed)
    return latency_row(most, result, saturation(server.url, 1, 128, 10 * REQUESTS_AT_REST[name]))


def latency_row(most: float, result: Any, after: float) -> dict[str, float]:
    """`load_after` is the load if the server is as fast during the stream as after it: on a machine that others use, it
    differs from the one that was planned."""
    limit = LIMIT_BATCHES * 64 / most + QUICK
    return dict(
        rate=result.rate,
        saturation=most,
        load_after=result.rate / after,
        median_seconds=result.median_seconds,
        p95_seconds=result.p95_seconds,
        p99_seconds=result.percentile_seconds(99),
        limit_seconds=limit,
        p95_of_limit=result.p95_seconds / limit,
        lost=len(result.due) - result.answered,
        p95_late_seconds=result.p95_late_seconds,
    )


def summary_of(rows: list[dict[str, float]]) -> dict[str, float]:
    "Medians of each figure, the range of p95, and the most requests that a load has lost."
    from mlinfra.engine.base.sample_statistics import median
    shares = [row["p95_of_limit"] for row in rows]
    spread = dict(lowest_p95_of_limit=min(shares), highest_p95_of_limit=max(shares))
    return {name: median(row[name] for row in rows) for name in rows[0]} | spread | dict(
        lost=max(row["lost"] for row in rows))
