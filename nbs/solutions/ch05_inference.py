from mlinfra.engine.serve.request_queue import mean_wait


def batch_for(fixed, slope, share):
    batch = 1
    while batch * slope < share * (fixed + slope * batch): batch += 1
    return batch


def queue_waits(due, service):
    waits, free = [], 0.0
    for time in due:
        waits.append(max(0.0, free - time))
        free = max(free, time) + service
    return waits


def servers_needed(rate, service, bound):
    servers = 1
    while mean_wait(rate / servers, service) > bound: servers += 1
    return servers


def token_ms(parameters, bytes_each, streams, cache_bytes, gb_per_s):
    return 1000 * (parameters * bytes_each + streams * cache_bytes) / (gb_per_s * 1e9)
