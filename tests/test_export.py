"""Exported and borrowed models where a notebook cannot show it: kills, ranks, threads, a hub's cache, hostile files."""
import errno
import os
import pickle
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from copies import twin
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from mlinfra.data import BatchLoader, Images, mnist
from mlinfra.engine.export import onnx_files
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.checkpoint.weight_files import load_weights, read_weights
from mlinfra.engine.export.fine_tuning import freeze, merge_lora, new_head
from mlinfra.engine.export.model_files import open_model, save_weights
from mlinfra.engine.export.onnx_files import export_onnx, load_onnx
from mlinfra.engine.export.prune import prune
from mlinfra.engine.export.pretrained import features, pretrained, reachable
from mlinfra.engine.export.quantize import (
    pack, quantize_dynamic, quantize_static, quantize_tensor, quantize_weights, unpack)
from mlinfra.engine.dist.rank_data import whole_weights
from mlinfra.engine.dist.ranks import run_ranks
from mlinfra.engine.export.variants import compare_variants
from mlinfra.models import GluonCNN, layer_table, resnet18
from mlinfra.training import evaluate, fit

X = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def trained():
    "The CNN after a short training on digits."
    torch.manual_seed(0)
    digits = mnist()
    digits = Images(digits.images[:6_400], digits.labels[:6_400])
    model = GluonCNN()
    fit(model, BatchLoader(digits, 64, shuffle=True, seed=0), epochs=1, device="cpu", progress=False)
    return model.to(memory_format=torch.contiguous_format).eval()


def answers(model, x=X):
    with torch.inference_mode(): return model(x)


# ---- files that are there whole or not at all

def is_killed(pipe, path):
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    torch.manual_seed(1)
    export_onnx(GluonCNN(), X, path)


def test_a_kill_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "cnn.onnx"
    export_onnx(GluonCNN(), X, path)
    before = path.read_bytes()
    with twin(is_killed, path) as (process, _):
        process.join(300)
        assert process.exitcode == -signal.SIGKILL
    assert path.read_bytes() == before and answers(load_onnx(path)).shape == (4, 10)
    part, = set(tmp_path.iterdir()) - {path}
    os.utime(part, (time.time() - 7_200,) * 2)
    export_onnx(GluonCNN(), X, path)
    assert list(tmp_path.iterdir()) == [path], "what the killed one left is removed an hour later"


def test_a_disk_that_fills_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "cnn.onnx"
    export_onnx(GluonCNN(), X, path)
    before = path.read_bytes()

    def full(*_, **__): raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "replace", full)
    for work in (lambda: export_onnx(GluonCNN(), X, path), lambda: quantize_dynamic(path, path),
                 lambda: save_weights(GluonCNN(), tmp_path / "cnn.safetensors")):
        with pytest.raises(OSError, match="the disk is full"): work()
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot write .*/file/cnn.onnx: a "):
        export_onnx(GluonCNN(), X, tmp_path / "file" / "cnn.onnx")


def test_a_large_model_keeps_its_weights_beside(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_files, "_ONE_FILE", 1_000_000)
    model = GluonCNN()
    file = export_onnx(model, X, tmp_path / "cnn.onnx")
    weights, = tmp_path.glob("cnn.onnx.*.data")
    assert file.bytes == sum(p.stat().st_size for p in tmp_path.iterdir()) > 4 * 440_812
    torch.testing.assert_close(answers(file.load()), answers(model.eval()), atol=1e-5, rtol=1e-5)
    small = quantize_static(file, tmp_path / "int8.onnx", X)
    assert len(list(tmp_path.glob("int8.onnx*"))) == 2 and small.bytes < 0.31 * file.bytes
    assert (answers(small) - answers(model)).abs().max() < 0.3 * answers(model).abs().max()
    weights.unlink()
    with pytest.raises(ValueError, match="is not an ONNX model that runs here"): file.load()


def is_killed_between(pipe, path):
    "Once the weights are in place, and the file that names them is not."
    onnx_files._ONE_FILE = 1_000_000
    real = os.replace

    def replace(old, new):
        if Path(new) == path: os.kill(os.getpid(), signal.SIGKILL)
        real(old, new)
    os.replace = replace
    torch.manual_seed(2)
    export_onnx(GluonCNN(), X, path)


