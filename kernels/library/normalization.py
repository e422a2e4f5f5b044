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
from torch import Tensor

from aotc.aot.errors import KernelShapeInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_floats, check_parameters, check_shape
from aotc.kernels.library.devices import CPU, GPU
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import Rows, contiguous_like, rows_of
from aotc.kernels.library.normalization_kernels import (
    column_sums_kernel,
    group_gradients_kernel,
    norm_backward_kernel,
    norm_gradients_kernel,
    norm_kernel,
    sum_parts_kernel,
    whole_group_gradients_kernel,
    whole_norm_kernel,
)
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import (
    persistent_tile,
    power_of_two,
    processors,
    row_tile,
)

_COLUMN_TILE = {GPU: (16, 64, 2), CPU: (16, 256, 1)}
"""Rows, columns and warps of a step of the sums over rows."""
_LONGEST_RUN = 8
"""Elements of a row that one load of a channel's weight serves: 16 bytes of bf16."""
_SUM_TILE = (16, 128)
"""Columns and parts of a step of the sums over parts."""


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


def _channels(
    rows: Rows, groups: int, spatial: int
) -> tuple[tuple[int, int, float], dict[str, Any]]:
    """Channels of a group, elements of a channel and 1 / these; how the channel of an element is
    found, and of how many elements in a row it is one."""
    spatial = max(1, spatial)
    kind = "itself" if spatial == 1 else "short" if rows.length < 1 << 21 else "any"
    run = math.gcd(spatial, _LONGEST_RUN)
    return (rows.length // spatial, spatial, 1.0 / spatial), {"CHANNEL": kind, "RUN": run}


def _run(
    x: Tensor, weight: Tensor | None, bias: Tensor | None,
    rows: int, groups: int, spatial: int, eps: float, is_centered: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y, means, scales = _fake(x, weight, bias, rows, groups, spatial, eps, is_centered)
    flat = _flat(x, rows)
    weight, bias = (None if each is None else each.contiguous() for each in (weight, bias))
    numbers, kinds = _channels(flat, groups, spatial)
    same = {
        **kinds, "EPS": eps, "CENTERED": is_centered, "HAS_WEIGHT": weight is not None,
        "HAS_BIAS": bias is not None, "ACC": accumulator(x),
    }  # fmt: skip
    if not x.numel():
        return y, means, scales
    kernel = "group norm" if spatial > 1 else "layer norm" if is_centered else "rms norm"
    tile = row_tile(x.device, flat, kernel)
    if tile.is_whole:
        items = flat.count // groups
        together = min(tile.rows, power_of_two(items))
        launch(
            whole_norm_kernel, (groups * triton.cdiv(items, together),), flat.data, y,
            weight, bias, means, scales, items, flat.length, flat.outer_stride, groups, *numbers,
            ROWS=together, COLUMNS=tile.columns, num_warps=tile.num_warps, **same,
        )  # fmt: skip
        return y, means, scales
    launch(
        norm_kernel, (flat.count,), flat.data, y, weight, bias, means, scales, flat.length,
        flat.outer_stride, groups, *numbers,
        COLUMNS=tile.columns, num_warps=tile.num_warps, **same,
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
    of_weight, of_bias = None if weight is None else made[1], made[2] if has_bias else None
    partial = None
    if spatial > 1 and (weight is not None or has_bias):
        partial = _of_groups(
            given, flat, weight, means, scales, made[0], groups, spatial, has_bias, same
        )
    elif weight is not None and groups == spatial == 1:
        partial = _fused(given, flat, weight, means, scales, made[0], has_bias, same)
    if partial is None:
        tile = row_tile(x.device, flat, "norm gradient")
        launch(
            norm_backward_kernel, tile.grid(flat), given.data, flat.data, weight, means, scales,
            made[0], flat.count, flat.length, given.outer_stride, flat.outer_stride, groups,
            HAS_WEIGHT=weight is not None, **same, **tile.constants,
        )  # fmt: skip
        if weight is None and not has_bias:
            return made
        partial = _column_sums(given, flat, means, scales, groups, has_bias, same)
    _add_up(partial, of_weight, of_bias, same)
    return made


def _add_up(
    partial: Tensor, of_weight: Tensor | None, of_bias: Tensor | None, same: dict[str, Any]
) -> None:
    """The sums over parts of `partial`, [2, parts, channels], of the weights and the biases."""
    _, parts, channels = partial.shape
    block, part_block = _SUM_TILE
    launch(
        sum_parts_kernel,
        (triton.cdiv(channels, block), (of_weight is not None) + (of_bias is not None)),
        partial, of_weight, of_bias, parts, channels, HAS_WEIGHT=of_weight is not None,
        HAS_BIAS=of_bias is not None, ACC=same["ACC"], PARTS=part_block, COLUMNS=block,
        num_warps=4,
    )  # fmt: skip


def _fused(
    gradient: Rows, x: Rows, weight: Tensor, means: Tensor, scales: Tensor, out: Tensor,
    has_bias: bool, same: dict[str, Any],
) -> Tensor | None:  # fmt: skip
    """Launch what gives the gradient of the input and, [2, parts, columns], those of the weights
    and the biases, to be added up over the parts; None where rows are too long for that."""
    columns, device = power_of_two(x.length), x.data.device
    keeps = "two sums a column" if has_bias else "one sum a column"
    tile = persistent_tile(device.type, x.count, columns, keeps)
    if tile is None:
        return None
    programs = tile.programs(device, x.count, 1)
    partial = scales.new_empty((2, programs, x.length))
    launch(
        norm_gradients_kernel, (programs,), gradient.data, x.data, weight, means, scales, out,
        partial, x.count, x.length, gradient.outer_stride, x.outer_stride, HAS_BIAS=has_bias,
        AHEAD=tile.reads_ahead, KEEPS=tile.keeps_weights, ROWS=tile.rows, COLUMNS=columns,
        num_warps=tile.num_warps, **same,
    )  # fmt: skip
    return partial


def _of_groups(
    gradient: Rows, x: Rows, weight: Tensor | None, means: Tensor, scales: Tensor, out: Tensor,
    groups: int, spatial: int, has_bias: bool, same: dict[str, Any],
) -> Tensor:  # fmt: skip
    """The same for groups of channels of several positions."""
    device, items, of_group = x.data.device, x.count // groups, x.length // spatial
    channels, positions = power_of_two(of_group), power_of_two(spatial)
    tile = persistent_tile(device.type, items, channels * positions, "sums of channels")
    programs = items if tile is None else tile.programs(device, items, groups)
    partial = scales.new_empty((2, programs, groups * of_group))
    given = (gradient.data, x.data, weight, means, scales, out, partial)
    numbers = (x.length, gradient.outer_stride, x.outer_stride, groups, of_group, spatial)
    same = {**same, "HAS_WEIGHT": weight is not None, "HAS_BIAS": has_bias}
    if tile is not None:
        launch(
            whole_group_gradients_kernel, (groups * programs,), *given, items, *numbers,
            ROWS=tile.rows, CHANNELS=channels, POSITIONS=positions,
            num_warps=tile.num_warps, **same,
        )  # fmt: skip
    else:
        step = row_tile(device, x, "group gradients")
        positions = min(positions, step.columns)
        launch(
            group_gradients_kernel, (groups * programs,), *given, *numbers,
            CHANNELS=min(channels, step.columns // positions), POSITIONS=positions,
            num_warps=step.num_warps, **same,
        )  # fmt: skip
    return partial


def _column_sums(
    gradient: Rows, x: Rows, means: Tensor, scales: Tensor, groups: int, has_bias: bool,
    same: dict[str, Any],
) -> Tensor:  # fmt: skip
    """The gradients of weights and biases of each column, [2, parts, columns]."""
    rows, columns, num_warps = _COLUMN_TILE[x.data.device.type]
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
