"""Norms of a single row that the product behind them computes by itself, in each of its programs.

A product of one row reads the row in every program anyway; a kernel of one program that only norms
it costs more than the few sums that all programs repeat. Decoding has such a norm before every
product of a layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.schedule.grow import MATMULS, Cluster, row_symbols
from aotc.aot.traits import TargetTraits

LONGEST_ROW = 8192  # elements that a program sums at once, in registers
MOST_COLUMNS = 16384  # of the product: with more, its programs repeat too much of the work


def absorbed(
    found: list[Cluster], graph: Graph, traits: TargetTraits
) -> tuple[list[Cluster], frozenset[Node]]:
    """The clusters that stay kernels, and the nodes of those that a product takes over."""
    if not traits.is_gpu:
        return found, frozenset()
    users, outputs = graph.users(), frozenset(graph.outputs)
    kept: list[Cluster] = []
    nodes: set[Node] = set()
    for cluster in found:
        if _is_short_row(cluster) and _product_behind(cluster.tip, users, outputs):
            nodes |= cluster.members
        else:
            kept.append(cluster)
    return kept, frozenset(nodes)


def _is_short_row(cluster: Cluster) -> bool:
    """Whether the cluster reduces one row that a program can hold, by plain reductions."""
    if cluster.kind != "row":
        return False
    row, reduced = row_symbols(cluster.root_op)
    reductions = [REDUCTIONS[node.op] for node in cluster.members if node.kind == "reduce"]
    is_row = row.extent == 1 and reduced.extent <= LONGEST_ROW
    is_plain = not any(each.is_search for each in reductions)
    return is_row and cluster.tip.type.numel == reduced.extent and is_plain


def _product_behind(
    tip: Node, users: Mapping[Node, tuple[Node, ...]], outputs: frozenset[Node]
) -> bool:
    """Whether the value goes into one product of one row and nowhere else."""
    node = tip
    while node not in outputs and len(users[node]) == 1:
        (user,) = users[node]
        if user.kind == "view" and user.type.numel == tip.type.numel:
            node = user
            continue
        is_row = user.kind in MATMULS and prod(user.shape[:-1]) == 1
        is_left = is_row and user.inputs[0] is node and user.inputs[1] is not node
        return is_left and user.shape[-1] <= MOST_COLUMNS
    return False
