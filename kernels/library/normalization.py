"""Layer norm, RMS norm and group norm, with gradients of the input, the weight and the bias.

All three are one op over rows: a row is normalised by its own mean (not in RMS norm) and mean
square, and its elements are scaled by the weights of their channels. The variance is the mean of
squared differences from the mean, as eager's. Papers: Ba and others, "Layer normalization", 2016;
Zhang and Sennrich, "Root mean square layer normalization", 2019; Wu and He, "Group normalization",
2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.aot.errors import KernelShapeInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_floats, check_parameters, check_shape
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import Rows, contiguous_like, rows_of
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import power_of_two, processors, row_tile, sums_tile

MOST_WHOLE_BACKWARD = 16384
"""Elements of a row that the gradient of the input holds: three of each."""
_COLUMN_TILE = (16, 256, 8)
"""Rows, columns and warps of a step of the sums over rows."""
_SUM_TILE = (16, 128)
"""Columns and parts of a step of the sums over parts."""


@triton.jit
def channel_of(column, spatial, inverse, CHANNEL: tl.constexpr):
    """column // spatial; "short" by a product with 1 / spatial, which is exact below 2²¹: half an
    element from the next channel is further than the roundings of the quotient."""
    if CHANNEL == "itself":
        return column
    elif CHANNEL == "short":
        return ((column.to(tl.float32) + 0.5) * inverse).to(tl.int32)
    else:
        return column // spatial


@triton.jit
def norm_kernel(
    x, y, weight, bias, means, scales,
    count, length, x_stride, groups, group_channels, spatial, inverse, CHANNEL: tl.constexpr,
    EPS: tl.constexpr, CENTERED: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
    ACC: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = rows[:, None]
    lane = tl.arange(0, COLUMNS)[None, :]
    x += row * x_stride
    y += row * length
    first = (row % groups) * group_channels
    if WHOLE:
        mask = (row < count) & (lane < length)
        value = tl.load(x + lane, mask=mask, other=0.0).to(ACC)
        mean = tl.zeros((ROWS,), ACC)
        if CENTERED:
            mean = tl.sum(value, 1) / length
            value = tl.where(mask, value - mean[:, None], 0.0)
        scale = tl.sum(value * value, 1)
    else:
        # a mean and a sum of squared differences from it for each lane: Welford, 1962
        mean_of_lane = tl.zeros((ROWS, COLUMNS), ACC)
        squares = tl.zeros((ROWS, COLUMNS), ACC)
        for start in range(0, length, COLUMNS):
            mask = (row < count) & (start + lane < length)
            value = tl.load(
                x + start + lane, mask=mask, other=0.0, eviction_policy="evict_last"
            ).to(ACC)
            if CENTERED:
                step = tl.where(mask, value - mean_of_lane, 0.0)
                mean_of_lane += step * (1.0 / (start // COLUMNS + 1).to(ACC))
                squares += tl.where(mask, step * (value - mean_of_lane), 0.0)
            else:
                squares += value * value
        mean = tl.zeros((ROWS,), ACC)
        if CENTERED:
            steps = tl.maximum((length - lane + COLUMNS - 1) // COLUMNS, 0).to(ACC)
            mean = tl.sum(mean_of_lane * steps, 1) / length
            away = mean_of_lane - mean[:, None]
            squares += steps * away * away
        scale = tl.sum(squares, 1)
    scale = 1.0 / tl.sqrt(scale / length + tl.full((), EPS, ACC))
    tl.store(scales + rows, scale, mask=rows < count)
    if CENTERED:
        tl.store(means + rows, mean, mask=rows < count)
    for start in range(0, 1 if WHOLE else length, COLUMNS):
        column = start + lane
        mask = (row < count) & (column < length)
        if not WHOLE:
            value = tl.load(x + column, mask=mask, eviction_policy="evict_first").to(ACC)
            value -= mean[:, None]
        result = value * scale[:, None]
        channel = first + channel_of(column, spatial, inverse, CHANNEL)
        if HAS_WEIGHT:
            result *= tl.load(weight + channel, mask=mask, other=0.0).to(ACC)
        if HAS_BIAS:
            result += tl.load(bias + channel, mask=mask, other=0.0).to(ACC)
        tl.store(y + column, result, mask=mask)


@triton.jit
def norm_backward_kernel(
    gradient, x, weight, means, scales, out,
    count, length, gradient_stride, x_stride, groups, group_channels, spatial, inverse,
    CHANNEL: tl.constexpr, CENTERED: tl.constexpr, HAS_WEIGHT: tl.constexpr, ACC: tl.constexpr,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of the input alone."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = rows[:, None]
    lane = tl.arange(0, COLUMNS)[None, :]
    gradient += row * gradient_stride
    x += row * x_stride
    out += row * length
    first = (row % groups) * group_channels
    mean = tl.zeros((ROWS, 1), ACC)
    if CENTERED:
        mean = tl.load(means + rows, mask=rows < count, other=0.0)[:, None]
    scale = tl.load(scales + rows, mask=rows < count, other=0.0)[:, None]
    along = tl.zeros((ROWS, COLUMNS), ACC)
    level = tl.zeros((ROWS, COLUMNS), ACC)
    g, value = along, along
    for start in range(0, 1 if WHOLE else length, COLUMNS):
        column = start + lane
        mask = (row < count) & (column < length)
        g = tl.load(
            gradient + column, mask=mask, other=0.0,
            eviction_policy="" if WHOLE else "evict_last",
        ).to(ACC)  # fmt: skip
        value = tl.load(
            x + column, mask=mask, other=0.0, eviction_policy="" if WHOLE else "evict_last"
        ).to(ACC)
        value = tl.where(mask, (value - mean) * scale, 0.0)
        if HAS_WEIGHT:
            channel = first + channel_of(column, spatial, inverse, CHANNEL)
            g *= tl.load(weight + channel, mask=mask, other=0.0).to(ACC)
        along += g * value
        level += g
    share = (tl.sum(along, 1) / length)[:, None]
    base = tl.zeros((ROWS, 1), ACC)
    if CENTERED:
        base = (tl.sum(level, 1) / length)[:, None]
    for start in range(0, 1 if WHOLE else length, COLUMNS):
        column = start + lane
        mask = (row < count) & (column < length)
        if not WHOLE:
            g = tl.load(
                gradient + column, mask=mask, other=0.0, eviction_policy="evict_first"
            ).to(ACC)  # fmt: skip
            value = tl.load(x + column, mask=mask, other=0.0, eviction_policy="evict_first").to(ACC)
            value = (value - mean) * scale
            if HAS_WEIGHT:
                channel = first + channel_of(column, spatial, inverse, CHANNEL)
                g *= tl.load(weight + channel, mask=mask, other=0.0).to(ACC)
        tl.store(out + column, (g - base - value * share) * scale, mask=mask)


@triton.jit
def norm_gradients_kernel(
    gradient, x, weight, means, scales, out, partial, count, length, gradient_stride, x_stride,
    CENTERED: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr, AHEAD: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """All gradients of norms over the last dims: rows are shared out among few programs, each adds
    up the weights' gradients of its rows.

    AHEAD: whether it loads its next rows before it works on those it has.
    """
    lane = tl.arange(0, COLUMNS)[None, :]
    is_inside = lane < length
    factor = tl.load(weight + lane, mask=is_inside, other=0.0)
    weights = tl.zeros((ROWS, COLUMNS), ACC)
    biases = tl.zeros((ROWS, COLUMNS), ACC)
    programs = tl.num_programs(0)
    if AHEAD:
        row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
        mask = (row < count) & is_inside
        next_g = tl.load(gradient + row * gradient_stride + lane, mask=mask, other=0.0)
        next_value = tl.load(x + row * x_stride + lane, mask=mask, other=0.0)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), programs):
        rows = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        row = rows[:, None]
        mask = (row < count) & is_inside
        if AHEAD:
            g, value = next_g.to(ACC), next_value.to(ACC)
            after = row + ROWS * programs
            is_there = (after < count) & is_inside
            next_g = tl.load(gradient + after * gradient_stride + lane, mask=is_there, other=0.0)
            next_value = tl.load(x + after * x_stride + lane, mask=is_there, other=0.0)
        else:
            g = tl.load(gradient + row * gradient_stride + lane, mask=mask, other=0.0).to(ACC)
            value = tl.load(x + row * x_stride + lane, mask=mask, other=0.0).to(ACC)
        scale = tl.load(scales + rows, mask=rows < count, other=0.0)[:, None]
        if CENTERED:
            mean = tl.load(means + rows, mask=rows < count, other=0.0)[:, None]
            value = tl.where(mask, value - mean, 0.0)
        value *= scale
        weights += g * value
        if HAS_BIAS:
            biases += g
        g *= factor.to(ACC)
        result = g - value * (tl.sum(g * value, 1) / length)[:, None]
        if CENTERED:
            result -= (tl.sum(g, 1) / length)[:, None]
        tl.store(out + row * length + lane, result * scale, mask=mask)
    column = tl.arange(0, COLUMNS)
    place = partial + tl.program_id(0) * length + column
    tl.store(place, tl.sum(weights, 0), mask=column < length)
    if HAS_BIAS:
        tl.store(place + programs * length, tl.sum(biases, 0), mask=column < length)


@triton.jit
def column_sums_kernel(
    gradient, x, means, scales, partial, count, length, gradient_stride, x_stride, chunk,
    groups, group_columns, GROUPED: tl.constexpr,
    CENTERED: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of the weights and biases of a block of columns, over `chunk` rows of all groups.

    GROUPED: whether each `group_columns` of a row have statistics of their own.
    """
    lane = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    column = lane[None, :]
    weights = tl.zeros((ROWS, COLUMNS), ACC)
    biases = tl.zeros((ROWS, COLUMNS), ACC)
    begin = tl.program_id(1) * chunk
    end = tl.minimum(begin + chunk, count)
    for start in range(begin, end, ROWS):
        rows = start.to(tl.int64) + tl.arange(0, ROWS)
        row = rows[:, None]
        mask = (row < end) & (column < length)
        g = tl.load(gradient + row * gradient_stride + column, mask=mask, other=0.0).to(ACC)
        value = tl.load(x + row * x_stride + column, mask=mask, other=0.0).to(ACC)
        if GROUPED:
            group = row * groups + column // group_columns
            scale = tl.load(scales + group, mask=mask, other=0.0)
            if CENTERED:
                value -= tl.load(means + group, mask=mask, other=0.0)
        else:
            scale = tl.load(scales + rows, mask=rows < end, other=0.0)[:, None]
            if CENTERED:
                value -= tl.load(means + rows, mask=rows < end, other=0.0)[:, None]
        weights += g * value * scale
        biases += g
    place = partial + tl.program_id(1).to(tl.int64) * length + lane
    tl.store(place, tl.sum(weights, 0), mask=lane < length)
    if HAS_BIAS:
        tl.store(place + tl.num_programs(1) * length, tl.sum(biases, 0), mask=lane < length)


