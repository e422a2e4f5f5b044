"""Rotary position embedding: Su and others, "RoFormer", arXiv 2104.09864."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.aot.errors import KernelDtypeUnsupported, KernelShapeInvalid
from aotc.kernels.library.checks import FLOATS, check_device, check_floats
from aotc.kernels.library.devices import is_gpu
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import contiguous_like
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import POINTWISE, power_of_two, processors

_GPU_TILE = (1024, 4)
"""Pairs and warps of a program's step on a GPU: each thread loads 16 bytes of both halves."""
_MOST_HEADS = 8
"""Heads that a program turns by the angles it has loaded; these are wider than what they turn."""
_PROGRAMS_A_PROCESSOR = 16


@triton.jit
def rope_kernel(
    x, cos, sin, out, heads, positions, width, half, blocks, groups,
    batch_stride, head_stride, position_stride, angle_stride,
    INTERLEAVED: tl.constexpr, INVERSE: tl.constexpr, ACC: tl.constexpr,
    HEADS: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Some positions of `HEADS` heads."""
    block = tl.program_id(0) % blocks
    group = tl.program_id(0) // blocks
    batch = (group // groups).to(tl.int64)
    begin = group % groups * HEADS
    position = (block * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lane = tl.arange(0, HALF)[None, :]
    mask = (position < positions) & (lane < half)
    angle = batch * angle_stride + position * half + lane
    c = tl.load(cos + angle, mask=mask, other=0.0).to(ACC)
    s = tl.load(sin + angle, mask=mask, other=0.0).to(ACC)
    if INVERSE:
        s = -s
    first = lane * 2 if INTERLEAVED else lane
    second = first + 1 if INTERLEAVED else first + half
    x += batch * batch_stride + position * position_stride
    out += batch * heads * positions * width + position * width
    for head in range(begin, tl.minimum(begin + HEADS, heads)):
        given = x + head.to(tl.int64) * head_stride
        made = out + head.to(tl.int64) * positions * width
        left = tl.load(given + first, mask=mask).to(ACC)
        right = tl.load(given + second, mask=mask).to(ACC)
        tl.store(made + first, left * c - right * s, mask=mask)
        tl.store(made + second, right * c + left * s, mask=mask)
        if REST > 0:
            column = 2 * half + tl.arange(0, REST)[None, :]
            is_rest = (position < positions) & (column < width)
            tl.store(made + column, tl.load(given + column, mask=is_rest), mask=is_rest)


def rope(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Rotate pairs of elements of each head by the angle of their position.

    x: [batch, heads, positions, width], or without its first dims, floats, any strides of them.
    cos, sin: [positions, half] or [batch, positions, half] with 2 · half ≤ width, floats of any
    type; elements behind 2 · half stay. They have no gradient.
    interleaved: whether a pair lies side by side (GPT-J), else element i and i + half (GPT-NeoX,
    Llama). Returns a contiguous tensor of x's shape and type, computed in f32.
    Raises KernelDtypeUnsupported, KernelShapeInvalid and KernelDeviceInvalid.
    """
    check_floats("rope", x=x)
    _check(x, cos, sin)
    heads = x.reshape((1,) * (4 - x.dim()) + x.shape) if x.dim() < 4 else x
    result: Tensor = _ROPE(heads, cos.detach(), sin.detach(), interleaved, False)
    return result.reshape(x.shape)


def _check(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    if not 2 <= x.dim() <= 4:
        raise KernelShapeInvalid(
            function="rope", argument="x", found=list(x.shape),
            expected="[batch, heads, positions, width], or without its first dims",
        )  # fmt: skip
    for name, angle in (("cos", cos), ("sin", sin)):
        if angle.dtype not in FLOATS:
            raise KernelDtypeUnsupported(
                function="rope", argument=name, found=angle.dtype, expected="f32, f16, bf16 or f64"
            )
        check_device("rope", name, angle, x)
        lead = (x.shape[-2],) if angle.dim() == 2 else (x.shape[0], x.shape[-2])
        is_batched = angle.dim() == 3 and x.dim() == 4
        is_right = (angle.dim() == 2 or is_batched) and tuple(angle.shape[:-1]) == tuple(lead)
        if not is_right or 2 * angle.shape[-1] > x.shape[-1] or angle.shape != cos.shape:
            raise KernelShapeInvalid(
                function="rope", argument=name, found=list(angle.shape),
                expected=f"[{x.shape[-2]}, half] or [batch, {x.shape[-2]}, half] with a half of at "
                f"most {x.shape[-1] // 2}, both alike",
            )  # fmt: skip


def _run(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, inverse: bool) -> Tensor:
    out = contiguous_like(x)
    batch, heads, positions, width = x.shape
    half = cos.shape[-1]
    x = x if width < 2 or x.stride(3) == 1 else x.contiguous()
    elements, num_warps = _GPU_TILE if is_gpu(x.device) else POINTWISE[x.device.type]
    lanes, rest = power_of_two(half), width - 2 * half
    rows = min(power_of_two(positions), max(1, elements // lanes))
    blocks = triton.cdiv(positions, rows)
    wanted = _PROGRAMS_A_PROCESSOR * processors(x.device)
    together = max(1, min(_MOST_HEADS, heads, blocks * batch * heads // wanted))
    groups = triton.cdiv(heads, together)
    launch(
        rope_kernel, (blocks * batch * groups if width else 0,),
        x, cos.contiguous(), sin.contiguous(), out,
        heads, positions, width, half, blocks, groups, x.stride(0), x.stride(1), x.stride(2),
        positions * half if cos.dim() == 3 else 0,
        INTERLEAVED=interleaved, INVERSE=inverse, ACC=accumulator(x),
        HEADS=together, ROWS=rows, HALF=lanes,
        REST=power_of_two(rest) if rest else 0, num_warps=num_warps,
    )  # fmt: skip
    return out


def _meaning(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, inverse: bool) -> Tensor:
    value, half = widened(x), cos.shape[-1]
    cos, sin = (each.to(value.dtype) for each in (cos, sin))
    if cos.dim() == 3:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    sin = -sin if inverse else sin
    pairs = value[..., : 2 * half]
    if interleaved:
        left, right = pairs[..., 0::2], pairs[..., 1::2]
    else:
        left, right = pairs[..., :half], pairs[..., half:]
    parts = [left * cos - right * sin, right * cos + left * sin]
    both = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    return torch.cat([both, value[..., 2 * half :]], -1).to(x.dtype)


_ROPE = define(
    "rope(Tensor x, Tensor cos, Tensor sin, bool interleaved, bool inverse) -> Tensor",
    run=_run,
    fake=contiguous_like,
    meaning=_meaning,
)


def _save(ctx: Any, inputs: Any, output: Tensor) -> None:
    _, cos, sin, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    """The transposed rotation is the inverse one."""
    of_x = _ROPE(gradient, *ctx.saved_tensors, ctx.interleaved, not ctx.inverse)
    return of_x, None, None, None, None


differentiate(_ROPE, _save, _backward)