def test_an_older_export_never_gets_the_weights_of_a_newer_one(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_files, "_ONE_FILE", 1_000_000)
    path, models = tmp_path / "cnn.onnx", [GluonCNN().eval() for _ in range(2)]
    export_onnx(models[0], X, path)
    with twin(is_killed_between, path) as (process, _):
        process.join(300)
        assert process.exitcode == -signal.SIGKILL
    assert len(list(tmp_path.glob("*.data"))) == 2
    torch.testing.assert_close(answers(load_onnx(path)), answers(models[0]), atol=1e-5, rtol=1e-5)
    for threshold in (1_000_000, 10**9):
        monkeypatch.setattr(onnx_files, "_ONE_FILE", threshold)
        file = export_onnx(models[1], X, path)
        torch.testing.assert_close(answers(file.load()), answers(models[1]), atol=1e-5, rtol=1e-5)
    assert file.bytes == path.stat().st_size < 1.8e6, "weights that are in the file, and no others, are counted"
    assert len(list(tmp_path.glob("*.data"))) == 1, "those of the killed one, which no file names"


def test_a_wrong_part_of_one_output_is_found(tmp_path):
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.large, self.small = nn.Linear(16, 3), nn.Linear(16, 3)

        def forward(self, x):
            return torch.cat([1e4 * self.large(x), nn.functional.dropout(self.small(x), 0.5, True)], 1)
    with pytest.raises(ValueError, match="number [345] along its dimension 1 differs by .*draws random numbers"):
        export_onnx(Joined(), torch.randn(4, 16), tmp_path / "joined.onnx")
    assert not list(tmp_path.iterdir())


class Turns(nn.Module):
    "Goes another way with more than 40 samples."
    def __init__(self, sign):
        super().__init__()
        self.linear, self.sign = nn.Linear(5, 3), sign

    def forward(self, x): return self.linear(x) if x.shape[0] <= 40 else self.sign * self.linear(x)


def test_an_if_on_a_size_is_found_beyond_the_sizes_that_are_tried(tmp_path):
    with pytest.raises(ValueError, match="for a batch of up to 40 only: for one of 41, output .* differs by"):
        export_onnx(Turns(-1), torch.randn(4, 5), tmp_path / "turns.onnx")
    assert not list(tmp_path.iterdir())
    same = export_onnx(Turns(1), torch.randn(4, 5), tmp_path / "turns.onnx")
    assert same.load()(torch.randn(50, 5)).shape == (50, 3)


def test_an_export_leaves_what_a_model_counts_and_says_which_size_is_fixed(tmp_path):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.register_buffer("places", torch.arange(2)[:, None].expand(2, 3))

        def forward(self, x):
            self.calls += 1
            return x + self.places[0]
    export_onnx(model := Counts(), torch.randn(4, 3), tmp_path / "counts.onnx")
    assert model.calls.item() == 0 and model.training
    pool = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 2))
    with pytest.raises(ValueError, match="or another that is to vary: .* leave that dimension out of dynamic"):
        export_onnx(pool, torch.randn(2, 3, 34, 34), tmp_path / "pool.onnx", dynamic=(2, 3))


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_a_model_of_few_bits_becomes_onnx(bits, tmp_path):
    small = quantize_weights(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3)), bits)
    assert export_onnx(small, torch.randn(4, 64), tmp_path / "small.onnx").largest_difference < 1e-5


@pytest.mark.parametrize("call", [
    lambda model: prune(model, 0.5), quantize_weights, merge_lora, freeze, lambda model: new_head(model, 2),
    lambda model: evaluate(model, []), lambda model: layer_table(model, (8,)),
    lambda model: export_onnx(model, torch.zeros(1, 8), "x.onnx"), lambda model: save_weights(model, "x.safetensors")])
def test_what_is_no_model_is_refused_in_a_sentence(call):
    for kind, model in {"NoneType": None, "str": "x", "the class Linear, not an instance": nn.Linear}.items():
        with pytest.raises(ValueError, match=f"model must be a torch.nn.Module, got {kind}$"): call(model)


class Counted(nn.Linear):
    def get_extra_state(self): return dict(calls=3)
    def set_extra_state(self, state): pass


def test_a_file_of_weights_has_a_path_that_exists_and_tensors_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("~/w.safetensors", "", 3):
        with pytest.raises(ValueError, match="path must be the path of a file"): save_weights(nn.Linear(2, 2), path)
        with pytest.raises(ValueError, match="path must be the path of a file"): load_weights(nn.Linear(2, 2), path)
    with pytest.raises(ValueError, match="no tensor, _extra_state, which a file"):
        save_weights(Counted(2, 2), "w.safetensors")
    assert not [*tmp_path.iterdir()]


