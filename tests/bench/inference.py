"""Every way of answering, for each batch size, and how well a line through two sizes predicts the others; then
streams of requests, predicted and run."""
from collections.abc import Callable
from typing import Any

from stages import FULL

BATCHES, FITTED = (1, 2, 4, 8, 16, 32, 64), (1, 32)
ANSWERS = {"GluonCNN": 20, "ResNet-18, small stem": 5}  # of each batch size, in a round


def models() -> dict[str, Callable]:
    from mlinfra.models import GluonCNN, resnet18
    return {"GluonCNN": GluonCNN, "ResNet-18, small stem": lambda: resnet18(10, "small")}


def inference(rounds: int, iterations: int) -> dict[str, Any]:
    """Model and way -> latency, throughput, ratios to `inference_mode`, the line and its errors; or why it cannot
    run here."""
    import torch
    from mlinfra.data import mnist
    from mlinfra.inference import VARIANTS, sweep_batches
    images, table = mnist(train=False).images, {}
    torch.manual_seed(0)
    for name, make in models().items():
        repeats = rounds * (ANSWERS[name] if iterations == FULL else 1)
        frame = sweep_batches(make(), images, BATCHES, VARIANTS, repeats)
        plain = frame[frame.variant == "inference_mode"].set_index("batch_size")
        for way, rows in frame.groupby("variant", sort=False):
            table[f"{name}, {way}"] = way_row(rows.set_index("batch_size"), plain)
        print(f"  {name}: {repeats} answers of each batch size in {len(VARIANTS)} ways", flush=True)
    return table


def way_row(rows: Any, plain: Any) -> dict[str, Any]:
    "One way of answering with one model."
    from mlinfra.engine.serve.request_queue import ServiceTime
    if rows.note.iloc[0]: return dict(note=rows.note.iloc[0])
    p50 = rows.p50_seconds
    line = ServiceTime.fit(FITTED, [p50[b] for b in FITTED])
    errors = sorted(abs(line.seconds(b) / p50[b] - 1) for b in BATCHES if b not in FITTED)
    return dict(
        p50_seconds=p50[1],
        p95_seconds=rows.p95_seconds[1],
        p99_seconds=rows.p99_seconds[1],
        images_per_s=rows.images_per_s[BATCHES[-1]],
        ratio_1=p50[1] / plain.p50_seconds[1],
        ratio_64=p50[64] / plain.p50_seconds[64],
        fixed_seconds=line.fixed,
        slope_seconds=line.slope,
        median_error=errors[len(errors) // 2],
        largest_error=errors[-1],
    )


def streams(rounds: int, iterations: int) -> dict[str, Any]:
    """Model, policy and load -> latency and wait, predicted before the stream and measured in it: medians over the
    rounds."""
    import torch
    from mlinfra.data import mnist
    from mlinfra.engine.serve.request_queue import Policy
    from mlinfra.engine.serve.worker_server import try_loads
    from mlinfra.inference import Predictor
    images, found = mnist(train=False).images, {}
    policies = {"alone": Policy(queue_size=2_000), "up to 8": Policy(8, queue_size=2_000)}
    torch.manual_seed(0)
    for name, make in models().items():
        predictor = Predictor(make())
        for seed in range(rounds):
            for which, policy in policies.items():
                for trial in try_loads(
                    predictor, images, policy=policy, stream_seconds=2.0 if iterations == FULL else 0.1, seed=seed
                ):
                    found.setdefault(f"{name}, {which}, load {trial.load:g}", []).append(
                        (trial, trial.hindsight(policy))
                    )
        print(f"  {name}: {rounds} rounds of {len(policies)} policies", flush=True)
    return {name: stream_row(trials) for name, trials in found.items()}


def stream_row(trials: list[tuple[Any, Any]]) -> dict[str, float]:
    """Errors are medians over the rounds of how far off each was; drift is the worker's time relative to what
    calibration said."""
    from mlinfra.engine.base.sample_statistics import median

    row = dict(
        requests=len(trials[0][0].measured.due),
        drift=median(t.drift for t, _ in trials),
        drift_low=min(t.drift for t, _ in trials),
        drift_high=max(t.drift for t, _ in trials),
    )
    for name in ("p50", "p95", "mean", "mean_wait"):
        key = f"{name}_seconds"
        row |= {
            f"{name}_predicted_seconds": median(t.predicted(key) for t, _ in trials),
            f"{name}_measured_seconds": median(getattr(t.measured.summary(), key) for t, _ in trials),
            f"{name}_error": median(abs(t.error(key)) for t, _ in trials),
            f"{name}_error_hindsight": median(abs(t.error(key)) for _, t in trials),
        }
    return row
