"""BERT-base from transformers: 8 sequences of 128 tokens in bf16, random weights, no padding."""

import torch
from transformers import BertConfig, BertModel

BATCH, LENGTH = 8, 128


def build_model(layers: int = 12) -> torch.nn.Module:
    """The encoder of the base size, made from its configuration: nothing is downloaded."""
    torch.manual_seed(1)
    return BertModel(BertConfig(num_hidden_layers=layers)).to(torch.bfloat16).eval()


def example_inputs(batch: int = BATCH, length: int = LENGTH) -> dict[str, torch.Tensor]:
    """Token ids, i64[batch, length]."""
    generator = torch.Generator().manual_seed(2)
    return {"input_ids": torch.randint(0, 30522, (batch, length), generator=generator)}
