import torch


def gather_and_free(store, h, gradient_of):
    inputs = [h]
    for i in range(len(store)):
        inputs.append(torch.tanh(inputs[-1] @ store.gather(i)))
        store.free(i)
    gradient = gradient_of(inputs[-1])
    for i in reversed(range(len(store))):
        weights = store.gather(i)
        at_sum = gradient * (1 - inputs[i + 1]**2)
        store.reduce(i, inputs[i].T @ at_sum)
        gradient = at_sum @ weights.T
        store.free(i)
    return inputs[-1]


def clip_shards(gradients, limit, group):
    squares = sum(gradient.square().sum() for gradient in gradients)
    length = group.all_reduce(squares).sqrt()
    if length > limit:
        for gradient in gradients: gradient.mul_(limit / length)
    return length


def lowest_stage(parameters, blocks, ranks, room):
    n, b = ranks, 1 / blocks
    gradients = 4 * b + 4 * (1 - b) / n
    needs = (16, 4 + 4 + 8 / n, 4 + gradients + 8 / n, 4 / n + 4 * b + gradients + 8 / n)
    return next((stage for stage, need in enumerate(needs) if need * parameters <= room), None)
