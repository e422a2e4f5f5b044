"""Softmax and its logarithm over rows of any length, with gradients.

A row that fits is read once. A longer one is read twice, with a running maximum and sum of each
lane of the tile: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.kernels.library.checks import check_floats, dim_of
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import contiguous_like, rows_of
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import row_tile


@triton.jit
def running_start(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ACC: tl.constexpr):
    """Maxima, and sums of exponentials below them, of no elements: for each 16 bytes of a tile of
    what `x` points to, which one thread loads."""
    GROUP: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    tops = tl.full((ROWS, COLUMNS // GROUP), float("-inf"), ACC)
    return tops, tl.zeros((ROWS, COLUMNS // GROUP), ACC)


@triton.jit
def running_step(value, tops, sums):
    """The same with one more tile: one exponential an element, and one a group for what was."""
    GROUP: tl.constexpr = value.shape[1] // tops.shape[1]
    low = tl.full((), float("-inf"), value.dtype)
    value = tl.reshape(value, (tops.shape[0], tops.shape[1], GROUP))
    highest = tl.maximum(tops, tl.max(value, 2))
    base = tl.where(highest == low, 0.0, highest)  # -inf - -inf is NaN
    return highest, sums * tl.exp(tops - base) + tl.sum(tl.exp(value - base[:, :, None]), 2)


@triton.jit
def softmax_kernel(
    x, y, count, length, inner, x_stride, y_stride,
    LOG: tl.constexpr, ACC: tl.constexpr, WHOLE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    x += (row // inner) * x_stride + row % inner
    y += (row // inner) * y_stride + row % inner
    column = tl.arange(0, COLUMNS)[None, :]
    low = tl.full((), float("-inf"), ACC)
    if WHOLE:
        mask = (row < count) & (column < length)
        at = column.to(tl.int64) * inner
        value = tl.load(x + at, mask=mask, other=float("-inf")).to(ACC)
        shifted = value - tl.max(value, 1, keep_dims=True)
        power = tl.exp(shifted)
        total = tl.sum(power, 1, keep_dims=True)
        result = shifted - tl.log(total) if LOG else power * (1.0 / total)
        tl.store(y + at, result, mask=mask)
    else:
        tops, sums = running_start(x, ROWS, COLUMNS, ACC)
        for start in range(0, length, COLUMNS):
            mask = (row < count) & (start + column < length)
            at = (start + column).to(tl.int64) * inner
            value = tl.load(
                x + at, mask=mask, other=float("-inf"), eviction_policy="evict_last"
            ).to(ACC)
            tops, sums = running_step(value, tops, sums)
        top = tl.max(tops, 1, keep_dims=True)
        base = tl.where(top == low, 0.0, top)
        total = tl.sum(sums * tl.exp(tops - base), 1, keep_dims=True)
        part, level = 1.0 / total, tl.log(total)
        for start in range(0, length, COLUMNS):
            mask = (row < count) & (start + column < length)
            at = (start + column).to(tl.int64) * inner
            value = tl.load(x + at, mask=mask, eviction_policy="evict_first").to(ACC)
            shifted = value - base
            result = shifted - level if LOG else tl.exp(shifted) * part
            tl.store(y + at, result, mask=mask)


@triton.jit
def softmax_backward_kernel(
    gradient, y, out, count, length, inner, gradient_stride, y_stride, out_stride,
    LOG: tl.constexpr, ACC: tl.constexpr, WHOLE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    gradient += (row // inner) * gradient_stride + row % inner
    y += (row // inner) * y_stride + row % inner
    out += (row // inner) * out_stride + row % inner
    column = tl.arange(0, COLUMNS)[None, :]
    if WHOLE:
        mask = (row < count) & (column < length)
        at = column.to(tl.int64) * inner
        g = tl.load(gradient + at, mask=mask, other=0.0).to(ACC)
        value = tl.load(y + at, mask=mask, other=0.0).to(ACC)
        total = tl.sum(g if LOG else g * value, 1, keep_dims=True)
        result = g - tl.exp(value) * total if LOG else (g - total) * value
        tl.store(out + at, result, mask=mask)
    else:
        sums = tl.zeros((ROWS, COLUMNS), ACC)
        for start in range(0, length, COLUMNS):
            mask = (row < count) & (start + column < length)
            at = (start + column).to(tl.int64) * inner
            g = tl.load(gradient + at, mask=mask, other=0.0, eviction_policy="evict_last").to(ACC)
            if LOG:
                sums += g
            else:
                sums += g * tl.load(y + at, mask=mask, other=0.0, eviction_policy="evict_last").to(
                    ACC
                )
        total = tl.sum(sums, 1, keep_dims=True)
        for start in range(0, length, COLUMNS):
            mask = (row < count) & (start + column < length)
            at = (start + column).to(tl.int64) * inner
            g = tl.load(gradient + at, mask=mask, eviction_policy="evict_first").to(ACC)
            value = tl.load(y + at, mask=mask, eviction_policy="evict_first").to(ACC)
            result = g - tl.exp(value) * total if LOG else (g - total) * value
            tl.store(out + at, result, mask=mask)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) / Σ exp(x) along `dim`.

    x: floats of any shape and strides. Returns a contiguous tensor of its shape and type; f16 and
    bf16 are computed in f32 and rounded once.
    Raises KernelDtypeUnsupported and KernelDimInvalid.
    """
    return _over("softmax", x, dim, False)


