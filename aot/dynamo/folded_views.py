"""Graphs of products that torch runs op by op, with their chains of views folded into single calls.

The operands of a product are often views of views, and each view is a call that takes the host
about as long as the product's. The shape, strides and offset of the last view in the base tensor
are known from the trace, so the chain becomes one call with these. Products are called by torch's
own function, which parses arguments faster than an op of `torch.ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from aotc.aot.capture.aten_signature import RELAID
from aotc.aot.dynamo.call_blocks import reinterpreted
from aotc.aot.dynamo.library_products import PRODUCT, VIEWS, WIDE_PRODUCT

_PRODUCTS = (PRODUCT, WIDE_PRODUCT)


@dataclass(frozen=True, slots=True)
class Fold:
    """A view as it lies in the tensor below it. Nodes are numbers in the order of their graph;
    strides and offset are elements."""

    node: int
    below: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Folds:
    """Those of a graph of `nodes` nodes."""

    nodes: int
    rows: tuple[Fold, ...]


NO_FOLDS = Folds(0, ())


def folds_of(module: GraphModule, laid: AbstractSet[Node]) -> Folds:
    """The views that products of a graph read, of products and of arguments that are `laid`: that
    have the traced strides in every call."""
    numbers = {node: number for number, node in enumerate(module.graph.nodes)}
    rows = []
    for node in module.graph.nodes:
        if node.target in VIEWS and any(user.target in _PRODUCTS for user in node.users):
            below = _below(node)
            place = _place(node, below)
            is_as_traced = below.target in _PRODUCTS or (below in laid and RELAID not in below.meta)
            if place is not None and is_as_traced:
                rows.append(Fold(numbers[node], numbers[below], *place))
    return Folds(len(numbers), tuple(rows))


def _below(node: Node) -> Node:
    while node.target in VIEWS:
        node = node.all_input_nodes[0]
    return node


def _place(node: Node, below: Node) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Shape, strides and offset of a view in the tensor below, where all are numbers."""
    value, base = node.meta.get("val"), below.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(base, torch.Tensor):
        return None
    offset = value.storage_offset() - base.storage_offset()
    shape, strides = tuple(value.shape), tuple(value.stride())
    is_known = all(type(each) is int for each in (*shape, *strides, offset))
    return (shape, strides, offset) if is_known else None


def folded(module: GraphModule, folds: Folds) -> Callable[..., Any]:
    """What runs a graph, with one call for each of the views."""
    nodes = list(module.graph.nodes)
    if not folds.rows or len(nodes) != folds.nodes:
        return module.forward  # a module that is called looks for hooks, and these have none
    rows = {nodes[fold.node]: fold for fold in folds.rows}
    graph, copies = Graph(), {}
    for node in nodes:
        fold = rows.get(node)
        if fold is not None:
            place = (copies[nodes[fold.below]], fold.shape, fold.strides, fold.offset)
            copies[node] = graph.call_function(reinterpreted, place)
        elif node.target in _PRODUCTS:
            arguments = tuple(copies.get(each, each) for each in node.args)
            copies[node] = graph.call_function(torch.mm, arguments)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.eliminate_dead_code()
    return GraphModule(module, graph).forward
