"""BERT from transformers, four layers with random weights: token ids and an attention mask in.

The model is made from its configuration, so nothing is downloaded.
"""

import torch
from transformers import BertConfig, BertModel


def build_model(layers=4, width=768, heads=12, hidden=3072, vocabulary=30522):
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=hidden,
        vocab_size=vocabulary,
    )
    return BertModel(config)


def example_inputs(batch=1, length=128, vocabulary=30522):
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, length * 3 // 4 :] = 0
    ids = torch.randint(0, vocabulary, (batch, length), generator=generator)
    return {"input_ids": ids, "attention_mask": mask}
