"""Cross-entropy of logits and class numbers: one pass over the logits, and one for their gradient.

The forward pass keeps the logarithm of each row's sum of exponentials; the gradient is computed
from that and the logits, so no probabilities are kept.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.aot.errors import KernelDtypeUnsupported, KernelTargetInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_device, check_floats, check_shape
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import contiguous_like, rows_of
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import row_tile

REDUCTIONS = ("mean", "sum", "none")


@triton.jit
def cross_entropy_kernel(
    x, target, losses, totals, count, length, inner, x_stride, ignored,
    SMOOTHING: tl.constexpr, ACC: tl.constexpr, WHOLE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    x += (row // inner) * x_stride + row % inner
    column = tl.arange(0, COLUMNS)[None, :]
    low = tl.full((), float("-inf"), ACC)
    level = tl.zeros((ROWS, 1), ACC)
    if WHOLE:
        mask = (row < count) & (column < length)
        value = tl.load(x + column.to(tl.int64) * inner, mask=mask, other=float("-inf")).to(ACC)
        top = tl.max(value, 1, keep_dims=True)
        total = tl.sum(tl.exp(value - top), 1, keep_dims=True)
        if SMOOTHING > 0.0:
            level = tl.sum(tl.where(mask, value, 0.0), 1, keep_dims=True)
    else:
        tops = tl.full((ROWS, COLUMNS), float("-inf"), ACC)
        sums = tl.zeros((ROWS, COLUMNS), ACC)
        levels = tl.zeros((ROWS, COLUMNS), ACC)
        for start in range(0, length, COLUMNS):
            mask = (row < count) & (start + column < length)
            at = (start + column).to(tl.int64) * inner
            value = tl.load(x + at, mask=mask, other=float("-inf")).to(ACC)
            highest = tl.maximum(tops, value)
            base = tl.where(highest == low, 0.0, highest)  # -inf - -inf is NaN
            sums = sums * tl.exp(tops - base) + tl.exp(value - base)
            tops = highest
            if SMOOTHING > 0.0:
                levels += tl.where(mask, value, 0.0)
        top = tl.max(tops, 1, keep_dims=True)
        top = tl.where(top == low, 0.0, top)
        total = tl.sum(sums * tl.exp(tops - top), 1, keep_dims=True)
        level = tl.sum(levels, 1, keep_dims=True)
    total = top + tl.log(total)
    label = tl.load(target + row, mask=row < count, other=0)
    is_class = (label >= 0) & (label < length)
    chosen = tl.load(x + label * inner, mask=(row < count) & is_class, other=float("nan")).to(ACC)
    loss = total - chosen
    if SMOOTHING > 0.0:
        share = tl.full((), SMOOTHING, ACC)
        loss = (1.0 - share) * loss + share * (total - level / length)
    tl.store(losses + row, tl.where(label == ignored, 0.0, loss), mask=row < count)
    tl.store(totals + row, total, mask=row < count)


@triton.jit
def cross_entropy_backward_kernel(
    gradient, x, target, totals, out, count, length, inner, x_stride, ignored,
    SMOOTHING: tl.constexpr, ACC: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (row < count) & (column < length)
    value = tl.load(
        x + (row // inner) * x_stride + row % inner + column * inner, mask=mask, other=0.0
    ).to(ACC)
    label = tl.load(target + row, mask=row < count, other=0)
    total = tl.load(totals + row, mask=row < count, other=0.0)
    g = tl.load(gradient + row, mask=row < count, other=0.0).to(ACC)
    share = tl.full((), SMOOTHING, ACC)
    wanted = tl.where(column == label, 1.0 - share, 0.0) + share / length
    result = tl.where(label == ignored, 0.0, g * (tl.exp(value - total) - wanted))
    place = (row // inner) * length * inner + row % inner + column * inner
    tl.store(out + place, result, mask=mask)


def cross_entropy(
    x: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy of logits and class numbers, as torch's without weights of classes.

    x: logits [N, C], [N, C, ...] or [C], floats, any strides; target: i64 [N], [N, ...] or [].
    Rows whose target is `ignore_index` count nothing. Returns a number for `reduction` "mean" (nan
    where all rows are ignored) and "sum", target's shape for "none", of x's type; computed in f32.
    A target that is no class raises KernelTargetInvalid on the CPU, and gives a loss of nan on
    CUDA, where eager ends the process.
    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelDeviceInvalid and KernelValueInvalid.
    """
    check_floats("cross_entropy", x=x)
    _check(x, target, reduction, label_smoothing)
    batch = x if x.dim() > 1 else x.unsqueeze(0)
    labels = target if x.dim() > 1 else target.unsqueeze(0)
    losses = _CROSS_ENTROPY(batch, labels, ignore_index, label_smoothing)[0]
    if reduction == "none":
        result: Tensor = losses.reshape(target.shape)
    else:
        result = losses.sum()
        if reduction == "mean":
            result = result / (target != ignore_index).sum()
    return result.to(x.dtype)


