def total_iterations(samples, batch_size, epochs): return -(-samples // batch_size) * epochs


def accumulation_for(global_batch, micro_batch, world_size):
    accumulation, rest = divmod(global_batch, micro_batch * world_size)
    if rest: raise ValueError(f"global_batch must be a multiple of {micro_batch * world_size}, got {global_batch}")
    return accumulation


def stage_to_upgrade(stages):
    times = {name: getattr(stages, name) for name in ("read", "preprocess", "compute")}
    slowest = [name for name, seconds in times.items() if seconds == max(times.values())]
    return slowest[0] if len(slowest) == 1 else None
