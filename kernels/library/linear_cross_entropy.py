"""The last linear layer and its cross-entropy in one, without logits in memory.

Forward: a program goes along a part of the classes for a tile of rows, and keeps the running
maximum and sum of exponentials of its logits (Wijmans and others, "Cut your losses in
large-vocabulary language models", arXiv 2411.09009). Backward: the gradient of the logits is made
for a block of classes at a time and multiplied at once (Hsu and others, "Liger kernel", arXiv
2410.10989): the weight's rows of the block are then whole, the input's gradient grows in f32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from aotc.aot.errors import KernelDtypeUnsupported, KernelTargetInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_device, check_floats, check_shape
from aotc.kernels.library.cross_entropy import REDUCTIONS
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.products import (
    _check_linear,
    add_product,
    flattened,
    precision_of,
    product_into,
    product_tile,
    tile_place,
    tile_product,
)
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import processors

MOST_LOGITS = 1 << 25
"""Elements of the logits' gradient that are there at a time."""
LEAST_CLASSES = 128
"""Of a block, however many rows there are."""


@triton.jit
def log_sums_kernel(
    x, weight, bias, target, tops, sums, chosen, rows, classes, depth, share, xm, xk, wn, wk,
    HAS_BIAS: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Of each row and `share` classes: the largest logit, the sum of exponentials, the target's."""
    part = tl.program_id(1)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    label = tl.load(target + row, mask=row < rows, other=-1)
    low = tl.full((), float("-inf"), ACC)
    top = tl.full((BM,), float("-inf"), ACC)
    total = tl.zeros((BM,), ACC)
    found = tl.zeros((BM,), ACC)
    for start in range(part * share, tl.minimum(part * share + share, classes), BN):
        column = start + tl.arange(0, BN)
        logits = tile_product(
            x, weight, row, column, rows, classes, depth, xm, xk, wk, wn,
            top, top, None, None, False, False, False, ACC, PRECISION, BM, BN, BK,
        )  # fmt: skip
        is_class = (column < classes) & (column < part * share + share)
        if HAS_BIAS:
            logits += tl.load(bias + column, mask=column < classes, other=0.0).to(ACC)[None, :]
        found += tl.sum(tl.where((column[None, :] == label[:, None]) & is_class, logits, 0.0), 1)
        logits = tl.where(is_class[None, :], logits, low)
        higher = tl.maximum(top, tl.max(logits, 1))
        base = tl.where(higher == low, 0.0, higher)  # -inf - -inf is NaN
        total = total * tl.exp(top - base) + tl.sum(tl.exp(logits - base[:, None]), 1)
        top = higher
    place = part.to(tl.int64) * rows + row
    tl.store(tops + place, top, mask=row < rows)
    tl.store(sums + place, total, mask=row < rows)
    tl.store(chosen + place, found, mask=row < rows)


@triton.jit
def logits_gradient_kernel(
    gradient, x, weight, bias, target, totals, out, rows, classes, depth, first, ignored,
    xm, xk, wn, wk,
    HAS_BIAS: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """gradient · (softmax - target) of the `classes` classes from `first` on, [rows, classes]."""
    row, column = tile_place(rows, classes, BM, BN, GROUP)
    none = tl.zeros((BM,), ACC)
    logits = tile_product(
        x, weight, row, column, rows, classes, depth, xm, xk, wk, wn,
        none, none, None, None, False, False, False, ACC, PRECISION, BM, BN, BK,
    )  # fmt: skip
    if HAS_BIAS:
        logits += tl.load(bias + column, mask=column < classes, other=0.0).to(ACC)[None, :]
    label = tl.load(target + row, mask=row < rows, other=0)
    total = tl.load(totals + row, mask=row < rows, other=0.0)
    g = tl.load(gradient + row, mask=row < rows, other=0.0).to(ACC)
    wanted = tl.where((first + column)[None, :] == label[:, None], 1.0, 0.0)
    result = g[:, None] * (tl.exp(logits - total[:, None]) - wanted)
    result = tl.where((label == ignored)[:, None], 0.0, result)
    mask = (row < rows)[:, None] & (column < classes)[None, :]
    tl.store(out + row.to(tl.int64)[:, None] * classes + column[None, :], result, mask=mask)


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """cross_entropy(x @ weightᵀ + bias, target) without the logits [..., C] in memory.

    x: [..., K]; weight: [C, K]; bias: [C]; floats of one type, any strides; target: i64 [...]. Rows
    whose target is `ignore_index` count nothing. Logits are in f32 and never rounded. Returns a
    number of x's type for `reduction` "mean" (nan where all rows are ignored) and "sum", target's
    shape for "none". The backward pass holds at most 2²⁵ elements of the logits' gradient at a
    time, or 128 for each row where that is more. A target that is no class raises
    KernelTargetInvalid on the CPU; on CUDA its loss is that of a logit 0.
    Behind `aotc build` and `backend="aotc"` it is torch's arithmetic, with logits.
    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelDeviceInvalid and KernelValueInvalid.
    """
    loss = linear_losses(x, weight, target, bias, ignore_index, reduction)
    return loss.to(x.dtype)


def linear_losses(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, ignore_index: int,
    reduction: str,
) -> Tensor:  # fmt: skip
    """`linear_cross_entropy` in the type that it is computed in: f32, of f64 f64."""
    function = "linear_cross_entropy"
    check_floats(function, x=x, weight=weight, bias=bias)
    _check_linear(function, x, weight, bias, "none")
    if target.dtype != torch.int64:
        raise KernelDtypeUnsupported(
            function=function, argument="target", found=target.dtype, expected="torch.int64"
        )
    check_device(function, "target", target, x)
    check_shape(function, "target", target, x.shape[:-1])
    if reduction not in REDUCTIONS:
        raise KernelValueInvalid(
            function=function, argument="reduction", found=repr(reduction),
            expected=f"one of {', '.join(REDUCTIONS)}",
        )  # fmt: skip
    losses = _LOSSES(flattened(x), weight, bias, target.reshape(-1), ignore_index)[0]
    if reduction == "none":
        return losses.reshape(target.shape)
    result: Tensor = losses.sum()
    return result / (target != ignore_index).sum() if reduction == "mean" else result


def _run(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ignored: int
) -> tuple[Tensor, Tensor]:
    rows, classes = x.shape[0], weight.shape[0]
    if x.is_cpu:
        wrong = target[((target < 0) | (target >= classes)) & (target != ignored)]
        if wrong.numel():
            raise KernelTargetInvalid(found=int(wrong[0]), classes=classes)
    tile = product_tile(x, rows, classes, x.shape[1])
    row_tiles = triton.cdiv(rows, tile.rows)
    # As many parts of the classes as keep all processors busy, of whole tiles.
    parts = max(1, min(triton.cdiv(classes, tile.columns),
                       4 * processors(x.device) // max(1, row_tiles)))  # fmt: skip
    share = triton.cdiv(triton.cdiv(max(1, classes), tile.columns), parts) * tile.columns
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    tops, sums, chosen = x.new_empty((3, parts, rows), dtype=wide).unbind()
    launch(
        log_sums_kernel, (row_tiles, parts), x, weight, _contiguous(bias), target.contiguous(),
        tops, sums, chosen, rows, classes, x.shape[1], share,
        x.stride(0), x.stride(1), weight.stride(0), weight.stride(1),
        HAS_BIAS=bias is not None, ACC=accumulator(x), PRECISION=precision_of(x), **tile.constants,
    )  # fmt: skip
    totals = torch.logsumexp(tops + sums.log(), 0)
    return torch.where(target == ignored, 0.0, totals - chosen.sum(0)), totals


def _fake(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ignored: int
) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.new_empty(target.shape, dtype=wide), x.new_empty(target.shape, dtype=wide)


def _meaning(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ignored: int
) -> tuple[Tensor, Tensor]:
    logits, is_kept = widened(functional.linear(x, weight, bias)), target != ignored
    total = torch.logsumexp(logits, 1)
    labels = torch.where(is_kept, target, 0).unsqueeze(1)
    return torch.where(is_kept, total - logits.gather(1, labels).squeeze(1), 0.0), total


def _run_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
    totals: Tensor, ignored: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    (rows, depth), classes = x.shape, weight.shape[0]
    of_x = torch.zeros_like(x, dtype=totals.dtype, memory_format=torch.contiguous_format)
    of_weight = torch.zeros_like(weight, memory_format=torch.contiguous_format)
    of_bias = x.new_zeros((0 if bias is None else classes,))
    block = max(LEAST_CLASSES, MOST_LOGITS // max(1, rows) // LEAST_CLASSES * LEAST_CLASSES)
    gradient, target = gradient.contiguous(), target.contiguous()
    bias = _contiguous(bias)
    for first in range(0, classes if rows else 0, block):
        count = min(block, classes - first)
        part = weight[first : first + count]
        logits = x.new_empty((rows, count))
        tile = product_tile(x, rows, count, depth)
        launch(
            logits_gradient_kernel,
            (triton.cdiv(rows, tile.rows) * triton.cdiv(count, tile.columns),),
            gradient, x, part, None if bias is None else bias[first:], target, totals, logits,
            rows, count, depth, first, ignored,
            x.stride(0), x.stride(1), part.stride(0), part.stride(1), HAS_BIAS=bias is not None,
            ACC=accumulator(x), PRECISION=precision_of(x), **tile.constants,
        )  # fmt: skip
        add_product(logits, part, of_x)
        product_into(logits.t(), x, of_weight[first : first + count])
        if bias is not None:
            of_bias[first : first + count] = torch.sum(logits, 0, dtype=totals.dtype)
    return of_x.to(x.dtype), of_weight, of_bias


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _fake_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
    totals: Tensor, ignored: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    of_bias = x.new_empty((0,) if bias is None else bias.shape)
    return x.new_empty(x.shape), weight.new_empty(weight.shape), of_bias


def _backward_meaning(
    gradient: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
    totals: Tensor, ignored: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    logits = widened(functional.linear(x, weight, bias))
    numbers = torch.arange(weight.shape[0], device=x.device)
    wanted = torch.where(numbers == target.unsqueeze(1), 1.0, 0.0).to(logits.dtype)
    g = torch.where(target != ignored, gradient, 0.0).unsqueeze(1)
    of_logits = (g * (torch.exp(logits - totals.unsqueeze(1)) - wanted)).to(x.dtype)
    of_bias = x.new_empty((0,)) if bias is None else widened(of_logits).sum(0).to(x.dtype)
    return of_logits @ weight, of_logits.mT @ x, of_bias


_LOSSES = define(
    "linear_cross_entropy(Tensor x, Tensor weight, Tensor? bias, Tensor target, int ignore_index) "
    "-> (Tensor, Tensor)",
    run=_run,
    fake=_fake,
    meaning=_meaning,
)
_LOSSES_BACKWARD = define(
    "linear_cross_entropy_backward(Tensor gradient, Tensor x, Tensor weight, Tensor? bias, "
    "Tensor target, Tensor totals, int ignore_index) -> (Tensor, Tensor, Tensor)",
    run=_run_backward,
    fake=_fake_backward,
    meaning=_backward_meaning,
)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, target, ctx.ignored = inputs
    ctx.save_for_backward(x, weight, bias, target, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 5
    has_bias = ctx.saved_tensors[2] is not None
    of_x, of_weight, of_bias = _LOSSES_BACKWARD(gradient, *ctx.saved_tensors, ctx.ignored)
    return of_x, of_weight, of_bias if has_bias else None, None, None


differentiate(_LOSSES, _save, _backward)
