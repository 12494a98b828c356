import math


def in_flight(images_per_s, read_seconds, images_per_read):
    return max(1, math.ceil(images_per_s / images_per_read * read_seconds))


def cache_gain(hit_share, warm, cold): return cold / (hit_share * warm + (1 - hit_share) * cold)


def samples_per_shard(images, world_size, workers, shards_each):
    return images // (world_size * workers * shards_each) or None