def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """x - log Σ exp(x) along `dim`; otherwise as `softmax`."""
    return _over("log_softmax", x, dim, True)


def _over(function: str, x: Tensor, dim: int, is_log: bool) -> Tensor:
    check_floats(function, x=x)
    dim = dim_of(function, x, dim)
    result: Tensor = _SOFTMAX(x if x.dim() else x.reshape(1), dim, is_log)
    return result if x.dim() else result.reshape(())


def _run(x: Tensor, dim: int, is_log: bool) -> Tensor:
    y = contiguous_like(x)
    rows, out = rows_of(x, dim), rows_of(y, dim)
    tile = row_tile(x.device, rows, "softmax")
    launch(
        softmax_kernel, tile.grid(rows), rows.data, y,
        rows.count, rows.length, rows.inner, rows.outer_stride, out.outer_stride,
        LOG=is_log, ACC=accumulator(x), **tile.constants,
    )  # fmt: skip
    return y


def _run_backward(gradient: Tensor, y: Tensor, dim: int, is_log: bool) -> Tensor:
    result = contiguous_like(y)
    given, rows, out = rows_of(gradient, dim), rows_of(y, dim), rows_of(result, dim)
    if given.inner != rows.inner:
        given = rows_of(gradient.contiguous(), dim)
    tile = row_tile(y.device, rows, "softmax gradient")
    launch(
        softmax_backward_kernel, tile.grid(rows), given.data, rows.data, result,
        rows.count, rows.length, rows.inner,
        given.outer_stride, rows.outer_stride, out.outer_stride,
        LOG=is_log, ACC=accumulator(y), **tile.constants,
    )  # fmt: skip
    return result


def _meaning(x: Tensor, dim: int, is_log: bool) -> Tensor:
    return torch.log_softmax(x, dim) if is_log else torch.softmax(x, dim)


def _backward_meaning(gradient: Tensor, y: Tensor, dim: int, is_log: bool) -> Tensor:
    g, value = widened(gradient), widened(y)
    if is_log:
        return (g - value.exp() * g.sum(dim, keepdim=True)).to(y.dtype)
    return ((g - (g * value).sum(dim, keepdim=True)) * value).to(y.dtype)


_SOFTMAX = define(
    "softmax(Tensor x, int dim, bool is_log) -> Tensor",
    run=_run,
    fake=contiguous_like,
    meaning=_meaning,
)
_SOFTMAX_BACKWARD = define(
    "softmax_backward(Tensor gradient, Tensor y, int dim, bool is_log) -> Tensor",
    run=_run_backward,
    fake=contiguous_like,
    meaning=_backward_meaning,
)


def _save(ctx: Any, inputs: Any, output: Tensor) -> None:
    _, ctx.dim, ctx.is_log = inputs
    ctx.save_for_backward(output)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    (y,) = ctx.saved_tensors
    return _SOFTMAX_BACKWARD(gradient, y, ctx.dim, ctx.is_log), None, None


differentiate(_SOFTMAX, _save, _backward)
