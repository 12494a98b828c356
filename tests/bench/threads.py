"""fit(threads="auto") against fixed numbers of threads, on a quiet machine and beside busy processes, in turn."""
from typing import Any

STEPS = 400  # of batch 64, at most: long beside the quarter of a second that "auto" needs to notice


def threads(rounds: int, iterations: int) -> dict[str, Any]:
    "Seconds of a run with one thread, with one for each core, and with auto; ratios to the better of the two."
    from mlinfra.engine.base.sample_statistics import median
    from mlinfra.lab.cpu_noise import busy_neighbour
    cores, steps = cores_here(), min(iterations, STEPS)
    contenders = {"one thread": 1, f"{cores} threads": cores, "auto": "auto"}
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for place in ("quiet", "beside a neighbour"):
            for name, how in contenders.items():
                if place == "quiet": seconds = run_seconds(how, steps)
                else:
                    with busy_neighbour(processes=max(1, cores // 2), rest_seconds=0): seconds = run_seconds(how, steps)
                print(f"  {place}, {name:12} {seconds:6.2f} s", flush=True)
                found.setdefault(place, {}).setdefault(name, []).append(seconds)
    table = {}
    for place, times in found.items():
        fixed = [seconds for name, seconds in times.items() if name != "auto"]
        for name, own in times.items():
            ratios = [mine / min(others) for mine, *others in zip(own, *fixed)]
            table[f"{place}, {name}"] = dict(seconds=median(own), ratio=median(ratios), low=min(ratios),
                                             high=max(ratios))
    return table


def cores_here() -> int:
    from mlinfra.engine.base.machine import usable_cores
    return usable_cores()


def run_seconds(how: int | str, steps: int) -> float:
    "Seconds of a run on digits, from its first step on."
    import torch
    from mlinfra.data import BatchLoader, Images, mnist
    from mlinfra.models import GluonCNN
    from mlinfra.training import fit
    digits = mnist()
    torch.manual_seed(0)
    loader = BatchLoader(Images(digits.images[:64 * steps], digits.labels[:64 * steps]), 64, shuffle=True, seed=0)
    return fit(GluonCNN(), loader, threads=how, device="cpu", progress=False).epochs[0].seconds
