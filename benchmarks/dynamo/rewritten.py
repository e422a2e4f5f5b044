"""Graphs that the rewrites of `aotc_rewrite` change, and some that they leave alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.dynamo.models import MODELS

TOKENS, VOCABULARY, WIDTH, HEADS = 128, 1024, 512, 8


@dataclass(frozen=True, slots=True)
class Example:
    """A module that gives one tensor, and its arguments."""

    module: nn.Module
    arguments: tuple[Tensor, ...]

    def on(self, device: str, dtype: torch.dtype) -> Example:
        """The example on a device; floating values in a dtype."""
        moved = (
            each.to(device, dtype) if each.is_floating_point() else each.to(device)
            for each in self.arguments
        )
        return Example(self.module.to(device, dtype).eval(), tuple(moved))


class Logits(nn.Module):
    """A language model of the library transformers, called for its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, use_cache=False).logits


def gpt2() -> Example:
    """Four layers of GPT-2, its attention and GELU in arithmetic."""
    import transformers

    sizes = {"n_layer": 4, "n_positions": TOKENS, "vocab_size": VOCABULARY}
    off = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**sizes, **off, **ends, attn_implementation="eager")
    return Example(Logits(transformers.GPT2LMHeadModel(config)), (_tokens(),))


def llama() -> Example:
    """Four layers of Llama, its norms and attention in arithmetic, heads shared."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=WIDTH, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=HEADS,
        num_key_value_heads=2, vocab_size=VOCABULARY, attn_implementation="eager",
    )  # fmt: skip
    return Example(Logits(transformers.LlamaForCausalLM(config)), (_tokens(),))


def _tokens() -> Tensor:
    return torch.randint(0, VOCABULARY, (1, TOKENS))


class Attention(nn.Module):
    """Causal attention written out, its scale a division."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("hidden", torch.ones(TOKENS, TOKENS).triu(1).bool())

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.mixed(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts.unbind(0)
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(width // HEADS)
        seen = scores.masked_fill(self.hidden, -math.inf).softmax(-1) @ values
        return self.out(seen.transpose(1, 2).reshape(batch, length, width))


class Activations(nn.Module):
    """SiLU, both GELUs and a chain of scalars, each in arithmetic, between linears."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        first, second, third, fourth = self.rows
        x = first(x)
        x = second(x * torch.sigmoid(x))
        x = third(x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))))
        cubic = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3))
        x = fourth(0.5 * x * (1.0 + torch.tanh(cubic)))
        return x * 2.0 * 3.0 + 0.0


class Norms(nn.Module):
    """RMSNorm and LayerNorm in arithmetic, a softmax with its own maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        middle = x - x.mean(-1, keepdim=True)
        variance = (middle * middle).mean(-1, keepdim=True)
        x = middle / torch.sqrt(variance + 1e-5) * self.scale + self.shift
        raised = torch.exp(x - x.amax(-1, keepdim=True))
        return raised / raised.sum(-1, keepdim=True)


class Plain(nn.Module):
    """Pointwise ops and a running sum that no table has a row for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return functional.softplus(x * self.weight).sub(x.cos()).cumsum(-1).atan()


def _rows(batch: int) -> Tensor:
    return torch.randn(batch, TOKENS, WIDTH)


def _model(name: str) -> Callable[[], Example]:
    return lambda: Example(MODELS[name].build(), (MODELS[name].example(),))


GRAPHS: Mapping[str, Callable[[], Example]] = {
    "gpt2": gpt2,
    "llama": llama,
    "attention": lambda: Example(Attention(), (_rows(4),)),
    "activations": lambda: Example(Activations(), (_rows(2),)),
    "norms": lambda: Example(Norms(), (_rows(16),)),
    "plain": lambda: Example(Plain(), (_rows(8),)),
    "encoder": _model("encoder"),
    "convolutional": _model("convolutional"),
}
