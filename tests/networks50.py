"""Fifty networks as people train them: 20 of transformers, 20 of timm, 10 of torchvision, with random weights.

Each is small enough for a step on two cores within a second or two, and has a batch and the loss of one.
"""
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

WORDS, LENGTH = 128, 24  # of every vocabulary and sequence


@dataclass(frozen=True)
class Network:
    "A network, a batch of it, and its loss of (model, batch); None: the output names one."
    name: str
    library: str                                          # "transformers", "timm" or "torchvision"
    make: Callable[[], nn.Module]
    batch: Callable[[int], Any]                           # of so many samples
    step: Callable[[nn.Module, Any], torch.Tensor] | None = None

    def __str__(self) -> str: return f"{self.library}: {self.name}"

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        "The loss of a batch."
        return self.step(model, batch) if self.step else model(**batch).loss


# ---- transformers

def _ids(count: int) -> torch.Tensor: return torch.arange(count * LENGTH).reshape(count, LENGTH) % (WORDS - 8) + 5


def _text(count: int) -> dict[str, torch.Tensor]:
    ids = _ids(count)
    return dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)


def _image(count: int) -> dict[str, torch.Tensor]:
    return dict(pixel_values=torch.rand(count, 3, 32, 32), labels=torch.arange(count) % 2)


def _speech(count: int) -> dict[str, torch.Tensor]:
    return dict(input_features=torch.rand(count, 16, 40), labels=_ids(count)[:, :8])


def _waves(count: int) -> dict[str, torch.Tensor]:
    return dict(input_values=torch.randn(count, 1_600), labels=torch.arange(count) % 2)


def _pairs(count: int) -> dict[str, Any]:
    return dict(input_ids=_ids(count), pixel_values=torch.rand(count, 3, 32, 32), return_loss=True)


