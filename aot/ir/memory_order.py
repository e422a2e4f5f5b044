"""Inputs and outputs whose dims lie in another order than their shapes have them: channels last.

Such an end of a graph becomes one of the shape that its memory has, behind or before a permute.
What follows reads contiguous tensors, as everywhere, and the permute is a view: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.storage import Array

Order = tuple[int, ...]  # dims, the outermost in memory first; empty where they stand as they lie


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of a graph's ends, one each; those behind the last one have none."""

    inputs: tuple[Order, ...] = ()
    outputs: tuple[Order, ...] = ()

    def input(self, place: int) -> Order:
        """That of an input."""
        return self.inputs[place] if place < len(self.inputs) else ()

    def output(self, place: int) -> Order:
        """That of an output."""
        return self.outputs[place] if place < len(self.outputs) else ()


NO_ORDERS = Orders()


def with_orders(graph: Graph, orders: Orders) -> Graph:
    """The same function of tensors in the shapes that their memory has."""
    if not any((*orders.inputs, *orders.outputs)):
        return graph
    inputs, seen = list(graph.inputs), {}
    for place, node in enumerate(graph.given):
        order = orders.input(place)
        if order:
            shape = tuple(node.shape[axis] for axis in order)
            inputs[place] = make("input", (), {**dict(node.attrs), "shape": shape}, node.source)
            seen[node] = build.permute(inputs[place], inverse(order))
    inside = graph.rebuilt(lambda node, made: seen.get(node, made))
    outputs = list(inside.outputs)
    for place in range(len(graph.returned)):
        order = orders.output(place)
        outputs[place] = build.permute(outputs[place], order) if order else outputs[place]
    return replace(inside, inputs=tuple(inputs)).with_outputs(tuple(outputs))


def inverse(order: Order) -> Order:
    """The places of the dims in an order: a permute by it undoes one by the order."""
    return tuple(sorted(range(len(order)), key=lambda place: order[place]))


def each_in_memory(arrays: Sequence[Array], orders: Sequence[Order]) -> tuple[Array, ...]:
    """Arrays in the shapes that their memory has, as views; those behind the last order as they
    are."""
    return tuple(map(_permuted, arrays, _for_each(arrays, orders)))


def each_from_memory(arrays: Sequence[Array], orders: Sequence[Order]) -> tuple[Array, ...]:
    """Arrays of such shapes as callers see them, as views."""
    return tuple(map(_permuted, arrays, map(inverse, _for_each(arrays, orders))))


def _for_each(arrays: Sequence[Array], orders: Sequence[Order]) -> tuple[Order, ...]:
    return (*orders, *[()] * (len(arrays) - len(orders)))


def _permuted(array: Array, order: Order) -> Array:
    return array.transpose(order) if order else array