def test_quantising_nothing_or_twice_and_ranges_of_nan_are_refused(tmp_path):
    linear, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(8, 8)
    floats = export_onnx(linear, x, tmp_path / "f.onnx")
    half = export_onnx(linear.half(), x.half(), tmp_path / "h.onnx")
    with pytest.raises(ValueError, match="nothing of .*h.onnx was quantised: .* holds Gemm, Relu"):
        quantize_dynamic(half, tmp_path / "q.onnx")
    with pytest.raises(ValueError, match="nothing of .*f.onnx was quantised"):
        quantize_dynamic(floats, tmp_path / "q.onnx", ("Conv",))
    x[3, 2] = float("nan")
    with pytest.raises(ValueError, match="finite numbers.*: input has NaN"):
        quantize_static(floats, tmp_path / "q.onnx", x)
    assert not (tmp_path / "q.onnx").exists()
    done = quantize_dynamic(floats, tmp_path / "q.onnx")
    with pytest.raises(ValueError, match="q.onnx is quantised already"): quantize_dynamic(done, tmp_path / "r.onnx")


class Masked(nn.Module):
    "Attention of a head that reads no padding, by an added mask."
    def __init__(self, mask):
        super().__init__()
        self.inputs, self.mask, self.out = nn.Linear(16, 48), mask, nn.Linear(16, 4)

    def forward(self, x, real):
        q, k, v = self.inputs(x).split(16, -1)
        scores = 3 * q @ k.transpose(1, 2) + torch.where(real, 0.0, self.mask)[:, None]
        return self.out(scores.softmax(-1) @ v).mean(1)


@pytest.mark.parametrize("mask", [float("-inf"), torch.finfo(torch.float32).min, -1e4])
def test_attention_with_padding_keeps_its_scores_in_int8(mask, tmp_path):
    torch.manual_seed(0)
    model, x, real = Masked(mask).eval(), torch.randn(64, 6, 16), torch.arange(6) < torch.randint(1, 7, (64, 1))
    file = export_onnx(model, (x, real), tmp_path / "floats.onnx")
    off = quantize_static(file, tmp_path / "int8.onnx", (x, real))(x, real) - (wanted := model(x, real).detach())
    assert off.square().mean() < 0.01 * wanted.var()  # 0.08 with the mask in 8 bits


@pytest.mark.parametrize("outputs, labels, says", [
    (1, torch.arange(6) % 2, "at least two and as many"), (3, torch.arange(6), "go up to 5, and a has scores for 3"),
    (3, torch.rand(6), "a whole number as the label"), (3, torch.zeros(6, 3), "a whole number as the label")])
def test_variants_without_an_accuracy_are_refused(outputs, labels, says):
    with pytest.raises(ValueError, match=says):
        compare_variants({"a": nn.Linear(4, outputs)}, TensorDataset(torch.rand(6, 4), labels), (1,), 1)


def test_features_keep_labels_that_are_no_whole_numbers_and_count_no_nan_as_right():
    pairs = [(torch.rand(4), 0.25 * i) for i in range(4)]
    assert features(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), pairs).labels.tolist() == [0, 0.25, 0.5, 0.75]
    data = TensorDataset(torch.rand(6, 4), torch.zeros(6, dtype=torch.long))
    assert compare_variants({"a": lambda x: x / 0 - x / 0}, data, (1,), 1).accuracy[0] == 0


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named(package, tmp_path, monkeypatch):
    import importlib.util
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == package else real(name, *more))
    with pytest.raises(ImportError, match=rf'needs {package}: pip install "mlinfra\[export\]"'):
        export_onnx(GluonCNN(), X, tmp_path / "cnn.onnx")


# ---- models

def test_other_models_of_ours_export_with_any_batch_size(tmp_path):
    from mlinfra.engine.train.transformer import Tokens
    for model, x in ((resnet18(10, "small"), X), (Tokens(1, 16, 40, 2), torch.randint(0, 40, (3, 9)))):
        file = export_onnx(model, x, tmp_path / "model.onnx")
        assert file.dynamic_batch and 1 in file.batch_sizes and file.largest_difference <= 1e-4 * file.largest_output
        longer = torch.cat([x, x, x])
        torch.testing.assert_close(answers(file.load(), longer), answers(model.eval(), longer), atol=1e-4, rtol=1e-4)


def test_threads_may_share_a_model(tmp_path):
    runs = export_onnx(GluonCNN(), X, tmp_path / "cnn.onnx").load(threads=1)
    batches = [torch.rand(1 + i % 5, 1, 28, 28) for i in range(60)]
    wanted = [runs(batch) for batch in batches]
    with ThreadPoolExecutor(8) as pool: found = list(pool.map(runs, batches))
    for a, b in zip(found, wanted): torch.testing.assert_close(a, b)


