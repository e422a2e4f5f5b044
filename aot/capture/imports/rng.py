"""Random draws inside a model, as arithmetic on random bits that the program's seed decides.

Each ATen op that draws is decomposed into `aotc::philox`, whose bits are a function of the seed, of
an offset, of the element's place and of the draw's number in the program (its site), and into the
arithmetic that gives the distribution of torch's op. The seed and offset are one more input of the
program, i64[2]. torch runs the decomposed program by the same bits (`seeded`), so that its numbers
can be compared with ours.

What is drawn from a generator of the user's has no row: nobody knows its state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy
import torch
from torch.export import ExportedProgram

from aotc.aot.capture.imports.call import Call, Rows
from aotc.aot.ir import build, reference
from aotc.aot.ir.graph import Node, make

aten = torch.ops.aten
PHILOX = "aotc::philox"
RANDOM_BITS = "aotc::random_bits"
SEED_NAME = "seed"
SEED_SHAPE = (2,)  # the seed, and the offset: the number of the call
GOLDEN_SEED = (0x5EED, 1)  # with which a build compares
# Significant bits of a uniform number in [0, 1), as torch draws it on the CPU.
UNIFORM_BITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
HALF_BITS = 26  # of the high part of a number of 53 bits
WORD_RANGE = 1 << 32
Tensor = torch.Tensor

_SEED: ContextVar[tuple[int, int]] = ContextVar("seed", default=(0, 0))
_SITE: ContextVar[Iterator[int]] = ContextVar("site")


def _philox(size: Sequence[int], site: int, word: int) -> Tensor:
    """i32[size]: 32 random bits an element, by the seed of `seeded`; see `reference.philox`."""
    seed, offset = _SEED.get()
    elements = torch.arange(math.prod(size)).reshape(tuple(size)).numpy()
    words = numpy.array(reference.philox(seed, offset, elements, site, word))
    return torch.from_numpy(words)


def _fake_philox(size: Sequence[int], site: int, word: int) -> Tensor:
    return torch.empty(tuple(size), dtype=torch.int32)


torch.library.define(PHILOX, "(SymInt[] size, int site, int word) -> Tensor")
torch.library.impl(PHILOX, "CompositeExplicitAutograd", _philox)
torch.library.register_fake(PHILOX, _fake_philox)


def _random_bits(seed: Tensor, count: int, word: int) -> Tensor:
    """i32[count]: a word of Philox of each element's number, by a seed of the program's own."""
    words = numpy.array(reference.philox(int(seed), 0, numpy.arange(count), 0, word))
    return torch.from_numpy(words).to(seed.device)


torch.library.define(RANDOM_BITS, "(Tensor seed, SymInt count, int word) -> Tensor")
torch.library.impl(RANDOM_BITS, "CompositeExplicitAutograd", _random_bits)
torch.library.register_fake(RANDOM_BITS)(
    lambda seed, count, word: seed.new_empty((count,), dtype=torch.int32)
)


def seed_input() -> Node:
    """The input that has the seed and the offset. No name of torch's has a dot."""
    return make("input", (), {"name": f"{SEED_NAME}.", "dtype": "i64", "shape": SEED_SHAPE})


def first_free(name: str, taken: Sequence[str]) -> str:
    """`name`, or it with the first number that makes it no other input's."""
    tries = (name if not number else f"{name}_{number}" for number in range(len(taken) + 1))
    return next(each for each in tries if each not in taken)


def _bits(call: Call, size: Sequence[Any], site: int, word: int) -> Node:
    """The row of `aotc::philox`."""
    seed, offset = (
        build.reshape(build.slice_axis(seed_input(), 0, place, place + 1), ()) for place in (0, 1)
    )
    elements = build.reshape(build.iota((math.prod(call.shape),), 0), call.shape)
    return call.fill(make("philox", (seed, offset, elements), {"site": site, "word": word}))


def _bits_of_seed(call: Call, seed: Node, count: Any, word: int) -> Node:
    """The row of `aotc::random_bits`."""
    operands = (build.reshape(seed, ()), build.scalar(0, "i64"), build.iota(call.shape, 0))
    return call.fill(make("philox", operands, {"site": 0, "word": word}))


ROWS: Rows = {PHILOX: _bits, RANDOM_BITS: _bits_of_seed}


@contextmanager
def numbering() -> Iterator[None]:
    """Draws inside the block are numbered from 0."""
    token = _SITE.set(iter(range(WORD_RANGE)))
    try:
        yield
    finally:
        _SITE.reset(token)


@contextmanager
def seeded(seed: Sequence[int]) -> Iterator[None]:
    """Inside the block a decomposed program draws by this seed and offset."""
    token = _SEED.set((int(seed[0]), int(seed[1])))
    try:
        yield
    finally:
        _SEED.reset(token)


