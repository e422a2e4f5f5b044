"""Gradients of pooling, of windows and of padding by reflection or replication: for each input
element, the sum of the output gradients that it contributed to."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten
MOST_WINDOWS = 16  # of a pooling that reach one element, up to which it asks each of them


def _max_pool2d(
    gradient: Tensor,
    data: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Each window's gradient goes to where its maximum was; windows that overlap add up.

    An element asks the few windows that reach it; gradients are scattered where these are many.
    Channels are taken last, as convolutions have them.
    """
    steps = list(stride) or list(kernel_size)
    reaches = zip(kernel_size, dilation, steps, strict=True)
    counts = [-(-((size - 1) * gap + 1) // step) for size, gap, step in reaches]
    if math.prod(counts) > MOST_WINDOWS or not _are_fixed(data, gradient):
        return _scattered(gradient, data, indices, -2)
    extents = data.shape[-2:]
    # of a window's elements and of those that an element asks for, along each axis
    sizes = [count * step for count, step in zip(counts, steps, strict=True)]
    offsets = _offsets(indices, extents[1], steps, padding, sizes).movedim(-3, -1)
    gradient = gradient.movedim(-3, -1)
    terms = []
    for before in itertools.product(*map(range, counts)):
        rows = zip(extents, steps, padding, before, strict=True)
        own = [
            (torch.arange(extent, device=data.device) + margin) % step + back * step
            for extent, step, margin, back in rows
        ]
        wanted = (own[0].unsqueeze(1) * sizes[1] + own[1]).to(offsets.dtype).unsqueeze(-1)
        found = _window_of(offsets, extents, steps, padding, before)
        term = _window_of(gradient, extents, steps, padding, before)
        terms.append(torch.where(found == wanted, term, 0))
    return functools.reduce(torch.add, terms).movedim(-1, -3)


def _offsets(
    indices: Tensor, width: int, steps: Sequence[int], padding: Sequence[int], sizes: Sequence[int]
) -> Tensor:
    """Where in its window each maximum is, row · sizes[1] + column, in the smallest type: what the
    forward graph keeps is an eighth of the indices, mostly."""
    firsts = [
        torch.arange(count, device=indices.device) * step - margin
        for count, step, margin in zip(indices.shape[-2:], steps, padding, strict=True)
    ]
    row = indices // width - firsts[0].unsqueeze(1)
    found = row * sizes[1] + (indices % width - firsts[1])
    types = (torch.uint8, torch.int16, torch.int32)
    return found.to(next(each for each in types if math.prod(sizes) <= torch.iinfo(each).max))


def _scattered(gradient: Tensor, data: Tensor, indices: Tensor, first: int) -> Tensor:
    """Gradients added up where the maxima were; the dims from `first` are those of the planes."""
    zeros = torch.zeros_like(data).flatten(first)
    found = zeros.scatter_add(-1, indices.flatten(first), gradient.flatten(first))
    return found.view(data.shape)


def _to_maxima(first: int) -> Callable[..., Tensor]:
    """Of what is given last, the places of the maxima."""
    return lambda gradient, data, *rest: _scattered(gradient, data, rest[-1], first)


def _window_of(
    values: Tensor,
    extents: Sequence[int],
    steps: Sequence[int],
    padding: Sequence[int],
    before: Sequence[int],
) -> Tensor:
    """For each element of the planes, channels last, the value of one window that may reach it.

    It is the last one that begins no later, or one that is `before` it along each axis.
    """
    rows = zip(extents, steps, padding, before, strict=True)
    for axis, (extent, step, margin, back) in enumerate(rows, -3):
        values = _window_along(values, axis, extent, step, margin, back)
    return values


def _window_along(
    values: Tensor, axis: int, extent: int, step: int, margin: int, back: int
) -> Tensor:
    """For each element of an axis the value of the last window that begins no later, less `back`.

    Windows begin every `step` elements, the first `margin` before the axis; 0 stands where there
    is none.
    """
    blocks = -(-(extent + margin) // step)
    widths = [back, torch.sym_max(0, blocks - values.shape[axis] - back)]
    values = aten.constant_pad_nd(values, [0, 0] * (-1 - axis) + widths)
    values = values.narrow(axis, 0, blocks).repeat_interleave(step, axis)
    return values.narrow(axis, margin, extent)


def _average_pool(
    gradient: Tensor,
    data: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Each element takes its share of all windows that reach it, one axis after the other."""
    count = len(kernel_size)
    rows = zip(kernel_size, list(stride) or kernel_size, padding, strict=True)
    for axis, (kernel, step, margin) in enumerate(rows, -count):
        extent, windows = data.shape[axis], gradient.shape[axis]
        if divisor_override is None:
            share = _shares(gradient, windows, extent, (kernel, step, margin), count_include_pad)
            gradient = gradient * _along(share, axis)
        gradient = _reaching(gradient, axis, extent, kernel, step, margin)
    return gradient / divisor_override if divisor_override else gradient


def _shares(
    like: Tensor, windows: int, extent: int, window: tuple[int, int, int], has_margins: bool
) -> Tensor:
    """One by the number of elements that each window along an axis is the mean of."""
    kernel, step, margin = window
    starts = torch.arange(windows, device=like.device) * step - margin
    ends = (starts + kernel).clamp(max=extent + margin)
    if not has_margins:
        starts, ends = starts.clamp(min=0), ends.clamp(max=extent)
    return (ends - starts).to(like.dtype).reciprocal()


def _reaching(
    values: Tensor, axis: int, extent: int, kernel: int, step: int, margin: int
) -> Tensor:
    """The sum over the windows along an axis that reach each of its elements."""
    inside = (torch.arange(extent, device=values.device) + margin) % step
    terms = []
    for back in range(-(-kernel // step)):
        term = _window_along(values, axis, extent, step, margin, back)
        is_partial = (back + 1) * step > kernel  # the window may end before the element
        reaches = inside + back * step < kernel
        terms.append(torch.where(_along(reaches, axis), term, 0) if is_partial else term)
    return functools.reduce(torch.add, terms)


def _adaptive_average_pool(gradient: Tensor, data: Tensor) -> Tensor:
    """Each element takes its share of all windows that reach it, one axis after the other: the
    windows i from floor(i E / W) up to ceil((i + 1) E / W), of W on E elements.

    What is not finite stays with the elements of its window, so none is multiplied by 0. The last
    axis comes first: the other one then copies whole rows.
    """
    for axis in (-1, -2):
        extent, windows = data.shape[axis], gradient.shape[axis]
        are_known = isinstance(extent, int) and isinstance(windows, int)
        if are_known and extent % windows == 0:
            kernel = extent // windows
            gradient = gradient.repeat_interleave(kernel, axis) * (1 / kernel)
            continue
        numbers = torch.arange(windows, device=data.device)
        starts = numbers * extent // windows
        ends = ((numbers + 1) * extent + windows - 1) // windows
        shares = gradient * _along((ends - starts).to(data.dtype).reciprocal(), axis)
        if are_known and _most_windows(extent, windows) <= MOST_WINDOWS:
            gradient = _adaptively_reaching(shares, axis, extent)
            continue
        places = torch.arange(extent, device=data.device)
        reaches = (places >= starts.unsqueeze(1)) & (places < ends.unsqueeze(1))
        terms = torch.where(reaches, shares.movedim(axis, -1).unsqueeze(-1), 0)
        gradient = terms.sum(-2).movedim(-1, axis)
    return gradient


def _adaptively_reaching(shares: Tensor, axis: int, extent: int) -> Tensor:
    """The sum over the windows that reach each element of an axis."""
    windows = shares.shape[axis]
    places = torch.arange(extent, device=shares.device)
    first, last = places * windows // extent, _last(places, extent, windows)
    terms = []
    for more in range(_most_windows(extent, windows)):
        term = shares.index_select(axis, (first + more).clamp(max=windows - 1))
        reaches = _along(first + more <= last, axis)
        terms.append(torch.where(reaches, term, 0) if more else term)
    return functools.reduce(torch.add, terms)


def _most_windows(extent: int, windows: int) -> int:
    """How many windows reach one element, at most."""
    return max(_last(at, extent, windows) - at * windows // extent for at in range(extent)) + 1


def _last(place: Any, extent: int, windows: int) -> Any:
    """The last window that reaches an element."""
    return ((place + 1) * windows + extent - 1) // extent - 1


def _replication_pad(gradient: Tensor, data: Tensor, padding: Sequence[int]) -> Tensor:
    """The first and last element of an axis also take what their copies got."""
    if not _are_fixed(data, gradient):
        return NotImplemented
    for place in range(len(padding) // 2):
        axis = -1 - place
        before, after = padding[2 * place], padding[2 * place + 1]
        extent = data.shape[axis]
        if min(before, after) < 0:
            return NotImplemented
        if extent == 1:
            gradient = gradient.sum(axis, keepdim=True)
            continue
        first = gradient.narrow(axis, 0, before + 1).sum(axis, keepdim=True)
        last = gradient.narrow(axis, before + extent - 1, after + 1).sum(axis, keepdim=True)
        inner = gradient.narrow(axis, before + 1, extent - 2)
        gradient = torch.cat([first, inner, last], axis)
    return gradient


def _along(values: Tensor, axis: int) -> Tensor:
    """A row of values along an axis, counted from the last."""
    return values.view(-1, *[1] * (-1 - axis))


def _are_fixed(*tensors: Tensor) -> bool:
    return all(isinstance(extent, int) for each in tensors for extent in each.shape)


def _unfold(
    gradient: Tensor, input_size: Sequence[int], dimension: int, size: int, step: int
) -> Tensor:
    """Windows of `size` elements, `step` apart along a dim, added where they overlap, as in
    `istft`: blocks of `step` elements, of which each window has a few.

    torch adds element by element of a window, which is as many ops, where it is to broadcast them.
    """
    dim = dimension % len(input_size) if input_size else 0
    if gradient.dim() != len(input_size) + 1 or -(-size // step) > MOST_WINDOWS:
        torchs = torch._decomp.decomposition_table[aten.unfold_backward.default]
        return torchs(gradient, input_size, dimension, size, step)  # type: ignore[no-any-return]
    count = -(-size // step)
    windows = functional.pad(gradient, (0, count * step - size)).unflatten(-1, (count, step))
    windows = windows.movedim(-1, dim + 1)  # [.., windows, step, .., blocks of a window]
    behind = 2 * (windows.dim() - 2 - dim)  # numbers of `pad` for the dims after that of windows
    total = torch.zeros((), dtype=gradient.dtype, device=gradient.device)
    for block in reversed(range(count)):  # the order of windows at each element, as eager adds
        margins = (*[0] * behind, block, count - block)
        total = total + functional.pad(windows.select(-1, block), margins)
    whole = total.flatten(dim, dim + 1).narrow(dim, 0, input_size[dim])
    return whole.expand(input_size).contiguous()


GRADIENTS: Mapping[Any, Callable[..., Any]] = {
    aten.max_pool2d_with_indices_backward.default: _max_pool2d,
    aten.max_pool3d_with_indices_backward.default: _to_maxima(-3),
    aten.adaptive_max_pool2d_backward.default: _to_maxima(-2),
    aten.avg_pool2d_backward.default: _average_pool,
    aten.avg_pool3d_backward.default: _average_pool,
    aten._adaptive_avg_pool2d_backward.default: _adaptive_average_pool,
    aten.unfold_backward.default: _unfold,
    aten.replication_pad1d_backward.default: _replication_pad,
    aten.replication_pad2d_backward.default: _replication_pad,
    aten.replication_pad3d_backward.default: _replication_pad,
}
