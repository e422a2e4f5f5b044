"""Recovers constants from a stored tensor whose expression only moves their elements, as views of
it."""

from __future__ import annotations

from collections.abc import Iterator

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Extent


def recovered(expression: Node, value: Node) -> Iterator[tuple[Node, Node]]:
    """Nodes of an expression, itself first, each with a view of `value` that equals it; `value` is
    the expression's result. Where elements are computed or left out, the search ends."""
    yield expression, value
    if not expression.inputs:
        return
    (inner, *_), rank = expression.inputs, expression.type.rank
    if expression.op == "permute":
        dims = expression.attr("dims")
        back = tuple(sorted(range(rank), key=lambda axis: dims[axis]))
        yield from recovered(inner, build.permute(value, back))
    elif expression.op == "reshape":
        yield from recovered(inner, build.reshape(value, inner.shape))
    elif expression.op == "pad":
        low, high = expression.attr("low"), expression.attr("high")
        for axis in range(rank):
            if low[axis] < 0 or high[axis] < 0:
                return
            end = low[axis] + inner.shape[axis]
            value = build.slice_axis(value, axis, low[axis], end)
        yield from recovered(inner, value)
    elif expression.op == "concat":
        axis = expression.attr("axis")
        start: Extent = 0
        for operand in expression.inputs:
            end = start + operand.shape[axis]
            yield from recovered(operand, build.slice_axis(value, axis, start, end))
            start = end
