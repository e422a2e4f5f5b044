"""Where a constant's elements end up in an expression that only moves elements."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import fixed


@dataclass(frozen=True, slots=True)
class Place:
    """A constant's elements within a tensor: element [i, j, …] is element start + i · strides[0] +
    j · strides[1] + … of the tensor, which lies contiguously."""

    name: str
    start: int
    strides: tuple[int, ...]


def places(expression: Node, names: Collection[str]) -> tuple[Place, ...] | None:
    """Where the value of an expression holds the constants of these names; None where it does more
    than move them, or where some lie in no regular distance."""
    shape = tuple(map(fixed, expression.shape))
    found = list(_places(expression, 0, contiguous_strides(shape), names))
    return None if None in found else tuple(each for each in found if each is not None)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor of this shape, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _places(
    node: Node, start: int, strides: tuple[int, ...], names: Collection[str]
) -> Iterator[Place | None]:
    """The same of a node whose elements lie from `start` on, at these strides."""
    if node.op == "constant":
        if node.attr("name") in names:
            yield Place(node.attr("name"), start, strides)
        return
    if not node.inputs:
        return
    inner = node.inputs[0]
    if node.op == "permute":
        dims = node.attr("dims")
        back = sorted(range(len(dims)), key=lambda axis: dims[axis])
        yield from _places(inner, start, tuple(strides[axis] for axis in back), names)
    elif node.op == "reshape":
        shape, wanted = (tuple(map(fixed, each.shape)) for each in (node, inner))
        seen = _reshaped(shape, strides, wanted)
        if seen is None:
            yield None
        else:
            yield from _places(inner, start, seen, names)
    elif node.op == "pad" and not any(each < 0 for each in (*node.attr("low"), *node.attr("high"))):
        low = sum(map(math.prod, zip(node.attr("low"), strides, strict=True)))
        yield from _places(inner, start + low, strides, names)
    elif node.op == "concat":
        axis = node.attr("axis")
        for operand in node.inputs:
            yield from _places(operand, start, strides, names)
            start += fixed(operand.shape[axis]) * strides[axis]
    else:
        yield None


def _reshaped(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the same elements in another shape; None where there are none."""
    if 0 in shape:
        return contiguous_strides(wanted)
    # Dims of one element have no stride; neighbours that lie on are one dim.
    merged: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * stride:
            merged[-1] = merged[-1][0] * extent, stride
        else:
            merged.append((extent, stride))
    found: list[int] = []
    extent, stride = 1, 1
    for each in reversed(wanted):
        if each == 1:
            found.append(stride)
            continue
        if extent == 1:
            extent, stride = merged.pop()
        if extent % each:
            return None
        found.append(stride)
        extent, stride = extent // each, stride * each
    return tuple(reversed(found))
