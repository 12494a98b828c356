import math
import random


def epoch_order(samples, seed, epoch):
    order = list(range(samples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def workers_for(cores, gpus, images_per_s, ms):
    return max(1, min(math.ceil(images_per_s * ms / 1000), cores // gpus))


def store_as(images, epochs, jpeg_bytes, pixel_bytes, decode_s, bytes_per_s, free_bytes):
    jpeg_s = jpeg_bytes / bytes_per_s + decode_s
    pixel_s = pixel_bytes / bytes_per_s
    faster = jpeg_s + pixel_s + epochs * pixel_s < epochs * jpeg_s
    return "pixels" if faster and images * pixel_bytes <= free_bytes else "jpegs"
