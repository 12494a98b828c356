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
    n = ranks
    rule = (16, 8 + 8 / n, 4 + 12 / n, 16 / n)
    block = (4, 4 + 4 / n, 8, 12)
    needs = [each + added / blocks for each, added in zip(rule, block)]
    return next((stage for stage, need in enumerate(needs) if need * parameters <= room), None)
