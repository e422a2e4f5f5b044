"""Composition of the view ops on indices: index of an element of the result → of the operand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from aotc.aot.ir.index import ZERO, Bound, Index, bound, bounds_of, linear, unravel
from aotc.aot.ir.size import Extent, divides, is_static


def through_reshape(
    index: Sequence[Index], shape: Sequence[Extent], source: Sequence[Extent]
) -> tuple[Index, ...]:
    """Index into `source` of the element at `index` of its reshape to `shape`."""
    if 0 in source:
        return unravel(linear(index, shape), source)
    found: list[Index] = []
    at = start = 0
    while start < len(source) or at < len(shape):
        stop, until = min(start + 1, len(source)), min(at + 1, len(shape))
        while (have := prod(source[start:stop])) != (want := prod(shape[at:until])):
            stop, until = _widened((have, stop, len(source)), (want, until, len(shape)))
        found.extend(unravel(linear(index[at:until], shape[at:until]), source[start:stop]))
        start, at = stop, until
    return tuple(found)


def _widened(left: tuple[Extent, int, int], right: tuple[Extent, int, int]) -> tuple[int, int]:
    """The ends of two runs of dims whose products differ, the shorter one moved on.

    Each side is (product, end of the run, number of dims). Dynamic sizes are ordered
    by what divides what; where neither does, both runs go on.
    """
    (have, stop, source_rank), (want, until, rank) = left, right
    if is_static((have, want)):
        return (stop + 1, until) if have < want else (stop, until + 1)
    if stop < source_rank and divides(have, want):
        return stop + 1, until
    if until < rank and divides(want, have):
        return stop, until + 1
    return min(stop + 1, source_rank), min(until + 1, rank)


def through_permute(index: Sequence[Index], dims: Sequence[Extent]) -> tuple[Index, ...]:
    """Result axis i is operand axis dims[i]."""
    found = [ZERO] * len(dims)
    for axis, source_axis in enumerate(dims):
        found[source_axis] = index[axis]
    return tuple(found)


def through_broadcast(
    index: Sequence[Index], shape: Sequence[Extent], source: Sequence[Extent]
) -> tuple[Index, ...]:
    """Axes of extent 1 that the result repeats are read at zero; a rank-0 operand has no index."""
    if not source:
        return ()
    rows = zip(index, shape, source, strict=True)
    return tuple(ZERO if have == 1 and want != 1 else position for position, want, have in rows)


def through_slice(index: Sequence[Index], axis: int, start: Extent, step: int) -> tuple[Index, ...]:
    """Element i of the result is element start + i*step of the operand along `axis`."""
    return _replaced(index, axis, index[axis] * step + start)


def through_flip(
    index: Sequence[Index], axes: Iterable[int], shape: Sequence[Extent]
) -> tuple[Index, ...]:
    """The axes run backwards."""
    found = list(index)
    for axis in axes:
        found[axis] = found[axis] * -1 + (shape[axis] - 1)
    return tuple(found)


def through_window(
    index: Sequence[Index],
    axes: Sequence[Extent],
    strides: Sequence[Extent],
    dilations: Sequence[Extent],
) -> tuple[Index, ...]:
    """Position p of window element w reads p*stride + w*dilation; each w is a trailing axis."""
    rank = len(index) - len(axes)
    found = list(index[:rank])
    for order, axis in enumerate(axes):
        found[axis] = found[axis] * strides[order] + index[rank + order] * dilations[order]
    return tuple(found)


def through_pad(
    index: Sequence[Index], low: Sequence[Extent], source: Sequence[Extent]
) -> tuple[tuple[Index, ...], list[Bound]]:
    """Index into the operand, and the conditions under which it is inside."""
    inner = tuple(position - before for position, before in zip(index, low, strict=True))
    return inner, bounds_of(inner, [0] * len(inner), source)


def through_concat(
    index: Sequence[Index], axis: int, extents: Sequence[Extent]
) -> list[tuple[tuple[Index, ...], Bound | None]]:
    """For each operand its index and the condition, on the joined axis, that it is the one read."""
    found: list[tuple[tuple[Index, ...], Bound | None]] = []
    offset: Extent = 0
    for extent in extents:
        condition = bound(index[axis], offset, offset + extent)
        found.append((_replaced(index, axis, index[axis] - offset), condition))
        offset += extent
    return found


def through_take(
    index: Sequence[Index], axis: int, indices_rank: int, loaded: Index
) -> tuple[Index, ...]:
    """Index into the data of `take`: the axes of the indices give way to the one loaded value."""
    return (*index[:axis], loaded, *index[axis + indices_rank :])


def _replaced(index: Sequence[Index], axis: int, value: Index) -> tuple[Index, ...]:
    return (*index[:axis], value, *index[axis + 1 :])