@triton.jit
def channel_sums_kernel(
    gradient, x, means, scales, partial, batch, channels, groups, group_channels, spatial, chunk,
    CENTERED: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Gradients of the weight and bias of one channel, over `chunk` of the batch."""
    channel = tl.program_id(0)
    lane = tl.arange(0, POSITIONS)
    weights = tl.zeros((POSITIONS,), ACC)
    biases = tl.zeros((POSITIONS,), ACC)
    begin = tl.program_id(1) * chunk
    for item in range(begin, tl.minimum(begin + chunk, batch)):
        row = item.to(tl.int64) * groups + channel // group_channels
        mean = tl.zeros((), ACC)
        if CENTERED:
            mean = tl.load(means + row)
        scale = tl.load(scales + row)
        first = (item.to(tl.int64) * channels + channel) * spatial
        for start in range(0, spatial, POSITIONS):
            mask = start + lane < spatial
            g = tl.load(gradient + first + start + lane, mask=mask, other=0.0).to(ACC)
            value = tl.load(x + first + start + lane, mask=mask, other=0.0).to(ACC)
            weights += g * (value - mean) * scale
            biases += g
    place = partial + tl.program_id(1).to(tl.int64) * channels + channel
    tl.store(place, tl.sum(weights, 0))
    if HAS_BIAS:
        tl.store(place + tl.num_programs(1) * channels, tl.sum(biases, 0))


@triton.jit
def sum_parts_kernel(
    partial, of_weight, of_bias, parts, length,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr,
    PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sums over parts of `partial`, [2, parts, length]: of the weights and of the biases."""
    lane = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    which = tl.program_id(1)
    partial += which.to(tl.int64) * parts * length
    sums = tl.zeros((PARTS, COLUMNS), ACC)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)[:, None]
        mask = (part < parts) & (lane[None, :] < length)
        sums += tl.load(partial + part.to(tl.int64) * length + lane[None, :], mask=mask, other=0.0)
    total = tl.sum(sums, 0)
    if HAS_WEIGHT:
        tl.store(of_weight + lane, total, mask=(lane < length) & (which == 0))
    if HAS_BIAS:
        tl.store(of_bias + lane, total, mask=(lane < length) & (which == 1))


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) · weight + bias over the last dims, as torch's.

    x: [..., *normalized_shape], floats, any strides; weight, bias: `normalized_shape`, of its type
    or f32.
    Returns a contiguous tensor of its shape and type; f16 and bf16 are computed in f32.
    Raises KernelDtypeUnsupported, KernelShapeInvalid and KernelDeviceInvalid.
    """
    return _over_last("layer_norm", x, normalized_shape, weight, bias, eps, True)


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean of x² + eps) · weight over the last dims, as torch's.

    x: [..., *normalized_shape], floats, any strides; weight: `normalized_shape`, of its type or
    f32.
    eps: the smallest step of x's type from 1 where it is None.
    Returns a contiguous tensor of its shape and type; f16 and bf16 are computed in f32.
    Raises KernelDtypeUnsupported, KernelShapeInvalid and KernelDeviceInvalid.
    """
    eps = torch.finfo(x.dtype).eps if eps is None and x.is_floating_point() else eps
    return _over_last("rms_norm", x, normalized_shape, weight, None, eps or 0.0, False)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each group of channels of each item normalised over its channels and positions, as torch's.

    x: [batch, channels, ...], floats, any strides; weight, bias: [channels], of its type or f32.
    Returns a contiguous tensor of its shape and type; f16 and bf16 are computed in f32.
    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelValueInvalid and KernelDeviceInvalid.
    """
    check_floats("group_norm", x=x)
    check_parameters("group_norm", x, weight=weight, bias=bias)
    if x.dim() < 2:
        expected = "[batch, channels, ...]"
        raise KernelShapeInvalid(
            function="group_norm", argument="x", found=list(x.shape), expected=expected,
            advice="add a batch of one with `.unsqueeze(0)`; ",
        )  # fmt: skip
    channels = x.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise KernelValueInvalid(
            function="group_norm", argument="num_groups", found=num_groups,
            expected=f"a divisor of the {channels} channels",
        )  # fmt: skip
    check_shape("group_norm", "weight", weight, (channels,))
    check_shape("group_norm", "bias", bias, (channels,))
    spatial = math.prod(x.shape[2:])
    rows = x.shape[0] * num_groups
    result: Tensor = _NORM(x, weight, bias, rows, num_groups, spatial, eps, True)[0]
    return result


def _over_last(
    function: str,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    is_centered: bool,
) -> Tensor:
    check_floats(function, x=x)
    check_parameters(function, x, weight=weight, bias=bias)
    shape = tuple(normalized_shape)
    rank = len(shape)
    if not shape or tuple(x.shape[-rank:]) != shape:
        expected = f"one that ends with the normalized shape {list(shape)}, of one dim or more"
        raise KernelShapeInvalid(
            function=function, argument="x", found=list(x.shape), expected=expected
        )
    check_shape(function, "weight", weight, shape)
    check_shape(function, "bias", bias, shape)
    rows = math.prod(x.shape[:-rank])
    result: Tensor = _NORM(x, weight, bias, rows, 1, 1, eps, is_centered)[0]
    return result


def _flat(x: Tensor, rows: int) -> Rows:
    """`x` as so many rows."""
    return rows_of(x.reshape(rows, x.numel() // rows if rows else 0), 1)


def _channels(rows: Rows, groups: int, spatial: int) -> tuple[int, int, int, float]:
    """Groups, channels of a group, elements of a channel, and 1 / these."""
    spatial = max(1, spatial)
    return groups, rows.length // spatial, spatial, 1.0 / spatial


def _channel(rows: Rows, spatial: int) -> str:
    """How the channel of an element is found."""
    if spatial == 1:
        return "itself"
    return "short" if rows.length < 1 << 21 else "any"


def _run(
    x: Tensor, weight: Tensor | None, bias: Tensor | None,
    rows: int, groups: int, spatial: int, eps: float, is_centered: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y, means, scales = _fake(x, weight, bias, rows, groups, spatial, eps, is_centered)
    flat = _flat(x, rows)
    tile = row_tile(x.device, flat)
    weight, bias = (None if each is None else each.contiguous() for each in (weight, bias))
    launch(
        norm_kernel, tile.grid(flat), flat.data, y, weight, bias, means, scales,
        flat.count, flat.length, flat.outer_stride,
        *_channels(flat, groups, spatial), CHANNEL=_channel(flat, spatial), EPS=eps,
        CENTERED=is_centered, HAS_WEIGHT=weight is not None, HAS_BIAS=bias is not None,
        ACC=accumulator(x), **tile.constants,
    )  # fmt: skip
    return y, means, scales


def _fake(
    x: Tensor, weight: Tensor | None, bias: Tensor | None,
    rows: int, groups: int, spatial: int, eps: float, is_centered: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    statistics = x.new_empty((rows,), dtype=wide)
    return contiguous_like(x), x.new_empty((rows if is_centered else 0,), dtype=wide), statistics


def _meaning(
    x: Tensor, weight: Tensor | None, bias: Tensor | None,
    rows: int, groups: int, spatial: int, eps: float, is_centered: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    flat = widened(x).reshape(rows, _length(x, rows))
    mean = flat.mean(1, keepdim=True) if is_centered else None
    flat = flat if mean is None else flat - mean
    scale = torch.rsqrt((flat * flat).mean(1, keepdim=True) + eps)
    y = (flat * scale).reshape(_by_channels(x, rows, groups, spatial))
    y = y if weight is None else y * widened(weight).reshape(-1, 1)
    y = y if bias is None else y + widened(bias).reshape(-1, 1)
    mean = flat.new_empty((0,)) if mean is None else mean.reshape(rows)
    return y.reshape(x.shape).to(x.dtype), mean, scale.reshape(rows)


def _length(x: Tensor, rows: int) -> int:
    return x.numel() // rows if rows else 0


def _by_channels(x: Tensor, rows: int, groups: int, spatial: int) -> tuple[int, int, int]:
    """Batch, channels and positions of what is normalised."""
    return rows // groups, _length(x, rows) * groups // max(1, spatial), spatial


def _run_backward(
    gradient: Tensor, x: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor,
    rows: int, groups: int, spatial: int, is_centered: bool, bias_size: int, is_wide_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    made = _fake_backward(
        gradient, x, weight, means, scales,
        rows, groups, spatial, is_centered, bias_size, is_wide_bias,
    )  # fmt: skip
    if not x.numel():
        return made[0], made[1].zero_(), made[2].zero_()
    given, flat, has_bias = _flat(gradient, rows), _flat(x, rows), bias_size > 0
    weight = None if weight is None else weight.contiguous()
    same = {"CENTERED": is_centered, "ACC": accumulator(x)}
    partial = None
    if weight is not None and groups == spatial == 1:
        partial = _fused(given, flat, weight, means, scales, made[0], has_bias, same)
    if partial is None:
        tile = row_tile(x.device, flat, MOST_WHOLE_BACKWARD)
        launch(
            norm_backward_kernel, tile.grid(flat), given.data, flat.data, weight, means, scales,
            made[0], flat.count, flat.length, given.outer_stride, flat.outer_stride,
            *_channels(flat, groups, spatial), CHANNEL=_channel(flat, spatial),
            HAS_WEIGHT=weight is not None, **same, **tile.constants,
        )  # fmt: skip
        if weight is None and not has_bias:
            return made
        sums = _column_sums if spatial == 1 else _channel_sums
        partial = sums(given, flat, means, scales, groups, spatial, has_bias, same)
    _, parts, channels = partial.shape
    block, part_block = _SUM_TILE
    launch(
        sum_parts_kernel, (triton.cdiv(channels, block), 1 + has_bias), partial, made[1], made[2],
        parts, channels, HAS_WEIGHT=weight is not None, HAS_BIAS=has_bias, ACC=accumulator(x),
        PARTS=part_block, COLUMNS=block, num_warps=4,
    )  # fmt: skip
    return made


def _fused(
    gradient: Rows, x: Rows, weight: Tensor, means: Tensor, scales: Tensor, out: Tensor,
    has_bias: bool, same: dict[str, Any],
) -> Tensor | None:  # fmt: skip
    """Launch what gives the gradient of the input and, [2, parts, columns], those of the weights
    and the biases, to be added up over the parts; None where rows are too long for that."""
    found = sums_tile(x.data.device, x, 1 + has_bias)
    if found is None:
        return None
    tile, row = found
    programs = min(tile.grid(x)[0], row.at_a_time * processors(x.data.device))
    partial = scales.new_empty((2, programs, x.length))
    launch(
        norm_gradients_kernel, (programs,), gradient.data, x.data, weight, means, scales, out,
        partial, x.count, x.length, gradient.outer_stride, x.outer_stride, HAS_BIAS=has_bias,
        AHEAD=row.reads_ahead, ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.num_warps,
        **same,
    )  # fmt: skip
    return partial


def _column_sums(
    gradient: Rows, x: Rows, means: Tensor, scales: Tensor, groups: int, spatial: int,
    has_bias: bool, same: dict[str, Any],
) -> Tensor:  # fmt: skip
    """The gradients of weights and biases of each column, [2, parts, columns]."""
    rows, columns, num_warps = _COLUMN_TILE
    if groups > 1:  # rows of all groups, side by side
        gradient, x = (rows_of(each.data.reshape(x.count // groups, -1), 1)
                       for each in (gradient, x))  # fmt: skip
    blocks = triton.cdiv(x.length, columns)
    parts = min(triton.cdiv(x.count, rows), 1 + 8 * processors(x.data.device) // blocks)
    partial = scales.new_empty((2, parts, x.length))
    launch(
        column_sums_kernel, (blocks, parts), gradient.data, x.data, means, scales, partial,
        x.count, x.length, gradient.outer_stride, x.outer_stride, triton.cdiv(x.count, parts),
        groups, x.length // groups, GROUPED=groups > 1,
        HAS_BIAS=has_bias, ROWS=rows, COLUMNS=columns, num_warps=num_warps, **same,
    )  # fmt: skip
    return partial


def _channel_sums(
    gradient: Rows, x: Rows, means: Tensor, scales: Tensor, groups: int, spatial: int,
    has_bias: bool, same: dict[str, Any],
) -> Tensor:  # fmt: skip
    """The gradients of weights and biases of each channel, [2, parts, channels]."""
    batch, channels = x.count // groups, x.length // spatial * groups
    parts = min(batch, 1 + 8 * processors(x.data.device) // channels)
    partial = scales.new_empty((2, parts, channels))
    launch(
        channel_sums_kernel, (channels, parts),
        gradient.data.contiguous(), x.data.contiguous(), means, scales, partial,
        batch, channels, groups, channels // groups, spatial, triton.cdiv(batch, parts),
        HAS_BIAS=has_bias, POSITIONS=min(2048, power_of_two(spatial)), num_warps=4, **same,
    )  # fmt: skip
    return partial


def _fake_backward(
    gradient: Tensor, x: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor,
    rows: int, groups: int, spatial: int, is_centered: bool, bias_size: int, is_wide_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    of_weight = scales.new_empty((0,)) if weight is None else contiguous_like(weight)
    of_bias = (scales if is_wide_bias else x).new_empty((bias_size,))
    return contiguous_like(x), of_weight, of_bias


def _backward_meaning(
    gradient: Tensor, x: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor,
    rows: int, groups: int, spatial: int, is_centered: bool, bias_size: int, is_wide_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    shape, scale = _by_channels(x, rows, groups, spatial), scales.reshape(rows, 1)
    value = widened(x).reshape(rows, _length(x, rows))
    value = (value - means.reshape(rows, 1) if is_centered else value) * scale
    g = widened(gradient).reshape(shape)
    weights = scales.new_empty((0,))
    if weight is not None:
        weights = (g * value.reshape(shape)).sum((0, 2)).reshape(weight.shape).to(weight.dtype)
    biases = g.sum((0, 2)) if bias_size else scales.new_empty((0,))
    biases = biases.to(scales.dtype if is_wide_bias else x.dtype)
    g = (g if weight is None else g * widened(weight).reshape(-1, 1)).reshape(value.shape)
    rest = g - value * (g * value).mean(1, keepdim=True)
    rest = rest - g.mean(1, keepdim=True) if is_centered else rest
    return (rest * scale).reshape(x.shape).to(x.dtype), weights, biases


_NORM = define(
    "norm(Tensor x, Tensor? weight, Tensor? bias, SymInt rows, SymInt groups, SymInt spatial, "
    "float eps, bool is_centered) -> (Tensor, Tensor, Tensor)",
    run=_run,
    fake=_fake,
    meaning=_meaning,
)
_NORM_BACKWARD = define(
    "norm_backward(Tensor gradient, Tensor x, Tensor? weight, Tensor means, Tensor scales, "
    "SymInt rows, SymInt groups, SymInt spatial, bool is_centered, SymInt bias_size, "
    "bool is_wide_bias) -> (Tensor, Tensor, Tensor)",
    run=_run_backward,
    fake=_fake_backward,
    meaning=_backward_meaning,
)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, ctx.rows, ctx.groups, ctx.spatial, _, ctx.is_centered = inputs
    ctx.bias_shape, ctx.bias_dtype = (None, None) if bias is None else (bias.shape, bias.dtype)
    ctx.save_for_backward(x, weight, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 8
    x, weight, means, scales = ctx.saved_tensors
    of_x, of_weight, of_bias = _NORM_BACKWARD(
        gradient, x, weight, means, scales, ctx.rows, ctx.groups, ctx.spatial, ctx.is_centered,
        math.prod(ctx.bias_shape or (0,)), ctx.bias_dtype == scales.dtype,
    )  # fmt: skip
    return (
        of_x,
        None if weight is None else of_weight,
        None if ctx.bias_shape is None else of_bias.reshape(ctx.bias_shape),
        *(None,) * 5,
    )


differentiate(_NORM, _save, _backward)
