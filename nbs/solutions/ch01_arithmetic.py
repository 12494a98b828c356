import re


def total_iterations(samples, batch_size, epochs): return -(-samples // batch_size) * epochs


def accumulation_for(global_batch, micro_batch, world_size):
    accumulation, rest = divmod(global_batch, micro_batch * world_size)
    if rest: raise ValueError(f"global_batch must be a multiple of {micro_batch * world_size}, got {global_batch}")
    return accumulation


def read_log_line(line):
    whole, data = (float(re.search(rf"{name} +[\d.]+ +\( *([\d.]+)\)", line)[1]) for name in ("Time", "Data"))
    return round(100 * data / whole), "data" if data > whole / 2 else "computing"


def cheapest_in_time(hours, efficiency, deadline_hours):
    in_time = [n for n, e in efficiency.items() if hours / (n * e) <= deadline_hours]
    return min(in_time, key=lambda n: hours / efficiency[n], default=None)  # n devices for hours / (n * efficiency)
