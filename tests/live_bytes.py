"""An independent count of the bytes that a training step keeps alive."""
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    "Bytes of all storages that were seen and are not yet freed; it knows nothing of our books."
    def __init__(self, *there):
        super().__init__()
        self.now, self.most, self.seen = 0, 0, {}
        for tensor in there: self.see(tensor)

    def see(self, tensor):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.seen: return
        self.now += size
        self.seen[key] = weakref.finalize(storage, self.gone, key, size)

    def gone(self, key, size):
        self.now -= size
        del self.seen[key]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor): self.see(tensor)
        self.most = max(self.most, self.now)
        return result


def live_bytes(model, batch, step, make=lambda params: torch.optim.AdamW(params, fused=True)):
    "Most that is alive in the second of two steps, where the optimizer's state is there."
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    tensors = [t for t in tree_leaves(batch) if isinstance(t, torch.Tensor)]
    with Alive(*model.parameters(), *model.buffers(), *tensors) as counter:
        for _ in range(2):
            counter.most = 0
            step(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    return counter.most
