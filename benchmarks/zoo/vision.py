"""Rows of models that see."""

from __future__ import annotations

from typing import Any

from torch import nn

from benchmarks.zoo.inputs import image, image_and_text, masked_image, plane
from benchmarks.zoo.mobilenet import MobileNet
from benchmarks.zoo.row import Row, Size, library
from benchmarks.zoo.unet import UNet

_SMALL = {"batch": 2, "extent": 64}
_FULL = {"batch": 1, "extent": 224}
_TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_SMALL_RESNET = {"embedding_size": 16, "depths": [1, 1, 1, 1]}


def clip(text: dict[str, Any], vision: dict[str, Any]) -> nn.Module:
    """CLIP: both towers and the products of their projections."""
    from transformers import CLIPConfig, CLIPModel

    made: nn.Module = CLIPModel(CLIPConfig(text_config=text, vision_config=vision))
    return made


def detr(backbone: dict[str, Any], **sizes: Any) -> nn.Module:
    """DETR over a ResNet of transformers."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    features = ResNetConfig(**backbone, out_features=["stage4"])
    settings = DetrConfig(use_timm_backbone=False, backbone=None, backbone_config=features,
                          use_pretrained_backbone=False, **sizes)  # fmt: skip
    made: nn.Module = DetrForObjectDetection(settings)
    return made


TRANSFORMERS = (
    Row(
        "vit",
        library("ViTForImageClassification", "ViTConfig"),
        image,
        Size({**_TINY, "image_size": 64}, _SMALL),
        Size({}, _FULL),
    ),
    Row(
        "clip",
        clip,
        image_and_text,
        Size({"text": {**_TINY, "vocab_size": 512}, "vision": {**_TINY, "image_size": 64}},
             {**_SMALL, "length": 16, "vocabulary": 512}),
        Size({"text": {}, "vision": {}}, {**_FULL, "length": 77, "vocabulary": 49000}),
    ),
    Row(
        "swin",
        library("SwinForImageClassification", "SwinConfig"),
        image,
        Size({"image_size": 64, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4],
              "window_size": 4}, _SMALL),
        Size({}, _FULL),
    ),
    Row(
        "detr",
        detr,
        masked_image,
        Size({"backbone": _SMALL_RESNET, "d_model": 64, "encoder_layers": 1, "decoder_layers": 1,
              "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "encoder_attention_heads": 4,
              "decoder_attention_heads": 4, "num_queries": 10}, _SMALL),
        Size({"backbone": {}}, {"batch": 1, "extent": 480}),
    ),
)  # fmt: skip

CONVOLUTIONS = (
    Row(
        "convnext",
        library("ConvNextForImageClassification", "ConvNextConfig"),
        image,
        Size({"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]}, _SMALL),
        Size({}, _FULL),
    ),
    Row(
        "resnet18",
        library("ResNetForImageClassification", "ResNetConfig", layer_type="basic"),
        image,
        Size({**_SMALL_RESNET, "hidden_sizes": [16, 32, 48, 64]}, _SMALL),
        Size({"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512]}, _FULL),
    ),
    Row(
        "resnet50",
        library("ResNetForImageClassification", "ResNetConfig"),
        image,
        Size({**_SMALL_RESNET, "hidden_sizes": [32, 64, 96, 128]}, _SMALL),
        Size({}, _FULL),
    ),
    Row("mobilenet_v3", MobileNet, plane, Size({"width": 0.25}, _SMALL), Size({}, _FULL)),
    Row(
        "efficientnet",
        library("EfficientNetForImageClassification", "EfficientNetConfig", initializer_range=0.2),
        image,
        Size({"width_coefficient": 0.25, "depth_coefficient": 0.4, "hidden_dim": 320}, _SMALL),
        Size({"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}, _FULL),
    ),
    Row(
        "regnet",
        library("RegNetForImageClassification", "RegNetConfig"),
        image,
        Size({"embedding_size": 16, "depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 48, 64],
              "groups_width": 8}, _SMALL),
        Size({}, _FULL),
    ),
    Row("unet", UNet, plane, Size({"width": 8, "depth": 3}, _SMALL),
        Size({"width": 32, "depth": 4}, {"batch": 1, "extent": 256})),
)  # fmt: skip
