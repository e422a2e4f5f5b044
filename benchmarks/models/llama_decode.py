"""One decoding step of the model in llama.py, with room for 512 tokens before it, bf16.

A token i64[1, 1], its position i64[1], keys and values so far, two bf16[16, 1, 8, 512, 64] of which
the first `position` places count → logits bf16[1, 128256] and the token's own keys and values,
bf16[16, 1, 8, 1, 64] each, which the caller puts in their place: nobody has to copy a cache.
"""

from __future__ import annotations

import torch
from llama import DTYPE, Decode, Shape, made
from torch import nn


def build_model(shape: Shape | None = None) -> nn.Module:
    """The step."""
    return made(Decode, shape or Shape())


def for_torch(model: nn.Module) -> nn.Module:
    """The same model in the form that torch runs fastest."""
    assert isinstance(model, Decode)
    model.packs_heads = True
    return model


def example_inputs(shape: Shape | None = None) -> tuple[torch.Tensor, ...]:
    """Token, position and a cache that is full but for its last 12 places."""
    sizes = shape or Shape()
    generator = torch.Generator().manual_seed(3)
    dims = (sizes.layers, 1, sizes.key_heads, sizes.length, sizes.size)
    token = torch.randint(0, sizes.tokens, (1, 1), generator=generator)
    keys, values = (torch.randn(dims, generator=generator).to(DTYPE) for _ in range(2))
    return token, torch.tensor([sizes.length - 12]), keys, values
