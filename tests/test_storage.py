"""Storage: every sample once whoever reads, one simulated device for all processes, and what happens when something
breaks."""
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from clocked import clocked
from copies import heard, twin
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from mlinfra.engine.base import hardware
from mlinfra.lab import host_bandwidth as hops
from mlinfra.engine.loading import jpegs, page_cache, reads as reads_room, shards as shards_room
from mlinfra.views import storage as storage_views
from mlinfra import storage
from mlinfra.engine.base.jobs import Stopped

SLOW = hardware.StorageModel("slow", 0.002, 200, 1e9, "for tests")  # 5 ms of the device for each read


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs.JpegFolder(
        jpegs.make_jpegs(tmp_path_factory.mktemp("photos"), 23, size=(32, 24), classes=3, progress=False)
    )


@pytest.fixture(scope="module")
def shards(folder, tmp_path_factory):
    "Five shards of at most five images."
    return shards_room.write_shards(folder, tmp_path_factory.mktemp("sets") / "shards", 5, progress=False)


def number(pixels): return int(pixels.long().sum())
def fingerprints(samples): return Counter((number(image), label) for image, label in samples)


# ---- every sample once

@given(shards=st.integers(1, 40), slots=st.integers(1, 70), samples=st.integers(0, 30))
def test_slots_share_every_sample_once(shards, slots, samples):
    seen = Counter(
        (shard, place)
        for slot in range(slots)
        for shard, part, parts in shards_room.shard_share(shards, slot, slots)
        for place in range(part, samples, parts)
    )
    assert seen == Counter((shard, place) for shard in range(shards) for place in range(samples))


@given(shards=st.integers(1, 40), slots=st.integers(1, 40))
def test_whole_shards_are_spread_evenly(shards, slots):
    counts = [len(shards_room.shard_share(shards, slot, slots)) for slot in range(slots)]
    assert max(counts) - min(counts) <= 1 and min(counts) >= 1


@settings(max_examples=25, deadline=None)
@given(
    world=st.integers(1, 7),
    shuffle=st.booleans(),
    seed=st.integers(0, 99),
    buffer=st.integers(1, 40),
    block=st.sampled_from([512, 1000, 10_240, 1 << 20]),
)
def test_ranks_read_every_sample_once(folder, shards, world, shuffle, seed, buffer, block):
    seen = sum(
        (
            fingerprints(
                storage.ShardDataset(
                    shards[0].parent,
                    shuffle=shuffle,
                    seed=seed,
                    rank=rank,
                    world_size=world,
                    buffer=buffer,
                    block_bytes=block,
                )
            )
            for rank in range(world)
        ),
        Counter(),
    )
    assert seen == fingerprints(folder)


@pytest.mark.parametrize("world, workers, method", [(1, 1, "fork"), (1, 3, "fork"), (2, 4, "fork"),
                                                    (1, 2, "forkserver")])
def test_workers_read_every_sample_once(folder, shards, world, workers, method):
    seen, device = Counter(), storage.SimulatedStorage(SLOW)
    for rank in range(world):
        dataset = storage.ShardDataset(shards[0].parent, shuffle=True, rank=rank, world_size=world, read=device)
        seen += fingerprints(DataLoader(dataset, None, num_workers=workers, multiprocessing_context=method))
    assert seen == fingerprints(folder) and device.reads >= len(shards), (
        "one device for all, whether they were forked or it was pickled for them; a shared shard is read by each"
    )


def test_epochs_differ_and_repeat_also_in_workers_that_persist(shards):
    dataset = storage.ShardDataset(shards[0].parent, shuffle=True, buffer=10)
    loader = DataLoader(dataset, None, num_workers=2, persistent_workers=True)
    def epoch(n):
        dataset.set_epoch(n)
        return [(number(image), label) for image, label in loader]
    first, second, again = epoch(0), epoch(1), epoch(0)
    loader._iterator._shutdown_workers()  # the garbage collector would wait five seconds for each of them
    assert first == again != second and sorted(first) == sorted(second)


def test_the_order_depends_on_the_seed(shards):
    orders = [
        [number(x) for x, _ in storage.ShardDataset(shards[0].parent, shuffle=True, seed=seed)] for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]


# ---- the format

