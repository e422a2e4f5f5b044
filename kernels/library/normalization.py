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
from aotc.kernels.library.tiles import processors, row_tile

MOST_FUSED = 8192
"""Elements of a row up to which one kernel gives all three gradients: it holds five of each."""
MOST_WHOLE_BACKWARD = 16384
"""Elements of a row that the gradient of the input holds: three of each."""
_HELD_ELEMENTS = 16384  # of the tiles of one multiprocessor's programs, by its registers
_COLUMN_BLOCK, _ROW_BLOCK = 128, 32  # of the sums over rows
_ROWS_A_CHUNK = 512  # rows that one program adds up, at least


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
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, COLUMNS)[None, :]
    x += row * x_stride
    y += row * length
    first = (row % groups) * group_channels
    if WHOLE:
        mask = (row < count) & (lane < length)
        value = tl.load(x + lane, mask=mask, other=0.0).to(ACC)
        mean = tl.zeros((ROWS, 1), ACC)
        if CENTERED:
            mean = tl.sum(value, 1, keep_dims=True) / length
            value = tl.where(mask, value - mean, 0.0)
        scale = tl.sum(value * value, 1, keep_dims=True)
    else:
        sums = tl.zeros((ROWS, COLUMNS), ACC)
        if CENTERED:
            for start in range(0, length, COLUMNS):
                mask = (row < count) & (start + lane < length)
                sums += tl.load(
                    x + start + lane, mask=mask, other=0.0, eviction_policy="evict_last"
                ).to(ACC)
        mean = tl.sum(sums, 1, keep_dims=True) / length
        sums = tl.zeros((ROWS, COLUMNS), ACC)
        for start in range(0, length, COLUMNS):
            mask = (row < count) & (start + lane < length)
            value = tl.load(
                x + start + lane, mask=mask, other=0.0, eviction_policy="evict_last"
            ).to(ACC)
            value = tl.where(mask, value - mean, 0.0)
            sums += value * value
        scale = tl.sum(sums, 1, keep_dims=True)
    scale = 1.0 / tl.sqrt(scale / length + tl.full((), EPS, ACC))
    tl.store(scales + row, scale, mask=row < count)
    if CENTERED:
        tl.store(means + row, mean, mask=row < count)
    for start in range(0, 1 if WHOLE else length, COLUMNS):
        column = start + lane
        mask = (row < count) & (column < length)
        if not WHOLE:
            value = tl.load(x + column, mask=mask, eviction_policy="evict_first").to(ACC) - mean
        result = value * scale
        channel = first + channel_of(column, spatial, inverse, CHANNEL)
        if HAS_WEIGHT:
            result *= tl.load(weight + channel, mask=mask, other=0.0).to(ACC)
        if HAS_BIAS:
            result += tl.load(bias + channel, mask=mask, other=0.0).to(ACC)
        tl.store(y + column, result, mask=mask)


