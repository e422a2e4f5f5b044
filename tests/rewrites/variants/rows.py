"""Ways in which model code and decompositions write one computation, by what it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

ROOT = math.sqrt(2 / math.pi)
BATCH, HEADS, TOKENS, SIZE = 2, 4, 6, 8


@dataclass(frozen=True)
class Variant:
    """A function or module, arguments that it takes, and what the rewrites must find in it."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[torch.Tensor, ...]
    op: str


def _randoms(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(len(shapes))
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


X = _randoms((2, 4, 16))
SHORT = _randoms((2, 4, 16), dtype=torch.bfloat16)
HALF = _randoms((2, 4, 16), dtype=torch.float16)


def _rows(op: str, arguments: tuple[Any, ...], **variants: Callable[..., Any]) -> list[Variant]:
    return [Variant(name, function, arguments, op) for name, function in variants.items()]


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Computed in f32 and rounded once."""
    return lambda x: function(x.float()).to(x.dtype)


def _new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0))))


def _exact_gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


SIGMOID = _rows(
    "sigmoid",
    X,
    quotient=lambda x: 1 / (1 + torch.exp(-x)),
    reciprocal=lambda x: torch.exp(-x).add(1).reciprocal(),
    power=lambda x: (1 + torch.exp(-x)) ** -1,
    tangent=lambda x: 0.5 * torch.tanh(0.5 * x) + 0.5,
)
SILU = [
    *_rows(
        "silu",
        X,
        gate_second=lambda x: x * torch.sigmoid(x),
        gate_first=lambda x: torch.sigmoid(x) * x,
        method=lambda x: x.mul(x.sigmoid()),
        quotient=lambda x: x / (1 + torch.exp(-x)),
        reciprocal=lambda x: x * torch.reciprocal(1 + torch.exp(-x)),
        times_minus_one=lambda x: x / (torch.exp(x * -1) + 1.0),
        power=lambda x: x * (1 + torch.exp(-x)) ** -1,
        tangent=lambda x: x * (torch.tanh(x / 2) + 1) / 2,
        module=nn.SiLU(),
    ),
    *_rows(
        "silu",
        SHORT,
        bf16=lambda x: x * torch.sigmoid(x),
        bf16_widened=_wide(lambda x: x * torch.sigmoid(x)),
    ),
    *_rows("silu", HALF, f16_quotient=lambda x: x / (1 + torch.exp(-x))),
]
GELU = [
    *_rows(
        "gelu",
        X,
        quotient=_exact_gelu,
        half_first=lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067811865475)),
        phi=lambda x: x * (0.5 * (1 + torch.erf(x / 1.4142135623730951))),
        short_root=lambda x: x * 0.5 * (1.0 + torch.erf(x / 1.41421)),
        ones=lambda x: x * 0.5 * (torch.erf(x / 1.41421) + torch.ones_like(x)),
        half_last=lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
        normal=lambda x: x * torch.special.ndtr(x),
        complement=lambda x: 0.5 * x * torch.special.erfc(-x * math.sqrt(0.5)),
        root_of_tensor=lambda x: x * 0.5 * (1 + torch.erf(x / torch.sqrt(torch.tensor(2.0)))),
        written_out=lambda x: 0.5 * x + 0.5 * x * torch.erf(x * math.sqrt(0.5)),
        module=nn.GELU(),
    ),
    *_rows("gelu", SHORT, bf16=_exact_gelu, bf16_widened=_wide(_exact_gelu)),
]
GELU_TANH = [
    *_rows(
        "gelu_tanh",
        X,
        power=_new_gelu,
        whole_power=lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x**3))),
        products=lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x * x * x))),
        factored=lambda x: 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
        megatron=lambda x: x * 0.5 * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))),
        constants_folded=lambda x: x * (0.5 + 0.5 * torch.tanh(ROOT * x + ROOT * 0.044715 * x**3)),
        root_of_tensor=lambda x: (
            0.5
            * x
            * (1.0 + torch.tanh(torch.sqrt(torch.tensor(2 / math.pi)) * (x + 0.044715 * x**3)))
        ),
        mesh=lambda x: (0.5 * x) * (1 + torch.tanh((ROOT * x) * (1 + 0.044715 * x**2))),
        by_sigmoid=lambda x: x * torch.sigmoid(1.5957691216 * x * (1 + 0.044715 * x * x)),
        module=nn.GELU(approximate="tanh"),
    ),
    *_rows("gelu_tanh", SHORT, bf16=_new_gelu, bf16_widened=_wide(_new_gelu)),
]


# -- rows: what must become one kernel -------------------------------------------------------------

NORM = _randoms((2, 4, 16), (16,), (16,))
SHORT_NORM = _randoms((2, 4, 16), (16,), dtype=torch.bfloat16)


def _centered(x):
    return x - x.mean(-1, keepdim=True)


def _mean_square(x):
    return x.pow(2).mean(-1, keepdim=True)


LAYER_NORM = _rows(
    "layer_norm",
    NORM,
    variance=lambda x, w, b: (
        _centered(x) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * w + b
    ),
    squares=lambda x, w, b: w * (_centered(x) * torch.rsqrt(_mean_square(_centered(x)) + 1e-5)) + b,
    power=lambda x, w, b: w * (_centered(x) * (_mean_square(_centered(x)) + 1e-5) ** -0.5) + b,
    quotient=lambda x, w, b: (
        _centered(x) * (1 / (_mean_square(_centered(x)) + 1e-5).sqrt()) * w + b
    ),
    sums=lambda x, w, b: (
        (x - x.sum(-1, True) / 16)
        * torch.rsqrt(((x - x.sum(-1, True) / 16) ** 2).sum(-1, True) / 16 + 1e-5)
        * w
        + b
    ),
    weighed_first=lambda x, w, b: (
        w * _centered(x) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-5) + b
    ),
    variance_and_mean=lambda x, w, b: (
        (x - x.mean(-1, True))
        * torch.var_mean(x, -1, correction=0, keepdim=True)[0].add(1e-5).rsqrt()
        * w
        + b
    ),
    function=lambda x, w, b: F.layer_norm(x, (16,), w, b),
)
RMS_NORM = [
    *_rows(
        "rms_norm",
        NORM[:2],
        power=lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        products=lambda x, w: w * (x * torch.rsqrt((x * x).mean(-1, True) + 1e-6)),
        quotient=lambda x, w: x / torch.sqrt(x.square().mean(-1, True) + 1e-6) * w,
        weighed_first=lambda x, w: w * x / torch.sqrt(x.square().mean(-1, True) + 1e-6),
        sums=lambda x, w: x * ((x**2).sum(-1, True) / 16 + 1e-6).pow(-0.5) * w,
        gemma=lambda x, w: x * torch.pow(x.pow(2).mean(-1, True) + 1e-6, -0.5) * (1.0 + w),
        dropped_dim=lambda x, w: x * torch.rsqrt((x * x).mean(-1) + 1e-6).unsqueeze(-1) * w,
        function=lambda x, w: F.rms_norm(x, (16,), w, 1e-6),
    ),
    *_rows(
        "rms_norm",
        SHORT_NORM,
        llama=lambda x, w: w * _wide(lambda x: x * torch.rsqrt(_mean_square(x) + 1e-6))(x),
    ),
]


def _shifted(x):
    return torch.exp(x - x.max(-1, keepdim=True).values)


SOFTMAX = [
    *_rows(
        "softmax",
        X,
        values=lambda x: _shifted(x) / _shifted(x).sum(-1, keepdim=True),
        logarithm=lambda x: torch.log_softmax(x, -1).exp(),
        reciprocal=lambda x: _shifted(x) * (1.0 / _shifted(x).sum(-1, keepdim=True)),
        dropped_dim=lambda x: (
            torch.exp(x - x.amax(-1)[..., None])
            / torch.exp(x - x.amax(-1)[..., None]).sum(-1)[..., None]
        ),
        function=lambda x: F.softmax(x, -1),
    ),
    *_rows("softmax", SHORT, f32=lambda x: F.softmax(x, -1, dtype=torch.float32).to(x.dtype)),
]


# -- attention -------------------------------------------------------------------------------------

QKV = _randoms(*[(BATCH, HEADS, TOKENS, SIZE)] * 3)
SHARED = _randoms((BATCH, HEADS, TOKENS, SIZE), *[(BATCH, 2, TOKENS, SIZE)] * 2)
BIASED = (*QKV, *_randoms((BATCH, 1, TOKENS, TOKENS)))
SEEN = (*QKV, torch.ones(BATCH, 1, TOKENS, TOKENS).tril(2).bool())
SCALE = SIZE**-0.5


def _weighted(scores, v):
    return torch.softmax(scores, -1) @ v


def _product(q, k):
    return q @ k.transpose(-1, -2)


def _repeated(x, count=2):
    batch, heads, tokens, size = x.shape
    wide = x[:, :, None].expand(batch, heads, count, tokens, size)
    return wide.reshape(batch, heads * count, tokens, size)


def _flat(x):
    return x.reshape(BATCH * HEADS, TOKENS, SIZE)


def _causal():
    return torch.ones(TOKENS, TOKENS).tril().bool()


ATTENTION = [
    *_rows(
        "attention",
        QKV,
        scaled=lambda q, k, v: _weighted(_product(q, k) * SCALE, v),
        divided=lambda q, k, v: _weighted(_product(q, k) / math.sqrt(SIZE), v),
        query_scaled=lambda q, k, v: _weighted(_product(q * SCALE, k), v),
        scale_split=lambda q, k, v: _weighted(_product(q * SCALE**0.5, k * SCALE**0.5), v),
        einsum=lambda q, k, v: torch.einsum(
            "bhqk,bhkd->bhqd", (torch.einsum("bhqd,bhkd->bhqk", q, k) * SCALE).softmax(-1), v
        ),
        dropout_of_nothing=lambda q, k, v: (
            F.dropout(torch.softmax(_product(q, k) * SCALE, -1), 0.0, True) @ v
        ),
        softmax_by_hand=lambda q, k, v: (
            _shifted(_product(q, k)) / _shifted(_product(q, k)).sum(-1, keepdim=True) @ v
        ),
        flat_heads=lambda q, k, v: torch.bmm(
            torch.softmax(torch.bmm(_flat(q) * SCALE, _flat(k).transpose(1, 2)), -1), _flat(v)
        ),
        added_product=lambda q, k, v: torch.bmm(
            torch.baddbmm(
                torch.empty(BATCH * HEADS, TOKENS, TOKENS),
                _flat(q),
                _flat(k).transpose(1, 2),
                beta=0,
                alpha=SCALE,
            ).softmax(-1),
            _flat(v),
        ),
        function=lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    ),
    *_rows(
        "attention",
        BIASED,
        mask_added=lambda q, k, v, m: _weighted(_product(q, k) * SCALE + m, v),
        bias_in_f32=lambda q, k, v, m: _weighted(_product(q, k).float() + m, v),
        function_with_mask=lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
    ),
    *_rows(
        "attention",
        SEEN,
        mask_filled=lambda q, k, v, m: _weighted(
            (_product(q, k) * SCALE).masked_fill(~m, -math.inf), v
        ),
        mask_far=lambda q, k, v, m: _weighted(
            (_product(q, k) * SCALE).masked_fill(m == 0, -1e9), v
        ),
        mask_of_tensors=lambda q, k, v, m: _weighted(
            torch.where(
                m,
                _product(q, k) / torch.full([], SIZE**0.5),
                torch.full([], torch.finfo(q.dtype).min),
            ),
            v,
        ),
        mask_chosen=lambda q, k, v, m: _weighted(
            torch.where(m, _product(q, k) * SCALE, torch.finfo(q.dtype).min), v
        ),
    ),
    *_rows(
        "attention",
        SHARED,
        heads_expanded=lambda q, k, v: _weighted(_product(q, _repeated(k)), _repeated(v)),
        heads_seen_apart=lambda q, k, v: (
            torch.softmax(q.view(BATCH, 2, 2, TOKENS, SIZE) @ k[:, :, None].mT, -1) @ v[:, :, None]
        ).reshape(q.shape),
        heads_repeated=lambda q, k, v: _weighted(
            _product(q, k.repeat_interleave(2, 1)), v.repeat_interleave(2, 1)
        ),
        heads_grouped=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    ),
]
CAUSAL = _rows(
    "attention",
    QKV,
    filled=lambda q, k, v: _weighted(_product(q, k).masked_fill(~_causal(), -math.inf), v),
    counted=lambda q, k, v: _weighted(
        torch.where(
            torch.arange(TOKENS)[:, None] >= torch.arange(TOKENS), _product(q, k), -math.inf
        ),
        v,
    ),
    added=lambda q, k, v: _weighted(
        _product(q, k) + torch.full((TOKENS, TOKENS), -math.inf).triu(1), v
    ),
    function=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
)


# -- one pointwise kernel, or one product ----------------------------------------------------------


def _rotated(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _every_two(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def _pairs(x, cos, sin):
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(-2)


def _halves(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


ANGLES = _randoms((BATCH, HEADS, TOKENS, SIZE), *[(1, 1, TOKENS, SIZE)] * 2)
HALF_ANGLES = _randoms((BATCH, HEADS, TOKENS, SIZE), *[(1, 1, TOKENS, SIZE // 2)] * 2)
ROTARY = [
    *_rows(
        "one kernel",
        ANGLES,
        rotate_half=lambda x, cos, sin: x * cos + _rotated(x) * sin,
        rotate_every_two=lambda x, cos, sin: x * cos + _every_two(x) * sin,
        partial=lambda x, cos, sin: torch.cat(
            [
                x[..., :4] * cos[..., :4] + _rotated(x[..., :4]) * sin[..., :4],
                x[..., 4:],
            ],
            -1,
        ),
    ),
    *_rows("one kernel", HALF_ANGLES, interleaved=_pairs, halves=_halves),
]


class Gated(nn.Module):
    """A feed-forward block with a gate, `variant` of it given."""

    def __init__(self, variant):
        super().__init__()
        self.gate, self.up = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.both, self.variant = nn.Linear(16, 64), variant

    def forward(self, x):
        return self.variant(self, x)


GATED = _rows(
    "one product",
    X,
    silu=Gated(lambda block, x: F.silu(block.gate(x)) * block.up(x)),
    by_hand=Gated(lambda block, x: block.gate(x) * torch.sigmoid(block.gate(x)) * block.up(x)),
    gelu=Gated(lambda block, x: block.up(x) * F.gelu(block.gate(x), approximate="tanh")),
    chunks=Gated(lambda block, x: F.silu(block.both(x).chunk(2, -1)[0]) * block.both(x)[..., 32:]),
    glu=Gated(lambda block, x: F.glu(block.both(x), -1)),
)


# -- scalars ---------------------------------------------------------------------------------------

SCALARS = _rows(
    "mul",
    X,
    factors=lambda x: x * 2.0 * 3.0,
    factors_first=lambda x: 2 * (3 * x),
    quotients=lambda x: x / 2 / 3,
    factor_and_quotient=lambda x: x * 3 / 4,
    quotient_and_factor=lambda x: x / 3 * 2,
)
NOTHING = _rows(
    "",
    X,
    minus_zero=lambda x: x - 0.0,
    times_one=lambda x: x * 1,
    by_one=lambda x: x / 1,
    twice_negated=lambda x: x.neg().neg(),
    power_of_one=lambda x: x**1,
    own_type=lambda x: x.float(),
    there_and_back=lambda x: x.double().float(),
    views=lambda x: x.transpose(0, 1).transpose(0, 1).reshape(-1).view(2, 4, 16),
)
