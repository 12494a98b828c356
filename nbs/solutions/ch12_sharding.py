def share_range(length, rank, world_size):
    share = -(-length // world_size)
    return min(rank * share, length), min((rank + 1) * share, length)


def lowest_stage(weights, gradients, state, world_size, bytes_each):
    share = lambda bytes: -(-bytes // world_size)
    needs = (
        weights + gradients + state,
        weights + gradients + share(state),
        weights + share(gradients) + share(state),
        share(weights) + share(gradients) + share(state),
    )
    return next((stage for stage, need in enumerate(needs) if need <= bytes_each), None)


def accumulated_volume(stage, micro_batches, world_size):
    rounds = 3 * micro_batches if stage == 3 else micro_batches + 1
    return rounds * (world_size - 1) / world_size
