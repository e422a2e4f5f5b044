"""Decides which nodes get a buffer, and which kernel stores them; others are computed where read.

Walks from the outputs backwards and counts, for every node, how often each kernel would evaluate
it. A node with several readers is computed in a kernel that its readers already share, or
recomputed in each, or stored: whichever cost.py finds cheapest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.infer import PACK_N
from aotc.aot.ir.size import Shape, typical
from aotc.aot.schedule.absorb import absorbed
from aotc.aot.schedule.calls import MEMORY_KINDS, call_clusters
from aotc.aot.schedule.cost import chain, is_worth_a_buffer
from aotc.aot.schedule.fuse import fusion
from aotc.aot.schedule.group import GroupKind
from aotc.aot.schedule.grow import MATMULS, Cluster, clusters
from aotc.aot.schedule.trace import (
    LEAVES,
    STORED,
    is_tap_sum,
    is_unrolled,
    kept_extents,
    reduced_extents,
)
from aotc.aot.schedule.traits import TargetTraits

REPEATED_WORK = 8.0  # operations behind an element that rows had better read than repeat
MAX_ROOTS = 8  # stores of one kernel; more only spill registers


@dataclass(slots=True, eq=False)
class Kernel:
    """A kernel in the making: the nodes it stores, and its cluster if it is no pointwise kernel."""

    roots: list[Node]
    cluster: Cluster | None = None

    @property
    def kind(self) -> GroupKind:
        """`pointwise`, `row`, `matmul` …"""
        return self.cluster.kind if self.cluster else "pointwise"

    @property
    def shape(self) -> Shape | None:
        """Shape that a further root must have; None where there can be none."""
        if self.cluster is None:
            return self.roots[0].shape
        return self.cluster.anchor.inputs[0].shape if self.kind == "row" else None


def kernels(graph: Graph, stored: Iterable[Node], traits: TargetTraits) -> list[Kernel]:
    """All kernels of the graph, unordered; every node of `stored` is a root of one."""
    return _Materializer(graph, traits).run(frozenset(stored))


class _Materializer:
    """The backward walk: counts of evaluations and the kernels so far."""

    def __init__(self, graph: Graph, traits: TargetTraits) -> None:
        self.traits = traits
        self.nodes = graph.nodes()
        self.order = {node: number for number, node in enumerate(self.nodes)}
        self.ancestors = _ancestors(self.nodes, self.order)
        found = clusters(graph, traits.device == "cuda")
        found, self.absorbed = absorbed(found, graph, traits)
        self.kernels = [Kernel([cluster.tip], cluster) for cluster in found]
        self.kernels += [Kernel([*each.members], each) for each in call_clusters(graph)]
        self.owner = {
            node: kernel
            for kernel in self.kernels
            if kernel.cluster
            for node in kernel.cluster.members
        }
        self.materialised = {root for kernel in self.kernels for root in kernel.roots}
        self.counts: dict[Node, dict[Kernel, int]] = {node: {} for node in self.nodes}

    def run(self, stored: frozenset[Node]) -> list[Kernel]:
        for node in reversed(self.nodes):
            if node.op in STORED or (node.op in LEAVES and node not in stored):
                continue
            if node in self.owner:
                self._count_operands(node, {self.owner[node]: typical(node.type.numel)})
            elif node in stored or self._needs_buffer(node):
                kernel = self._store(node)
                self._count_operands(node, {kernel: typical(node.type.numel)})
            else:
                self._count_operands(node, self.counts[node])
        return self.kernels

    def _count_operands(self, node: Node, counts: dict[Kernel, int]) -> None:
        for position, operand in enumerate(node.inputs):
            for kernel, count in counts.items():
                if kernel.cluster and operand in kernel.cluster.members:
                    continue
                share = _evaluations(node, position, count)
                if kernel.kind == "row" and self.traits.device == "cpu":
                    share = max(share, self._in_rows(kernel, node, position, count))
                known = self.counts[operand].get(kernel, 0)
                # Several readers in one kernel share the value, except at places they look up.
                is_lookup = node.kind in ("take", "gather") and position == 0
                self.counts[operand][kernel] = known + share if is_lookup else max(known, share)

    def _in_rows(self, kernel: Kernel, node: Node, position: int, count: int) -> int:
        """How often rows one after the other evaluate an operand that they have in common."""
        operand = node.inputs[position]
        last = _last_varying_axis(node, position)
        if last < 0 or chain(operand, self.materialised)[0] < REPEATED_WORK:
            return 0
        assert kernel.cluster is not None
        rows = typical(prod(kept_extents(kernel.cluster.anchor)))
        return max(count // max(1, typical(prod(node.shape[last + 1 :]))), min(count, rows))

    def _needs_buffer(self, node: Node) -> bool:
        if node in self.absorbed:
            return False
        kind = "unrolled" if is_unrolled(node) else node.kind
        kind = "taps" if is_tap_sum(node) else kind
        counts = self.counts[node]
        verdicts = {fusion(kind, kernel.kind).verdict for kernel in counts}
        if verdicts <= {"always"}:
            return False
        if "never" in verdicts:
            return True
        self._join_readers(node)
        counts = self.counts[node]
        total = sum(counts.values())
        place = (node, total, len(counts), self.materialised, self.traits)
        if is_worth_a_buffer(*place):
            return True
        # A kernel that is there anyway can store it for no launch of its own.
        is_free = is_worth_a_buffer(*place, is_launched=True)
        return is_free and self._home(node, counts) is not None

    def _join_readers(self, node: Node) -> None:
        """Make one kernel of the pointwise kernels that read the node at its own elements."""
        readers = [
            kernel
            for kernel in self.counts[node]
            if kernel.kind == "pointwise" and prod(kernel.shape or ()) == node.type.numel
        ]
        for kernel in readers[1:]:
            first = readers[0]
            roots = first.roots + kernel.roots
            if first.shape != kernel.shape or len(roots) > MAX_ROOTS or self._is_cyclic(roots):
                continue
            first.roots = roots
            self.kernels.remove(kernel)
            for counts in self.counts.values():
                if kernel in counts:
                    count = counts.pop(kernel)
                    counts[first] = max(count, counts.get(first, 0))

    def _store(self, node: Node) -> Kernel:
        """The kernel that stores the node: one that has its elements at hand, or a new one."""
        self.materialised.add(node)
        sharing = [kernel for kernel in self.kernels if self._shares_work(kernel, node)]
        home = self._home(node, [*self.counts[node], *sharing])
        if home is None:
            self.kernels.append(Kernel([node]))
            return self.kernels[-1]
        home.roots.append(node)
        self.counts[node].pop(home, None)
        return home

    def _home(self, node: Node, candidates: Iterable[Kernel]) -> Kernel | None:
        """The first of these kernels that can store the node beside what it stores already."""
        for kernel in candidates:
            fits = kernel.shape == node.shape and len(kernel.roots) < MAX_ROOTS
            if fits and not self._is_cyclic([*kernel.roots, node]):
                return kernel
        return None

    def _shares_work(self, kernel: Kernel, node: Node) -> bool:
        """Whether a pointwise kernel has something of full size that the node needs."""
        if kernel.kind != "pointwise" or kernel.shape != node.shape:
            return False
        if all(each.op == "check" for each in (node, *kernel.roots)):
            return True
        ours = self._inlined([node])
        return any(
            other.type.numel == node.type.numel for other in ours & self._inlined(kernel.roots)
        )

    def _inlined(self, roots: list[Node]) -> set[Node]:
        found: set[Node] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in found or node.op in LEAVES:
                continue
            found.add(node)
            if node in roots or not (node in self.materialised or node.op in STORED):
                stack.extend(node.inputs)
        return found

    def _is_cyclic(self, roots: list[Node]) -> bool:
        """Whether a kernel of these roots would need its own result through another kernel."""
        mask = _mask(roots, self.order)
        group = set(roots)
        others = [kernel for kernel in self.kernels if not group.issuperset(kernel.roots)]
        reach = {kernel: self._reach(kernel.roots) for kernel in others}
        ours = self._reach(roots)
        return any(
            ours & _mask(kernel.roots, self.order) and reach[kernel] & mask for kernel in others
        )

    def _reach(self, roots: list[Node]) -> int:
        """Nodes that a kernel of these roots needs, as bits; a kernel counts as a whole."""
        reach = 0
        for node in roots:
            reach |= self.ancestors[node]
        shared = [kernel for kernel in self.kernels if len(kernel.roots) > 1]
        while True:
            before = reach
            for kernel in shared:
                if reach & _mask(kernel.roots, self.order):
                    for node in kernel.roots:
                        reach |= self.ancestors[node]
            if reach == before:
                return reach


def _last_varying_axis(node: Node, position: int) -> int:
    """The last axis of a result along which it reads other elements of an operand; -1: none."""
    operand = node.inputs[position]
    if node.op == "take" and position == 1:
        extents: Shape = (*[1] * node.attr("axis"), *operand.shape)
    elif node.kind in ("pointwise", "check") or node.op == "expand":
        extents = operand.shape
    else:
        return -1
    return max((axis for axis, extent in enumerate(extents) if extent != 1), default=-1)


def _ancestors(nodes: tuple[Node, ...], order: dict[Node, int]) -> dict[Node, int]:
    """All that a node depends on, as a bit set over the topological order."""
    found: dict[Node, int] = {}
    for node in nodes:
        bits = 0
        for operand in node.inputs:
            bits |= found[operand] | (1 << order[operand])
        found[node] = bits
    return found


def _mask(nodes: Iterable[Node], order: dict[Node, int]) -> int:
    bits = 0
    for node in nodes:
        bits |= 1 << order[node]
    return bits


def _evaluations(node: Node, position: int, count: int) -> int:
    """How often an operand is evaluated when the node is evaluated `count` times in a kernel."""
    operand = node.inputs[position]
    elements, result = typical(operand.type.numel), typical(node.type.numel)
    if node.kind == "attention" or node.kind in MEMORY_KINDS:
        return elements
    if node.kind in MATMULS:
        side = node.shape[-1] if position == 0 else node.shape[-2]
        return elements * ceil(typical(side) / PACK_N)
    if node.kind == "reduce":
        return count * typical(prod(reduced_extents(node)))
    is_repeated = node.kind in ("window", "gather") or (node.kind == "take" and position == 0)
    if elements < result and not is_repeated:
        return max(1, count * elements // result)
    return count
