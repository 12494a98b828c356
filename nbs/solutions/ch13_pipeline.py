import math


def micro_batches_needed(ranks, share):
    return max(1, math.ceil((ranks - 1) * (1 - share) / share))


def cut_exists(costs, stages, most):
    used, room = 0, 0
    for cost in costs:
        if cost > most: return False
        if cost > room: used, room = used + 1, most
        room -= cost
    return used <= stages


def one_forward_one_backward(rank, ranks, micro_batches):
    lead = min(ranks - 1 - rank, micro_batches)
    done = [f"F{i}" for i in range(lead)]
    for i in range(micro_batches):
        if lead + i < micro_batches: done.append(f"F{lead + i}")
        done.append(f"B{i}")
    return done
