"""Networks of other people go through `fit` and `layer_table`: some of each kind here, all fifty in the bench."""
import copy

import networks50
import pytest
import torch
from networks50 import NETWORKS, Network
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mlinfra.engine.base.operations import count_operations
from mlinfra.models import count_parameters, layer_table
from mlinfra.training import fit

HERE = ("llama", "gpt2", "mamba", "t5", "bert", "clip", "mobilenetv3_small_050", "vit_tiny_patch16_224", "xcit_nano",
        "ssdlite320", "lraspp")


def counted(act):
    "What PyTorch's counter sees, and what the function returned."
    with FlopCounterMode(display=False) as counter: found = act()
    return counter.get_total_flops(), found


def test_there_are_fifty_of_three_sources():
    sources = [network.source for network in NETWORKS]
    assert [sources.count(name) for name in ("transformers", "timm", "torchvision")] == [20, 20, 10]
    assert len({network.name for network in NETWORKS}) == 50


@pytest.mark.parametrize("network", [n for n in NETWORKS if n.name.startswith(HERE)], ids=lambda n: n.name)
def test_a_network_trains_and_is_counted(network: Network):
    model, batch = network.make()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(1)
    forward, _ = counted(lambda: network.step(copy.deepcopy(model), batch))
    torch.manual_seed(1)
    table = layer_table(model, sample=batch, step=network.step)
    assert table.flops.sum() == forward > 0
    assert table.parameters.sum() == count_parameters(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())  # as it was
    slow = torch.optim.SGD(model.parameters(), 1e-4)
    assert len(fit(model, [batch] * 3, optimizer=slow, step=network.step, device="cpu", progress=False).steps) == 3


@pytest.mark.parametrize("network", [n for n in NETWORKS if n.name in ("mobilenetv3_small_050", "gpt2", "mamba")],
                         ids=lambda n: n.name)
def test_backward_takes_about_two_forwards(network: Network):
    model, batch = network.make()
    found = count_operations(model, batch, network.step, backward=True)
    assert 1.75 < found.backward_flops / found.flops < 2.1, "a large first layer takes less: images need no gradient"


def test_the_forward_pass_needs_no_targets():
    network = next(n for n in NETWORKS if n.name == "bert")
    model, batch = network.make()
    words = {name: batch[name] for name in ("input_ids", "attention_mask")}
    forward, _ = counted(lambda: copy.deepcopy(model).eval()(**words))
    assert layer_table(model, sample=words).flops.sum() == forward
    assert layer_table(model, (networks50.LENGTH,), networks50.SAMPLES, torch.long).flops.sum() == forward
    detector, scenes = next(n for n in NETWORKS if n.name.startswith("ssdlite")).make()
    images = [image for image, _ in scenes]
    with torch.no_grad(): forward, _ = counted(lambda: copy.deepcopy(detector).eval()(images))
    assert layer_table(detector, sample=images, step=lambda model, batch: model.eval()(batch)).flops.sum() == forward


@pytest.mark.parametrize("kernel", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("heads", [4, 2])
def test_attention_counts_in_every_kernel(kernel, heads):
    class Attention(nn.Module):
        def forward(self, x):
            keys = x[:, :heads]
            return F.scaled_dot_product_attention(x, keys, keys, is_causal=True, enable_gqa=heads != 4)

    with sdpa_kernel(kernel): table = layer_table(Attention(), (4, 8, 16), 3)
    assert list(table.flops) == [3 * 4 * 2 * 2 * 8 * 8 * 16], "as if nothing were masked"


class Doubled(torch.autograd.Function):
    "A product that PyTorch does not differentiate by itself."
    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(context, grad):
        x, weight = context.saved_tensors
        return grad @ weight.T, x.T @ grad


class OwnFunction(nn.Linear):
    def forward(self, x): return Doubled.apply(x, self.weight)


class Attributes:
    def __init__(self, answer): self.answer = answer


class Objects(nn.Module):
    def __init__(self): super().__init__(); self.mix = nn.Linear(8, 8)
    def forward(self, x): return Attributes(self.mix(x))


class Recomputed(nn.Module):
    def __init__(self): super().__init__(); self.mix = nn.Linear(8, 8)
    def forward(self, x): return torch.utils.checkpoint.checkpoint(self.mix, x, use_reentrant=False)


def quantized():
    "Integer products in a layer whose weights are no parameters."
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), {nn.Linear})


@pytest.mark.parametrize("make, flops", [
    (lambda: OwnFunction(8, 8, bias=False), 2 * 4 * 8 * 8), (Objects, 2 * 4 * 8 * 8), (Recomputed, 2 * 4 * 8 * 8),
    (lambda: nn.LazyLinear(3), 2 * 4 * 8 * 3), (lambda: torch.jit.script(nn.Linear(8, 8)), 2 * 4 * 8 * 8),
    (lambda: nn.Linear(8, 8).requires_grad_(False), 2 * 4 * 8 * 8), (lambda: nn.RNNCell(8, 5), 2 * 4 * (8 + 5) * 5),
    (lambda: torch.compile(nn.Linear(8, 8)), 2 * 4 * 8 * 8), (lambda: nn.utils.spectral_norm(nn.Linear(8, 8)), None),
    (quantized, 0)], ids=["function", "object", "checkpoint", "lazy", "script", "frozen", "cell", "compiled",
                          "spectral norm", "quantized"])
@pytest.mark.filterwarnings("ignore")
def test_other_layers_are_counted(make, flops):
    model = make()
    table = layer_table(model, (8,), 4)
    assert table.flops.sum() == (2 * 4 * 8 * 8 if flops is None else flops)
    if not isinstance(model, nn.LazyLinear): assert table.parameters.sum() == count_parameters(model)
    else: assert table.parameters.sum() == 27 and model.has_uninitialized_params(), "the model is as it was"


def test_the_users_error_is_told():
    class Wrong(nn.Module):
        def __init__(self): super().__init__(); self.mix = nn.Linear(8, 8)
        def forward(self, x): return self.mix(x) @ torch.ones(3, 3)

    with pytest.raises(RuntimeError, match="4x8 and 3x3|size of"): layer_table(Wrong(), (8,), 4)