def shards(root):
    "Train as one of two ranks that share the weights."
    from mlinfra.sharding import train_sharded
    torch.manual_seed(0)
    model = GluonCNN()
    digits = Images(torch.randint(0, 256, (64, 1, 28, 28), dtype=torch.uint8), torch.arange(64) % 10)
    train_sharded(model, digits, batch_size=8, device="cpu", observers=[Checkpointer(root, every=4, background=False)])
    return {name: tensor.tolist() for name, tensor in whole_weights(model).items()}


def test_a_checkpoint_of_ranks_opens_as_one_model(tmp_path):
    weights = run_ranks(shards, 2, tmp_path, share_cores=True)[0]
    opened = open_model(tmp_path)
    assert "after 4 steps" in opened.why and opened.input_shape == (1, 28, 28)
    assert {name: tensor.tolist() for name, tensor in opened.model.state_dict().items()} == weights


# ---- fewer bits, fewer units

def test_int8_keeps_the_accuracy_and_every_form_says_its_size(trained, tmp_path):
    file = export_onnx(trained, X, tmp_path / "cnn.onnx")
    forms = {"floats": trained, "onnx": file.load(),
             "int8": quantize_static(file, tmp_path / "int8.onnx", mnist().images[:256], seven_bits=True)}
    digits = mnist(train=False)
    digits = Images(digits.images[:3_000], digits.labels[:3_000])
    table = compare_variants(forms, digits, rounds=1, samples=1_000).set_index("variant")
    assert table.accuracy["floats"] > 0.8 and table.accuracy["onnx"] == table.accuracy["floats"]
    assert abs(table.accuracy["int8"] - table.accuracy["floats"]) < 0.03
    assert table.largest_difference["onnx"] < 1e-4 < table.largest_difference["int8"]
    assert table.bytes["int8"] < 0.3 * table.bytes["onnx"]


@given(rows=st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4), min_size=1, max_size=5),
       bits=st.sampled_from([8, 4, 2]))
@settings(deadline=None)
def test_a_weight_is_off_by_half_a_step_at_most(rows, bits):
    weight = torch.tensor(rows)
    ints, scales = quantize_tensor(weight, bits)
    assert torch.equal(unpack(pack(ints, bits), bits, ints.shape), ints) and ints.abs().max() <= 2**(bits - 1) - 1
    with pytest.raises(ValueError, match="ints must be whole numbers from"): pack(ints.short() + 2**bits, bits)
    error = (ints.double() * scales.double() - weight.double()).abs()
    # half a step, and what rounding the scale and the quotient to floats adds
    assert (error <= scales.double() * (0.5 + 2**(bits - 1) * 2**-22) + 1e-40).all()


# ---- other people's models, from a cache that is laid out as the hub's client does

def hub(folder, repository, files):
    "A cache with one repository of these files: name -> bytes."
    place = folder / "hub" / f"models--{repository.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs/main").write_text("0" * 40)
    (place / "snapshots" / ("0" * 40)).mkdir(parents=True)
    for name, raw in files.items(): (place / "snapshots" / ("0" * 40) / name).write_bytes(raw)


@pytest.fixture
def ask(monkeypatch):
    "What `pretrained` finds with a folder's cache and no network: whether there are weights, the first one, and why."
    from huggingface_hub import constants
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def asked(folder, name, source, **options):
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
        monkeypatch.setenv("TORCH_HOME", str(folder / "torch"))
        found = pretrained(name, source, **options)
        return found.has_weights, next(p for p in found.model.parameters() if p.ndim > 1).flatten()[0].item(), found.why
    return asked


class Evil:
    def __reduce__(self): return (os.mkdir, (os.environ.get("EVIL", "/tmp/mlinfra-evil"),))


