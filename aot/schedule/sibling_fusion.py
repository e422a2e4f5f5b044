"""Horizontal fusion of reductions over the same rows of one tensor: the rows are read once for all.

The mean, the standard deviation and the extremes of a row share only the row. As kernels of their
own, each reads the row once for each level of its reductions; fused, all together read it as often
as the one with the most levels.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from math import prod

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.size import proves_at_most
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.grow import (
    MOST_MEMBERS,
    Cluster,
    is_consistent,
    may_join,
    place,
    row_symbols,
)
from aotc.aot.schedule.trace import LEAVES, is_unrolled, reduced_extents
from aotc.aot.traits import TargetTraits

LONGEST_HELD = 4096  # elements of a row that a program of a GPU reads once for several reductions
MOST_TIPS = 6  # of clusters that are merged: a kernel may then store two nodes more
NEARBY = 16  # nodes behind a reduction among which what it reads is looked for


def fuse_siblings(found: list[Cluster], graph: Graph, traits: TargetTraits) -> list[Cluster]:
    """The clusters, with those that reduce the same rows of a tensor merged, if none depends on
    another. On a GPU this is done for rows that a program holds in its registers; for longer rows,
    and for columns that several programs share, only for sums that do not depend on each other."""
    if sum(cluster.kind == "row" for cluster in found) < 2:
        return found
    joiner = _Joiner(found, graph, traits)
    kept: list[Cluster] = []
    changed: set[int] = set()
    by_row: dict[Node, list[int]] = {}  # what is read in rows → the clusters that do, by number
    for cluster in found:
        rows = _read_in_rows(cluster, joiner.owned)
        for at in dict.fromkeys(at for node in rows for at in by_row.get(node, ())):
            both = joiner.both(kept[at], cluster)
            if both is not None:
                kept[at] = both
                changed.add(at)
                break
        else:
            at = len(kept)
            kept.append(cluster)
        for node in rows:
            by_row.setdefault(node, []).append(at)
    for at in changed:
        kept[at] = joiner.without_inner(kept[at])
    return kept


def is_held(cluster: Cluster | None) -> bool:
    """Whether the cluster reduces rows that are contiguous and short enough for the registers of a
    GPU's program, or for the nearest caches of a core."""
    if cluster is None or cluster.kind != "row" or cluster.is_split:
        return False
    is_last = _end_reduced(cluster.root_op) == "last"
    return is_last and proves_at_most(prod(reduced_extents(cluster.root_op)), LONGEST_HELD)


def _end_reduced(node: Node) -> str | None:
    """At which end the dims lie that a reduction is over; None where they lie elsewhere."""
    rank, axes = node.inputs[0].type.rank, node.attr("axes")
    if axes == tuple(range(rank - len(axes), rank)):
        return "last"
    return "first" if axes == tuple(range(len(axes))) else None


def _read_in_rows(cluster: Cluster, owned: Container[Node]) -> list[Node]:
    """Full-size tensors that the reductions read element by element, without those that are only
    reached through kernels of other clusters."""
    if cluster.kind != "row":
        return []
    found: dict[Node, None] = {}
    numel = cluster.root_op.inputs[0].type.numel
    waiting = [node.inputs[0] for node in cluster.members if _is_reduction(node)]
    seen = set(waiting)
    for node in waiting:  # which grows
        is_passed = node.kind == "pointwise" or node.op == "reshape"
        is_passed = is_passed and (node not in owned or node in cluster.members)
        if is_passed and node.op not in LEAVES and len(seen) < NEARBY:
            fresh = [each for each in node.inputs if each.type.numel == numel and each not in seen]
            waiting += fresh
            seen.update(fresh)
        found[node] = None
    return list(found)


def _is_reduction(node: Node) -> bool:
    return node.kind == "reduce" and not is_unrolled(node)


class _Joiner:
    """Merges clusters of a graph as long as the kernels can still be ordered."""

    def __init__(self, found: list[Cluster], graph: Graph, traits: TargetTraits) -> None:
        self.traits = traits
        nodes = graph.nodes()
        self.users, self.outputs = graph.users(), frozenset(graph.outputs)
        self.order = {node: number for number, node in enumerate(nodes)}
        self.owned = {node for cluster in found for node in cluster.members}
        self.cycles = Cycles(graph, (cluster.roots for cluster in found))

    def both(self, one: Cluster, other: Cluster) -> Cluster | None:
        """One cluster in place of two over the same rows; None if they cannot be merged."""
        if not self._are_alike(one.root_op, other.root_op):
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
        if not place(found, between) or not is_consistent(found) or not self._is_fast(found):
            return None
        self.owned |= found.members
        self.cycles.join(tips)
        return found

    def _are_alike(self, one: Node, other: Node) -> bool:
        """Whether two reductions go over the same rows; on a GPU also of a tensor reshaped."""
        if row_symbols(one) != row_symbols(other):
            return False
        if one.inputs[0].shape == other.inputs[0].shape:
            return bool(one.attr("axes") == other.attr("axes"))
        ends = _end_reduced(one)
        return self.traits.is_gpu and ends is not None and ends == _end_reduced(other)

    def _is_fast(self, cluster: Cluster) -> bool:
        """Whether a GPU has a form of the kernel that is as good as those of its parts."""
        if not self.traits.is_gpu or is_held(cluster):
            return True
        full = cluster.root_op.inputs[0].type.numel
        if any(tip.type.numel == full for tip in cluster.tips):
            return False
        members = cluster.members
        waiting = [each for node in members if _is_reduction(node) for each in node.inputs]
        seen = set(waiting)
        for node in waiting:  # which grows: what lies between two reductions is a member, too
            if _is_reduction(node) and node in members:
                return False
            fresh = [each for each in node.inputs if each in members and each not in seen]
            seen.update(fresh)
            waiting += fresh
        return True

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
