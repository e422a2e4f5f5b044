"""Specialises graphs to known sizes: dims become numbers, or dims of a smaller range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from aotc.aot.ir import build
from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Body, Graph, Node, make, reads_nothing
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import Dim, Extent, Size, bounds, highest, size_of, substitute
from aotc.aot.ir.text import body_of

NUMEL_LIMIT = (1 << 31) - 1  # kernels address elements with 32 bits
FACTORS = (1, 4, 16, 64)  # of typical sizes, tried until a call can have them; the low ends then


def dims_of(graph: Graph) -> tuple[Dim, ...]:
    """The dims that the graph's inputs have, by name."""
    found = {dim for node in graph.inputs for size in node.sizes() for dim in size.dims()}
    return tuple(sorted(found, key=lambda dim: dim.name))


def possible_dims(graph: Graph) -> tuple[Dim, ...]:
    """The dims, from the first to the last size at which no extent of the graph is below 0.

    A guard of torch's keeps calls from the others: `x[8:]` of a result that is as long as its name
    says has eight elements at least.
    """
    extents = _that_may_be_negative(graph)
    return tuple(
        _possible(dim, [each for each in extents if dim in each.dims()]) for dim in dims_of(graph)
    )


def with_possible_sizes(graph: Graph, ranges: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Ranges of the graph's dims, with typical sizes at which no extent is below 0; None where
    no call can be in them."""
    dims, extents = dims_of(graph), _that_may_be_negative(graph)
    narrow = dict(zip(dims, map(size_of, ranges), strict=True))
    if any(highest(substitute(extent, narrow)) < 0 for extent in extents):
        return None
    rows = [[min(each.typical * factor, each.high) for factor in FACTORS] for each in ranges]
    options = (dict.fromkeys([*row, each.low]) for row, each in zip(rows, ranges, strict=True))
    for sizes in product(*options):
        values = dict(zip(dims, sizes, strict=True))
        if all(highest(substitute(extent, values)) >= 0 for extent in extents):
            return tuple(
                replace(each, typical=size) for each, size in zip(ranges, sizes, strict=True)
            )
    return tuple(ranges)


def _that_may_be_negative(graph: Graph) -> list[Size]:
    found = dict.fromkeys(size for node in nodes_within(graph) for size in node.type.shape)
    return [size for size in found if isinstance(size, Size) and bounds(size)[0] < 0]


def _possible(dim: Dim, extents: Sequence[Size]) -> Dim:
    """The range around the example's size at both ends of which the extents may be 0 or more."""

    def holds(value: int) -> bool:
        return all(highest(substitute(extent, {dim: value})) >= 0 for extent in extents)

    if not holds(dim.typical):
        return dim
    return replace(
        dim, low=_end(dim.low, dim.typical, holds), high=_end(dim.high, dim.typical, holds)
    )


def _end(outer: int, inner: int, holds: Callable[[int], bool]) -> int:
    """What is nearest to `outer` and holds, on the way to `inner`, which does."""
    if holds(outer):
        return outer
    while abs(outer - inner) > 1:
        middle = (outer + inner) // 2
        outer, inner = (outer, middle) if holds(middle) else (middle, inner)
    return inner


def large_sizes(graph: Graph) -> tuple[Extent, ...]:
    """Numbers of elements that some call within the ranges would take beyond 31 bits."""
    found = {node.type.numel for node in nodes_within(graph)}
    large = [numel for numel in found if isinstance(numel, Size) and highest(numel) > NUMEL_LIMIT]
    return tuple(sorted(large, key=str))


def narrowed(graph: Graph, dims: Mapping[Dim, Dim]) -> Graph:
    """The same graph for calls whose sizes lie in smaller ranges; one value is a number."""
    return _with_sizes(graph, {dim: size_of(narrow) for dim, narrow in dims.items()})


def at_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph for one call: every dim by its name is a number."""
    return _with_sizes(graph, {dim: sizes[dim.name] for dim in dims_of(graph)})


def _with_sizes(graph: Graph, values: Mapping[Dim, Extent]) -> Graph:
    new: dict[Node, Node] = {}
    for node in graph.nodes():
        operands = tuple(new[operand] for operand in node.inputs)
        attrs = tuple((name, _known(value, values)) for name, value in node.attrs)
        if node.op == "extent" and isinstance(attrs[0][1], int):
            new[node] = make("scalar", (), {"value": attrs[0][1], "dtype": "i64"})
        else:
            new[node] = _defined(make(node.op, operands, attrs, node.source))
    return Graph(
        tuple(new[node] for node in graph.inputs),
        tuple(new[node] for node in graph.outputs),
        graph.input_names,
        graph.output_names,
        graph.constants,
        graph.states,
    )


def _defined(node: Node) -> Node:
    """The node, or what it gives of an operand that has no elements at these sizes.

    A maximum or an element of nothing is a value that nobody asks for: a call that does is refused
    by torch's guards, or by a check of its indices.
    """
    if not reads_nothing(node):
        return node
    if node.op in REDUCTIONS and REDUCTIONS[node.op].is_defined_of_nothing:
        return build.reduce(node.op, node.inputs[0], node.attr("axes"))
    if node.kind == "matmul" or node.op in (*REDUCTIONS, "take", "gather"):
        return build.expand(build.scalar(0, node.dtype), node.shape)
    return node


def _known(value: Any, values: Mapping[Dim, Extent]) -> Any:
    """An attribute's value with its sizes replaced."""
    if isinstance(value, Size):
        return substitute(value, values)
    if isinstance(value, Body):
        return body_of(_with_sizes(value.graph, values)) if value.sizes else value
    if isinstance(value, tuple):
        return tuple(_known(item, values) for item in value)
    return value
