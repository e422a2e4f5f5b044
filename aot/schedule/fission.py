"""Splits kernels of few long rows in two on a GPU: the reductions, and the elementwise part.

A reduction kernel gives each program whole rows, or a block of columns, with everything that is
computed of their elements. With few rows there are few programs, and most of the device is idle: a
norm over each of 64 columns of a long matrix has two. Split in two kernels, both parts use as many
programs as the device runs at once; the rows are then read twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import ceil

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.rounding import is_rounded, shared
from aotc.aot.ir.size import typical
from aotc.aot.ir.types import DTYPES, SHORT_FLOATS
from aotc.aot.schedule.domain import cheapest, kept_index, row_domains
from aotc.aot.schedule.group import Domain
from aotc.aot.schedule.grow import Cluster, row_symbols
from aotc.aot.schedule.pairs import between, one_pass
from aotc.aot.schedule.trace import LEAVES, Access, Tracer, is_unrolled, reduction_index
from aotc.aot.traits import TargetTraits

SHARING = 16  # programs of one kernel that wait for each other, each with part of a row
SHARED_LENGTH = 1 << 14  # elements of a row that they share
COLUMNS = 32  # of a program
# Of sums of columns, on each multiprocessor, below which what they read is stored elsewhere: then
# any number of programs share the columns.
COLUMN_PROGRAMS = 2
NEARBY = 16  # nodes before a kernel that decide how it reads memory
COMPUTED = frozenset({"pointwise", "view", "concat", "pad"})
PASSES = 1.5  # time of the two kernels over that of one: two reads and a write instead of one each


@dataclass(frozen=True, slots=True)
class Fission:
    """Splits clusters of a graph on a GPU; leaves those for a CPU whole."""

    users: Mapping[Node, tuple[Node, ...]]
    outputs: Collection[Node]
    several: frozenset[Node]  # what several nodes read, so that its bits are those of its type
    traits: TargetTraits

    @classmethod
    def of(cls, graph: Graph, traits: TargetTraits) -> Fission:
        """Of a graph on a target."""
        return cls(graph.users(), frozenset(graph.outputs), shared(graph), traits)

    def __call__(self, cluster: Cluster) -> Cluster:
        """The cluster, or the first of its reductions alone where that is faster; neither stores
        elements beside reductions then."""
        if not self.traits.is_gpu or cluster.kind != "row" or not self._is_slow(cluster):
            return cluster
        reductions = self._first_reductions(cluster)
        if not _stores_elements(cluster) and _all_reductions(cluster).issubset(reductions):
            return replace(cluster, is_split=True)  # what it reads is stored by another kernel
        members = _behind(reductions, cluster.members)
        tips = tuple(node for node in reductions if self._is_read(node, members))
        return replace(cluster, tip=tips[-1], tips=tips, members=members, is_split=True)

    def _is_slow(self, cluster: Cluster) -> bool:
        """Whether few programs take longer than two kernels of many."""
        full = cluster.root_op.inputs[0].type
        count = max(DTYPES[cluster.tip.dtype].itemsize_bytes, 2) * 2 * typical(full.numel)
        together_ns = count * self.traits.byte_ns
        domain = _domain(cluster, self.traits)
        is_sum_of_columns = not domain.is_reduced_in_lanes and cluster.tip.type.numel != full.numel
        wanted = self.traits.multiprocessors * (COLUMN_PROGRAMS if is_sum_of_columns else 1)
        alone_ns = together_ns * max(1.0, wanted / _programs(cluster, domain))
        return alone_ns > PASSES * together_ns + self.traits.launch_ns

    def _first_reductions(self, cluster: Cluster) -> list[Node]:
        """The reductions that wait for no other one, and those that the same pass gives."""
        first, later = _levels(cluster)
        short = (node for node in self.several & cluster.members if node.dtype in SHORT_FLOATS)
        rounded = frozenset(node for node in short if not is_rounded(node))
        found = list(first)
        for node in later:
            paired = (each for each in first if one_pass(each, node, rounded))
            if any(self._may_be_repeated(each, node) for each in paired):
                found.append(node)
        return found

    def _may_be_repeated(self, first: Node, second: Node) -> bool:
        """Whether what lies between the two is read elsewhere by elementwise kernels at most."""
        inside = between(first, second) - {first}
        readers = {user for node in inside for user in self.users[node]} - inside - {second}
        is_cheap = all(user.kind in ("pointwise", "view", "reduce") for user in readers)
        return is_cheap and not inside.intersection(self.outputs)

    def _is_read(self, node: Node, members: Collection[Node]) -> bool:
        """Whether a reduction is read outside, by itself or for what is computed again there."""
        waiting, seen = [node], {node}
        for each in waiting:  # which grows
            if each in self.outputs or any(user not in members for user in self.users[each]):
                return True
            fresh = {user for user in self.users[each] if not _is_reduction(user)} - seen
            seen |= fresh
            waiting += fresh
        return False


def _programs(cluster: Cluster, domain: Domain) -> int:
    """Programs of the kernel that the cluster is."""
    if not domain.is_reduced_in_lanes:
        return typical(domain.outer.extent) * ceil(typical(domain.lanes.extent) / COLUMNS)
    kept, reduced = row_symbols(cluster.root_op)
    # Programs that wait for each other store elements; others share rows of one pass.
    may_share = _stores_elements(cluster) or not _levels(cluster)[1]
    is_shared = may_share and typical(reduced.extent) >= SHARED_LENGTH
    return typical(kept.extent) * (SHARING if is_shared else 1)


def _stores_elements(cluster: Cluster) -> bool:
    """Whether the kernel stores something of each element that it reduces."""
    return cluster.tip.type.numel == cluster.root_op.inputs[0].type.numel


def _domain(cluster: Cluster, traits: TargetTraits) -> Domain:
    """The loops that the kernel would have, where the nearest nodes before it are in it."""
    root_op = cluster.root_op

    near = _near(root_op.inputs[0])

    def trace(domain: Domain) -> Tracer:
        assert domain.reduced is not None
        tracer = Tracer(lambda node: node not in near)
        index = reduction_index(root_op, kept_index(domain), ix.of(domain.reduced))
        tracer.visit(root_op.inputs[0], index)
        return tracer

    def stores(domain: Domain) -> list[Access]:
        values = {}
        if not domain.is_reduced_in_lanes:
            values = {row_symbols(root_op)[0]: kept_index(domain)}
        index = cluster.index[cluster.tip]
        return [Access(cluster.tip, tuple(part.substitute(values) for part in index))]

    return cheapest(row_domains(root_op), trace, stores, traits)


def _near(data: Node) -> set[Node]:
    """What is computed elementwise or moved for the data, the nearest nodes up to a number."""
    found: set[Node] = set()
    waiting = [data]
    for node in waiting:  # which grows
        if len(found) < NEARBY and node.kind in COMPUTED and node.op not in LEAVES:
            found.add(node)
            waiting += [each for each in node.inputs if each not in found]
    return found


def _levels(cluster: Cluster) -> tuple[list[Node], list[Node]]:
    """The reductions that wait for no other one, and those that wait for some of these only."""
    depth: dict[Node, int] = {}
    levels: dict[int, list[Node]] = {}
    for node in _in_order(cluster.tip, cluster.members):
        below = max((depth.get(operand, 0) for operand in node.inputs), default=0)
        depth[node] = below + _is_reduction(node)
        if _is_reduction(node):
            levels.setdefault(depth[node], []).append(node)
    return levels[1], levels.get(2, [])


def _all_reductions(cluster: Cluster) -> set[Node]:
    return {node for node in cluster.members if _is_reduction(node)}


def _is_reduction(node: Node) -> bool:
    return node.kind == "reduce" and not is_unrolled(node)


def _in_order(tip: Node, members: Collection[Node]) -> list[Node]:
    """The members, operands first."""
    found: dict[Node, None] = {}
    waiting = [(tip, False)]
    while waiting:
        node, is_expanded = waiting.pop()
        if is_expanded:
            found[node] = None
        elif node in members and node not in found:
            waiting.append((node, True))
            waiting += [(operand, False) for operand in node.inputs]
    return list(found)


def _behind(nodes: Collection[Node], members: Collection[Node]) -> set[Node]:
    """The members that some of the nodes are computed from, and these."""
    found: set[Node] = set()
    for node in nodes:
        found.update(_in_order(node, members))
    return found
