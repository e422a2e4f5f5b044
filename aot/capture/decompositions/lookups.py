"""Gradients of lookups: embedding bags and grid sampling.

Each function is the arithmetic of one torch op; `decompositions.py` collects them. Where it returns
`NotImplemented`, torch's kernel computes the op. That is so on CUDA, where lookups by indices are
left to torch unless they are unchecked, and each of these ops is one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

aten = torch.ops.aten
SUM, MEAN, MAX = 0, 1, 2  # torch's numbers of the modes of bags
NEAREST, BICUBIC = 1, 2  # of the modes of samples, of which 0 is linear
CUBIC_SLOPE = -0.75  # torch's coefficient of the cubic kernel
ZEROS, BORDER, REFLECTION = 0, 1, 2  # of what lies outside

# -- embedding bags --------------------------------------------------------------------------------


def _bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = SUM,
    is_sparse: bool = False, factors: Tensor | None = None, has_last: bool = False,
    padding: int = -1,
) -> Any:  # fmt: skip
    """The bags, and for their gradients the bag of each index and how many each bag counts."""
    if weight.is_cuda or _is_left(mode, is_sparse, by_frequency):
        return NotImplemented
    given = (weight, indices, offsets, by_frequency, mode, is_sparse, factors, has_last, padding)
    found = aten._embedding_bag_forward_only.default(*given)[0]
    count, bags = indices.shape[0], found.shape[0]
    begins = offsets.narrow(0, 0, bags).long()
    ones = torch.ones_like(begins)
    begun = begins.new_zeros(count + 1).scatter_add(0, begins, ones).cumsum(0)
    of_bag = begun.narrow(0, 0, count) - 1
    counted = (indices != padding).long()
    sizes = begins.new_zeros(bags).scatter_add(0, of_bag, counted)
    return found, of_bag, sizes, sizes


def _bags_backward(
    gradient: Tensor, indices: Tensor, offsets: Tensor, of_bag: Tensor, sizes: Tensor,
    places: Tensor, rows: int, by_frequency: bool, mode: int, is_sparse: bool,
    factors: Tensor | None, padding: int = -1,
) -> Any:  # fmt: skip
    """Of the table: each index adds its bag's gradient, or its share of that, to its row."""
    if gradient.is_cuda or _is_left(mode, is_sparse, by_frequency):
        return NotImplemented
    if mode == MEAN:
        gradient = gradient / sizes.clamp(min=1).unsqueeze(1).to(gradient.dtype)
    each = gradient.index_select(0, of_bag)
    if factors is not None:
        each = each * factors.unsqueeze(1)
    return aten.embedding_dense_backward.default(each, indices, rows, padding, False)


def _is_left(mode: int, is_sparse: bool, by_frequency: bool) -> bool:
    """Whether torch's kernels compute a bag and its gradient. Those of gradients by frequency take
    another number's frequency for some rows (torch 2.13), and eager's numbers are what is asked."""
    return mode == MAX or is_sparse or by_frequency


def _factors_backward(
    gradient: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, of_bag: Tensor, mode: int,
    padding: int = -1,
) -> Any:  # fmt: skip
    """Of the factor of each index: gradient · row."""
    if gradient.is_cuda:
        return NotImplemented
    rows = weight.index_select(0, indices)
    found = (gradient.index_select(0, of_bag) * rows).sum(1)
    return torch.where(indices == padding, 0.0, found)


# -- samples at places of a grid -------------------------------------------------------------------


class _Corner(NamedTuple):
    """An element that samples are made of: its column and row, its weight, and the weight's slopes
    along x and y; [batch, rows, columns] each."""

    column: Tensor
    row: Tensor
    weight: Tensor
    slope_x: Tensor
    slope_y: Tensor


def _place(
    coordinate: Tensor, extent: int, outside: int, has_corners: bool
) -> tuple[Tensor, Tensor]:
    """Where a coordinate of -1 to 1 lies among `extent` elements, and the slope of that."""
    if has_corners:
        place, scale = (coordinate + 1) / 2 * (extent - 1), (extent - 1) / 2
    else:
        place, scale = ((coordinate + 1) * extent - 1) / 2, extent / 2
    return _within(place, torch.full_like(place, scale), extent, outside, has_corners)


