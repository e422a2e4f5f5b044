"""The last linear layer and its cross-entropy in one, without logits in memory.

Forward: a program goes along a part of the classes for a tile of rows, and keeps the running
maximum and sum of exponentials of its logits (Wijmans and others, "Cut your losses in
large-vocabulary language models", arXiv 2411.09009). Backward: the gradient of the logits is made
for a block of classes at a time and multiplied at once (Hsu and others, "Liger kernel", arXiv
2410.10989): the weight's rows of the block are then whole, the input's gradient grows in f32.

Of 16 bits on CUDA the logits of few classes at a time are a product of cuBLAS in f32, in memory
that the next ones take again, so that they mostly stay in the second-level cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from aotc.aot.errors import KernelDtypeUnsupported, KernelTargetInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_device, check_floats, check_shape
from aotc.kernels.library.cross_entropy import REDUCTIONS
from aotc.kernels.library.devices import GPU
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.products import (
    _check_linear,
    add_product,
    flattened,
    has_wide_products,
    precision_of,
    product_into,
    product_tile,
    tile_place,
    tile_product,
    wide_product,
)
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import power_of_two, processors

MOST_LOGITS = 1 << 25
"""Elements of the logits' gradient that are there at a time."""
MOST_CACHED = 1 << 23
"""Logits of a product of cuBLAS, 4 bytes each."""
WIDEST_CACHED = 4096
"""Classes of these: one program has them in its registers."""
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


@triton.jit
def cached_logits(logits, bias, row, count, HAS_BIAS: tl.constexpr, BN: tl.constexpr):
    """A row of the logits of `count` classes, [BN]; -inf beyond them."""
    column = tl.arange(0, BN)
    mask = column < count
    value = tl.load(logits + row * count + column, mask=mask, other=float("-inf"))
    if HAS_BIAS:
        value += tl.load(bias + column, mask=mask, other=0.0).to(tl.float32)
    return value


