"""Graphs whose sizes are known better: dims replaced by numbers or by dims of a smaller range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.size import Dim, Extent, Size, highest, size_of, substitute

NUMEL_LIMIT = (1 << 31) - 1  # kernels address elements with 32 bits


def dims_of(graph: Graph) -> tuple[Dim, ...]:
    """The dims that the graph's inputs have, by name."""
    found = {dim for node in graph.inputs for size in node.sizes() for dim in size.dims()}
    return tuple(sorted(found, key=lambda dim: dim.name))


def large_sizes(graph: Graph) -> tuple[Extent, ...]:
    """Numbers of elements that some call within the ranges would take beyond 31 bits."""
    found = {node.type.numel for node in graph.nodes()}
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
            new[node] = make(node.op, operands, attrs, node.source)
    return Graph(
        tuple(new[node] for node in graph.inputs),
        tuple(new[node] for node in graph.outputs),
        graph.input_names,
        graph.output_names,
        graph.constants,
        graph.states,
    )


def _known(value: Any, values: Mapping[Dim, Extent]) -> Any:
    """An attribute's value with its sizes replaced."""
    if isinstance(value, Size):
        return substitute(value, values)
    if isinstance(value, tuple):
        return tuple(_known(item, values) for item in value)
    return value
