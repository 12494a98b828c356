"""JPEGs under faults: a killed writer, a full disk, files that vanish, and every sample once whoever loads."""
import itertools
import os
import pickle
import resource
import shutil
import signal
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from copies import heard, run_code, twin
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset, TensorDataset

from mlinfra import data
from mlinfra.engine.loading import crops, jpegs, raw_cache as rawcache
from mlinfra.engine.loading.loader_surgery import opened
from mlinfra.engine.loading.shards import write_shards
from mlinfra.storage import ReadAhead

SMALL = dict(size=(32, 24), classes=3, progress=False)


@pytest.fixture
def photos(tmp_path): return jpegs.make_jpegs(tmp_path / "photos", 12, **SMALL)


def files(root):
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_the_same_arguments_give_the_same_files(photos, tmp_path):
    assert files(jpegs.make_jpegs(tmp_path / "again", 12, **SMALL)) == files(photos)
    assert files(jpegs.make_jpegs(tmp_path / "other", 12, seed=1, **SMALL)) != files(photos)


def writes(pipe, root): jpegs.make_jpegs(root, 5_000, size=(64, 48), progress=False)


def test_a_killed_writer_leaves_whole_files_and_is_resumed(tmp_path):
    root = tmp_path / "photos"
    with twin(writes, root) as (process, _):
        while sum(1 for _ in root.glob("*/*.jpg")) < 20: assert process.is_alive()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    for path in root.glob("*/*.jpg"): jpegs.decode_image(jpegs.read_file(path), str(path))
    count = sum(1 for _ in root.glob("*/*.jpg"))
    jpegs.make_jpegs(root, count + 5, size=(64, 48), progress=False)
    assert len(jpegs.JpegFolder(root)) == count + 5


def fills(pipe, write, *arguments):
    "Writes where no file may grow beyond 700 bytes."
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try: pipe.send(f"done: {write(*arguments)}")
    except OSError as error: pipe.send(str(error))


def write_jpegs(root, photos): return jpegs.make_jpegs(root, 9, size=(64, 48), progress=False)
def write_raw_cache(root, photos): return rawcache.make_raw_cache(jpegs.JpegFolder(photos), root, progress=False)


@pytest.mark.parametrize("write", [write_jpegs, write_raw_cache])
def test_a_full_disk_is_told_and_leaves_nothing_half_written(tmp_path, photos, write):
    root = tmp_path / "full" / "here"
    with twin(fills, write, root, photos) as (_, pipe): assert "may not grow any more" in heard(pipe)
    assert not list(tmp_path.rglob("*.part")) and not (root / "pixels").exists()


def test_a_folder_that_vanishes_is_named(photos):
    loader = DataLoader(jpegs.JpegFolder(photos), 4, num_workers=1)
    shutil.rmtree(photos / "class_001")
    with pytest.raises(FileNotFoundError, match="class_001"), opened(loader) as batches: list(batches)


def test_a_file_that_cannot_be_read_is_named(photos):
    folder = jpegs.JpegFolder(photos)
    path = Path(folder.samples[5][0])
    path.unlink()
    path.mkdir()  # root may read any file, but nobody a folder
    with pytest.raises(OSError, match=path.name): folder[5]


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory): return jpegs.make_jpegs(tmp_path_factory.mktemp("photos"), 12, **SMALL)


@settings(max_examples=12, deadline=None)
@given(broken=st.sets(st.integers(0, 11), max_size=10), batch=st.integers(1, 13), workers=st.sampled_from([0, 0, 0, 2]))
def test_every_whole_file_comes_once_and_every_broken_one_is_counted(broken, batch, workers, whole_files,
                                                                     tmp_path_factory):
    root = shutil.copytree(whole_files, tmp_path_factory.mktemp("photos"), dirs_exist_ok=True)
    folder = jpegs.JpegFolder(root, on_error="skip")
    for i in broken: Path(folder.samples[i][0]).write_bytes(b"\xff\xd8 broken")
    with pytest.warns() if broken and not workers else nullcontext():
        try:
            with opened(DataLoader(folder, batch, num_workers=workers)) as batches:
                seen = Counter(int(image.long().sum()) for images, _ in batches for image in images)
        except ValueError as error:
            assert "none of the" in str(error) and any(
                set(range(s, min(s + batch, 12))) <= broken for s in range(0, 12, batch)
            )
            return
    assert seen == Counter(int(folder[i][0].long().sum()) for i in range(12) if i not in broken)
    assert {path for path, _ in folder.samples if path in folder.skipped} == {folder.samples[i][0] for i in broken}


def test_decoding_warns_of_nothing_that_will_go(photos):
    "In a process that has not loaded the libraries yet."
    code = ("import warnings; warnings.simplefilter('error', DeprecationWarning)\n"
            f"from mlinfra.data import JpegFolder; [image for image, _ in JpegFolder({str(photos)!r})]")
    done, = run_code(code)
    assert done.code == 0, done.output


def test_without_simplejpeg_pillow_gives_the_same_pixels(photos, monkeypatch):
    folder = data.JpegFolder(photos)
    before = [image for image, _ in folder]
    monkeypatch.setattr(jpegs, "_simplejpeg", lambda: None)
    assert all(torch.equal(image, once) for (image, _), once in zip(folder, before, strict=True))


def test_an_error_of_the_readers_transform_is_not_taken_for_a_broken_file(photos):
    def clumsy(_image): raise ValueError("my own mistake")
    folder = data.JpegFolder(photos, clumsy, on_error="skip")
    with pytest.raises(ValueError, match="my own mistake"): next(iter(DataLoader(folder, 4)))
    assert folder.skipped == []


