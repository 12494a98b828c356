"""MNIST's files under faults: cut, altered, two processes at once, a kill, a full disk, no network."""
import gzip
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from copies import run_code

from mlinfra.engine.loading import idx_files as idx
from mlinfra import data

FILES = [f"{name}.gz" for name in idx.MD5]
TRAIN = "train-images-idx3-ubyte"


@pytest.fixture
def own(tmp_path):
    "A folder with the four packed files, to be damaged."
    for name in FILES: shutil.copy(idx.embedded() / name, tmp_path)
    return tmp_path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MLINFRA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mnist"


def test_own_folder(own):
    assert len(data.mnist(root=own)) == 60_000 and len(data.mnist(train=False, root=str(own))) == 10_000


def test_nothing_is_written_into_the_readers_folder(own):
    before = sorted(os.listdir(own))
    data.mnist(root=own)
    assert sorted(os.listdir(own)) == before


@pytest.mark.parametrize("keep", [0, 10, 5_000, -1], ids=["empty", "header", "half", "last byte"])
def test_truncated_gzip_is_named_with_its_sum(own, keep):
    packed = own / f"{TRAIN}.gz"
    packed.write_bytes(packed.read_bytes()[:keep])
    with pytest.raises(ValueError, match=f"{TRAIN}.*{idx.MD5[TRAIN]}"): data.mnist(root=own)


def test_altered_gzip_is_named(own):
    packed = own / f"{TRAIN}.gz"
    raw = bytearray(packed.read_bytes())
    raw[len(raw) // 2] ^= 1
    packed.write_bytes(raw)
    with pytest.raises(ValueError, match=TRAIN): data.mnist(root=own)


def test_altered_pixels_in_a_sound_gzip_are_named_with_both_sums(own):
    packed = own / f"{TRAIN}.gz"
    raw = bytearray(gzip.decompress(packed.read_bytes()))
    raw[1_000] ^= 1
    packed.write_bytes(gzip.compress(raw, 1))
    with pytest.raises(ValueError, match=rf"{TRAIN}.*md5 [0-9a-f]{{32}}, expected {idx.MD5[TRAIN]}"):
        data.mnist(root=own)
    assert len(data.mnist(root=own, verify=False)) == 60_000


def test_missing_folder_and_file(own):
    with pytest.raises(FileNotFoundError, match="nowhere"): data.mnist(root=own / "nowhere")
    (own / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match="train-labels"): data.mnist(root=own)


def test_unpacked_once_and_left_clean(cache):
    data.mnist()
    first = (cache / TRAIN).stat().st_mtime_ns
    data.mnist()
    assert sorted(os.listdir(cache)) == sorted([TRAIN, "train-labels-idx1-ubyte"])
    assert (cache / TRAIN).stat().st_mtime_ns == first


def test_damaged_source_leaves_nothing_in_the_cache(own, cache, monkeypatch):
    (own / f"{TRAIN}.gz").write_bytes((own / f"{TRAIN}.gz").read_bytes()[:50_000])
    monkeypatch.setattr(idx, "embedded", lambda: own)
    with pytest.raises(ValueError, match=TRAIN): data.mnist()
    assert not cache.exists() or os.listdir(cache) == []


LOAD = "from mlinfra.data import mnist; print(int(mnist().images.sum(dtype=__import__('torch').int64)))"


def test_three_processes_at_once(cache):
    "Copied from one that has PyTorch in memory, they come to the empty cache together."
    told = run_code(LOAD, LOAD, LOAD)
    assert [done.code for done in told] == [0] * 3, "\n".join(map(str, told))
    assert len({done.output for done in told}) == 1 and told[0].output.strip().isdigit(), told
    assert sorted(os.listdir(cache)) == sorted([TRAIN, "train-labels-idx1-ubyte"])


KILLED = """
import os, signal
from pathlib import Path
from mlinfra import data
real = os.replace
def die(source, target): os.kill(os.getpid(), signal.SIGKILL)  # at the worst moment: written, not yet in place
os.replace = die
data.mnist()
"""


def test_a_kill_while_unpacking_does_no_harm(cache):
    done, = run_code(KILLED)
    assert done.code == -signal.SIGKILL, done.output
    assert TRAIN not in os.listdir(cache), "the half-done file must not carry the real name"
    assert len(data.mnist()) == 60_000


def test_damaged_cache_is_replaced_with_a_warning(cache):
    data.mnist()
    (cache / TRAIN).write_bytes(b"\0" * 100)
    with pytest.warns(UserWarning, match="unpacking it again"): assert len(data.mnist()) == 60_000
    assert (cache / TRAIN).stat().st_size == 47_040_016


def test_full_disk(tmp_path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True).returncode
    ):
        pytest.skip("a small disk needs root and the right to mount a tmpfs")
    try:
        monkeypatch.setenv("MLINFRA_CACHE", str(small))
        with pytest.warns(UserWarning, match="the disk is full"): assert len(data.mnist()) == 60_000
        assert TRAIN not in os.listdir(small / "mnist") and not [
            f for f in os.listdir(small / "mnist") if f.startswith(TRAIN)
        ]
    finally: subprocess.run(["umount", small], check=True)


def test_without_the_repository_and_without_a_network(cache, tmp_path, monkeypatch):
    import torchvision
    def refuse(*_args, **_kw): raise RuntimeError("Error downloading train-images-idx3-ubyte.gz")
    monkeypatch.setattr(idx, "embedded", lambda: tmp_path / "absent")
    monkeypatch.setattr(torchvision.datasets.MNIST, "download", refuse)
    with pytest.raises(ConnectionError, match=r"could not be downloaded.*mnist\(root="): data.mnist()


def test_without_the_repository_torchvisions_download_is_used(cache, tmp_path, monkeypatch):
    import torchvision
    def download(self):
        raw = Path(self.raw_folder)
        raw.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (raw / name.removesuffix(".gz")).write_bytes(gzip.decompress((repository / name).read_bytes()))
    repository = idx.embedded()
    monkeypatch.setattr(idx, "embedded", lambda: tmp_path / "absent")
    monkeypatch.setattr(torchvision.datasets.MNIST, "download", download)
    assert len(data.mnist()) == 60_000