def test_shards_of_others_are_read(folder, tmp_path):
    "Long names, folders in the archive, GNU and pax headers, no index, capital extensions."
    raw = bytes(jpegs.read_file(folder.samples[0][0]).numpy())
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / f"{kind}.tar", "w", format=kind) as tar:
            for key in ("train/" + "x" * 150 + "/a", "train/é"):
                for extension, content in (("JPG", raw), ("cls", b"7\n"), ("json", b"{}")):
                    shards_room.add_member(tar, f"{key}.{extension}", content)
    samples = list(dataset := storage.ShardDataset(tmp_path))
    assert (
        len(samples) == 4
        and {label for _, label in samples} == {7}
        and dataset.samples is None
        and dataset.classes is None
    )
    assert all(torch.equal(image, folder[0][0]) for image, _ in samples)


def test_what_is_written_depends_on_the_arguments_only(folder, shards, tmp_path):
    again = shards_room.write_shards(folder, tmp_path / "again", 5, progress=False)
    other = shards_room.write_shards(folder, tmp_path / "other", 5, progress=False, seed=1)
    assert [p.read_bytes() for p in again] == [p.read_bytes() for p in shards] != [p.read_bytes() for p in other]
    assert (again[0].parent / "index.json").read_bytes() == (shards[0].parent / "index.json").read_bytes()


# ---- damage

@pytest.fixture
def copied(shards, tmp_path):
    "A copy of the shards, to be damaged; without the index when the argument says so."
    import shutil
    return Path(shutil.copytree(shards[0].parent, tmp_path / "copied"))


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("keep", [0, 100, 512, 1024, 5_000, -512, -9_000])
def test_a_truncated_shard_is_named(copied, keep, index):
    path = copied / "shard-000002.tar"
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    if not index: (copied / "index.json").unlink()
    if not index and keep == -512 and whole.endswith(bytes(2 * 512 + 512)): return  # only padding was lost
    with pytest.raises(ValueError, match=r"shard-000002\.tar.*(truncated|index says)"):
        list(storage.ShardDataset(copied))


def test_a_shard_cut_between_two_samples_is_noticed_without_an_index(copied):
    path = copied / "shard-000001.tar"
    with tarfile.open(path) as tar: end = tar.getmembers()[4].offset
    path.write_bytes(path.read_bytes()[:end])
    with tarfile.open(path) as tar: assert len(tar.getmembers()) == 4, "tarfile itself says nothing"
    with pytest.raises(ValueError, match=r"shard-000001\.tar is truncated or damaged"):
        list(shards_room.read_shard(path))


def test_a_damaged_header_in_the_middle_is_noticed(copied):
    path = copied / "shard-000001.tar"
    with tarfile.open(path) as tar: place = tar.getmembers()[4].offset
    raw = bytearray(path.read_bytes())
    raw[place:place + 100] = b"\xff" * 100
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"shard-000001\.tar is truncated or damaged"):
        list(storage.ShardDataset(copied))


def test_a_missing_shard_is_named_at_once(copied):
    (copied / "shard-000003.tar").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 shard of 5.*shard-000003\.tar"): storage.ShardDataset(copied)


def test_a_shard_that_vanishes_during_an_epoch_is_named_by_workers_too(copied):
    dataset = storage.ShardDataset(copied)
    (copied / "shard-000003.tar").unlink()
    with pytest.raises(FileNotFoundError, match="shard-000003"): list(dataset)
    with pytest.raises(FileNotFoundError, match="shard-000003"): list(DataLoader(dataset, None, num_workers=2))


def test_a_folder_that_vanishes_during_an_epoch(folder, tmp_path):
    import shutil
    photos = Path(shutil.copytree(folder.root, tmp_path / "photos"))
    for dataset in (jpegs.JpegFolder(photos), storage.ReadAhead(jpegs.JpegFolder(photos), 4)):
        loader = iter(DataLoader(dataset, 4, num_workers=0))
        next(loader)
        photos.rename(tmp_path / "gone")
        with pytest.raises(FileNotFoundError, match="photos"): next(loader)
        (tmp_path / "gone").rename(photos)


