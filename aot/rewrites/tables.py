"""Tied embedding tables, read by lookups and multiplied by the head: stored once, packed (CPU).

The head's product reads the table as panels, and a lookup reads rows. The panels contain every row,
so the lookup reads its row from there, one element of each cache line, and the table itself is not
stored. That is done if the lookups cost little compared with the products of the same call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aotc.aot.ir.graph import Constant, Graph, Node
from aotc.aot.ir.recovered import recovered
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import fixed, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.traits import TargetTraits

FIGURES = TargetTraits()  # of a CPU
LINE_BYTES = 64  # what memory gives for one element that lies by itself
MOST_OF_PRODUCTS = 0.05  # of the products' time, which reading rows from panels may take
FEWEST_BYTES = 4096  # of a table that is worth it


def share_tables(graphs: Sequence[Graph]) -> tuple[list[Graph], int]:
    """take(table, i) → take(view of the table's panels, i) in all entries of a model, or in none;
    answers how many tables went."""
    found, panels = list(graphs), _panels(graphs)
    users = [graph.users() for graph in graphs]
    limits_ns = [MOST_OF_PRODUCTS * _products_ns(graph) for graph in graphs]
    tables = {row: node for graph in graphs for row, node in _tables(graph, panels)}
    count = 0
    for row, node in tables.items():
        view = panels[row.expression or node]
        costs_ns = [_lookups_ns(node, *ends) for ends in zip(users, found, strict=True)]
        if any(cost > limit for cost, limit in zip(costs_ns, limits_ns, strict=True)):
            continue
        limits_ns = [limit - cost for cost, limit in zip(costs_ns, limits_ns, strict=True)]
        found = [_replaced(graph, node, view) for graph in found]
        count += 1
    return found, count


@dataclass(frozen=True, slots=True)
class _View:
    """A view of a constant."""

    node: Node
    of: Constant


def _tables(graph: Graph, panels: Mapping[Node, _View]) -> Iterator[tuple[Constant, Node]]:
    """The constants that panels hold too."""
    for node in graph.nodes():
        if node.op == "constant" and fixed(node.type.nbytes) >= FEWEST_BYTES:
            row = graph.constants[node.attr("name")]
            if (row.expression or node) in panels:
                yield row, node


def _panels(graphs: Sequence[Graph]) -> dict[Node, _View]:
    """What the operands of packed products hold as it is, by its expression."""
    context, found = Context(), dict[Node, _View]()
    for graph in graphs:
        for node in _packed_operands(graph):
            for each in _constants_of(node, context):
                row = graph.constants[each.attr("name")]
                inner = () if row.expression is None else recovered(row.expression, each)
                for expression, view in inner:
                    if view is not each:
                        found.setdefault(expression, _View(view, row))
    return found


def _replaced(graph: Graph, table: Node, view: _View) -> Graph:
    """The graph with a view of another constant for a table."""
    pool = {**graph.constants, view.of.name: view.of}
    return replace(graph, constants=pool).replaced({table: view.node})


def _packed_operands(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes():
        if node.op == "matmul_packed":
            yield node.inputs[1]


def _constants_of(node: Node, context: Context) -> Iterator[Node]:
    """The constants that a constant expression reads."""
    if node.op == "constant":
        yield node
    elif context.is_constant(node):
        for operand in node.inputs:
            yield from _constants_of(operand, context)


def _products_ns(graph: Graph) -> float:
    """About how long a call multiplies."""
    return sum(
        2 * typical(node.type.numel * node.inputs[0].shape[-1]) * FIGURES.operation_ns
        for node in graph.nodes()
        if node.kind in ("matmul", "matmul_packed")
    )


def _lookups_ns(table: Node, users: Mapping[Node, tuple[Node, ...]], graph: Graph) -> float:
    """How much longer lookups take that read a table's elements one by one; endless where something
    else than lookups reads it."""
    total_ns, context = 0.0, Context()
    extra_bytes = LINE_BYTES - DTYPES[table.dtype].itemsize_bytes
    waiting, seen = [table], {table}
    while waiting:
        node = waiting.pop()
        if node in graph.outputs:
            return math.inf
        for user in users.get(node, ()):
            if user.op == "take" and user.inputs[0] is node and user.inputs[1] is not node:
                # Of a table that is repeated, as scales of groups are, each element once.
                share = typical(table.type.numel) / max(1, typical(node.type.numel))
                total_ns += share * typical(user.type.numel) * extra_bytes * FIGURES.byte_ns
            elif user.kind not in ("pointwise", "view") or not context.is_constant(user):
                return math.inf
            elif user not in seen:
                seen.add(user)
                waiting.append(user)
    return total_ns
