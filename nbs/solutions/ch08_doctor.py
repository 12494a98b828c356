from statistics import median


def stages_of_rounds(rounds):
    def cost(more, less): return max(0, median(ms[more] - ms[less] for ms in rounds))
    return dict(reading=cost("everything", "no_reading"), transform=cost("no_reading", "no_transform"),
                batching=cost("no_transform", "same_batch"), computing=median(ms["same_batch"] for ms in rounds))


def ailment(): return "preprocessing"  # its collate works on every pixel again and again


def cheapest(step_ms, reading_ms, transform_ms, steps, price_per_hour, price_a, price_b):
    disk, transform = 0.9 * reading_ms, 0.5 * transform_ms
    saved = {"A": disk, "B": transform, "both": disk + transform, "neither": 0}
    cures = {"A": price_a, "B": price_b, "both": price_a + price_b, "neither": 0}
    def price(choice): return (step_ms - saved[choice]) / 1000 * steps / 3600 * price_per_hour + cures[choice]
    return min(saved, key=price)
