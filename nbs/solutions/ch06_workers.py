import math


def workers_needed(load_seconds, compute_seconds): return math.ceil(load_seconds / compute_seconds)


def epochs_to_pay_back(startup, saved_per_epoch):
    return math.ceil(startup / saved_per_epoch) if saved_per_epoch > 0 else None


def prefetch_bytes(workers, prefetch_factor, batch_size, image_shape):
    return workers * prefetch_factor * batch_size * math.prod(image_shape) * 4
