"""ViT-B/16 from transformers: batch 8 of 224² images in bf16, random weights, 1000 classes."""

import torch
from transformers import ViTConfig, ViTForImageClassification

BATCH, SIDE, CLASSES = 8, 224, 1000


def build_model(layers: int = 12) -> torch.nn.Module:
    """The base size with patches of 16², made from its configuration: nothing is downloaded."""
    torch.manual_seed(1)
    config = ViTConfig(num_hidden_layers=layers, num_labels=CLASSES)
    return ViTForImageClassification(config).to(torch.bfloat16).eval()


def example_inputs(batch: int = BATCH) -> tuple[torch.Tensor]:
    """Images, bf16[batch, 3, 224, 224]."""
    generator = torch.Generator().manual_seed(2)
    return (torch.randn(batch, 3, SIDE, SIDE, generator=generator).to(torch.bfloat16),)
