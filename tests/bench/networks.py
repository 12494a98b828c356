"""Fifty networks of other people through `fit`, `layer_table` and `estimate`: three steps, every parameter once,
operations beside those that PyTorch's counter sees while the step really runs, and memory beside the bytes alive."""
import copy
import logging
import sys
import warnings
from typing import Any

from peers import ROOT

sys.path.append(str(ROOT / "tests"))
from live_bytes import live_bytes  # noqa: E402
from networks50 import NETWORKS, Network  # noqa: E402

STEPS = 3


def networks(rounds: int, iterations: int) -> dict[str, dict[str, Any]]:
    "A row for each network."
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    return {f"{network.source}: {network.name}": row(network) for network in NETWORKS}


def row(network: Network) -> dict[str, Any]:
    "What was trained and counted of one network."
    import torch
    from mlinfra.engine.base.operations import count_operations
    from mlinfra.memory import estimate
    from mlinfra.models import layer_table
    model, batch = network.make()
    unique = sum(p.numel() for p in model.parameters())
    torch.manual_seed(1)
    forward, backward = counted_by_torch(network, copy.deepcopy(model), batch)
    torch.manual_seed(1)
    table = layer_table(model, sample=batch, step=network.step)
    torch.manual_seed(1)
    ours = count_operations(model, batch, network.step, backward=True)
    outside = table.flops[table.layer == "outside the layers"].sum()
    alive = live_bytes(copy.deepcopy(model), batch, network.step)
    return dict(steps=trained_steps(network, model, batch), parameters=unique, live_bytes=float(alive),
                estimate_ratio=estimate(model, sample=batch, step=network.step, optimizer="adamw").total / alive,
                parameters_ratio=float(table.parameters.sum() / unique), operations=float(forward),
                operations_ratio=float(table.flops.sum() / forward), outside_share=float(outside / forward),
                step_over_forward=1 + ours.backward_flops / ours.flops,
                step_over_forward_by_torch=1 + backward / forward)


def counted_by_torch(network: Network, model: Any, batch: Any) -> tuple[int, int]:
    "Operations of a real forward and a real backward pass, as the counter sees them."
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False) as counter:
        loss = network.step(model, batch)
        forward = counter.get_total_flops()
        loss.backward()
    return forward, counter.get_total_flops() - forward


def trained_steps(network: Network, model: Any, batch: Any) -> int:
    "Steps that `fit` finished with a loss that is a number."
    import math
    import torch
    from mlinfra.training import fit
    slow = torch.optim.SGD(model.parameters(), 1e-4)
    history = fit(model, [batch] * STEPS, optimizer=slow, step=network.step, device="cpu", progress=False)
    return sum(math.isfinite(step.loss) for step in history.steps)
