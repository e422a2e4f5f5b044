"""Dropout by a seed: the mask is a function of the seed and of each element's number.

Nothing of the mask is kept; the backward pass draws it again. The bits are Philox 4x32-10 (Salmon
and others, "Parallel random numbers: as easy as 1, 2, 3", 2011), so CUDA, the CPU and compiled
graphs drop the same elements for the same seed.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.aot.errors import KernelDtypeUnsupported, KernelShapeInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_device, check_floats
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import contiguous_like
from aotc.kernels.library.registration import define, differentiate, widened

_LANES: tl.constexpr = tl.constexpr(512)
_WORDS = 4
BITS = 24
"""Of a word's 32 that are compared with p: what f32 holds exactly."""


@triton.jit
def dropout_kernel(
    x, seed, out, count, limit, SCALE: tl.constexpr, ACC: tl.constexpr, GROUPS: tl.constexpr
):
    """Group g of 2048 elements: element 512 w + i takes word w of the counter 512 g + i."""
    key = tl.load(seed)
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)[:, None]
    lane = tl.arange(0, _LANES)[None, :]
    counter = group * _LANES + lane
    low = counter.to(tl.uint32)
    high = (counter >> 32).to(tl.uint32)
    first, second, third, fourth = tl.philox(key, low, low * 0, high, low * 0)
    place = group * (4 * _LANES) + lane
    scale = tl.full((), SCALE, ACC)
    drop(x, out, place, first, count, limit, scale, ACC)
    drop(x, out, place + _LANES, second, count, limit, scale, ACC)
    drop(x, out, place + 2 * _LANES, third, count, limit, scale, ACC)
    drop(x, out, place + 3 * _LANES, fourth, count, limit, scale, ACC)


@triton.jit
def drop(x, out, place, word, count, limit, scale, ACC: tl.constexpr):
    mask = place < count
    value = tl.load(x + place, mask=mask).to(ACC) * scale
    is_kept = (word >> 8).to(tl.int32) >= limit
    tl.store(out + place, tl.where(is_kept, value, 0.0), mask=mask)


def dropout(
    x: Tensor, p: float = 0.5, training: bool = True, seed: int | Tensor | None = None
) -> Tensor:
    """x / (1 - p) where an element is kept, 0 where it is dropped, with a probability of p.

    x: floats of any shape and strides. seed: a number, or i64[] on x's device; None draws one from
    torch's generator of that device, so that `torch.manual_seed` decides. The mask depends on the
    seed and on the elements' order in the shape alone; p is rounded to 2⁻²⁴.
    Returns a contiguous tensor of x's shape and type, `x` itself where `training` is false.
    Raises KernelDtypeUnsupported, KernelValueInvalid, KernelShapeInvalid and KernelDeviceInvalid.
    """
    check_floats("dropout", x=x)
    if not training:
        check_share("dropout", p)
        return x
    number = seed_of("dropout", x, p, seed)
    result: Tensor = _DROPOUT(x, p, number)
    return result


def seed_of(function: str, x: Tensor, p: float, seed: int | Tensor | None) -> Tensor:
    """The seed as i64[] on x's device, drawn from torch's generator where it is None; raises what
    `dropout` does."""
    check_share(function, p)
    if seed is None:
        seed = torch.randint(0, 1 << 62, (), device=x.device)
    elif not isinstance(seed, Tensor):
        seed = torch.full((), seed, dtype=torch.int64, device=x.device)
    if seed.dtype != torch.int64:
        raise KernelDtypeUnsupported(
            function=function, argument="seed", found=seed.dtype, expected="torch.int64"
        )
    if seed.numel() != 1:
        raise KernelShapeInvalid(
            function=function, argument="seed", found=list(seed.shape), expected=[]
        )
    check_device(function, "seed", seed, x)
    return seed.reshape(())


def check_share(function: str, p: float) -> None:
    """Raise `KernelValueInvalid` where `p` is no probability."""
    if not 0.0 <= p <= 1.0:
        raise KernelValueInvalid(
            function=function, argument="p", found=p, expected="a number from 0 to 1"
        )


def _limit(p: float) -> int:
    """What a word's first bits are at least where an element is kept."""
    return round(p * (1 << BITS))


def _scale(p: float) -> float:
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def dropped_out(x: Tensor, p: float, seed: Tensor) -> Tensor:
    """Launch it, with a seed on the device."""
    x, out = x.contiguous(), contiguous_like(x)
    groups = 1 if x.is_cuda else 4
    per_program = groups * _WORDS * _LANES.value
    launch(
        dropout_kernel, (triton.cdiv(x.numel(), per_program),), x, seed, out, x.numel(), _limit(p),
        SCALE=_scale(p), ACC=accumulator(x), GROUPS=groups, num_warps=4,
    )  # fmt: skip
    return out


def _meaning(x: Tensor, p: float, seed: Tensor) -> Tensor:
    lanes, count = _LANES.value, x.numel()
    groups = (count + _WORDS * lanes - 1) // (_WORDS * lanes)
    random_bits = torch.ops.aotc.random_bits.default  # of capture/imports/rng.py
    words = [random_bits(seed, groups * lanes, word) for word in range(_WORDS)]
    bits = torch.stack([each.reshape(groups, lanes) for each in words], 1).reshape(-1)[:count]
    is_kept = ((bits >> 8) & ((1 << BITS) - 1)) >= _limit(p)
    return torch.where(is_kept.reshape(x.shape), widened(x) * _scale(p), 0.0).to(x.dtype)


_DROPOUT = define(
    "dropout(Tensor x, float p, Tensor seed) -> Tensor",
    run=dropped_out,
    fake=contiguous_like,
    meaning=_meaning,
)


def _save(ctx: Any, inputs: Any, output: Tensor) -> None:
    _, ctx.p, seed = inputs
    ctx.save_for_backward(seed)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    (seed,) = ctx.saved_tensors
    return _DROPOUT(gradient, ctx.p, seed), None, None


differentiate(_DROPOUT, _save, _backward)
