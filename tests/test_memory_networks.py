"""The estimate against an independent count of live bytes: networks of libraries, and what users do to them."""
import pytest
import torch
from live_bytes import live_bytes
from networks50 import NETWORKS
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mlinfra import memory

QUICK = "llama", "gpt2", "bert", "t5", "swin", "resnet18", "vit_tiny_patch16_224", "convnext_atto", "edgenext_xx_small"


@pytest.mark.parametrize("network", [n for n in NETWORKS if n.name in QUICK], ids=lambda network: network.name)
def test_a_network_of_a_library_takes_what_is_estimated(network):
    model, batch = network.make()
    guess = memory.estimate(model, sample=batch, step=network.step, optimizer="adamw")
    assert abs(guess.total / live_bytes(model, batch, network.step) - 1) < 0.03


def test_a_detector_is_counted_while_it_runs():
    network = next(n for n in NETWORKS if n.name == "fasterrcnn_mobilenet_v3_large_320_fpn")
    model, batch = network.make()
    guess = memory.estimate(model, sample=batch, step=network.step, optimizer="adamw")
    assert abs(guess.total / live_bytes(model, batch, network.step) - 1) < 0.03
    with torch.device("meta"): hollow = network.build()
    with pytest.raises(ValueError): memory.estimate(hollow, sample=batch, step=network.step)


def test_a_decoder_that_is_checkpointed_takes_what_transformers_own_checkpointing_takes():
    network = next(n for n in NETWORKS if n.name == "llama")
    model, batch = network.make()
    ours = memory.estimate(model, sample=batch, checkpointing=[f"model.layers.{i}" for i in range(2)]).total
    assert model.config.use_cache is True
    model.gradient_checkpointing_enable()
    assert abs(ours / memory.estimate(model, sample=batch).total - 1) < 0.03


def test_attention_dropout_costs_a_gpu_nothing():
    from transformers import BertConfig, BertForMaskedLM
    ids = torch.zeros(2, 512, dtype=torch.long)
    def total(dropout, **how):
        with torch.device("meta"):
            model = BertForMaskedLM(BertConfig(num_hidden_layers=2, attention_probs_dropout_prob=dropout))
        return memory.estimate(model, 8, sample=dict(input_ids=ids, labels=ids), precision="bf16", **how).activations
    assert total(0.1) == total(0.0) < 0.8 * total(0.1, plan="cpu"), "of which logits, once more in bf16, are a fifth"


class Blocks(nn.Module):
    "Layers that a user checkpoints by hand."
    def __init__(self, reentrant):
        super().__init__()
        self.layers, self.reentrant = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
                                                    for _ in range(4)), reentrant
    def forward(self, x):
        for layer in self.layers: x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class Squares(torch.autograd.Function):
    "Of the user's own."
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad): return 2 * ctx.saved_tensors[0] * grad


class Own(nn.Module):
    def __init__(self): super().__init__(); self.layer = nn.Linear(64, 64)
    def forward(self, x): return Squares.apply(self.layer(x)).add_(1).relu_()


def frozen_backbone():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(inplace=True), nn.Linear(256, 64))
    model[0].requires_grad_(False)
    return model


def tied():
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.GELU(), nn.Linear(64, 64, bias=False))
    model[2].weight = model[0].weight
    return model


MADE = {"checkpoint": lambda: Blocks(False), "reentrant checkpoint": lambda: nn.Sequential(nn.Linear(64, 64), Blocks(
    True)), "own function": Own, "frozen": frozen_backbone, "tied": tied,
        "recurrent": lambda: nn.Sequential(nn.LSTM(64, 32, batch_first=True), First(), nn.Linear(32, 3)),
        "bf16": lambda: frozen_backbone().bfloat16()}


class First(nn.Module):
    def forward(self, found): return found[0]


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adafactor, "foreach"], ids=str)
def test_what_users_do_is_counted(make, optimizer):
    if optimizer == "foreach": optimizer = lambda params: torch.optim.AdamW(params, foreach=True)
    model = make()
    x = torch.randn(16, 8, 64, dtype=next(model.parameters()).dtype)
    step = lambda model, x: model(x).float().square().mean()
    guess = memory.estimate(model, sample=x, step=step, optimizer=optimizer)
    real = live_bytes(model, x, step, optimizer)
    assert abs(guess.total / real - 1) < 0.03, (guess, real)


def test_inference_keeps_the_cache_and_no_activations():
    network = next(n for n in NETWORKS if n.name == "llama")
    model, batch = network.make()
    batch = dict(input_ids=batch["input_ids"])
    found = [memory.estimate(model, sample=batch, step=lambda m, b, cache=cache: m(**b, use_cache=cache),
                             training=False) for cache in (False, True)]
    cache = 2 * 2 * 2 * 2 * 32 * 16 * 4  # keys and values, layers, samples, heads, tokens, head size, bytes
    assert found[1].activations - found[0].activations == cache and found[1].grads == found[1].optimizer == 0
    assert model.training, "the model is left as it is"


def test_samples_stand_along_the_dimension_that_is_said():
    batch = torch.randn(50, 4, 8)  # time x samples
    found = memory.estimate(nn.Linear(8, 2), 6, sample=batch, batch_dim=1)
    assert found.inputs == 50 * 6 * 8 * 4


def test_an_error_names_the_users_line():
    class Wrong(nn.Module):
        def __init__(self): super().__init__(); self.layer = nn.Linear(4, 4)
        def forward(self, x): return self.layer(x) @ torch.zeros(7, 2)
    with pytest.raises(ValueError, match=r"test_memory_networks.py:\d+, forward: .*self.layer\(x\) @ torch.zeros"):
        memory.estimate(Wrong(), 2, (4,))

    def loss(model, x): return F.cross_entropy(model(x), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"test_memory_networks.py:\d+, loss: "):
        memory.estimate(nn.Linear(4, 4), 2, (4,), step=loss)