def _within(
    place: Tensor, slope: Tensor, extent: int, outside: int, has_corners: bool
) -> tuple[Tensor, Tensor]:
    """The place that stands for one outside of the elements, and the slope of that."""
    low, high = (0, 2 * (extent - 1)) if has_corners else (-1, 2 * extent - 1)
    if outside == REFLECTION:
        if low == high:
            return torch.zeros_like(place), torch.zeros_like(place)
        span = (high - low) / 2
        away = place - low / 2
        slope = torch.where(away < 0, -slope, slope)
        rest = torch.fmod(away.abs(), span)
        is_even = torch.floor(away.abs() / span) % 2 == 0
        place = torch.where(is_even, rest, span - rest) + low / 2
        slope = torch.where(is_even, slope, -slope)
    if outside != ZEROS:
        is_between = (place > 0) & (place < extent - 1)
        slope = torch.where(is_between, slope, 0.0)
        place = place.clamp(0, extent - 1)
    return place, slope


def _corners(x: Tensor, y: Tensor, mode: int) -> Iterator[_Corner]:
    if mode == NEAREST:
        none = torch.zeros_like(x)
        yield _Corner(x.round(), y.round(), torch.ones_like(x), none, none)
        return
    left, top = x.floor(), y.floor()
    neighbours = _cubic if mode == BICUBIC else _linear
    for across, share_x, slope_x in neighbours(x - left):
        for down, share_y, slope_y in neighbours(y - top):
            slopes = (slope_x * share_y, slope_y * share_x)
            yield _Corner(left + across, top + down, share_x * share_y, *slopes)


def _linear(share: Tensor) -> Iterator[tuple[int, Tensor, Any]]:
    """The places from the one before a sample, their weights, and the slopes of these."""
    yield 0, 1 - share, -1.0
    yield 1, share, 1.0


def _cubic(share: Tensor) -> Iterator[tuple[int, Tensor, Any]]:
    """The same of four places, by torch's kernel: one cubic of distances up to 1, one up to 2."""
    a = CUBIC_SLOPE
    for place in (-1, 0, 1, 2):
        sign = 1.0 if place < 1 else -1.0
        d = (share - place) * sign
        if place in (0, 1):
            weight = ((a + 2) * d - (a + 3)) * d * d + 1
            slope = (3 * (a + 2) * d - 2 * (a + 3)) * d
        else:
            weight = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            slope = (3 * a * d - 10 * a) * d + 8 * a
        yield place, weight, slope * sign


def _samples_backward(
    gradient: Tensor, data: Tensor, grid: Tensor, mode: int, outside: int, has_corners: bool,
    needed: Sequence[bool],
) -> Any:  # fmt: skip
    """Of data [batch, channels, height, width] and of the grid [batch, rows, columns, 2]: a sample
    is a sum of elements by weights, which the grid's coordinates decide."""
    if data.is_cuda:
        return NotImplemented
    wide = torch.float64 if data.dtype == torch.float64 else torch.float32
    g, values, places = (each.to(wide) for each in (gradient, data, grid))
    (batch, channels, height, width), area = data.shape, grid.shape[1:3]
    # Of cubic samples each of the elements that they are made of may lie outside by itself.
    of_place = ZEROS if mode == BICUBIC else outside
    x, slope_x = _place(places.select(3, 0), width, of_place, has_corners)
    y, slope_y = _place(places.select(3, 1), height, of_place, has_corners)
    of_x, of_y = torch.zeros_like(x), torch.zeros_like(y)
    indices, sources = [], []
    for corner in _corners(x, y, mode):
        column, row = corner.column, corner.row
        if mode == BICUBIC:
            column, _ = _within(column, column, width, outside, has_corners)
            row, _ = _within(row, row, height, outside, has_corners)
        is_inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        index = torch.where(is_inside, row * width + column, 0.0).long().flatten(1).unsqueeze(1)
        index = index.expand(batch, channels, -1)
        indices.append(index)
        weight = torch.where(is_inside, corner.weight, 0.0)
        sources.append((g * weight.unsqueeze(1)).flatten(2))
        if needed[1] and mode != NEAREST:
            element = values.flatten(2).gather(2, index).reshape(batch, channels, *area)
            share = torch.where(is_inside, (g * element).sum(1), 0.0)
            of_x, of_y = of_x + corner.slope_x * share, of_y + corner.slope_y * share
    of_data = None
    if needed[0]:
        flat = values.new_zeros(batch, channels, height * width)
        flat = flat.scatter_add(2, torch.cat(indices, 2), torch.cat(sources, 2))
        of_data = flat.reshape(data.shape).to(data.dtype)
    of_grid = torch.stack([of_x * slope_x, of_y * slope_y], 3).to(grid.dtype)
    return of_data, of_grid


GRADIENTS = {
    aten._embedding_bag.default: _bags,
    aten._embedding_bag_backward.default: _bags_backward,
    aten._embedding_bag_per_sample_weights_backward.default: _factors_backward,
    aten.grid_sampler_2d_backward.default: _samples_backward,
}
