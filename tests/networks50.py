"""Fifty networks as people train them, small, with random weights and no network: 20 of transformers, 20 of timm,
10 of torchvision that detect and segment. Each has a batch as its users have it, and a step that returns its loss."""
from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, LENGTH, SAMPLES = 200, 32, 2


@dataclass(frozen=True)
class Network:
    "A network, a batch of it and its step; `make` builds it anew each time, from the same seed."
    name: str
    source: str                                 # transformers, timm or torchvision
    build: Callable[[], nn.Module]
    batch: Callable[[int], Any]                 # samples -> a batch
    step: Callable[[nn.Module, Any], torch.Tensor]

    def make(self) -> tuple[nn.Module, Any]:
        "A fresh model in training mode and a batch of two samples."
        torch.manual_seed(0)
        model = self.build().train()
        return model, self.batch(SAMPLES)

    def forward(self, model: nn.Module, batch: Any) -> Any:
        "The model's own call of this batch, as its step makes it."
        called = []
        handle = model.register_forward_hook(lambda _model, _args, output: called.append(output))
        try: self.step(model, batch)
        finally: handle.remove()
        return called[-1]


# ---- transformers: the loss is the model's own

def own_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    "What a model of transformers returns as its loss when the batch has labels."
    return model(**batch).loss


def tokens(samples: int, length: int = LENGTH) -> torch.Tensor:
    "Token numbers, without those that models reserve."
    return torch.randint(5, VOCABULARY, (samples, length), generator=torch.Generator().manual_seed(samples))


def text(samples: int) -> dict[str, torch.Tensor]:
    "Tokens with a mask of padding, to be predicted."
    ids = tokens(samples)
    mask = torch.ones_like(ids)
    mask[-1, LENGTH - 4:] = 0
    return dict(input_ids=ids, attention_mask=mask, labels=ids.clone())


def classified_text(samples: int) -> dict[str, torch.Tensor]:
    "Tokens with one class for each sample."
    return dict(text(samples), labels=torch.arange(samples) % 2)