def spoiled(folder, root):
    "A set with one image that is none."
    import shutil
    photos = Path(shutil.copytree(folder.root, root / "photos"))
    (photos / "class_000" / "0000000.jpg").write_bytes(b"\xff\xd8 no image")
    return shards_room.write_shards(jpegs.JpegFolder(photos), root / "shards", 5, progress=False)[0].parent


def test_a_broken_image_is_copied_then_named_or_skipped(folder, tmp_path):
    root = spoiled(folder, tmp_path)
    with pytest.raises(ValueError, match=r"shard-00000\d\.tar: 0000000\d\d\.jpg is not "):
        list(storage.ShardDataset(root))
    with pytest.warns(UserWarning, match=r"left out: .*\.jpg is not "):
        assert len(list(storage.ShardDataset(root, on_error="skip"))) == 22


@pytest.mark.parametrize(
    "members, says",
    [
        ([("a.jpg", b"x")], "a must have an image and a .cls"),
        ([("a.cls", b"1")], "a must have an image"),
        ([("a.jpg", b"x"), ("a.cls", b"cat")], "a must have an image and a .cls with a number"),
        ([("a.jpg", b""), ("a.cls", b"1")], "a.jpg is empty"),
    ],
)
def test_a_sample_that_is_none_is_named(tmp_path, members, says):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, raw in members: shards_room.add_member(tar, name, raw)
    with pytest.raises(ValueError, match=rf"x\.tar: {says}"): list(storage.ShardDataset(tmp_path))


# ---- writing goes wrong

def test_an_unreadable_file_leaves_nothing_behind(folder, tmp_path):
    import shutil
    photos = Path(shutil.copytree(folder.root, tmp_path / "photos"))
    strict, tolerant = jpegs.JpegFolder(photos), jpegs.JpegFolder(photos, on_error="skip")
    (photos / "class_001" / "0000001.jpg").unlink()  # listed, but gone
    (photos / "class_002" / "0000002.jpg").unlink()
    (photos / "class_002" / "0000002.jpg").mkdir()  # unreadable even for root
    with pytest.raises(OSError, match="000000[12]"):
        shards_room.write_shards(strict, tmp_path / "set", 5, progress=False)
    assert sorted(os.listdir(tmp_path)) == ["photos"]
    with pytest.warns(UserWarning, match="left out"):
        shards_room.write_shards(tolerant, tmp_path / "set", 5, progress=False)
    assert storage.ShardDataset(tmp_path / "set").samples == len(list(storage.ShardDataset(tmp_path / "set"))) == 21


def test_a_stop_leaves_nothing_behind(folder, tmp_path):
    calls = []
    def read(path):
        calls.append(path)
        if len(calls) == 12: raise KeyboardInterrupt
        return jpegs.read_file(path)

    with pytest.raises(KeyboardInterrupt):
        shards_room.write_shards(jpegs.JpegFolder(folder.root, read=read), tmp_path / "set", 5, progress=False)
    assert os.listdir(tmp_path) == []