@triton.jit
def norm_backward_kernel(
    gradient, x, weight, means, scales, out, partial,
    count, length, gradient_stride, x_stride, groups, group_channels, spatial, inverse,
    CHANNEL: tl.constexpr, CENTERED: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
    FUSED: tl.constexpr, ACC: tl.constexpr,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """FUSED: rows are shared out among few programs, which add up the weights' gradients."""
    lane = tl.arange(0, COLUMNS)[None, :]
    weights = tl.zeros((ROWS, COLUMNS), ACC)
    biases = tl.zeros((ROWS, COLUMNS), ACC)
    programs = tl.num_programs(0)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), programs):
        row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
        first = (row % groups) * group_channels
        mean = tl.zeros((ROWS, 1), ACC)
        if CENTERED:
            mean = tl.load(means + row, mask=row < count, other=0.0)
        scale = tl.load(scales + row, mask=row < count, other=0.0)
        along = tl.zeros((ROWS, COLUMNS), ACC)
        level = tl.zeros((ROWS, COLUMNS), ACC)
        g, value = along, along
        for start in range(0, 1 if WHOLE else length, COLUMNS):
            column = start + lane
            mask = (row < count) & (column < length)
            g = tl.load(gradient + row * gradient_stride + column, mask=mask, other=0.0).to(ACC)
            value = tl.load(x + row * x_stride + column, mask=mask, other=0.0).to(ACC)
            value = tl.where(mask, (value - mean) * scale, 0.0)
            if FUSED:
                weights += g * value
                biases += g
            if HAS_WEIGHT:
                channel = first + channel_of(column, spatial, inverse, CHANNEL)
                g *= tl.load(weight + channel, mask=mask, other=0.0).to(ACC)
            along += g * value
            level += g
        share = tl.sum(along, 1, keep_dims=True) / length
        base = tl.zeros((ROWS, 1), ACC)
        if CENTERED:
            base = tl.sum(level, 1, keep_dims=True) / length
        for start in range(0, 1 if WHOLE else length, COLUMNS):
            column = start + lane
            mask = (row < count) & (column < length)
            if not WHOLE:
                g = tl.load(gradient + row * gradient_stride + column, mask=mask, other=0.0).to(ACC)
                value = tl.load(x + row * x_stride + column, mask=mask, other=0.0).to(ACC)
                value = (value - mean) * scale
                if HAS_WEIGHT:
                    channel = first + channel_of(column, spatial, inverse, CHANNEL)
                    g *= tl.load(weight + channel, mask=mask, other=0.0).to(ACC)
            tl.store(out + row * length + column, (g - base - value * share) * scale, mask=mask)
    if FUSED:
        column = tl.arange(0, COLUMNS)
        place = partial + tl.program_id(0) * length + column
        tl.store(place, tl.sum(weights, 0), mask=column < length)
        if HAS_BIAS:
            tl.store(place + programs * length, tl.sum(biases, 0), mask=column < length)