def test_a_raw_cache_travels_to_workers_as_a_path(photos, tmp_path):
    cache = rawcache.RawCache(rawcache.make_raw_cache(jpegs.JpegFolder(photos), tmp_path / "raw", progress=False))
    cache[0]
    assert len(pickle.dumps(cache)) < 5_000
    loader = DataLoader(cache, 4, num_workers=1, multiprocessing_context="forkserver")  # as with spawn, all is pickled
    assert torch.equal(next(iter(loader))[0][3], cache[3][0])


def test_a_transform_that_works_in_place_changes_no_stored_pixels(photos, tmp_path):
    path = rawcache.make_raw_cache(jpegs.JpegFolder(photos), tmp_path / "raw", progress=False)
    sets = [rawcache.RawCache(path, torch.Tensor.bitwise_not_),
            rawcache.RawCache(path, lambda image: torch.from_numpy(np.invert(image.numpy(), out=image.numpy()))),
            data.PerSample(data.Images(torch.randint(0, 256, (12, 3, 4, 4), dtype=torch.uint8), torch.arange(12)),
                           torch.Tensor.bitwise_not_)]
    for one in sets:
        descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        kept = [one[0] for _ in range(20)]
        if descriptors: assert len(os.listdir("/proc/self/fd")) < descriptors + 10, "an open file for each image"
        assert all(torch.equal(image, kept[0][0]) for image, _ in kept)
        first = [image.clone() for image, _ in one]
        assert all(torch.equal(image, again) for image, (again, _) in zip(first, one))


class OwnSamples(jpegs.JpegFolder):
    def __getitem__(self, i): return super().__getitem__(i)[0], 0


@pytest.mark.parametrize("use", [
    lambda folder, root: rawcache.make_raw_cache(folder, root, progress=False),
    lambda folder, root: write_shards(folder, root, progress=False),
    lambda folder, root: ReadAhead(folder)])
def test_what_is_no_folder_of_files_or_makes_its_own_samples_is_refused(photos, tmp_path, use):
    folder = jpegs.JpegFolder(photos)
    for bad, words in (Subset(folder, [0]), "got Subset"), (OwnSamples(photos), "a __getitem__ of its own"):
        with pytest.raises(TypeError, match=words): use(bad, tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("write", [
    lambda folder, root: jpegs.make_jpegs(root, 1, **SMALL),
    lambda folder, root: rawcache.make_raw_cache(folder, root, progress=False),
    lambda folder, root: write_shards(folder, root, progress=False)])
def test_a_path_that_no_shell_expands_is_refused(photos, tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    for root in ("~/made", ""):
        with pytest.raises(ValueError, match="must be the path of a folder"): write(jpegs.JpegFolder(photos), root)
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("seen", range(5))
def test_an_epochs_order_is_that_of_whole_epochs_wherever_a_loop_left_the_one_before(seen):
    "Checkpoints within an epoch rely on it: they keep the generator as it is for the next one."
    numbers = TensorDataset(torch.arange(10))
    whole, left = (data.BatchLoader(numbers, 3, shuffle=True, seed=1) for _ in range(2))
    for _ in range(3):
        order, batches = [b.tolist() for b, in whole], iter(left)
        assert [b.tolist() for b, in itertools.islice(batches, seen)] == order[:seen]
        if seen: assert torch.equal(left.generator.get_state(), whole.generator.get_state())
        else: next(batches)


@pytest.mark.parametrize("labels", [torch.tensor([0.0, 1.5]), torch.tensor([0, torch.nan]), torch.eye(2).long()])
def test_labels_that_are_no_classes_are_refused(labels):
    with pytest.raises(ValueError, match="labels must be a whole number for each image"):
        data.Images(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), labels)


@pytest.mark.parametrize("labels", [torch.tensor([0.0, 1.0]), torch.tensor([False, True]), [0, 1]])
def test_labels_are_int64_whatever_holds_them(labels):
    kept = data.Images(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), labels).labels
    assert kept.dtype == torch.int64 and kept.tolist() == [0, 1]


@pytest.mark.parametrize("scale, images", [
    (crops.Normalize(), torch.full((1, 3, 2, 2), 255)), (data.to_float, torch.rand(2, 2)),
    (data.to_float, torch.ones(2, 2, dtype=torch.bool))])
def test_pixels_whose_scale_is_another_are_refused(scale, images):
    with pytest.raises(TypeError, match="images must be"): scale(images)


@pytest.mark.parametrize("make", [
    lambda photos: jpegs.JpegFolder(photos, transform=32), lambda photos: jpegs.JpegFolder(photos, read="file"),
    lambda photos: data.BatchLoader(TensorDataset(torch.zeros(2)), transform=2),
    lambda photos: data.PerSample(data.Images(torch.zeros(1, 1, 1, 1), torch.zeros(1)), None)])
def test_a_transform_that_cannot_be_called_is_refused_at_once(photos, make):
    with pytest.raises(TypeError, match="must be a function"): make(photos)


def test_a_cut_cache_is_refused(photos, tmp_path):
    path = rawcache.make_raw_cache(jpegs.JpegFolder(photos), tmp_path / "raw", progress=False)
    with open(path / "pixels", "r+b") as file: file.truncate(100)
    with pytest.raises(ValueError, match="index says"): rawcache.RawCache(path)
