import math


def bill(step_seconds, steps, extras, devices, together, dollars_per_hour):
    timed = step_seconds[10:]
    seconds = steps * sum(timed) / len(timed) + sum(count * each for count, each in extras)
    return math.ceil(seconds / 3600) * math.ceil(devices / together) * dollars_per_hour


def least_utilisation(price, years, kilowatts, per_kwh, resale, rent):
    saved = rent - kilowatts * per_kwh
    if saved <= 0: return None
    share = price * (1 - resale) / (saved * 8766 * years)
    return share if share <= 1 else None


def spot_price(work, interval, mtbf, restart, spot):
    lost = (interval / 2 + restart) / mtbf
    return math.inf if lost >= 1 else spot * work / (1 - lost)
