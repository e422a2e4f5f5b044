"""Cross-entropy of logits and class numbers: one pass over the logits, and one for their gradient.

The forward pass keeps the logarithm of each row's sum of exponentials; the gradient is computed
from that and the logits, so no probabilities are kept. A loss of all rows is added up by the same
pass: each program leaves the sum of its rows, and one more adds these up.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import cuda

from aotc.aot.errors import KernelDtypeUnsupported, KernelTargetInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_device, check_floats, check_shape
from aotc.kernels.library.devices import CPU, GPU, has_early_launch
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import contiguous_like, rows_of
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.softmax import running_start, running_step
from aotc.kernels.library.tiles import persistent_tile, power_of_two, row_tile

GRADIENT_TILE = {GPU: (4096, 8), CPU: (8192, 1)}
"""Elements and warps of a program of the gradient, which has no sums over a row."""
REDUCTIONS = ("mean", "sum", "none")


@triton.jit
def losses_of(starts, label, total, level, is_row, length, inner, ignored, SMOOTHING: tl.constexpr):
    """The losses of rows that begin at `starts`, by the logarithms of their sums of exponentials
    and, with smoothing, the sums of their logits."""
    # after the row, which is in the cache then: a load that waits for the label's would hold it up
    is_class = (label >= 0) & (label < length)
    chosen = tl.load(starts + label * inner, mask=is_row & is_class, other=float("nan"))
    loss = total - chosen.to(total.dtype)
    if SMOOTHING > 0.0:
        share = tl.full((), SMOOTHING, total.dtype)
        loss = (1.0 - share) * loss + share * (total - level / length)
    return tl.where(label == ignored, 0.0, loss)


@triton.jit
def whole_cross_entropy_kernel(
    x, target, losses, totals, partial, count, length, inner, x_stride, ignored,
    SMOOTHING: tl.constexpr, REDUCED: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    AHEAD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Rows that a program holds, shared out among the programs.

    REDUCED: `partial`, [2, programs], takes the sum of a program's losses and how many rows of
    it are not ignored; else `losses` takes each row's.
    EARLY: whether the kernel that adds these up is launched while this one runs.
    AHEAD: whether it loads its next rows before it works on those it has.
    """
    if EARLY:
        cuda.gdc_launch_dependents()
    programs = tl.num_programs(0)
    column = tl.arange(0, COLUMNS)[None, :]
    at = column.to(tl.int64) * inner
    low = tl.full((), float("-inf"), ACC)
    sums = tl.zeros((ROWS,), ACC)
    kept = tl.zeros((ROWS,), tl.int32)
    if AHEAD:
        next_rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        next_starts = x + (next_rows // inner) * x_stride + next_rows % inner
        mask = (next_rows < count)[:, None] & (column < length)
        next_value = tl.load(next_starts[:, None] + at, mask=mask, other=float("-inf"))
        next_label = tl.load(target + next_rows, mask=next_rows < count, other=0)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), programs):
        rows = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        is_row = rows < count
        starts = x + (rows // inner) * x_stride + rows % inner
        mask = is_row[:, None] & (column < length)
        if AHEAD:
            value, label = next_value.to(ACC), next_label
            next_rows = rows + ROWS * programs
            next_starts = x + (next_rows // inner) * x_stride + next_rows % inner
            is_there = (next_rows < count)[:, None] & (column < length)
            next_value = tl.load(next_starts[:, None] + at, mask=is_there, other=float("-inf"))
            next_label = tl.load(target + next_rows, mask=next_rows < count, other=0)
        else:
            value = tl.load(starts[:, None] + at, mask=mask, other=float("-inf")).to(ACC)
            label = tl.load(target + rows, mask=is_row, other=0)
        top = tl.max(value, 1)
        base = tl.where(top == low, 0.0, top)  # -inf - -inf is NaN
        total = base + tl.log(tl.sum(tl.exp(value - base[:, None]), 1))
        level = tl.zeros((ROWS,), ACC)
        if SMOOTHING > 0.0:
            level = tl.sum(tl.where(mask, value, 0.0), 1)
        loss = losses_of(starts, label, total, level, is_row, length, inner, ignored, SMOOTHING)
        tl.store(totals + rows, total, mask=is_row)
        if REDUCED:
            sums += tl.where(is_row, loss, 0.0)
            kept += tl.where(is_row & (label != ignored), 1, 0)
        else:
            tl.store(losses + rows, loss, mask=is_row)
    if REDUCED:
        place = partial + tl.program_id(0)
        tl.store(place, tl.sum(sums))
        tl.store(place + programs, tl.sum(kept).to(ACC))


@triton.jit
def cross_entropy_kernel(
    x, target, losses, totals, partial, count, length, inner, x_stride, ignored,
    SMOOTHING: tl.constexpr, REDUCED: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The same of longer rows, in steps."""
    if EARLY:
        cuda.gdc_launch_dependents()
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = rows[:, None]
    is_row = rows < count
    starts = x + (rows // inner) * x_stride + rows % inner
    x += (row // inner) * x_stride + row % inner
    column = tl.arange(0, COLUMNS)[None, :]
    low = tl.full((), float("-inf"), ACC)
    label = tl.load(target + rows, mask=is_row, other=0)
    tops, sums = running_start(x, ROWS, COLUMNS, ACC)
    levels = tl.zeros((ROWS, COLUMNS), ACC)
    for start in range(0, length, COLUMNS):
        mask = (row < count) & (start + column < length)
        at = (start + column).to(tl.int64) * inner
        value = tl.load(x + at, mask=mask, other=float("-inf")).to(ACC)
        tops, sums = running_step(value, tops, sums)
        if SMOOTHING > 0.0:
            levels += tl.where(mask, value, 0.0)
    top = tl.max(tops, 1)
    top = tl.where(top == low, 0.0, top)
    total = top + tl.log(tl.sum(sums * tl.exp(tops - top[:, None]), 1))
    level = tl.sum(levels, 1)
    loss = losses_of(starts, label, total, level, is_row, length, inner, ignored, SMOOTHING)
    tl.store(totals + rows, total, mask=is_row)
    if REDUCED:
        place = partial + tl.program_id(0)
        tl.store(place, tl.sum(tl.where(is_row, loss, 0.0)))
        kept = tl.where(is_row & (label != ignored), 1, 0)
        tl.store(place + tl.num_programs(0), tl.sum(kept).to(ACC))
    else:
        tl.store(losses + rows, loss, mask=is_row)


@triton.jit
def loss_kernel(
    partial, loss, share, programs, MEAN: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One loss of all rows, and what a row's loss counts in it. EARLY: launched before the programs
    have ended."""
    if EARLY:
        cuda.gdc_wait()
    lane = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), ACC)
    kept = tl.zeros((BLOCK,), tl.int64)
    for start in range(0, programs, BLOCK):
        mask = start + lane < programs
        sums += tl.load(partial + start + lane, mask=mask, other=0.0)
        kept += tl.load(partial + programs + start + lane, mask=mask, other=0.0).to(tl.int64)
    part = tl.full((), 1.0, ACC)
    total = tl.sum(sums)
    if MEAN:
        count = tl.sum(kept).to(ACC)
        part /= count
        total /= count
    tl.store(loss, total)
    tl.store(share, part)


@triton.jit
def cross_entropy_backward_kernel(
    gradient, part, x, target, totals, out, count, length, inner, x_stride, ignored,
    SMOOTHING: tl.constexpr, REDUCED: tl.constexpr, ACC: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """REDUCED: one gradient, of a loss in which a row counts `part`."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = rows[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    at = column.to(tl.int64) * inner
    mask = (row < count) & (column < length)
    value = tl.load(
        x + (row // inner) * x_stride + row % inner + at, mask=mask, other=0.0
    ).to(ACC)  # fmt: skip
    label = tl.load(target + rows, mask=rows < count, other=0)[:, None]
    total = tl.load(totals + rows, mask=rows < count, other=0.0)[:, None]
    if REDUCED:
        g = tl.load(gradient).to(ACC) * tl.load(part)
    else:
        g = tl.load(gradient + rows, mask=rows < count, other=0.0).to(ACC)[:, None]
    share = tl.full((), SMOOTHING, ACC)
    # a class number fits 32 bits; others, and those that are ignored, match no column
    wanted = tl.where((label >= 0) & (label < length), label, -1).to(tl.int32)
    result = tl.exp(value - total) - tl.where(column == wanted, 1.0 - share, 0.0)
    if SMOOTHING > 0.0:
        result -= share / length
    result = tl.where(label == ignored, 0.0, g * result)
    tl.store(out + (row // inner) * length * inner + row % inner + at, result, mask=mask)


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
    if reduction == "none":
        losses: Tensor = _CROSS_ENTROPY(batch, labels, ignore_index, label_smoothing)[0]
        return losses.reshape(target.shape).to(x.dtype)
    loss: Tensor = _LOSS(batch, labels, ignore_index, label_smoothing, reduction == "mean")[0]
    return loss


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
    losses, totals = _fake(x, target, ignored, smoothing)
    if not x.shape[1]:
        return losses.fill_(math.nan), totals
    _over_rows(x, target, losses, totals, ignored, smoothing, is_reduced=False)
    return losses, totals


def _run_loss(
    x: Tensor, target: Tensor, ignored: int, smoothing: float, is_mean: bool
) -> tuple[Tensor, Tensor, Tensor]:
    loss, totals, part = _fake_loss(x, target, ignored, smoothing, is_mean)
    if not x.shape[1] and target.numel():
        return loss.fill_(math.nan), totals, part.fill_(math.nan)
    partial = _over_rows(x, target, totals, totals, ignored, smoothing, is_reduced=True)
    programs, early = partial.shape[1], has_early_launch(x.device)
    launch(
        loss_kernel, (1,), partial, loss, part, programs, MEAN=is_mean, EARLY=early,
        ACC=accumulator(x), BLOCK=min(4096, power_of_two(programs)),
        num_warps=8 if programs > 256 else 1, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return loss, totals, part


def _over_rows(
    x: Tensor, target: Tensor, losses: Tensor, totals: Tensor, ignored: int, smoothing: float,
    *, is_reduced: bool,
) -> Tensor:  # fmt: skip
    """Launch the kernel of the forward pass; gives the sums of its programs."""
    if x.is_cpu:
        _check_classes(target, ignored, x.shape[1])
    rows = rows_of(x, 1)
    tile = row_tile(x.device, rows, "losses")
    kernel, grid = cross_entropy_kernel, tile.grid(rows)
    ahead: dict[str, Any] = {}
    if tile.is_whole:
        kernel, ahead = whole_cross_entropy_kernel, {"AHEAD": False}
        kept = persistent_tile(x.device.type, rows.count, tile.columns, "a loss")
        if kept is not None and rows.inner == 1:
            tile = tile._replace(rows=kept.rows, num_warps=kept.num_warps)
            ahead["AHEAD"] = kept.reads_ahead
            grid = (kept.programs(x.device, rows.count, 1),)
    partial = totals.new_empty((2, grid[0] if is_reduced else 0))
    launch(
        kernel, grid, rows.data, target.contiguous(), losses, totals, partial,
        rows.count, rows.length, rows.inner, rows.outer_stride, ignored,
        SMOOTHING=smoothing, REDUCED=is_reduced, EARLY=is_reduced and has_early_launch(x.device),
        ACC=accumulator(x), **ahead,
        ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.num_warps,
    )  # fmt: skip
    return partial


def _check_classes(target: Tensor, ignored: int, classes: int) -> None:
    wrong = target[((target < 0) | (target >= classes)) & (target != ignored)]
    if wrong.numel():
        raise KernelTargetInvalid(found=int(wrong[0]), classes=classes)


def _fake(x: Tensor, target: Tensor, ignored: int, smoothing: float) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.new_empty(target.shape, dtype=wide), x.new_empty(target.shape, dtype=wide)


def _fake_loss(
    x: Tensor, target: Tensor, ignored: int, smoothing: float, is_mean: bool
) -> tuple[Tensor, Tensor, Tensor]:
    totals = _fake(x, target, ignored, smoothing)[1]
    return x.new_empty(()), totals, totals.new_empty(())


def _meaning(x: Tensor, target: Tensor, ignored: int, smoothing: float) -> tuple[Tensor, Tensor]:
    value, is_kept = widened(x), target != ignored
    total = torch.logsumexp(value, 1)
    labels = torch.where(is_kept, target, 0).unsqueeze(1)
    loss = total - value.gather(1, labels).squeeze(1)
    if smoothing:
        loss = (1.0 - smoothing) * loss + smoothing * (total - value.mean(1))
    return torch.where(is_kept, loss, 0.0), total


def _loss_meaning(
    x: Tensor, target: Tensor, ignored: int, smoothing: float, is_mean: bool
) -> tuple[Tensor, Tensor, Tensor]:
    losses, totals = _meaning(x, target, ignored, smoothing)
    loss, part = losses.sum(), totals.new_ones(())
    if is_mean:
        part = part / (target != ignored).sum()
        loss = loss / (target != ignored).sum()
    return loss.to(x.dtype), totals, part


def _run_backward(
    gradient: Tensor, x: Tensor, target: Tensor, totals: Tensor, ignored: int, smoothing: float
) -> Tensor:
    return _backward_over_rows(gradient, None, x, target, totals, ignored, smoothing)


def _run_loss_backward(
    gradient: Tensor, part: Tensor, x: Tensor, target: Tensor, totals: Tensor,
    ignored: int, smoothing: float,
) -> Tensor:  # fmt: skip
    return _backward_over_rows(gradient, part, x, target, totals, ignored, smoothing)


def _backward_over_rows(
    gradient: Tensor, part: Tensor | None, x: Tensor, target: Tensor, totals: Tensor,
    ignored: int, smoothing: float,
) -> Tensor:  # fmt: skip
    out, rows = contiguous_like(x), rows_of(x, 1)
    elements, num_warps = GRADIENT_TILE[x.device.type]
    columns = min(power_of_two(rows.length), elements)
    together = min(elements // columns, power_of_two(rows.count))
    grid = (triton.cdiv(rows.count, together), triton.cdiv(rows.length, columns))
    launch(
        cross_entropy_backward_kernel, grid if x.numel() else (0,),
        gradient.contiguous(), part, rows.data, target.contiguous(), totals.contiguous(), out,
        rows.count, rows.length, rows.inner, rows.outer_stride, ignored,
        SMOOTHING=smoothing, REDUCED=part is not None, ACC=accumulator(x),
        ROWS=together, COLUMNS=columns, num_warps=num_warps,
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


def _loss_backward_meaning(
    gradient: Tensor, part: Tensor, x: Tensor, target: Tensor, totals: Tensor,
    ignored: int, smoothing: float,
) -> Tensor:  # fmt: skip
    each = (widened(gradient) * part).expand(totals.shape)
    return _backward_meaning(each, x, target, totals, ignored, smoothing)


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

_LOSS = define(
    "cross_entropy_loss(Tensor x, Tensor target, int ignore_index, float smoothing, bool is_mean) "
    "-> (Tensor, Tensor, Tensor)",
    run=_run_loss,
    fake=_fake_loss,
    meaning=_loss_meaning,
)
_LOSS_BACKWARD = define(
    "cross_entropy_loss_backward(Tensor gradient, Tensor part, Tensor x, Tensor target, "
    "Tensor totals, int ignore_index, float smoothing) -> Tensor",
    run=_run_loss_backward,
    fake=lambda gradient, part, x, *rest: contiguous_like(x),
    meaning=_loss_backward_meaning,
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


def _save_loss(ctx: Any, inputs: Any, output: Any) -> None:
    x, target, ctx.ignored, ctx.smoothing, _ = inputs
    ctx.save_for_backward(output[2], x, target, output[1])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _loss_backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 5
    of_x = _LOSS_BACKWARD(gradient, *ctx.saved_tensors, ctx.ignored, ctx.smoothing)
    return of_x, None, None, None, None


differentiate(_LOSS, _save_loss, _loss_backward)
