import copy
import hashlib
import os
from pathlib import Path

import torch


class Saver:
    def __init__(self, folder): self.folder = Path(folder)

    def save(self, step, raw):
        part = self.folder / f"{step:012}.part"
        with open(part, "wb") as file:
            file.write(hashlib.sha256(raw).digest() + raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, part.with_suffix(".save"))

    def newest(self):
        for path in sorted(self.folder.glob("*.save"), reverse=True):
            found = path.read_bytes()
            if hashlib.sha256(found[32:]).digest() == found[:32]: return int(path.stem), found[32:]
        return None


class Keeper:
    def capture(self, t):
        return copy.deepcopy(dict(model=t.model.state_dict(), optimizer=t.optimizer.state_dict(), rows=t.rows,
                                  torch=torch.get_rng_state()))

    def restore(self, t, state):
        state = copy.deepcopy(state)
        t.model.load_state_dict(state["model"])
        t.optimizer.load_state_dict(state["optimizer"])
        t.rows = state["rows"]
        torch.set_rng_state(state["torch"])


def suspect(losses, undisturbed, next_epoch):
    step = next((n for n, (a, b) in enumerate(zip(losses, undisturbed)) if a != b), None)
    return {None: "nothing", 0: "input", 1: "optimizer", next_epoch: "order"}.get(step, "counter")
