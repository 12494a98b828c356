def largest_batch(limit, small, large):
    each = (large[1] - small[1]) / (large[0] - small[0])
    return max(0, int((limit - (small[1] - each * small[0])) // each))


def ranks_needed(parameters, bytes_each): return -(-16 * parameters // bytes_each)


def best_segments(blocks, inside, edge):
    return min((n for n in range(1, blocks + 1) if blocks % n == 0), key=lambda n: n * edge + blocks // n * inside)
