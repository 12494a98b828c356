import math


def bill(step_seconds, steps, extras, devices, together, dollars_per_hour):
    timed = step_seconds[10:]
    seconds = steps * sum(timed) / len(timed) + sum(count * each for count, each in extras)
    return math.ceil(seconds / 3600) * math.ceil(devices / together) * dollars_per_hour


def may_be_cheapest(trials, prices, margin):
    lowest = {name: prices[name] / max(rates) * (1 - margin) for name, rates in trials.items()}
    highest = {name: prices[name] / min(rates) * (1 + margin) for name, rates in trials.items()}
    return {name for name in trials if lowest[name] <= min(highest.values())}


def spot_price(work, interval, mtbf, restart, spot):
    lost = (interval / 2 + restart) / mtbf
    return math.inf if lost >= 1 else spot * work / (1 - lost)
