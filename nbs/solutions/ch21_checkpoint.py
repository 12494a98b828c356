import copy
import hashlib
import math
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


def steps_between_saves(save_seconds, step_seconds, nodes, interruptions, node_hours):
    mtbf_seconds = 3600 * node_hours / interruptions / nodes
    return max(1, round(math.sqrt(2 * save_seconds * mtbf_seconds) / step_seconds))
