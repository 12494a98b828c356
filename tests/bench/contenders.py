"""One epoch of the source's CNN by one contender: a process of its own, which prints its times as one line of JSON.

    python contenders.py NAME ROOT ITERATIONS CORES

ROOT/MNIST/raw holds the four unpacked files. Every contender trains on the same images at batch 64 by plain SGD with
learning rate 0.1, warms up first, and is timed from the first batch of the epoch to the last update. The libraries are
imported in the functions, for no environment has them all.
"""
import contextlib
import json
import resource
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

BATCH, RATE, WARM_UP = 64, 0.1, 30


@dataclass(frozen=True)
class Work:
    "What every contender is given."
    root: Path
    iterations: int
    cores: int

    @property
    def samples(self) -> int: return min(60_000, BATCH * self.iterations)

    def arrays(self):
        "The training images as samples x 28 x 28 bytes, and their labels, without PyTorch."
        import numpy as np
        read = lambda name, header: np.fromfile(self.root / "MNIST" / "raw" / name, np.uint8, offset=header)
        return (read("train-images-idx3-ubyte", 16).reshape(-1, 28, 28)[:self.samples],
                read("train-labels-idx1-ubyte", 8).astype("int32")[:self.samples])


class Watch:
    "Wall and CPU seconds between `start` and `stop`; the CPU's are of all threads and of children that have ended."
    def start(self) -> None: self._start = self._now()

    def stop(self) -> dict[str, float]:
        wall, cpu = (now - then for now, then in zip(self._now(), self._start))
        return dict(wall=wall, cpu=cpu)

    def _now(self) -> tuple[float, float]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime


# ---- PyTorch

def source_model():
    "The source's layers in the source's order: ReLU, then pool."
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def torch_loader(work: Work):
    "torchvision's data set in PyTorch's loader, as the tutorials have it."
    from torch.utils.data import DataLoader, Subset
    from torchvision.datasets import MNIST
    from torchvision.transforms import ToTensor
    return DataLoader(Subset(MNIST(work.root, transform=ToTensor()), range(work.samples)), BATCH, shuffle=True)


def floor(work: Work) -> dict[str, float]:
    "No data at all: one batch, repeated, and nothing recorded."
    import torch
    model, batch = source_model(), next(iter(torch_loader(work)))
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def train(iterations: int) -> None:
        for _ in range(iterations):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
            optimizer.step()

    train(WARM_UP)
    watch = Watch()
    watch.start()
    train(work.iterations)
    return watch.stop()


def naive(work: Work) -> dict[str, float]:
    "The loop of the tutorials, which looks at each loss."
    import torch
    model, loader = source_model(), torch_loader(work)
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE), []

    def train(batches) -> None:
        for x, y in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    train(islice(loader, WARM_UP))
    watch = Watch()
    watch.start()
    train(loader)
    return watch.stop()


def lightning(work: Work) -> dict[str, float]:
    "Lightning's Trainer over the same loader, without logger, checkpoints and bar."
    import lightning as L
    import torch

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = source_model()

        def training_step(self, batch, _): return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), RATE)

    class Timer(L.Callback):
        def __init__(self): self.watch, self.times = Watch(), None
        def on_train_epoch_start(self, *_): self.watch.start()
        def on_train_epoch_end(self, *_): self.times = self.watch.stop()

    def train(batches: float) -> dict[str, float]:
        timer = Timer()
        trainer = L.Trainer(
            max_epochs=1,
            limit_train_batches=batches,
            accelerator="cpu",
            devices=1,
            callbacks=[timer],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, loader)
        return timer.times

    module, loader = Module(), torch_loader(work)
    train(min(WARM_UP, work.iterations))
    return train(1.0)


def mlinfra(work: Work, keep_memory: bool = True) -> dict[str, float]:
    "Our `fit`, with its records and its bar; making the optimizer is timed with it."
    from mlinfra.data import BatchLoader, Images, mnist
    from mlinfra.models import GluonCNN
    from mlinfra.training import fit, phase_medians
    data = mnist()
    loader = BatchLoader(Images(data.images[:work.samples], data.labels[:work.samples]), BATCH, shuffle=True)
    fit(GluonCNN(), list(islice(loader, WARM_UP)), keep_memory=keep_memory)
    model, watch = GluonCNN(), Watch()
    watch.start()
    history = fit(model, loader, keep_memory=keep_memory, progress=True)
    times = watch.stop()
    return times | dict(
        loader_share=history.phase_seconds()["wait"] / history.epochs[0].seconds,
        step_seconds=sum(phase_medians(history).values()),
    )


# ---- others

def keras_tf(work: Work) -> dict[str, float]:
    "Keras on TensorFlow with the pipeline that TensorFlow's guide recommends."
    import os
    os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import keras
    import tensorflow as tf
    from keras import layers
    tf.config.threading.set_intra_op_parallelism_threads(work.cores)
    images, labels = work.arrays()

    def pipeline(samples: int):
        data = tf.data.Dataset.from_tensor_slices((images[:samples, ..., None], labels[:samples]))
        data = data.map(lambda x, y: (tf.cast(x, tf.float32) / 255, y), num_parallel_calls=tf.data.AUTOTUNE)
        return data.cache().shuffle(samples).batch(BATCH).prefetch(tf.data.AUTOTUNE)

    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(20, 5, activation="relu"),
            layers.MaxPool2D(2),
            layers.Conv2D(50, 5, activation="relu"),
            layers.MaxPool2D(2),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile(keras.optimizers.SGD(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    # The warm-up ends with a batch of 32, as the epoch does: each size of batch is compiled once.
    # It also fills the cache.
    model.fit(pipeline(BATCH * WARM_UP + 32), verbose=0)
    data, watch = pipeline(work.samples), Watch()
    for _ in data: pass
    watch.start()
    model.fit(data, verbose=0)
    return watch.stop()


def mxnet(work: Work) -> dict[str, float]:
    "The source's own style of program: Gluon as it was written in 2018, not hybridized, a transform for each sample."
    import mxnet as mx
    from mxnet import autograd, gluon, nd
    from mxnet.gluon import nn
    images, labels = work.arrays()
    data = gluon.data.ArrayDataset(nd.array(images[..., None], dtype="uint8"), labels)
    data = data.transform(lambda x, y: (nd.transpose(x.astype("float32"), (2, 0, 1)) / 255, y))
    loader = gluon.data.DataLoader(data, BATCH, shuffle=True, num_workers=0)
    net = nn.Sequential()
    net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2), nn.Conv2D(50, 5, activation="relu"), nn.MaxPool2D(2),
            nn.Flatten(), nn.Dense(512, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    trainer, loss_fn, losses = (
        gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE}),
        gluon.loss.SoftmaxCrossEntropyLoss(),
        [],
    )

    def train(batches) -> None:
        for x, y in batches:
            with autograd.record(): loss = loss_fn(net(x), y)
            loss.backward()
            trainer.step(len(x))
            losses.append(loss.mean().asscalar())
        nd.waitall()

    train(islice(loader, WARM_UP))
    watch = Watch()
    watch.start()
    train(loader)
    return watch.stop()


CONTENDERS = {
    "floor": floor,
    "mlinfra": mlinfra,
    "mlinfra, keep_memory=False": lambda work: mlinfra(work, keep_memory=False),
    "naive": naive,
    "lightning": lightning,
    "keras_tf": keras_tf,
    "mxnet, not hybridized": mxnet,
}

if __name__ == "__main__":
    name, root, iterations, cores = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr): times = CONTENDERS[name](Work(Path(root), int(iterations), int(cores)))
    print(json.dumps(times))
