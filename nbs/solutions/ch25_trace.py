def cause(gap, launched, loader, synchronise):
    begin, end = gap
    if launched <= begin: return {"queued": end - begin}
    waited = sum(max(min(end, e) - max(begin, b), 0) for b, e in loader)
    rest = "synchronise" if any(b <= begin < e for b, e in synchronise) else "launch"
    found = {"loader": waited, rest: end - begin - waited}
    return {why: time for why, time in found.items() if time}


def latest(spans):
    takes = {rank: [end - begin for begin, end in own] for rank, own in spans.items()}
    last = [min(takes, key=lambda rank: takes[rank][i]) for i in range(len(next(iter(takes.values()))))]
    return max(takes, key=last.count)


def first_cure(chains, cures):
    step, saved = max(chains.values()), {}
    for name, (chain, saves) in cures.items():
        saved[name] = step - max((chains | {chain: chains[chain] - saves}).values())
    best = max(saved, key=saved.get, default=None)
    return best if best is not None and saved[best] >= 0.05 * step else None