@triton.jit
def channel_sums_kernel(
    gradient, x, means, scales, partial, batch, channels, groups, group_channels, spatial, chunk,
    CENTERED: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr,
    OUTER: tl.constexpr, CHANNELS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Gradients of the weights and biases of a block of channels, over `chunk` of the batch."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :, None]
    outer = tl.arange(0, OUTER)[:, None, None]
    inner = tl.arange(0, INNER)[None, None, :]
    weights = tl.zeros((OUTER, CHANNELS, INNER), ACC)
    biases = tl.zeros((OUTER, CHANNELS, INNER), ACC)
    begin = tl.program_id(1) * chunk
    for n in range(begin, tl.minimum(begin + chunk, batch), OUTER):
        item = (n + outer).to(tl.int64)
        is_inside = (item < batch) & (item < begin + chunk) & (channel < channels)
        row = item * groups + channel // group_channels
        mean = tl.zeros((OUTER, CHANNELS, 1), ACC)
        if CENTERED:
            mean = tl.load(means + row, mask=is_inside, other=0.0)
        scale = tl.load(scales + row, mask=is_inside, other=0.0)
        for start in range(0, spatial, INNER):
            at = (item * channels + channel) * spatial + start + inner
            mask = is_inside & (start + inner < spatial)
            g = tl.load(gradient + at, mask=mask, other=0.0).to(ACC)
            value = tl.load(x + at, mask=mask, other=0.0).to(ACC)
            weights += tl.where(mask, g * (value - mean) * scale, 0.0)
            biases += g
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    place = partial + tl.program_id(1).to(tl.int64) * channels + column
    tl.store(place, tl.sum(tl.sum(weights, 2), 0), mask=column < channels)
    if HAS_BIAS:
        place += tl.num_programs(1) * channels
        tl.store(place, tl.sum(tl.sum(biases, 2), 0), mask=column < channels)


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
            function="group_norm", argument="x", found=list(x.shape), expected=expected
        )
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
    rows: int, groups: int, spatial: int, is_centered: bool, bias_size: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    out, of_weight, of_bias = _fake_backward(
        gradient, x, weight, means, scales, rows, groups, spatial, is_centered, bias_size
    )
    if not x.numel():
        return out, of_weight.zero_(), of_bias.zero_()
    given, flat, has_bias = _flat(gradient, rows), _flat(x, rows), bias_size > 0
    channels = _by_channels(x, rows, groups, spatial)[1]
    is_fused = weight is not None and groups == spatial == 1 and flat.length <= MOST_FUSED
    tile = row_tile(x.device, flat, MOST_FUSED if is_fused else MOST_WHOLE_BACKWARD)
    (programs,) = tile.grid(flat)
    if is_fused:
        at_a_time = max(1, _HELD_ELEMENTS // (tile.rows * tile.columns))
        programs = min(programs, at_a_time * processors(x.device))
    partial = scales.new_empty((2, programs, channels if is_fused else 0))
    launch(
        norm_backward_kernel, (programs,), given.data, flat.data,
        None if weight is None else weight.contiguous(), means, scales, out, partial,
        flat.count, flat.length, given.outer_stride, flat.outer_stride,
        *_channels(flat, groups, spatial), CHANNEL=_channel(flat, spatial),
        CENTERED=is_centered, HAS_WEIGHT=weight is not None, HAS_BIAS=has_bias, FUSED=is_fused,
        ACC=accumulator(x), **tile.constants,
    )  # fmt: skip
    if not is_fused and (weight is not None or has_bias):
        partial = _channel_sums(
            gradient, x, means, scales, rows, groups, spatial, is_centered, has_bias
        )
    if weight is not None:
        of_weight = partial[0].sum(0).reshape(weight.shape)
    return out, of_weight, partial[1].sum(0) if has_bias else of_bias


def _channel_sums(
    gradient: Tensor, x: Tensor, means: Tensor, scales: Tensor,
    rows: int, groups: int, spatial: int, is_centered: bool, has_bias: bool,
) -> Tensor:  # fmt: skip
    """Gradients of weights and biases, [2, parts, channels], to be added up over the parts."""
    batch, channels, _ = _by_channels(x, rows, groups, spatial)
    blocks = triton.cdiv(channels, _COLUMN_BLOCK) if spatial == 1 else channels
    parts = min(triton.cdiv(batch, _ROWS_A_CHUNK), 1 + 4 * processors(x.device) // max(1, blocks))
    parts = max(1, parts if spatial == 1 else min(batch, 1 + 8 * processors(x.device) // blocks))
    partial = scales.new_zeros((2, parts, channels))
    is_flat = spatial == 1
    launch(
        channel_sums_kernel, (blocks, parts if x.numel() else 0),
        gradient.contiguous(), x.contiguous(), means, scales, partial,
        batch, channels, groups, max(1, channels // groups), spatial, triton.cdiv(batch, parts),
        CENTERED=is_centered, HAS_BIAS=has_bias, ACC=accumulator(x),
        OUTER=_ROW_BLOCK if is_flat else 1, CHANNELS=_COLUMN_BLOCK if is_flat else 1,
        INNER=1 if is_flat else min(2048, triton.next_power_of_2(spatial)), num_warps=8,
    )  # fmt: skip
    return partial


def _fake_backward(
    gradient: Tensor, x: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor,
    rows: int, groups: int, spatial: int, is_centered: bool, bias_size: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    of_weight = scales.new_empty((0,) if weight is None else weight.shape)
    return contiguous_like(x), of_weight, scales.new_empty((bias_size,))


def _backward_meaning(
    gradient: Tensor, x: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor,
    rows: int, groups: int, spatial: int, is_centered: bool, bias_size: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    shape, scale = _by_channels(x, rows, groups, spatial), scales.reshape(rows, 1)
    value = widened(x).reshape(rows, _length(x, rows))
    value = (value - means.reshape(rows, 1) if is_centered else value) * scale
    g = widened(gradient).reshape(shape)
    weights = scales.new_empty((0,))
    if weight is not None:
        weights = (g * value.reshape(shape)).sum((0, 2)).reshape(weight.shape)
    biases = g.sum((0, 2)) if bias_size else scales.new_empty((0,))
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
    "SymInt rows, SymInt groups, SymInt spatial, bool is_centered, SymInt bias_size) "
    "-> (Tensor, Tensor, Tensor)",
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
        math.prod(ctx.bias_shape or (0,)),
    )  # fmt: skip
    return (
        of_x,
        None if weight is None else of_weight.to(weight.dtype),
        None if ctx.bias_shape is None else of_bias.to(ctx.bias_dtype).reshape(ctx.bias_shape),
        *(None,) * 5,
    )


differentiate(_NORM, _save, _backward)