@triton.jit
def cached_sums_kernel(
    logits, bias, target, tops, sums, chosen, count, first,
    HAS_BIAS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Takes the logits of a row and the `count` classes from `first` on into its largest logit, its
    sum of exponentials and the target's logit."""
    row = tl.program_id(0).to(tl.int64)
    value = cached_logits(logits, bias, row, count, HAS_BIAS, BN)
    column = tl.arange(0, BN)
    is_label = (column < count) & (first + column == tl.load(target + row))
    before = tl.load(tops + row)
    top = tl.maximum(tl.max(value, 0), before)
    base = tl.where(top == float("-inf"), 0.0, top)  # -inf - -inf is NaN
    total = tl.load(sums + row) * tl.exp(before - base) + tl.sum(tl.exp(value - base), 0)
    found = tl.load(chosen + row) + tl.sum(tl.where(is_label, value, 0.0), 0)
    tl.store(tops + row, top)
    tl.store(sums + row, total)
    tl.store(chosen + row, found)


@triton.jit
def cached_gradient_kernel(
    gradient, logits, bias, target, totals, out, count, first, ignored, out_stride,
    HAS_BIAS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """gradient · (softmax - target) of a row and the `count` classes from `first` on."""
    row = tl.program_id(0).to(tl.int64)
    value = cached_logits(logits, bias, row, count, HAS_BIAS, BN)
    column = tl.arange(0, BN)
    label = tl.load(target + row)
    wanted = tl.where(first + column == label, 1.0, 0.0)
    g = tl.load(gradient + row).to(tl.float32)
    result = g * (tl.exp(value - tl.load(totals + row)) - wanted)
    result = tl.where(label == ignored, 0.0, result)
    tl.store(out + row * out_stride + column, result, mask=column < count)


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
    Behind `aotc build`, and `backend="aotc"` on the CPU, it is torch's arithmetic, with logits.
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
    classes = weight.shape[0]
    if x.is_cpu:
        wrong = target[((target < 0) | (target >= classes)) & (target != ignored)]
        if wrong.numel():
            raise KernelTargetInvalid(found=int(wrong[0]), classes=classes)
    sums_of = _sums_by_cublas if has_wide_products(x) else _sums
    totals, chosen = sums_of(x, weight, _contiguous(bias), target.contiguous())
    return torch.where(target == ignored, 0.0, totals - chosen), totals


def _sums(x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of each row's sum of exponentials, and the target's logit."""
    rows, classes = x.shape[0], weight.shape[0]
    tile = product_tile(x, rows, classes, x.shape[1])
    row_tiles = triton.cdiv(rows, tile.rows)
    # As many parts of the classes as keep all processors busy, of whole tiles.
    parts = max(1, min(triton.cdiv(classes, tile.columns),
                       4 * processors(x.device) // max(1, row_tiles)))  # fmt: skip
    share = triton.cdiv(triton.cdiv(max(1, classes), tile.columns), parts) * tile.columns
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    tops, sums, chosen = x.new_empty((3, parts, rows), dtype=wide).unbind()
    launch(
        log_sums_kernel, (row_tiles, parts), x, weight, bias, target,
        tops, sums, chosen, rows, classes, x.shape[1], share,
        x.stride(0), x.stride(1), weight.stride(0), weight.stride(1),
        HAS_BIAS=bias is not None, ACC=accumulator(x), PRECISION=precision_of(x), **tile.constants,
    )  # fmt: skip
    return torch.logsumexp(tops + sums.log(), 0), chosen.sum(0)


def _sums_by_cublas(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor
) -> tuple[Tensor, Tensor]:
    """The same by blocks of classes, the logits of one at a time in memory."""
    sums, chosen = x.new_zeros((2, x.shape[0]), dtype=torch.float32).unbind()
    tops = torch.full_like(sums, -torch.inf)
    for block in _cached_blocks(x, weight, bias, 0, weight.shape[0]):
        launch(
            cached_sums_kernel, (x.shape[0],), block.logits, block.bias, target, tops, sums, chosen,
            block.count, block.first, **block.constants,
        )  # fmt: skip
    return tops + sums.log(), chosen


class _CachedBlock(NamedTuple):
    """Logits of the `count` classes from `first` on, f32 [rows, count], without their bias."""

    logits: Tensor
    bias: Tensor | None
    first: int
    count: int

    @property
    def constants(self) -> dict[str, int]:
        """What kernels over it take."""
        width = power_of_two(self.count)
        return {"HAS_BIAS": self.bias is not None, "BN": width, "num_warps": max(1, width // 512)}


def _cached_blocks(
    x: Tensor, weight: Tensor, bias: Tensor | None, first: int, stop: int
) -> Iterator[_CachedBlock]:
    """The logits of classes from `first` to before `stop`, each block in the memory of the one
    before it."""
    rows = x.shape[0]
    width = min(WIDEST_CACHED, _whole_blocks(MOST_CACHED // max(1, rows)))
    memory = x.new_empty((rows * min(width, stop - first),), dtype=torch.float32)
    for start in range(first, stop if rows else first, width):
        count = min(width, stop - start)
        logits = memory[: rows * count].view(rows, count)
        wide_product(x, weight[start : start + count].t(), logits)
        yield _CachedBlock(logits, None if bias is None else bias[start:], start, count)


def _whole_blocks(count: int) -> int:
    """As many classes in whole blocks of the least number, one block at least."""
    return max(LEAST_CLASSES, count // LEAST_CLASSES * LEAST_CLASSES)


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
    rows, classes = x.shape[0], weight.shape[0]
    of_x = torch.zeros_like(x, dtype=totals.dtype, memory_format=torch.contiguous_format)
    of_weight = torch.zeros_like(weight, memory_format=torch.contiguous_format)
    of_bias = x.new_zeros((0 if bias is None else classes,))
    block = _whole_blocks(MOST_LOGITS // max(1, rows))
    given = _Rows(gradient.contiguous(), x, target.contiguous(), totals, ignored)
    bias = _contiguous(bias)
    of_block = _gradient_by_cublas if has_wide_products(x) else _gradient_of
    memory = x.new_empty((rows * min(block, classes),))
    for first in range(0, classes if rows else 0, block):
        count = min(block, classes - first)
        part, logits = weight[first : first + count], memory[: rows * count].view(rows, count)
        of_block(given, weight, bias, first, logits)
        add_product(logits, part, of_x)
        product_into(logits.t(), x, of_weight[first : first + count])
        if bias is not None:
            of_bias[first : first + count] = torch.sum(logits, 0, dtype=totals.dtype)
    return of_x.to(x.dtype), of_weight, of_bias


class _Rows(NamedTuple):
    """What the gradient of logits takes of the rows."""

    gradient: Tensor
    x: Tensor
    target: Tensor
    totals: Tensor
    ignored: int


def _gradient_of(rows: _Rows, weight: Tensor, bias: Tensor | None, first: int, out: Tensor) -> None:
    """The gradient of the logits of classes from `first` on, [rows, classes]."""
    (count, classes), x, part = out.shape, rows.x, weight[first : first + out.shape[1]]
    tile = product_tile(x, count, classes, x.shape[1])
    launch(
        logits_gradient_kernel,
        (triton.cdiv(count, tile.rows) * triton.cdiv(classes, tile.columns),),
        rows.gradient, x, part, None if bias is None else bias[first:], rows.target, rows.totals,
        out, count, classes, x.shape[1], first, rows.ignored,
        x.stride(0), x.stride(1), part.stride(0), part.stride(1), HAS_BIAS=bias is not None,
        ACC=accumulator(x), PRECISION=precision_of(x), **tile.constants,
    )  # fmt: skip


def _gradient_by_cublas(
    rows: _Rows, weight: Tensor, bias: Tensor | None, first: int, out: Tensor
) -> None:
    """The same from logits that are a product of cuBLAS."""
    for block in _cached_blocks(rows.x, weight, bias, first, first + out.shape[1]):
        launch(
            cached_gradient_kernel, (out.shape[0],), rows.gradient, block.logits, block.bias,
            rows.target, rows.totals, out[:, block.first - first :], block.count, block.first,
            rows.ignored, out.stride(0), **block.constants,
        )  # fmt: skip


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
    called_on=(GPU,),
)
_LOSSES_BACKWARD = define(
    "linear_cross_entropy_backward(Tensor gradient, Tensor x, Tensor weight, Tensor? bias, "
    "Tensor target, Tensor totals, int ignore_index) -> (Tensor, Tensor, Tensor)",
    run=_run_backward,
    fake=_fake_backward,
    meaning=_backward_meaning,
    called_on=(GPU,),
)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, target, ctx.ignored = inputs
    ctx.save_for_backward(x, weight, bias, target, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 5
    saved = ctx.saved_tensors  # once: a checkpoint computes them at each look
    of_x, of_weight, of_bias = _LOSSES_BACKWARD(gradient, *saved, ctx.ignored)
    return of_x, of_weight, None if saved[2] is None else of_bias, None, None


differentiate(_LOSSES, _save, _backward)
