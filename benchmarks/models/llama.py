"""A Llama of about a billion weights in plain torch: prefill and one step of decoding, bf16.

Shapes are those of Llama-3.2-1B: 2048 wide, 16 layers, 32 heads of 64 sharing 8 key heads, 8192 in
the MLP, 128256 tokens, embedding and output one matrix. Weights are random. As a spec this file is
the prefill: tokens i64[1, 512] → logits of the last position, bf16[1, 128256]. `llama_decode.py` is
one step of decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

DTYPE = torch.bfloat16


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; `length` counts tokens of a prefill and places of a cache."""

    width: int = 2048
    layers: int = 16
    heads: int = 32
    key_heads: int = 8
    size: int = 64
    inner: int = 8192
    tokens: int = 128256
    length: int = 512
    base: float = 500000.0


class Norm(nn.Module):
    """RMSNorm in f32, as the published models compute it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[.., width]` → the same."""
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * scaled.to(x.dtype)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding: the halves of a head as real and imaginary parts."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Layer(nn.Module):
    """Attention and gated MLP, each behind a norm and added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.before_attention, self.before_mlp = Norm(shape.width), Norm(shape.width)
        self.query = nn.Linear(shape.width, shape.heads * shape.size, bias=False)
        self.key = nn.Linear(shape.width, shape.key_heads * shape.size, bias=False)
        self.value = nn.Linear(shape.width, shape.key_heads * shape.size, bias=False)
        self.result = nn.Linear(shape.heads * shape.size, shape.width, bias=False)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def heads(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values `[B, heads, T, size]` of the normed input."""
        batch, length, _ = x.shape
        rows = (batch, length, -1, self.shape.size)
        parts = (self.query(x), self.key(x), self.value(x))
        query, key, value = (part.view(rows).transpose(1, 2) for part in parts)
        return rotated(query, cos, sin), rotated(key, cos, sin), value

    def joined(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """The layer's output from its input and the attention's `[B, heads, T, size]`."""
        batch, length, _ = x.shape
        x = x + self.result(context.transpose(1, 2).reshape(batch, length, -1))
        normed = self.before_mlp(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """Embedding, layers, norm, and the embedding again as output."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.tokens, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width)

    def angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines `[T, size]` of positions i64[T]."""
        size = self.shape.size
        exponents = torch.arange(0, size, 2, device=positions.device).float() / size
        angles = positions[:, None].float() * (self.shape.base**-exponents)[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(DTYPE), angles.sin().to(DTYPE)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Logits `[B, tokens]` of the last position."""
        return self.norm(x[:, -1]) @ self.embedding.weight.T


class Prefill(Llama):
    """All tokens of a prompt at once."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """i64[B, T] → `[B, tokens]`."""
        cos, sin = self.angles(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.embedding(tokens)
        for layer in self.layers:
            query, key, value = layer.heads(layer.before_attention(x), cos, sin)
            context = scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=True
            )
            x = layer.joined(x, context)
        return self.logits(x)


class Decode(Llama):
    """One token after those whose keys and values are given.

    `packs_heads`: the query heads of a key head are given to the attention as queries of one head.
    The result is the same, and torch has a fused kernel for it: with a mask it has none for heads
    that share keys.
    """

    packs_heads = False

    def forward(
        self,
        token: torch.Tensor,
        position: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits `[1, tokens]`, and keys and values of the token for each layer.

        `keys` and `values` are `[layers, 1, key heads, length, size]`, of which the places before
        `position` i64[1] count. They are not written: the caller puts the new ones in their place.
        """
        cos, sin = self.angles(position)
        places = torch.arange(keys.shape[3] + 1, device=keys.device)
        seen = (places < position) | (places == keys.shape[3])
        x = self.embedding(token)
        new_keys, new_values = [], []
        for number, layer in enumerate(self.layers):
            query, key, value = layer.heads(layer.before_attention(x), cos, sin)
            heads = query.shape
            if self.packs_heads:
                query = query.reshape(heads[0], self.shape.key_heads, -1, self.shape.size)
            context = scaled_dot_product_attention(
                query,
                torch.cat((keys[number], key), dim=2),
                torch.cat((values[number], value), dim=2),
                attn_mask=seen[None, None, None, :],
                enable_gqa=not self.packs_heads,
            ).reshape(heads)
            new_keys.append(key)
            new_values.append(value)
            x = layer.joined(x, context)
        return self.logits(x), torch.stack(new_keys), torch.stack(new_values)


def made(kind: type[Llama], shape: Shape) -> nn.Module:
    """A model with random weights of the published spread, in bf16."""
    with torch.device("meta"):
        model = kind(shape)
    model = model.to(DTYPE).to_empty(device="cpu").eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, 0.5, 1.5, generator=generator)
        else:
            nn.init.normal_(parameter, std=0.02, generator=generator)
    return model


def build_model(shape: Shape | None = None) -> nn.Module:
    """The prefill."""
    return made(Prefill, shape or Shape())


def example_inputs(shape: Shape | None = None) -> tuple[torch.Tensor, ...]:
    """Tokens i64[1, length]."""
    sizes = shape or Shape()
    generator = torch.Generator().manual_seed(2)
    return (torch.randint(0, sizes.tokens, (1, sizes.length), generator=generator),)
