import math
import re


def from_days(samples, epochs, days, hours):
    return round(samples * epochs / (days * 86_400)), math.ceil(24 * days / hours)


def accumulation_for(global_batch, micro_batch, gpus):
    accumulation, rest = divmod(global_batch, micro_batch * gpus)
    if rest: raise ValueError(f"global_batch must be a multiple of {micro_batch * gpus}, got {global_batch}")
    return accumulation


def read_log_line(line):
    whole, data = (float(re.search(rf"{name} +[\d.]+ +\( *([\d.]+)\)", line)[1]) for name in ("Time", "Data"))
    return round(100 * data / whole), "data" if data > whole / 2 else "computing"
