"""Stage decode: from JPEG files to a normalised batch of random crops, on one core, each beside the bare decode.

python decode.py NAME FOLDER IMAGES   one contender in a process of its own; prints its seconds and the bare decode's
"""
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEAN, STD, SIDE, BATCH, REPEATS = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225], 224, 32, 5
Pass = Callable[[], None]  # all images once


# ---- the contenders: each makes a function that goes through all images once

def bare(folder: Path, images: int) -> Pass:
    "libjpeg-turbo's decode and nothing else."
    from mlinfra.engine.loading.jpegs import JpegFolder
    files = JpegFolder(folder / "photos")
    def run() -> None:
        for path, _ in files.samples: files.load(path)
    return run


def bare_simplejpeg(folder: Path, images: int) -> Pass:
    "The same by simplejpeg, for a process that must not load torch: TensorFlow brings another LLVM."
    import simplejpeg
    files = sorted((folder / "photos").glob("*/*.jpg"))
    def run() -> None:
        for path in files: simplejpeg.decode_jpeg(path.read_bytes())
    return run


def ours(dataset: Any) -> Pass:
    import torch
    from mlinfra.engine.loading.crops import Normalize
    from mlinfra.engine.train.allocator import keep_memory
    keep_memory()  # as `fit` does it
    normalize = Normalize()
    def run() -> None:
        for start in range(0, len(dataset), BATCH):
            normalize(torch.stack([dataset[i][0] for i in range(start, min(start + BATCH, len(dataset)))]))
    return run


def jpeg_folder(folder: Path, images: int) -> Pass:
    from mlinfra.engine.loading.crops import RandomCropFlip
    from mlinfra.engine.loading.jpegs import JpegFolder
    return ours(JpegFolder(folder / "photos", RandomCropFlip()))


def raw_cache(folder: Path, images: int) -> Pass:
    from mlinfra.engine.loading.crops import RandomCropFlip
    from mlinfra.engine.loading.raw_cache import RawCache
    return ours(RawCache(folder / "raw", RandomCropFlip()))


def simplejpeg_folder(folder: Path, images: int) -> Pass:
    import simplejpeg
    import torch
    from mlinfra.engine.loading.crops import RandomCropFlip
    from mlinfra.engine.loading.jpegs import JpegFolder

    def decode(raw: Any, name: str) -> Any:
        return torch.from_numpy(simplejpeg.decode_jpeg(raw.numpy())).permute(2, 0, 1)
    return ours(JpegFolder(folder / "photos", RandomCropFlip(), decode=decode))


def loader(dataset: Any) -> Pass:
    from torch.utils.data import DataLoader
    batches = DataLoader(dataset, BATCH)
    def run() -> None:
        for _ in batches: pass
    return run


def torchvision_default(folder: Path, images: int) -> Pass:
    "ImageFolder with the transform of torchvision's own ImageNet example."
    from torchvision import transforms as t
    from torchvision.datasets import ImageFolder

    return loader(
        ImageFolder(
            folder / "photos",
            t.Compose([t.RandomResizedCrop(SIDE), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)]),
        )
    )


