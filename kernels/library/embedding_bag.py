"""Sums and means of rows of a table, for lists of row numbers.

The gradient of the table has no atomics: the row numbers are sorted, and the program of the first
of equal ones adds up the gradients of all of them, always in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.aot.errors import (
    KernelDtypeUnsupported,
    KernelRowInvalid,
    KernelShapeInvalid,
    KernelValueInvalid,
)
from aotc.kernels.library.checks import check_device, check_floats
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import power_of_two

_MOST_COLUMNS = 1024  # of a program


@triton.jit
def embedding_bag_kernel(
    weight, indices, offsets, out, width,
    MEAN: tl.constexpr, ACC: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = column < width
    begin = tl.load(offsets + sample)
    end = tl.load(offsets + sample + 1)
    total = tl.zeros((COLUMNS,), ACC)
    for place in range(begin, end):
        row = tl.load(indices + place)
        total += tl.load(weight + row * width + column, mask=mask, other=0.0).to(ACC)
    if MEAN:
        total = total / tl.maximum(end - begin, 1).to(ACC)
    tl.store(out + sample * width + column, total, mask=mask)


@triton.jit
def embedding_bag_backward_kernel(
    gradient, rows, run_ends, samples, offsets, out, width,
    MEAN: tl.constexpr, ACC: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """rows: sorted row numbers; run_ends: where those equal to each end; samples: their lists."""
    first = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = column < width
    row = tl.load(rows + first)
    before = tl.load(rows + first - 1, mask=first > 0, other=-1)
    if row != before:
        total = tl.zeros((COLUMNS,), ACC)
        for place in range(first, tl.load(run_ends + first)):
            sample = tl.load(samples + place)
            g = tl.load(gradient + sample * width + column, mask=mask, other=0.0).to(ACC)
            if MEAN:
                g = g / (tl.load(offsets + sample + 1) - tl.load(offsets + sample)).to(ACC)
            total += g
        tl.store(out + row * width + column, total, mask=mask)


def embedding_bag(
    indices: Tensor, weight: Tensor, offsets: Tensor | None = None, mode: str = "mean"
) -> Tensor:
    """The sum or mean of rows of `weight` for each list of row numbers, as torch's.

    weight: [rows, width], floats. indices: i64 [lists, length], or i64 [count] with `offsets`, i64
    [lists], where each list begins, the first one at 0. mode: "sum" or "mean"; a list without
    numbers gives zeros. Returns [lists, width] of weight's type, computed in f32; its gradient is
    dense. Numbers that are no row raise IndexError on the CPU and are not checked on CUDA.
    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelDeviceInvalid and KernelValueInvalid.
    """
    check_floats("embedding_bag", weight=weight)
    _check(indices, weight, offsets, mode)
    if offsets is None:
        lists, length = indices.shape
        ends = torch.arange(lists + 1, device=indices.device) * length
    else:
        ends = torch.cat([offsets, offsets.new_full((1,), indices.shape[0])])
    result: Tensor = _EMBEDDING_BAG(weight, indices.reshape(-1), ends, mode == "mean")
    return result


def _check(indices: Tensor, weight: Tensor, offsets: Tensor | None, mode: str) -> None:
    for name, numbers in (("indices", indices), ("offsets", offsets)):
        if numbers is None:
            continue
        if numbers.dtype != torch.int64:
            raise KernelDtypeUnsupported(
                function="embedding_bag", argument=name, found=numbers.dtype, expected="torch.int64"
            )
        check_device("embedding_bag", name, numbers, weight)
    rank = 2 if offsets is None else 1
    shapes = (
        ("weight", weight, 2, "[rows, width]"),
        ("indices", indices, rank, "[lists, length], or [count] with `offsets`"),
        ("offsets", offsets, 1, "[lists]"),
    )
    for name, x, wanted, expected in shapes:
        if x is not None and x.dim() != wanted:
            raise KernelShapeInvalid(
                function="embedding_bag", argument=name, found=list(x.shape), expected=expected
            )
    if mode not in ("sum", "mean"):
        raise KernelValueInvalid(
            function="embedding_bag", argument="mode", found=repr(mode), expected="'sum' or 'mean'"
        )


def _columns(width: int) -> tuple[int, int]:
    """Columns of a program, and how many programs have all."""
    columns = min(_MOST_COLUMNS, power_of_two(width))
    return columns, triton.cdiv(width, columns)


def _run(weight: Tensor, indices: Tensor, ends: Tensor, is_mean: bool) -> Tensor:
    if weight.is_cpu:
        _check_numbers(indices, ends, weight.shape[0])
    out = _fake(weight, indices, ends, is_mean)
    columns, parts = _columns(weight.shape[1])
    launch(
        embedding_bag_kernel, (out.shape[0], parts), weight.contiguous(), indices.contiguous(),
        ends, out, weight.shape[1],
        MEAN=is_mean, ACC=accumulator(weight), COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return out


def _check_numbers(indices: Tensor, ends: Tensor, rows: int) -> None:
    wrong = indices[(indices < 0) | (indices >= rows)]
    if wrong.numel():
        raise KernelRowInvalid(found=int(wrong[0]), rows=rows)
    if bool((ends.diff() < 0).any()) or (ends.numel() > 1 and int(ends[0])):
        raise KernelValueInvalid(
            function="embedding_bag", argument="offsets", found=ends[:-1].tolist()[:8],
            expected=f"numbers from 0 to {indices.numel()} that begin with 0 and do not fall",
            advice="each is where its list begins: of lengths `lengths.cumsum(0) - lengths`; ",
        )  # fmt: skip


def _fake(weight: Tensor, indices: Tensor, ends: Tensor, is_mean: bool) -> Tensor:
    return weight.new_empty((ends.shape[0] - 1, weight.shape[1]))


def _lists(indices: Tensor, ends: Tensor) -> Tensor:
    """The number of the list that each row number is in."""
    places = torch.arange(indices.shape[0], device=indices.device)
    return torch.searchsorted(ends, places, right=True) - 1


def _meaning(weight: Tensor, indices: Tensor, ends: Tensor, is_mean: bool) -> Tensor:
    value = widened(weight)
    total = value.new_zeros((ends.shape[0] - 1, weight.shape[1]))
    total = total.index_add(0, _lists(indices, ends), value[indices])
    if is_mean:
        total = total / (ends[1:] - ends[:-1]).clamp(min=1).unsqueeze(1).to(total.dtype)
    return total.to(weight.dtype)


def _run_backward(
    gradient: Tensor, indices: Tensor, ends: Tensor, rows: int, is_mean: bool
) -> Tensor:
    out = gradient.new_zeros((rows, gradient.shape[1]))
    numbers, order = torch.sort(indices, stable=True)
    columns, parts = _columns(gradient.shape[1])
    launch(
        embedding_bag_backward_kernel, (indices.shape[0], parts), gradient.contiguous(),
        numbers, torch.searchsorted(numbers, numbers, right=True), _lists(indices, ends)[order],
        ends, out, gradient.shape[1],
        MEAN=is_mean, ACC=accumulator(gradient), COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return out


def _backward_meaning(
    gradient: Tensor, indices: Tensor, ends: Tensor, rows: int, is_mean: bool
) -> Tensor:
    g = widened(gradient)
    if is_mean:
        g = g / (ends[1:] - ends[:-1]).clamp(min=1).unsqueeze(1).to(g.dtype)
    whole = g.new_zeros((rows, gradient.shape[1]))
    return whole.index_add(0, indices, g[_lists(indices, ends)]).to(gradient.dtype)


_EMBEDDING_BAG = define(
    "embedding_bag(Tensor weight, Tensor indices, Tensor ends, bool is_mean) -> Tensor",
    run=_run,
    fake=_fake,
    meaning=_meaning,
)
_EMBEDDING_BAG_BACKWARD = define(
    "embedding_bag_backward(Tensor gradient, Tensor indices, Tensor ends, SymInt rows, "
    "bool is_mean) -> Tensor",
    run=_run_backward,
    fake=lambda gradient, indices, ends, rows, is_mean: gradient.new_empty(
        (rows, gradient.shape[1])
    ),
    meaning=_backward_meaning,
)


def _save(ctx: Any, inputs: Any, output: Tensor) -> None:
    weight, indices, ends, ctx.is_mean = inputs
    ctx.rows = weight.shape[0]
    ctx.save_for_backward(indices, ends)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    of_weight = _EMBEDDING_BAG_BACKWARD(gradient, *ctx.saved_tensors, ctx.rows, ctx.is_mean)
    return of_weight, None, None, None


differentiate(_EMBEDDING_BAG, _save, _backward)