def translation(samples: int) -> dict[str, torch.Tensor]:
    "Tokens of two lengths: source and target."
    return dict(input_ids=tokens(samples), attention_mask=torch.ones(samples, LENGTH, dtype=torch.long),
                labels=tokens(samples, LENGTH // 2))


def pictures(samples: int, side: int = 32) -> dict[str, torch.Tensor]:
    "Images with one class for each."
    return dict(pixel_values=torch.rand(samples, 3, side, side), labels=torch.arange(samples) % 2)


def speech(samples: int) -> dict[str, torch.Tensor]:
    "Sound waves with a class for each."
    return dict(input_values=torch.rand(samples, 1600), labels=torch.arange(samples) % 2)


def spectrum(samples: int) -> dict[str, torch.Tensor]:
    "Spectra of sound and the tokens that were spoken."
    return dict(input_features=torch.rand(samples, 16, 64), labels=tokens(samples, 12))


def captioned(samples: int) -> dict[str, Any]:
    "Images with a caption for each."
    return dict(input_ids=tokens(samples, 16), attention_mask=torch.ones(samples, 16, dtype=torch.long),
                pixel_values=torch.rand(samples, 3, 32, 32), return_loss=True)


def of_transformers(model: str, config: str, **settings: Any) -> nn.Module:
    "A model of transformers from its configuration, without any file."
    import transformers
    return getattr(transformers, model)(getattr(transformers, config)(**settings))


_WIDE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
_TEXT = dict(vocab_size=VOCABULARY, max_position_embeddings=64)
_LLAMA = dict(_WIDE, **_TEXT, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_T5 = dict(vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0)
_SEQ2SEQ = dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1,
                eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2)
_IMAGE = dict(_WIDE, image_size=32, patch_size=8)
_TRANSFORMERS = (
    ("llama", text, "LlamaForCausalLM", "LlamaConfig", _LLAMA),
    ("mistral", text, "MistralForCausalLM", "MistralConfig", dict(_LLAMA, sliding_window=16)),
    ("qwen2", text, "Qwen2ForCausalLM", "Qwen2Config", dict(_LLAMA, tie_word_embeddings=True)),
    ("gemma", text, "GemmaForCausalLM", "GemmaConfig", dict(_LLAMA, head_dim=16)),
    ("phi", text, "PhiForCausalLM", "PhiConfig", _LLAMA | dict(num_key_value_heads=4)),
    ("gpt2", text, "GPT2LMHeadModel", "GPT2Config",
     dict(vocab_size=VOCABULARY, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)),
    ("opt", text, "OPTForCausalLM", "OPTConfig",
     dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, word_embed_proj_dim=64, **_TEXT)),
    ("bloom", text, "BloomForCausalLM", "BloomConfig",
     dict(vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)),
    ("falcon", text, "FalconForCausalLM", "FalconConfig",
     dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)),
    ("mamba", text, "MambaForCausalLM", "MambaConfig",
     dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, state_size=8)),
    ("bert", text, "BertForMaskedLM", "BertConfig", dict(_WIDE, **_TEXT)),
    ("roberta", classified_text, "RobertaForSequenceClassification", "RobertaConfig", dict(_WIDE, **_TEXT)),
    ("distilbert", classified_text, "DistilBertForSequenceClassification", "DistilBertConfig",
     dict(dim=64, n_layers=2, n_heads=4, hidden_dim=128, **_TEXT)),
    ("deberta_v2", classified_text, "DebertaV2ForSequenceClassification", "DebertaV2Config",
     dict(_WIDE, **_TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"], type_vocab_size=0)),
    ("t5", translation, "T5ForConditionalGeneration", "T5Config", _T5),
    ("bart", translation, "BartForConditionalGeneration", "BartConfig", dict(_SEQ2SEQ, max_position_embeddings=64)),
    ("whisper", spectrum, "WhisperForConditionalGeneration", "WhisperConfig",
     dict(_SEQ2SEQ, num_mel_bins=16, max_source_positions=32, max_target_positions=32, suppress_tokens=None,
          begin_suppress_tokens=None)),
    ("wav2vec2", speech, "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config",
     dict(_WIDE, conv_dim=(32, 32, 32), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_feat_extract_layers=3,
          num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, classifier_proj_size=32,
          apply_spec_augment=False, layerdrop=0.0)),
    ("swin", pictures, "SwinForImageClassification", "SwinConfig",
     dict(image_size=32, patch_size=2, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4)),
    ("clip", captioned, "CLIPModel", "CLIPConfig",
     dict(text_config=dict(_WIDE, **_TEXT, eos_token_id=2, bos_token_id=1, pad_token_id=0), vision_config=_IMAGE,
          projection_dim=32)),
)

# ---- timm: images and classes

def labelled(samples: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    "Images and a class for each."
    drawn = torch.Generator().manual_seed(samples)
    return torch.rand(samples, 3, side, side, generator=drawn), torch.arange(samples) % 10


def class_loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    "Cross-entropy of images and classes."
    return F.cross_entropy(model(batch[0]), batch[1])


def of_timm(name: str, **settings: Any) -> nn.Module:
    "A model of timm with ten classes and random weights."
    import timm
    return timm.create_model(name, pretrained=False, num_classes=10, **settings)


_TIMM = (
    ("resnet18", 64, {}), ("efficientnet_b0", 64, {}), ("convnext_atto", 64, {}),
    ("vit_tiny_patch16_224", 64, dict(img_size=64, depth=4)),
    ("swin_tiny_patch4_window7_224", 64, dict(img_size=64, window_size=4, embed_dim=48, depths=(2, 2, 2, 2))),
    ("mixer_s16_224", 64, dict(img_size=64)),
    ("regnetx_002", 64, {}), ("mobilenetv3_small_050", 64, {}), ("densenet121", 64, {}), ("dla34", 64, {}),
    ("hrnet_w18_small", 64, {}), ("nfnet_l0", 64, {}), ("coat_tiny", 64, dict(img_size=64, serial_depths=(1, 1, 1, 1),
                                                                           parallel_depth=1)),
    ("maxvit_rmlp_pico_rw_256", 64, dict(img_size=64)), ("levit_128s", 224, {}), ("deit_tiny_patch16_224", 64,
                                                                                dict(img_size=64, depth=4)),
    ("ghostnet_050", 64, {}), ("xcit_nano_12_p16_224", 64, dict(img_size=64, depth=3)), ("edgenext_xx_small", 64, {}),
    ("repvgg_a0", 64, {}),
)

# ---- torchvision: detection and segmentation

def scenes(samples: int, masks: bool = False, keypoints: bool = False) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    "Images, each with the boxes in it, as a collate function for detection leaves them."
    drawn = torch.Generator().manual_seed(samples)
    found = []
    for number in range(samples):
        target: dict[str, Any] = dict(boxes=torch.tensor([[4.0, 4.0, 40.0, 40.0], [20.0, 10.0, 60.0, 50.0]]),
                                      labels=torch.tensor([1, 1]))
        if masks: target["masks"] = torch.zeros(2, 64, 64 + 16 * (number % 2), dtype=torch.uint8)
        if masks: target["masks"][:, 12:38, 22:38] = 1
        if keypoints: target["keypoints"] = torch.tensor([[[10.0, 10.0, 1.0]] * 4, [[30.0, 30.0, 1.0]] * 4])
        found.append((torch.rand(3, 64, 64 + 16 * (number % 2), generator=drawn), target))
    return found


def detection_loss(model: nn.Module, batch: list[tuple[torch.Tensor, dict[str, Any]]]) -> torch.Tensor:
    "The sum of a detector's losses."
    return sum(model([image for image, _ in batch], [dict(target) for _, target in batch]).values())


def maps(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    "Images and the class of each pixel."
    return labelled(samples, 64)[0], torch.arange(samples * 64 * 64).reshape(samples, 64, 64) % 5


def pixel_loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    "Cross-entropy of each pixel, with the second head's at 0.4."
    found = model(batch[0])
    loss = F.cross_entropy(found["out"], batch[1])
    return loss + 0.4 * F.cross_entropy(found["aux"], batch[1]) if "aux" in found else loss


def of_detection(name: str, **settings: Any) -> nn.Module:
    "A detector of torchvision with random weights, for small images."
    from torchvision.models import detection
    if not name.startswith("ssd"): settings |= dict(min_size=64, max_size=80)
    return getattr(detection, name)(weights=None, weights_backbone=None, num_classes=2, **settings)


def of_segmentation(name: str, **settings: Any) -> nn.Module:
    "A segmenter of torchvision with random weights."
    from torchvision.models import segmentation
    return getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=5, **settings)


_ROIS = dict(rpn_pre_nms_top_n_train=50, rpn_post_nms_top_n_train=20, box_batch_size_per_image=16)
_DETECTORS = (
    ("fasterrcnn_resnet50_fpn", scenes, _ROIS), ("fasterrcnn_mobilenet_v3_large_320_fpn", scenes, _ROIS),
    ("maskrcnn_resnet50_fpn", partial(scenes, masks=True), _ROIS),
    ("keypointrcnn_resnet50_fpn", partial(scenes, keypoints=True), dict(_ROIS, num_keypoints=4)),
    ("retinanet_resnet50_fpn", scenes, {}), ("fcos_resnet50_fpn", scenes, {}),
    ("ssdlite320_mobilenet_v3_large", scenes, {}),
)
_SEGMENTERS = (("deeplabv3_mobilenet_v3_large", {}), ("fcn_resnet50", dict(aux_loss=True)),
               ("lraspp_mobilenet_v3_large", {}))

NETWORKS = (
    *(Network(name, "transformers", partial(of_transformers, model, config, **settings), batch, own_loss)
      for name, batch, model, config, settings in _TRANSFORMERS),
    *(Network(name, "timm", partial(of_timm, name, **settings), partial(labelled, side=side), class_loss)
      for name, side, settings in _TIMM),
    *(Network(name, "torchvision", partial(of_detection, name, **settings), batch, detection_loss)
      for name, batch, settings in _DETECTORS),
    *(Network(name, "torchvision", partial(of_segmentation, name, **settings), maps, pixel_loss)
      for name, settings in _SEGMENTERS),
)