def test_weights_of_timm_come_from_the_cache_and_pickles_do_not(tmp_path, monkeypatch, ask):
    import timm
    from safetensors.torch import save
    monkeypatch.setenv("EVIL", str(tmp_path / "it-ran"))
    model = timm.create_model("test_resnet", pretrained=False)
    weights = {name: torch.full_like(tensor, 0.25) for name, tensor in model.state_dict().items()}
    hub(tmp_path / "whole", "timm/test_resnet.r160_in1k", {"model.safetensors": save(weights)})
    has, first, why = ask(tmp_path / "whole", "test_resnet", "timm")
    assert has and first == 0.25 and why == "the weights of timm/test_resnet.r160_in1k, from the cache"
    hub(tmp_path / "pickled", "timm/test_resnet.r160_in1k", {"pytorch_model.bin": pickle.dumps(Evil())})
    has, first, why = ask(tmp_path / "pickled", "test_resnet", "timm")
    assert not has and "model.safetensors of timm/test_resnet.r160_in1k is not in the cache" in why
    hub(tmp_path / "cut", "timm/test_resnet.r160_in1k", {"model.safetensors": save(weights)[:5_000]})
    has, _, why = ask(tmp_path / "cut", "test_resnet", "timm")
    assert not has and "model.safetensors is damaged, remove it" in why
    assert not (tmp_path / "it-ran").exists()


def test_weights_of_transformers_come_from_the_cache(tmp_path, ask):
    from transformers import AutoConfig, AutoModelForImageClassification
    config = AutoConfig.for_model("vit", image_size=28, patch_size=14, num_channels=1, hidden_size=16,
                                  num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3)
    model = AutoModelForImageClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters(): parameter.fill_(0.5)
    model.save_pretrained(tmp_path / "saved")
    files = {p.name: p.read_bytes() for p in (tmp_path / "saved").iterdir()}
    hub(tmp_path / "whole", "somebody/digits", files)
    assert ask(tmp_path / "whole", "somebody/digits", "transformers", num_classes=3) == (
        True, 0.5, "the weights of somebody/digits, from the cache")
    hub(tmp_path / "sizes", "somebody/digits", {"config.json": files["config.json"]})
    has, _, why = ask(tmp_path / "sizes", "somebody/digits", "transformers")
    assert not has and "model.safetensors of somebody/digits is not in the cache" in why, "its sizes are known"


def test_weights_of_torchvision_are_read_without_running_them(tmp_path, monkeypatch, ask):
    from torchvision import models
    monkeypatch.setenv("EVIL", str(tmp_path / "it-ran"))
    name = Path(models.get_model_weights("squeezenet1_1").DEFAULT.url).name
    kept = tmp_path / "torch/hub/checkpoints" / name
    kept.parent.mkdir(parents=True)
    weights = models.squeezenet1_1(weights=None).state_dict()
    torch.save({key: torch.full_like(tensor, 0.25) for key, tensor in weights.items()}, kept)
    assert ask(tmp_path, "squeezenet1_1", "torchvision")[:2] == (True, 0.25)
    torch.save(Evil(), kept)
    has, _, why = ask(tmp_path, "squeezenet1_1", "torchvision")
    assert not has and "cannot be read: UnpicklingError" in why and not (tmp_path / "it-ran").exists()


def test_a_hub_is_asked_through_the_proxy(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for name in ("no_proxy", "NO_PROXY"): monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert reachable("no.such.host.example")
    assert not reachable("no.such.host.example"), "nobody listens there any more"


# ---- from a shell

def test_export_from_a_shell(tmp_path, monkeypatch, capsys):
    from mlinfra import cli
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import torch\nfrom torch import nn\n"
                                      "def make(): return nn.Linear(3, 2), torch.ones(5, 3)\n"
                                      "def breaks(): return 1 / 0\n")
    assert cli.main(["export", "--model", "mine:make", "--to", "mine.onnx", "--quantize", "int8"]) == 0
    assert "of 5 samples another number is the largest" in capsys.readouterr().out
    assert load_onnx("mine.onnx").input_shape == (3,)
    assert cli.main(["export", "--model", "mine:breaks", "--to", "mine.pt2"]) == 1
    assert "in breaks" in capsys.readouterr().err, "of one's own code one wants to see the line"
    torch.save(nn.Linear(2, 2).state_dict(), "mine.pt")
    assert cli.main(["export", "--model", "mine.pt", "--to", "mine.onnx"]) == 2
    assert "mine.pt is a pickle, which runs whatever was written into it" in capsys.readouterr().err
    save_weights(nn.Sequential(nn.Linear(2, 2)), "small.safetensors")
    assert Path("small.safetensors").read_bytes()[:1] == b"\x80", "a header of 128 bytes, as a pickle begins"
    assert {*read_weights("small.safetensors")} == {"0.weight", "0.bias"}
    save_weights(resnet18(3), "large.safetensors")
    assert cli.main(["export", "--model", "large.safetensors", "--to", "large.onnx", "--quantize", "int8"]) == 2
    assert "int8 needs examples" in capsys.readouterr().err and not Path("large.onnx").exists()