def _check(x: Tensor, target: Tensor, reduction: str, smoothing: float) -> None:
    if target.dtype != torch.int64:
        raise KernelDtypeUnsupported(
            function="cross_entropy", argument="target", found=target.dtype, expected="torch.int64"
        )
    check_device("cross_entropy", "target", target, x)
    expected = (*x.shape[:1], *x.shape[2:]) if x.dim() > 1 else ()
    check_shape("cross_entropy", "target", target, expected)
    if x.dim() == 0:
        check_shape("cross_entropy", "x", x, (1,))
    if reduction not in REDUCTIONS:
        raise KernelValueInvalid(
            function="cross_entropy", argument="reduction", found=repr(reduction),
            expected=f"one of {', '.join(REDUCTIONS)}",
        )  # fmt: skip
    if not 0.0 <= smoothing <= 1.0:
        raise KernelValueInvalid(
            function="cross_entropy", argument="label_smoothing", found=smoothing,
            expected="a number from 0 to 1",
        )  # fmt: skip


def _run(x: Tensor, target: Tensor, ignored: int, smoothing: float) -> tuple[Tensor, Tensor]:
    if x.is_cpu:
        _check_classes(target, ignored, x.shape[1])
    losses, totals = _fake(x, target, ignored, smoothing)
    rows = rows_of(x, 1)
    if not rows.length:
        return losses.fill_(math.nan), totals
    tile = row_tile(x.device, rows)
    launch(
        cross_entropy_kernel, tile.grid(rows), rows.data, target.contiguous(), losses, totals,
        rows.count, rows.length, rows.inner, rows.outer_stride, ignored,
        SMOOTHING=smoothing, ACC=accumulator(x), **tile.constants,
    )  # fmt: skip
    return losses, totals


def _check_classes(target: Tensor, ignored: int, classes: int) -> None:
    wrong = target[((target < 0) | (target >= classes)) & (target != ignored)]
    if wrong.numel():
        raise KernelTargetInvalid(found=int(wrong[0]), classes=classes)


def _fake(x: Tensor, target: Tensor, ignored: int, smoothing: float) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.new_empty(target.shape, dtype=wide), x.new_empty(target.shape, dtype=wide)


def _meaning(x: Tensor, target: Tensor, ignored: int, smoothing: float) -> tuple[Tensor, Tensor]:
    value, is_kept = widened(x), target != ignored
    total = torch.logsumexp(value, 1)
    labels = torch.where(is_kept, target, 0).unsqueeze(1)
    loss = total - value.gather(1, labels).squeeze(1)
    if smoothing:
        loss = (1.0 - smoothing) * loss + smoothing * (total - value.mean(1))
    return torch.where(is_kept, loss, 0.0), total


def _run_backward(
    gradient: Tensor, x: Tensor, target: Tensor, totals: Tensor, ignored: int, smoothing: float
) -> Tensor:
    out, rows = contiguous_like(x), rows_of(x, 1)
    tile = row_tile(x.device, rows)
    launch(
        cross_entropy_backward_kernel, (*tile.grid(rows), triton.cdiv(rows.length, tile.columns)),
        gradient.contiguous(), rows.data, target.contiguous(), totals.contiguous(), out,
        rows.count, rows.length, rows.inner, rows.outer_stride, ignored,
        SMOOTHING=smoothing, ACC=accumulator(x),
        ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.num_warps,
    )  # fmt: skip
    return out


def _backward_meaning(
    gradient: Tensor, x: Tensor, target: Tensor, totals: Tensor, ignored: int, smoothing: float
) -> Tensor:
    classes = x.shape[1]
    shape = (1, classes, *[1] * (x.dim() - 2))
    numbers = torch.arange(classes, device=x.device).reshape(shape)
    wanted = torch.where(numbers == target.unsqueeze(1), 1.0 - smoothing, 0.0)
    value = torch.exp(widened(x) - totals.unsqueeze(1)) - wanted - smoothing / classes
    g = torch.where(target != ignored, gradient, 0.0).unsqueeze(1)
    return (g * value).to(x.dtype)


_CROSS_ENTROPY = define(
    "cross_entropy(Tensor x, Tensor target, int ignore_index, float smoothing) -> (Tensor, Tensor)",
    run=_run,
    fake=_fake,
    meaning=_meaning,
)
_CROSS_ENTROPY_BACKWARD = define(
    "cross_entropy_backward(Tensor gradient, Tensor x, Tensor target, Tensor totals, "
    "int ignore_index, float smoothing) -> Tensor",
    run=_run_backward,
    fake=lambda gradient, x, *rest: contiguous_like(x),
    meaning=_backward_meaning,
)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, target, ctx.ignored, ctx.smoothing = inputs
    ctx.save_for_backward(x, target, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return None, None, None, None
    of_x = _CROSS_ENTROPY_BACKWARD(gradient, *ctx.saved_tensors, ctx.ignored, ctx.smoothing)
    return of_x, None, None, None


differentiate(_CROSS_ENTROPY, _save, _backward)