def draws(program: ExportedProgram) -> bool:
    """Whether a decomposed program draws."""
    return any(str(node.target).startswith("aotc.philox") for node in program.graph.nodes)


def _words(size: Sequence[Any], *words: int) -> list[Tensor]:
    """These words of one new draw, each i32[size]."""
    site = next(_SITE.get())
    return [torch.ops.aotc.philox(list(size), site, word) for word in words]


def _unsigned(word: Tensor) -> Tensor:
    """i64 of 32 random bits."""
    return word.to(torch.int64) & (WORD_RANGE - 1)


def _uniform(size: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """Uniform in [0, 1): the multiples of 2^-bits, as torch's `uniform_real_distribution`."""
    bits = UNIFORM_BITS[dtype]
    if dtype is not torch.float64:
        (word,) = _words(size, 0)
        return ((word >> (32 - bits)) & ((1 << bits) - 1)).to(dtype) * 2.0**-bits
    high, low = _words(size, 0, 1)
    upper = (high >> (32 - HALF_BITS)) & ((1 << HALF_BITS) - 1)
    lower = (low >> (32 - bits + HALF_BITS)) & ((1 << (bits - HALF_BITS)) - 1)
    return upper.to(dtype) * 2.0**-HALF_BITS + lower.to(dtype) * 2.0**-bits


def _computed(dtype: torch.dtype) -> torch.dtype:
    """The type that numbers of `dtype` are computed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _positive(size: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """Uniform in (0, 1], for logarithms."""
    return 1.0 - _uniform(size, _computed(dtype))


def _normal(size: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """Standard normal, by Box and Muller (1958): sqrt(-2 ln u) · cos(2 π v)."""
    compute = _computed(dtype)
    if compute is torch.float64:
        radius, turn = _positive(size, dtype), _uniform(size, compute)
    else:
        # All 32 bits of the radius' word: the tail reaches 6.6 standard deviations.
        first, second = _words(size, 0, 1)
        radius = (_unsigned(first).to(compute) + 0.5) * (1.0 / WORD_RANGE)
        turn = _unsigned(second).to(compute) * (1.0 / WORD_RANGE)
    drawn = torch.sqrt(-2.0 * torch.log(radius)) * torch.cos(2.0 * math.pi * turn)
    return drawn.to(dtype)


def _integers(size: Sequence[Any], low: Any, high: Any, dtype: torch.dtype) -> Tensor:
    """Uniform in [low, high), by the remainder of 32 or 63 random bits, as torch draws them."""
    is_short = isinstance(high, int) and isinstance(low, int) and high - low < WORD_RANGE
    if is_short:
        (word,) = _words(size, 0)
        bits = _unsigned(word)
    else:
        upper, lower = _words(size, 0, 1)
        bits = ((_unsigned(upper) << 32) | _unsigned(lower)) & ((1 << 63) - 1)
    return (bits % (high - low) + low).to(dtype)


def _kind(like: Tensor | None, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (torch.get_default_dtype() if like is None else like.dtype)


Draw = Callable[..., Any]


def _of_size(draw: Draw) -> Draw:
    return lambda size, *, dtype=None, **_: draw(size, _kind(None, dtype))


def _like(draw: Draw) -> Draw:
    return lambda like, *, dtype=None, **_: draw(like.shape, _kind(like, dtype))


def _randint(low: Any, high: Any, size: Any, *, dtype: Any = torch.int64, **_: Any) -> Any:
    return _integers(size, low, high, dtype or torch.int64)


def _randint_like(like: Tensor, low: Any, high: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _integers(like.shape, low, high, _kind(like, dtype))


def _of_default_generator(draw: Draw) -> Draw:
    """A draw from another generator stays: nobody knows its state."""

    def drawn(*given: Any, generator: Any = None, **named: Any) -> Any:
        return NotImplemented if generator is not None else draw(*given, **named)

    return drawn


def _randperm(count: Any, *, dtype: Any = torch.int64, **_: Any) -> Any:
    """A permutation: the order of random keys of 63 bits."""
    upper, lower = _words([count], 0, 1)
    keys = (_unsigned(upper) << 31) ^ _unsigned(lower)
    return torch.argsort(keys, stable=True).to(dtype or torch.int64)


def _bernoulli(probabilities: Tensor) -> Tensor:
    wide = probabilities.to(_computed(probabilities.dtype))
    return (_uniform(wide.shape, wide.dtype) < wide).to(probabilities.dtype)


def _bernoulli_of(like: Tensor, p: float = 0.5) -> Tensor:
    """1 with a probability, else 0."""
    return (_uniform(like.shape, torch.float32) < p).to(like.dtype)


def _dropout(data: Tensor, p: float, train: bool | None) -> Any:
    """Elements with their kept ones scaled by 1 / (1 - p), and which were kept."""
    if train is False or p == 0.0:
        return data.clone(), torch.ones_like(data, dtype=torch.bool)
    if p == 1.0:
        return torch.zeros_like(data), torch.zeros_like(data, dtype=torch.bool)
    is_kept = _uniform(data.shape, torch.float32) < 1.0 - p
    return data * is_kept.to(data.dtype) * (1.0 / (1.0 - p)), is_kept


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """dropout(softmax(query · keyᵀ · scale + mask)) · value; as it is where nothing is dropped."""
    if dropout_p == 0.0:
        return NotImplemented
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(groups, -3) for each in (key, value))
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    scores = query @ key.transpose(-2, -1) * (scale or query.shape[-1] ** -0.5)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = aten._safe_softmax(scores, -1)
    return _dropout(weights, dropout_p, True)[0] @ value


def _normal_like(like: Tensor, mean: Any = 0.0, std: Any = 1.0) -> Tensor:
    return (_normal(like.shape, _computed(like.dtype)) * std + mean).to(like.dtype)


def _normal_of(mean: Any, std: Any = 1.0) -> Tensor:
    """`torch.normal` where the mean, the deviation or both are tensors."""
    first, second = (torch.as_tensor(each) for each in (mean, std))
    shape = torch.broadcast_shapes(first.shape, second.shape)
    dtype = torch.result_type(mean, std) if first.dim() and second.dim() else None
    dtype = dtype or (first.dtype if isinstance(mean, Tensor) else second.dtype)
    return (_normal(shape, _computed(dtype)) * std + mean).to(dtype)


def _normal_sized(mean: float, std: float, size: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _normal(size, _kind(None, dtype)) * std + mean


def _by_uniform(compute: Callable[..., Tensor]) -> Callable[..., Any]:
    """A draw like a tensor: `compute` takes uniform numbers in (0, 1] and the op's parameters."""

    def draw(like: Tensor, *parameters: Any, **named: Any) -> Tensor:
        return compute(_positive(like.shape, like.dtype), *parameters, **named).to(like.dtype)

    return _of_default_generator(draw)


def _exponential(uniform: Tensor, lambd: float = 1.0) -> Tensor:
    return torch.log(uniform) * (-1.0 / lambd)


def _cauchy(uniform: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    return torch.tan((uniform - 0.5) * math.pi) * sigma + median


def _geometric(uniform: Tensor, p: float) -> Tensor:
    return torch.clamp(torch.ceil(torch.log(uniform) / math.log1p(-p)), min=1.0)


def _between(uniform: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    return (1.0 - uniform) * (high - low) + low


def _log_normal(like: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    return _normal_like(like, mean, std).exp()


def _multinomial(weights: Tensor, count: int, replacement: bool = False) -> Tensor:
    """Categories by the largest of weight / exponential: Efraimidis and Spirakis, 2006."""
    wide = weights.to(_computed(weights.dtype))
    if not replacement or count == 1:
        waits = _exponential(_positive(wide.shape, wide.dtype))
        return torch.topk(wide / waits, count, dim=-1)[1]
    shape = (*wide.shape[:-1], count, wide.shape[-1])
    waits = _exponential(_positive(shape, wide.dtype))
    return torch.argmax(wide.unsqueeze(-2) / waits, dim=-1)


DRAWS: dict[Any, Draw] = {
    aten.rand.default: _of_size(_uniform),
    aten.rand_like.default: _like(_uniform),
    aten.randn.default: _of_size(_normal),
    aten.randn_like.default: _like(_normal),
    aten.randint.default: partial(_randint, 0),
    aten.randint.low: _randint,
    aten.randint_like.default: lambda like, high, **named: _randint_like(like, 0, high, **named),
    aten.randint_like.low_dtype: _randint_like,
    aten.randperm.default: _randperm,
    aten.bernoulli.default: _of_default_generator(_bernoulli),
    aten.bernoulli.p: _of_default_generator(_bernoulli_of),
    aten.native_dropout.default: _dropout,
    aten.scaled_dot_product_attention.default: _attention,
    aten.normal.float_float: _normal_sized,
    aten.normal.Tensor_Tensor: _of_default_generator(_normal_of),
    aten.normal.Tensor_float: _of_default_generator(_normal_of),
    aten.normal.float_Tensor: _of_default_generator(_normal_of),
    aten.normal_functional.default: _of_default_generator(_normal_like),
    aten.uniform.default: _by_uniform(_between),
    aten.exponential.default: _by_uniform(_exponential),
    aten.cauchy.default: _by_uniform(_cauchy),
    aten.geometric.default: _by_uniform(_geometric),
    aten.log_normal.default: _of_default_generator(_log_normal),
    aten.multinomial.default: _of_default_generator(_multinomial),
}