def test_a_root_that_holds_something_is_refused_and_kept(folder, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("precious")
    with pytest.raises(FileExistsError, match="set exists"):
        shards_room.write_shards(folder, tmp_path / "set", progress=False)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(FileExistsError, match="file exists"):
        shards_room.write_shards(folder, tmp_path / "file", progress=False)
    assert sorted(os.listdir(tmp_path)) == ["file", "set"] and os.listdir(tmp_path / "set") == ["mine"]
    (tmp_path / "empty").mkdir()
    assert len(shards_room.write_shards(folder, tmp_path / "empty", progress=False)) == 1


def fills(pipe, folder, target):
    "Writes where no file may grow beyond 20,000 bytes: then a write fails as on a full disk."
    import resource
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try: shards_room.write_shards(folder, target, 1000, progress=False)
    except OSError as error: pipe.send(f"{type(error).__name__} {error}")


def test_a_disk_that_is_full_leaves_nothing_behind(folder, tmp_path):
    with twin(fills, folder, tmp_path / "set") as (_, pipe): said = heard(pipe)
    assert "OSError" in said and "may not grow any more" in said
    assert os.listdir(tmp_path) == []


def test_a_small_disk(folder, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", small], capture_output=True).returncode
    ):
        pytest.skip("a small disk needs root and the right to mount a tmpfs")
    try:
        with pytest.raises(ValueError, match="mount point"): shards_room.write_shards(folder, small, progress=False)
        with pytest.raises(OSError, match="the disk is full"):
            shards_room.write_shards(folder, small / "set", progress=False)
        assert os.listdir(small) == []
    finally: subprocess.run(["umount", small], check=True)


# ---- one simulated device for all

def draw(device, path, times):
    for _ in range(times): device(path, 0, 10)


def test_operations_are_limited_over_all_processes(folder):
    device, path = storage.SimulatedStorage(SLOW), folder.samples[0][0]
    start = time.monotonic()
    processes = [multiprocessing.get_context("fork").Process(target=draw, args=(device, path, 20)) for _ in range(3)]
    for process in processes: process.start()
    for process in processes: process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert device.reads == 60 and device.bytes == 600
    assert time.monotonic() - start >= 60 * SLOW.service(10) and device.seconds >= 0.999 * 60 * SLOW.alone(10)


@clocked
def test_latencies_overlap_but_no_read_is_early(folder):
    far = hardware.StorageModel("far", 0.2, 1e6, 1e12, "for tests")
    reads = reads_room.measure_reads(
        folder.samples[0][0], 10, reads=16, cold=False, in_flight=16, read=storage.SimulatedStorage(far)
    )
    assert min(reads.latencies) >= 0.2 and reads.overlap > 1, (
        "waits of 0.2 s, side by side; how many at a time is the machine's"
    )


def test_bandwidth_is_limited(folder):
    thin = hardware.StorageModel("thin", 0, 1e6, 10_000, "for tests")
    reads = reads_room.measure_reads(
        folder.samples[0][0], 100, reads=20, cold=False, in_flight=10, read=storage.SimulatedStorage(thin)
    )
    assert reads.seconds >= 20 * 100 / 10_000


def test_loader_workers_share_the_device(folder):
    device = storage.SimulatedStorage(SLOW)
    dataset = jpegs.JpegFolder(folder.root, read=device)
    start = time.monotonic()
    loader = DataLoader(dataset, 1, num_workers=2)
    seen = fingerprints((image, int(label)) for images, labels in loader for image, label in zip(images, labels))
    assert seen == fingerprints(folder) and device.reads == 23 and time.monotonic() - start >= 23 * SLOW.service(1)


def test_shards_are_read_in_large_blocks(shards):
    device = storage.SimulatedStorage(SLOW)
    list(storage.ShardDataset(shards[0].parent, read=device))
    assert device.reads == len(shards) and device.bytes == sum(path.stat().st_size for path in shards)


def die(image): os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "make",
    [
        lambda f, s, d: jpegs.JpegFolder(f.root, die, read=d),
        lambda f, s, d: storage.ShardDataset(s[0].parent, die, read=d),
    ],
    ids=["files", "shards"],
)
def test_a_killed_worker_is_an_error_and_no_hang(folder, shards, make):
    device = storage.SimulatedStorage(SLOW)
    with pytest.raises(RuntimeError, match="killed by signal: Killed|exited unexpectedly"):
        list(DataLoader(make(folder, shards, device), 1, num_workers=2))
    device(folder.samples[0][0])  # the device serves on


def test_a_process_that_died_holding_the_device_is_no_hang(folder, monkeypatch):
    device = storage.SimulatedStorage(SLOW)
    monkeypatch.setattr(device, "lock_seconds", 0.2)
    process = multiprocessing.get_context("fork").Process(
        target=lambda: (device._lock.acquire(), os.kill(os.getpid(), signal.SIGKILL))
    )
    process.start()
    process.join(30)
    with pytest.raises(RuntimeError, match="a process died"): device(folder.samples[0][0])


# ---- measuring

