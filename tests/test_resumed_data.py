"""A resumed run says that data, transforms or code are others, and raises no false alarm where they are not."""
import random
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, random_split
from torchvision.transforms import v2

from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.training import fit


class Stop:
    steps = 0
    def on_step(self, *_):
        self.steps += 1
        if self.steps == 6: raise KeyboardInterrupt


def resumed(root, before, now):
    "What is said when a run with the loader `now` goes on from one with `before`, inside its first epoch."
    def train(loader, **how):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
        model(next(iter(loader))[0])
        fit(model, loader, observers=[Checkpointer(root, 5), *how.pop("more", ())], progress=False, device="cpu", **how)
    with pytest.raises(KeyboardInterrupt): train(before, more=[Stop()])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        train(now, epochs=2)
    return [str(one.message) for one in told if "the data or its code" in str(one.message)]


def pictures(shift=0.0, n=64):
    make = torch.Generator().manual_seed(0)
    return torch.rand(n, 3, 8, 8, generator=make) + shift, torch.randint(0, 3, (n,), generator=make)


class Pictures(Dataset):
    def __init__(self, transform=None, shift=0.0, root="/data"):
        (self.x, self.y), self.transform, self.root = pictures(shift), transform, root
        self.names = [f"{root}/{n}.png" for n in range(64)]
        self.noise, self.cache, self.calls = np.random.default_rng(), [None] * 64, 0

    def __len__(self): return len(self.x)

    def __getitem__(self, i):
        self.calls += 1
        self.cache[i] = float(self.noise.random()) + random.random()
        x = self.x[i] + 0.01 * torch.randn(3, 8, 8) * self.cache[i]
        return x if self.transform is None else self.transform(x), int(self.y[i])


def load(data, **how): return DataLoader(data, 8, **dict(shuffle=True) | how)


class Collate:
    def __init__(self, scale): self.scale = scale
    def __call__(self, rows): return self.scale * torch.stack([x for x, _ in rows]), torch.tensor([y for _, y in rows])


def tensors(shift): return load(TensorDataset(*pictures(shift)))
def transform(size): return load(Pictures(v2.Compose([v2.Resize(size), v2.CenterCrop(6), v2.RandomHorizontalFlip()])))
def function(scale): return load(Pictures(lambda x: x * scale))
def inside(shift): return load(random_split(Pictures(shift=shift), [48, 16], torch.Generator().manual_seed(1))[0])
def collated(scale): return load(Pictures(), collate_fn=Collate(scale))


@pytest.mark.parametrize("make, values", [(tensors, (0.0, 1.0)), (transform, (8, 12)), (function, (1, 2)),
                                          (inside, (0.0, 0.5)), (collated, (1.0, 2.0))])
def test_other_data_and_transforms_are_told(make, values, tmp_path):
    told = resumed(tmp_path, make(values[0]), make(values[1]))
    assert len(told) == 1 and "holds other values" in told[0], told
    assert not resumed(tmp_path / "same", make(values[0]), make(values[0]))


def test_other_code_is_told(tmp_path):
    code = """
        import torch
        from torch.utils.data import Dataset
        SCALE = 2
        def change(x): return x * SCALE
        class Data(Dataset):
            def __len__(self): return 64
            def __getitem__(self, i):
                # a comment
                return change(torch.full((4,), float(i))), i % 3
    """
    def loader(text):
        space = dict(__name__="users_data")
        exec(compile(textwrap.dedent(text), str(tmp_path / "users_data.py"), "exec"), space)
        return load(space["Data"]())
    assert "change is another" in resumed(tmp_path / "a", loader(code), loader(code.replace("x * SC", "x + SC")))[0]
    assert "SCALE holds other" in resumed(tmp_path / "b", loader(code), loader(code.replace("= 2", "= 3")))[0]
    assert not resumed(tmp_path / "c", loader(code), loader(code.replace("# a comment", "# another\n\n")))


class Stream(IterableDataset):
    def __init__(self, gain): self.gain, self.rng = gain, np.random.default_rng(0)

    def __iter__(self):
        for n in range(64): yield self.gain * torch.full((4,), float(self.rng.random())), n % 3


def test_another_stream_is_told(tmp_path):
    assert resumed(tmp_path, DataLoader(Stream(1.0), 8), DataLoader(Stream(2.0), 8))
    assert not resumed(tmp_path / "same", DataLoader(Stream(1.0), 8), DataLoader(Stream(1.0), 8))


def test_names_of_files_and_their_sizes_count_and_their_folder_does_not(tmp_path):
    class Files(Dataset):
        def __init__(self, root): self.samples = [(str(path), n % 3) for n, path in enumerate(sorted(root.glob("*")))]
        def __len__(self): return len(self.samples)
        def __getitem__(self, i): return torch.tensor([float(len(Path(self.samples[i][0]).read_bytes()))]), i % 3

    def folder(name, size=10, prefix="a"):
        (tmp_path / name).mkdir()
        for n in range(64): (tmp_path / name / f"{prefix}{n:02}").write_bytes(b"x" * size)
        return load(Files(tmp_path / name))
    first = folder("one")
    assert not resumed(tmp_path / "a", first, folder("two"))
    assert resumed(tmp_path / "b", first, folder("three", 12))
    assert resumed(tmp_path / "c", first, folder("four", 10, "b"))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_moves_while_it_trains_is_no_reason(workers, tmp_path):
    "Random augmentations, generators, caches, counts and another root; also where the same objects go on."
    how = dict(num_workers=workers, persistent_workers=workers > 0)
    flip = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomRotation(10)])
    assert not resumed(tmp_path / "a", load(Pictures(flip), **how), load(Pictures(flip, root="/other/place"), **how))
    assert not resumed(tmp_path / "c", load(Pictures(flip)), load(Pictures(flip), num_workers=2))
    same = load(Pictures(flip), **how)
    assert not resumed(tmp_path / "b", same, same)


def test_defaults_that_are_lists_or_tuples_are_no_reason_to_stop(tmp_path):
    "torchvision's Compose names PIL's functions, which have such defaults."
    def change(x, size=(2, 3), *, box=[1]): return x * size[0]  # noqa: B006
    assert not resumed(tmp_path, load(Pictures(change)), load(Pictures(change)))
