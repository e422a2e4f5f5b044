"""Joins kernels of reductions over the same rows of one tensor, which are then read once for all.

A mean, a deviation and the extremes of a row have nothing in common but the row. Each by itself
goes over it once for each level of its reductions, together as often as the one with the most.
"""

from __future__ import annotations

from dataclasses import replace

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.grow import (
    MOST_MEMBERS,
    Cluster,
    is_consistent,
    may_join,
    place,
    row_symbols,
)
from aotc.aot.schedule.trace import LEAVES, is_unrolled

MOST_TIPS = 6  # of clusters that are joined: a kernel may then store two nodes more
NEARBY = 16  # nodes behind a reduction among which what it reads is looked for


def joined(found: list[Cluster], graph: Graph) -> list[Cluster]:
    """The clusters, those of one tensor's rows as one where none waits for another."""
    if sum(cluster.kind == "row" for cluster in found) < 2:
        return found
    joiner = _Joiner(found, graph)
    kept: list[Cluster] = []
    by_row: dict[Node, list[int]] = {}  # what is read in rows → the clusters that do, by number
    for cluster in found:
        rows = _read_in_rows(cluster)
        for at in dict.fromkeys(at for node in rows for at in by_row.get(node, ())):
            both = joiner.both(kept[at], cluster)
            if both is not None:
                kept[at] = both
                break
        else:
            at = len(kept)
            kept.append(cluster)
        for node in rows:
            by_row.setdefault(node, []).append(at)
    return [joiner.without_inner(cluster) if cluster.tips else cluster for cluster in kept]


def _read_in_rows(cluster: Cluster) -> list[Node]:
    """Tensors of full size that the reductions read element by element."""
    if cluster.kind != "row":
        return []
    found: dict[Node, None] = {}
    shape = cluster.root_op.inputs[0].shape
    waiting = [node.inputs[0] for node in cluster.members if _is_reduction(node)]
    seen = set(waiting)
    for node in waiting:  # which grows
        if node.kind == "pointwise" and node.op not in LEAVES and len(seen) < NEARBY:
            fresh = [each for each in node.inputs if each.shape == shape and each not in seen]
            waiting += fresh
            seen.update(fresh)
        found[node] = None
    return list(found)


def _is_reduction(node: Node) -> bool:
    return node.kind == "reduce" and not is_unrolled(node)


class _Joiner:
    """Joins clusters of a graph as long as kernels wait for each other in some order."""

    def __init__(self, found: list[Cluster], graph: Graph) -> None:
        nodes = graph.nodes()
        self.users, self.outputs = graph.users(), frozenset(graph.outputs)
        self.order = {node: number for number, node in enumerate(nodes)}
        self.owned = {node for cluster in found for node in cluster.members}
        self.cycles = Cycles(graph, ([cluster.tip] for cluster in found))

    def both(self, one: Cluster, other: Cluster) -> Cluster | None:
        """One cluster in place of two over the same rows; None where that cannot be."""
        data, beside = one.root_op.inputs[0], other.root_op.inputs[0]
        is_alike = one.root_op.attr("axes") == other.root_op.attr("axes")
        if (
            data.shape != beside.shape
            or not is_alike
            or row_symbols(one.root_op) != row_symbols(other.root_op)
        ):
            return None
        inside = one.members | other.members
        between = self._between(inside)
        if between is None:
            return None
        members = inside | set(between)
        read = (node for node in between if self._is_read_outside(node, members))
        tips = (*one.roots, *other.roots, *read)
        index = {**other.index, **one.index}
        found = replace(one, members=members, index=index, tips=tips)
        is_small = len(found.members) <= MOST_MEMBERS and len(tips) <= MOST_TIPS
        if not is_small or self.cycles.closes(tips):
            return None
        if not place(found, between) or not is_consistent(found):
            return None
        self.owned |= found.members
        self.cycles.join(tips)
        return found

    def _between(self, inside: set[Node]) -> list[Node] | None:
        """Nodes by way of which one of those inside needs another, operands first; None where they
        are in other kernels."""
        behind: set[Node] = set()
        waiting = [user for node in inside for user in self.users[node]]
        last = max(map(self.order.__getitem__, inside))
        while waiting:
            node = waiting.pop()
            if node not in behind and self.order[node] <= last:
                behind.add(node)
                waiting += self.users[node]
        needed: set[Node] = set()
        waiting = [operand for node in inside for operand in node.inputs]
        while waiting:
            node = waiting.pop()
            if node not in needed and node in behind:
                needed.add(node)
                waiting += node.inputs
        found = sorted(needed - inside, key=self.order.__getitem__)
        is_free = all(may_join("row", node) and node not in self.owned for node in found)
        return found if is_free else None

    def without_inner(self, cluster: Cluster) -> Cluster:
        """Stores only what is read outside, in the graph's order."""
        wanted = [tip for tip in cluster.tips if self._is_read_outside(tip, cluster.members)]
        return replace(cluster, tips=tuple(sorted(wanted, key=self.order.__getitem__)))

    def _is_read_outside(self, node: Node, members: set[Node]) -> bool:
        return node in self.outputs or any(user not in members for user in self.users[node])