@given(
    block=st.integers(1, 5_000),
    reads=st.integers(1, 60),
    pattern=st.sampled_from(["random", "sequential"]),
    cold=st.booleans(),
    seed=st.integers(0, 9),
)
def test_places_are_whole_blocks_each_once_before_any_again(block, reads, pattern, cold, seed):
    size = 10_007
    if block > size: return
    places = reads_room.block_starts(size, block, pattern, reads, cold, seed)
    assert all(place % block == 0 and place + block <= size for place in places)
    rounds = Counter(places).values()
    assert (
        max(rounds) - min(rounds) <= 1
        and (max(rounds) == 1 or not cold)
        and len(places) == (min(reads, size // block) if cold else reads)
    )
    if pattern == "sequential": assert places[:size // block] == sorted(places[:size // block])


def test_a_read_that_fails_ends_the_measurement_with_its_error(folder):
    calls = []
    def fail_once(path, start, size):
        calls.append(start)
        if len(calls) == 5: raise OSError(f"no luck with {size}")
        time.sleep(0.01)

    with pytest.raises(OSError, match="no luck with 10"):
        reads_room.measure_reads(folder.samples[0][0], 10, reads=5_000, cold=False, in_flight=4, read=fail_once)
    assert len(calls) < 5_000, "the other threads stop as well"


def test_a_stop_ends_the_measurement(folder):
    def stop(fraction, words): raise Stopped
    far, start = hardware.StorageModel("far", 0.1, 1e6, 1e12, "for tests"), time.monotonic()
    with pytest.raises(Stopped):
        reads_room.measure_reads(
            folder.samples[0][0], 10, reads=10_000, cold=False, read=storage.SimulatedStorage(far), report=stop
        )
    assert time.monotonic() - start < 60, "of 1,000 s"


def test_a_file_that_shrinks_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    monkeypatch.setattr(reads_room, "drop_cache", lambda path: os.truncate(path, 500) or 0.0)
    with pytest.raises(OSError, match="ended while it was read"): reads_room.measure_reads(path, 1_000, "sequential")


@pytest.mark.skipif(sys.platform != "linux", reason="the page cache is asked about on Linux")
def test_a_file_in_memory_stays_cached_and_that_is_said(tmp_path):
    if not os.path.isdir("/dev/shm") or not os.access("/dev/shm", os.W_OK): pytest.skip("no /dev/shm to write to")
    import tempfile
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(1 << 20))
        file.flush()
        if page_cache.cached_share(file.name) < 1: pytest.skip("/dev/shm is no tmpfs here")
        assert page_cache.drop_cache(file.name) > 0.5, (
            "nothing is dropped; a machine that swaps may have moved some pages out"
        )
        assert reads_room.measure_reads(file.name, 4096, reads=5).cached_share > 0.5


def test_empty_and_missing_files(tmp_path):
    (tmp_path / "empty").touch()
    assert page_cache.cached_share(tmp_path / "empty") == page_cache.drop_cache(tmp_path) == 0.0
    for action in (page_cache.cached_share, page_cache.drop_cache):
        with pytest.raises(FileNotFoundError, match="nowhere"): action(tmp_path / "nowhere")


def test_nothing_is_left_open(folder, shards):
    def handles(): return len(os.listdir("/proc/self/fd"))
    if not os.path.isdir("/proc/self/fd"): pytest.skip("no /proc here")
    def use():
        reads_room.measure_reads(folder.samples[0][0], 10, reads=5, in_flight=3)
        page_cache.cached_share(folder.root)
        dataset = storage.ShardDataset(shards[0].parent)
        for samples in (iter(dataset), iter(dataset)): next(samples)  # given up half-way
        del samples, dataset
        gc.collect()
    use()
    before = handles()
    for _ in range(5): use()
    assert handles() == before


# ---- the path to the device

def test_without_cold_reads_the_disk_is_not_here(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise")
    path = hops.host_path(tmp_path, 1 << 20)
    assert path.hops[0].basis == "not here" and "posix_fadvise" in path.hops[0].note and path.slowest.start != "storage"
    assert "not here" in str(storage_views.draw_path(path)) and os.listdir(tmp_path) == []


def test_a_cache_that_stays_is_no_measurement_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(reads_room, "drop_cache", lambda path: 1.0)
    assert hops.host_path(tmp_path, 1 << 20).hops[0].note == "100% stayed in the cache"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_both_ways_to_the_gpu_are_measured():
    path = hops.host_path()
    assert [hop.start for hop in path.hops[-2:]] == ["pageable batch", "pinned batch"] and all(
        hop.basis == "measured" for hop in path.hops[-2:]
    )
    assert path.gpu and (path.gpu_node is None or path.gpu_node in dict(path.nodes))