def torchvision_v2(folder: Path, images: int) -> Pass:
    "torchvision.io's decoder with transforms v2, floats per sample."
    import torch
    from mlinfra.engine.loading.jpegs import JpegFolder
    from torchvision.transforms import v2

    usual = v2.Compose(
        [
            v2.RandomResizedCrop(SIDE),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    return loader(JpegFolder(folder / "photos", usual))


def webdataset(folder: Path, images: int) -> Pass:
    "webdataset on shards, decoding with Pillow and torchvision's transform, as its documentation does for ImageNet."
    import webdataset as wds
    from torchvision import transforms as t
    usual = t.Compose([t.RandomResizedCrop(SIDE), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)])
    shards = sorted(str(path) for path in (folder / "shards").glob("*.tar"))
    batches = (
        wds.WebDataset(shards, shardshuffle=False)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(usual, lambda label: label)
        .batched(BATCH)
    )
    def run() -> None:
        for _ in batches: pass
    return run


def tf_data(folder: Path, images: int) -> Pass:
    "tf.data with the fused decode-and-crop, antialiased resize, flip and normalisation of the batch; one thread."
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    paths = sorted(str(path) for path in (folder / "photos").glob("*/*.jpg"))
    mean, std = tf.constant(MEAN) * 255, tf.constant(STD) * 255
    def crop(path: Any) -> Any:
        raw = tf.io.read_file(path)
        box = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(raw),
            tf.zeros([0, 0, 4]),
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        (top, left, _), (height, width, _) = tf.unstack(box[0]), tf.unstack(box[1])
        image = tf.image.decode_and_crop_jpeg(raw, tf.stack([top, left, height, width]), channels=3)
        return tf.image.random_flip_left_right(tf.image.resize(image, [SIDE, SIDE], antialias=True))
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    batches = (
        tf.data.Dataset.from_tensor_slices(paths)
        .map(crop)
        .batch(BATCH)
        .map(lambda x: (x - mean) / std)
        .with_options(options)
    )
    def run() -> None:
        for _ in batches: pass
    return run


CONTENDERS = {
    "JpegFolder + RandomCropFlip": jpeg_folder,
    "RawCache + RandomCropFlip": raw_cache,
    "simplejpeg + RandomCropFlip": simplejpeg_folder,
    "torchvision ImageFolder": torchvision_default,
    "torchvision.io + v2": torchvision_v2,
    "webdataset": webdataset,
    "tf.data": tf_data,
}


def race(name: str, folder: Path, images: int) -> dict[str, list[float]]:
    "Seconds an image of the contender and of the bare decode, in turn, on one core."
    if hasattr(os, "sched_setaffinity"): os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from mlinfra.engine.base.timing import interleave
    if name != "tf.data":
        import torch
        torch.set_num_threads(1)
    run, alone = CONTENDERS[name](folder, images), (bare_simplejpeg if name == "tf.data" else bare)(folder, images)
    run(), alone()
    return {
        key: [s / images for s in seconds] for key, seconds in interleave({"own": run, "alone": alone}, REPEATS).items()
    }


# ---- the stage

def decode(rounds: int, iterations: int) -> dict[str, Any]:
    "Every contender in a process of its own, round after round; ratios to the bare decode of the same process."
    from peers import BENCH
    from stages import FULL
    from mlinfra.engine.loading.jpegs import JpegFolder, make_jpegs
    from mlinfra.engine.loading.raw_cache import make_raw_cache
    from mlinfra.engine.loading.shards import write_shards
    images, theirs = (256 if iterations == FULL else 32), BENCH.make()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        photos = JpegFolder(make_jpegs(folder / "photos", images, progress=False))
        make_raw_cache(photos, folder / "raw", progress=False)
        write_shards(photos, folder / "shards", 64, progress=False)
        names = [name for name in CONTENDERS if theirs or name != "tf.data"]
        runs = [{name: run(name, folder, images) for name in names} for _ in range(rounds)]
    return {name: summary([r[name] for r in runs]) for name in names if all(r[name] for r in runs)}


def run(name: str, folder: Path, images: int) -> dict[str, list[float]] | None:
    "One contender in its process, or None and a line of why."
    from peers import BENCH, ROOT
    python = BENCH.python if name == "tf.data" else sys.executable
    done = subprocess.run(
        [python, __file__, name, str(folder), str(images)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        print(f"  {name} left out: {' '.join(done.stderr.strip().splitlines()[-1:])}", flush=True)
        return None
    times = json.loads(done.stdout.splitlines()[-1])
    print(f"  {name:30} {1000 * min(times['own']):6.2f} ms an image", flush=True)
    return times


def summary(runs: list[dict[str, list[float]]]) -> dict[str, float]:
    from mlinfra.engine.base.sample_statistics import median
    ratios = [own / alone for r in runs for own, alone in zip(r["own"], r["alone"])]
    return dict(
        ratio=median(ratios),
        low=min(ratios),
        high=max(ratios),
        ms_an_image=1000 * median(s for r in runs for s in r["own"]),
        decode_ms=1000 * median(s for r in runs for s in r["alone"]),
    )


if __name__ == "__main__":
    contender, place, count = sys.argv[1:]
    print(json.dumps(race(contender, Path(place), int(count))))
