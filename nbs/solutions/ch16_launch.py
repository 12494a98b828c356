import math
import re


def meet_at(store, host, world_size):
    ticket = store.add("arrived", 1) - 1
    if ticket >= world_size: raise RuntimeError(f"{host} is too late: {world_size} are here already")
    store.set(f"host {ticket}", host)
    keys = [f"host {number}" for number in range(world_size)]
    store.wait(keys)
    hosts = [store.get(key).decode() for key in keys]
    order = sorted(zip(hosts, range(world_size)))
    rank = order.index((host, ticket))
    return rank, rank - sorted(hosts).index(host)


def hosts_of(nodelist):
    found = []
    for name, numbers in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?", nodelist):
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            numbered = range(int(first or 0), int(last or first or 0) + 1)
            found += [name + str(number).zfill(len(first)) for number in numbered] if first else [name]
    return found


def retries_for(devices, hours, device_hours, risk):
    mean, count = devices * hours / device_hours, 0
    chance = told = math.exp(-mean)
    while told < 1 - risk:
        count += 1
        chance *= mean / count
        told += chance
    return count