_SPECIAL = dict(vocab_size=WORDS, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_DECODER = dict(_SPECIAL, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
_GROUPED = dict(_DECODER, num_key_value_heads=2, max_position_embeddings=64)
_ENCODER = dict(_DECODER, max_position_embeddings=64)
_VISION = dict(image_size=32, patch_size=8, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
               num_attention_heads=4)
_CLIP_TEXT = {**_ENCODER, "eos_token_id": 2}

TRANSFORMERS: list[tuple[str, str, dict[str, Any], Callable[[int], Any]]] = [
    # what it is called, class, configuration, batch
    ("GPT-2", "GPT2LMHeadModel", dict(_SPECIAL, n_embd=32, n_layer=2, n_head=4, n_positions=64), _text),
    ("GPT-NeoX", "GPTNeoXForCausalLM", _ENCODER, _text),
    ("OPT", "OPTForCausalLM", dict(_SPECIAL, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
                                   word_embed_proj_dim=32, max_position_embeddings=64), _text),
    ("BLOOM", "BloomForCausalLM", dict(_SPECIAL, hidden_size=32, n_layer=2, n_head=4), _text),
    ("Llama", "LlamaForCausalLM", _GROUPED, _text),
    ("Mistral", "MistralForCausalLM", _GROUPED, _text),
    ("Mixtral", "MixtralForCausalLM", dict(_GROUPED, num_local_experts=4), _text),
    ("Qwen2", "Qwen2ForCausalLM", _GROUPED, _text),
    ("Qwen3", "Qwen3ForCausalLM", dict(_GROUPED, head_dim=8), _text),
    ("Gemma 2", "Gemma2ForCausalLM", dict(_GROUPED, head_dim=8), _text),
    ("Phi-3", "Phi3ForCausalLM", _GROUPED, _text),
    ("BERT", "BertForMaskedLM", _ENCODER, _text),
    ("ALBERT", "AlbertForMaskedLM", dict(_ENCODER, embedding_size=16), _text),
    ("DeBERTa", "DebertaV2ForMaskedLM", dict(_ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"]), _text),
    ("T5", "T5ForConditionalGeneration", dict(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                                              pad_token_id=0, decoder_start_token_id=0), _text),
    ("BART", "BartForConditionalGeneration",
     dict(_SPECIAL, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
          decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
          decoder_start_token_id=2, forced_eos_token_id=2), _text),
    ("Whisper", "WhisperForConditionalGeneration",
     dict(_SPECIAL, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
          decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20,
          max_target_positions=32, decoder_start_token_id=1), _speech),
    ("ViT", "ViTForImageClassification", _VISION, _image),
    ("CLIP", "CLIPModel", dict(text_config=_CLIP_TEXT, vision_config=_VISION, projection_dim=16), _pairs),
    ("wav2vec 2.0", "Wav2Vec2ForSequenceClassification",
     dict(vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
          conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2,
          num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, mask_time_prob=0.0, apply_spec_augment=False,
          layerdrop=0.0), _waves),
]


def _transformer(kind: str, settings: dict[str, Any]) -> nn.Module:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    made = getattr(transformers, kind)
    return made(made.config_class(**settings))


# ---- timm

TIMM: list[tuple[str, int, dict[str, Any]]] = [  # name, side of the image, settings
    ("resnet18", 64, {}), ("resnet26d", 64, {}), ("tf_efficientnet_lite0", 64, {}), ("efficientnet_b0", 64, {}),
    ("mobilenetv3_small_100", 64, {}), ("regnetx_002", 64, {}), ("densenet121", 64, {}), ("convnext_atto", 64, {}),
    ("ghostnet_050", 64, {}), ("repvgg_a0", 64, {}), ("hrnet_w18_small", 64, {}), ("nf_resnet26", 64, {}),
    ("vit_tiny_patch16_224", 64, dict(img_size=64)), ("deit_tiny_patch16_224", 64, dict(img_size=64)),
    ("swin_tiny_patch4_window7_224", 56, dict(img_size=56)), ("mixer_s32_224", 64, dict(img_size=64)),
    ("mobilevit_xxs", 64, {}), ("poolformer_s12", 64, {}), ("pvt_v2_b0", 64, {}), ("xcit_nano_12_p16_224", 64, {}),
]


def _timm(name: str, settings: dict[str, Any]) -> nn.Module:
    import timm
    return timm.create_model(name, num_classes=10, **settings)


def _images(side: int) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    return lambda count: (torch.rand(count, 3, side, side), torch.arange(count) % 10)


def _classes(model: nn.Module, batch: Any) -> torch.Tensor: return F.cross_entropy(model(batch[0]), batch[1])


# ---- torchvision

DETECTION: list[tuple[str, int, dict[str, Any]]] = [  # name, side of the image, settings
    ("fasterrcnn_mobilenet_v3_large_320_fpn", 96, dict(min_size=96)),
    ("fasterrcnn_resnet50_fpn", 96, dict(min_size=96)), ("maskrcnn_resnet50_fpn", 96, dict(min_size=96)),
    ("retinanet_resnet50_fpn", 96, dict(min_size=96)), ("fcos_resnet50_fpn", 96, dict(min_size=96)),
    ("ssd300_vgg16", 300, {}), ("ssdlite320_mobilenet_v3_large", 320, {}),
]
SEGMENTATION = ["fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]


def _detector(name: str, settings: dict[str, Any]) -> nn.Module:
    import torchvision
    make = getattr(torchvision.models.detection, name)
    return make(weights=None, weights_backbone=None, num_classes=3, **settings)


def _scenes(side: int) -> Callable[[int], tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]]:
    "Images, and of each two boxes with their class and mask."
    def scene() -> dict[str, torch.Tensor]:
        boxes = torch.tensor([[4.0, 4.0, side / 2, side / 2], [side / 4, side / 3, side - 4.0, side - 8.0]])
        return dict(boxes=boxes, labels=torch.tensor([1, 2]), masks=torch.ones(2, side, side, dtype=torch.uint8))
    return lambda count: ([torch.rand(3, side, side) for _ in range(count)], [scene() for _ in range(count)])


def _detection_loss(model: nn.Module, batch: Any) -> torch.Tensor: return sum(model(*batch).values())


def _segmenter(name: str) -> nn.Module:
    import torchvision
    return getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=3)


def _masks(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(count, 3, 64, 64), torch.zeros(count, 64, 64, dtype=torch.int64)


def _pixel_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0])["out"], batch[1])


def _from(function: Callable[..., nn.Module], *arguments: Any) -> Callable[[], nn.Module]:
    return lambda: function(*arguments)


NETWORKS = [
    *(Network(name, "transformers", _from(_transformer, kind, settings), batch)
      for name, kind, settings, batch in TRANSFORMERS),
    *(Network(name, "timm", _from(_timm, name, settings), _images(side), _classes) for name, side, settings in TIMM),
    *(Network(name, "torchvision", _from(_detector, name, settings), _scenes(side), _detection_loss)
      for name, side, settings in DETECTION),
    *(Network(name, "torchvision", _from(_segmenter, name), _masks, _pixel_loss) for name in SEGMENTATION),
]
