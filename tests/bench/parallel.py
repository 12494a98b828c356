"""Ranks on this machine: all-reduce over sizes and world sizes with its line, and DDP against one process."""
import json
import os
import subprocess
import sys
import time
from typing import Any

from peers import BENCH, ROOT
from stages import spread

SIZES = [2**n for n in range(10, 27)]  # 1 KiB to 64 MiB
ENDS = (2**12, 2**24)                  # fitted; the rest is predicted
WORLDS = (2, 4)
BATCHES = (64, 128, 256)               # of all ranks together


def allreduce(rounds: int, iterations: int) -> dict[str, Any]:
    "Milliseconds of each size with the spread of the rounds, what the line of two sizes says, and the book's ring."
    from mlinfra.data_parallel import ring_all_reduce
    from mlinfra.engine.dist.collectives import all_reduce_seconds, slowest_rank
    from mlinfra.engine.base.hardware import Network
    from mlinfra.engine.base.sample_statistics import median
    from mlinfra.engine.dist.ranks import call_each, run_ranks
    rows, repeats = {}, max(3, min(3 * rounds, iterations))
    for world_size in WORLDS:
        calls = [(all_reduce_seconds, SIZES, repeats), (all_reduce_seconds, SIZES[::4], repeats, ring_all_reduce)]
        found = run_ranks(call_each, world_size, calls, share_cores=True, timeout_seconds=600).values()
        library, ring = (slowest_rank(calls[i] for calls in found) for i in (0, 1))
        network = Network.fit({size: median(library[size]) for size in ENDS}, world_size)
        for size, times in library.items():
            middle = median(times)
            predicted = network.all_reduce(size, world_size) / middle
            row = dict(ms=1e3 * middle, low=min(times) / middle, high=max(times) / middle, predicted_ratio=predicted,
                       fitted=size in ENDS)
            if size in ring: row["ring_ratio"] = median(ring[size]) / middle
            rows[f"{world_size} ranks, {size} bytes"] = row
        rows[f"{world_size} ranks, link"] = dict(latency_us=1e6 * network.latency_seconds,
                                                 gigabytes_per_s=network.bytes_per_s / 1e9)
    return rows


def ddp(rounds: int, iterations: int) -> dict[str, Any]:
    "Steps of two ranks over those of one process with two threads, and the share of averaging; whole loops beside."
    from mlinfra.lab.rank_step_times import step_seconds
    from mlinfra.engine.dist.ranks import run_ranks
    rows = {}
    for batch in BATCHES:
        call = (step_seconds, 2, batch, min(20, iterations), 3 * rounds)
        seconds = run_ranks(*call, share_cores=True, timeout_seconds=600)[0]
        for way in seconds.keys() - {"one process", "no averaging"}:
            ratios = [both / one for one, both in zip(seconds["one process"], seconds[way])]
            shares = [1 - quiet / sent for quiet, sent in zip(seconds["no averaging"], seconds[way])]
            rows[f"{way}, global batch {batch}"] = spread(ratios) | spread(shares, "averaging_")
    return rows | peers(rounds, iterations)


def peers(rounds: int, iterations: int) -> dict[str, Any]:
    "Loops of two ranks over `train_ddp`: Lightning, accelerate, and one process with two threads, global batch 128."
    if not BENCH.make(): return {}
    command = [BENCH.python, __file__, str(min(60, iterations)), str(2 * rounds)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    ours = found.pop("train_ddp")
    ratios = {name: [theirs / own for theirs, own in zip(times, ours)] for name, times in found.items()}
    return {f"loop of {name}": spread(own) for name, own in ratios.items()}


# ---- in the peers' environment: every function is one of two ranks

def by_train_ddp(data: Any, steps: int) -> float:
    from mlinfra.data_parallel import train_ddp
    from mlinfra.models import GluonCNN
    return train_ddp(GluonCNN(), data, batch_size=64, device="cpu")[0].epochs[0].seconds / steps


def by_one_process(data: Any, steps: int) -> float:
    import torch
    from mlinfra.data import BatchLoader
    from mlinfra.engine.dist.process_group import rank_and_world_size
    from mlinfra.models import GluonCNN
    from mlinfra.training import fit
    if rank_and_world_size()[0]: return 0.0  # it waits at the barrier, asleep
    torch.set_num_threads(2)
    loader = BatchLoader(data, 128, shuffle=True)
    try: return fit(GluonCNN(), loader, device="cpu", progress=False).epochs[0].seconds / steps
    finally: torch.set_num_threads(1)


def shard(data: Any) -> Any:
    from mlinfra.engine.dist.rank_data import ShardLoader
    from mlinfra.engine.dist.process_group import rank_and_world_size
    return ShardLoader(data, 128, *rank_and_world_size(), shuffle=True)


def by_accelerate(data: Any, steps: int) -> float:
    import torch
    from accelerate import Accelerator
    from mlinfra.data import to_float
    from mlinfra.models import GluonCNN
    accelerator, net = Accelerator(cpu=True), GluonCNN()
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1))
    start = time.perf_counter()
    for x, y in shard(data):
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(to_float(x)), y))
        optimizer.step()
    return (time.perf_counter() - start) / steps


def by_lightning(data: Any, steps: int) -> float:
    import lightning as L
    import torch
    from mlinfra.data import to_float
    from mlinfra.models import GluonCNN

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = GluonCNN()

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.net(to_float(batch[0])), batch[1])

        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
        def on_train_epoch_start(self): self.start = time.perf_counter()
        def on_train_epoch_end(self): self.seconds = time.perf_counter() - self.start

    module = Module()
    trainer = L.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", use_distributed_sampler=False,
                        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module, shard(data))
    return module.seconds / steps


LOOPS = {"train_ddp": by_train_ddp, "one process": by_one_process, "accelerate": by_accelerate,
         "Lightning": by_lightning}


def loops(steps: int, rounds: int) -> dict[str, list[float]]:
    "Seconds of a step in each loop, in turn; the first round warms up."
    import torch.distributed as dist
    from mlinfra.engine.dist.rank_data import first_digits
    data, found = first_digits(128 * steps), {name: [] for name in LOOPS}
    for round in range(rounds + 1):
        for name, loop in LOOPS.items():
            dist.barrier()
            seconds = loop(data, steps)
            if round: found[name].append(seconds)
    return found


if __name__ == "__main__":
    from mlinfra.engine.dist.ranks import run_ranks
    print(json.dumps(run_ranks(loops, 2, int(sys.argv[1]), int(sys.argv[2]), share_cores=True, timeout_seconds=900)[0]))
