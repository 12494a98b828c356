"""Training steps in each precision that the CPU has, in turn, and what its roofline predicts."""
from typing import Any


def precision(rounds: int, iterations: int) -> dict[str, Any]:
    "Ratios of a step to fp32 without channels_last, their spread over the rounds, the prediction for forward, and the bytes that autograd keeps."
    import torch
    from mlinfra import models
    from mlinfra.precision import compare_precisions, forward_seconds, layer_traffic, measure_roofline
    torch.manual_seed(0)
    roof, rows = measure_roofline("cpu"), {}
    for name, make, batch in (("GluonCNN", models.GluonCNN, 64), ("ResNet-18 small", lambda: models.resnet18(10, "small"), 16)):
        examples = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
        table = compare_precisions(make, examples, steps=min(8, iterations), rounds=rounds, device="cpu")
        fp32 = forward_seconds(roof, layer_traffic(make(), tuple(examples[0].shape)))
        for (kind, last), row in table.iterrows():
            predicted = forward_seconds(roof, layer_traffic(make(), tuple(examples[0].shape), kind), kind) / fp32
            rows[f"{name}, batch {batch}, {kind}{', channels_last' if last else ''}"] = row.to_dict() | dict(predicted_ratio=predicted)
    return rows
