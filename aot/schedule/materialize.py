"""Decides which nodes get a buffer, and which kernel stores them; others are computed where read.

Walks from the outputs backwards and notes, for every node, at which places each kernel would
evaluate it, and how often. A node with several readers is computed in a kernel that its readers
already share, or recomputed at each place, or stored: whichever cost.py finds cheapest. A value
that is read at shifted places, a step of a stencil, is computed again at each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, prod

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.infer import PACK_N
from aotc.aot.ir.size import Shape, typical
from aotc.aot.schedule.absorb import absorbed
from aotc.aot.schedule.calls import MEMORY_KINDS, call_clusters
from aotc.aot.schedule.cost import chain, is_worth_a_buffer
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.evaluation_indices import Place, operand_indices, root_index
from aotc.aot.schedule.fuse import fusion
from aotc.aot.schedule.group import GroupKind
from aotc.aot.schedule.grow import MATMULS, Cluster, clusters
from aotc.aot.schedule.trace import (
    LEAVES,
    STORED,
    is_unrolled,
    is_window_sum,
    kept_extents,
    reduced_extents,
)
from aotc.aot.traits import TargetTraits

REPEATED_WORK = 8.0  # operations behind an element that rows had better read than repeat
MAX_ROOTS = 8  # stores of one kernel; more only spill registers
MAX_CHECKS = 64  # of one kernel: each is done before the next begins
FEW_PARTS = 4  # of a concat that is read like a view
MOST_PLACES = 16  # at which one kernel evaluates a node for each of its elements
MOST_VALUES = 768  # evaluated in one kernel for each of its elements: its text, and registers
DEEPEST = 96  # values between an element that a kernel stores and one that it computes for that
NEARBY = 64  # nodes behind a root in which work that two kernels share is looked for

Places = dict[Place, int]  # place → how often a kernel evaluates a node there


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
        return self.cluster.root_op.inputs[0].shape if self.kind == "row" else None


def kernels(graph: Graph, stored: Iterable[Node], traits: TargetTraits) -> list[Kernel]:
    """All kernels of the graph, unordered; every node of `stored` is a root of one."""
    return _Materializer(graph, traits).run(frozenset(stored))


class _Materializer:
    """The backward walk: places of evaluations and the kernels so far."""

    def __init__(self, graph: Graph, traits: TargetTraits) -> None:
        self.traits = traits
        self.nodes = graph.nodes()
        found = clusters(graph, traits.is_gpu)
        found, self.absorbed = absorbed(found, graph, traits)
        made = [Kernel([cluster.tip], cluster) for cluster in found]
        made += [Kernel([*each.members], each) for each in call_clusters(graph)]
        self.kernels = dict.fromkeys(made)  # in the order in which they were made
        self.owner = {
            node: kernel for kernel in made if kernel.cluster for node in kernel.cluster.members
        }
        self.materialised = {root for kernel in made for root in kernel.roots}
        self.cycles = Cycles(graph, (kernel.roots for kernel in made))
        self.places: dict[Node, dict[Kernel, Places]] = {node: {} for node in self.nodes}
        self.evaluated: dict[Kernel, list[Node]] = {}  # what each kernel evaluates
        self.values: dict[Kernel, int] = {}  # how many values that is, a node at several places
        self.cut: set[Kernel] = set()  # whose first root was too much for its readers
        self.depths: dict[Node, int] = dict.fromkeys(self.nodes, 0)
        self.checks: list[Kernel] = []  # kernels of nothing else
        self.near: dict[Node, list[Kernel]] = {}  # pointwise kernels that compute a node, or may

    def run(self, stored: frozenset[Node]) -> list[Kernel]:
        for node in reversed(self.nodes):
            if node.op in STORED or (node.op in LEAVES and node not in stored):
                continue
            if node in self.owner:
                kernel = self.owner[node]
                place = root_index(kernel.cluster, node)
                self._count_operands(node, {kernel: {place: typical(node.type.numel)}})
                if node in kernel.roots:
                    self.cycles.passed(kernel.roots)
            elif node in stored or self._needs_buffer(node):
                kernel = self._store(node)
                if len(kernel.roots) > 1:  # it may compute this on the way to another root
                    self._deepen(node)
                place = root_index(kernel.cluster, node)
                self._count_operands(node, {kernel: {place: typical(node.type.numel)}})
            else:
                self._inline(node)
        return list(self.kernels)

    def _inline(self, node: Node) -> None:
        """Compute the node in the kernels that read it."""
        for kernel, places in self.places[node].items():
            self.values[kernel] = self.values.get(kernel, 0) + len(places)
        self._deepen(node)
        self._count_operands(node, self.places[node])

    def _deepen(self, node: Node) -> None:
        for operand in node.inputs:
            self.depths[operand] = max(self.depths[operand], self.depths[node] + 1)

    def _count_operands(self, node: Node, found: Mapping[Kernel, Places]) -> None:
        for kernel, places in found.items():
            for place, count in places.items():
                self._count_at(kernel, node, place, count)

    def _count_at(self, kernel: Kernel, node: Node, place: Place, count: int) -> None:
        """Note what the node at one place needs of its operands."""
        cluster = kernel.cluster
        for position, at in enumerate(operand_indices(cluster, node, place)):
            operand = node.inputs[position]
            if cluster and operand in cluster.members:
                continue
            share = _evaluations(node, position, count)
            if kernel.kind == "row" and not self.traits.is_gpu:
                share = max(share, self._in_rows(kernel, node, position, count))
            readers = self.places[operand]
            if kernel not in readers:
                readers[kernel] = {}
                self.evaluated.setdefault(kernel, []).append(operand)
            # Several readers at one place share the value.
            readers[kernel][at] = max(share, readers[kernel].get(at, 0))

    def _in_rows(self, kernel: Kernel, node: Node, position: int, count: int) -> int:
        """How often rows one after the other evaluate an operand that they have in common."""
        operand = node.inputs[position]
        last = _last_varying_axis(node, position)
        if last < 0 or not self._is_dear(operand):
            return 0
        assert kernel.cluster is not None
        rows = typical(prod(kept_extents(kernel.cluster.root_op)))
        return max(count // max(1, typical(prod(node.shape[last + 1 :]))), min(count, rows))

    def _is_dear(self, node: Node) -> bool:
        """Whether an element of the node is worth reading rather than computing again."""
        work, _ = chain(node, self.materialised, lambda work, _: work >= REPEATED_WORK)
        return work >= REPEATED_WORK

    def _needs_buffer(self, node: Node) -> bool:
        if node in self.absorbed:
            return False
        readers = self.places[node]
        if self._is_too_much(node):
            return True
        verdicts = {fusion(_kind(node), kernel.kind).verdict for kernel in readers}
        if verdicts <= {"always"}:
            return False
        if "never" in verdicts:
            return True
        self._join_readers(node)
        total = sum(sum(places.values()) for places in readers.values())
        place = (node, total, len(readers), self.materialised, self.traits)
        if is_worth_a_buffer(*place):
            return True
        # A kernel that is there anyway can store it for no launch of its own.
        is_free = is_worth_a_buffer(*place, is_launched=True)
        return is_free and self._home(node, readers) is not None

    def _is_too_much(self, node: Node) -> bool:
        """Whether the text of a kernel that computes the node too would be too long or too deep."""
        if self.depths[node] >= DEEPEST:
            return True
        return any(
            len(places) > MOST_PLACES or self.values.get(kernel, 0) + len(places) > MOST_VALUES
            for kernel, places in self.places[node].items()
        )

    def _join_readers(self, node: Node) -> None:
        """Make one kernel of the pointwise kernels that read the node at its own elements."""
        readers = [
            kernel
            for kernel in self.places[node]
            if kernel.kind == "pointwise"
            and prod(kernel.shape or ()) == node.type.numel
            and kernel not in self.cut  # else it would be as deep as before
        ]
        for kernel in readers[1:]:
            first = readers[0]
            roots = first.roots + kernel.roots
            values = self.values.get(first, 0) + self.values.get(kernel, 0)
            is_large = len(roots) > MAX_ROOTS or values > MOST_VALUES
            if first.shape != kernel.shape or is_large or self.cycles.closes(roots):
                continue
            first.roots = roots
            self.values[first] = values
            self.cycles.join(roots)
            del self.kernels[kernel]
            for each in self.evaluated.pop(kernel, ()):
                places, known = self.places[each].pop(kernel), self.places[each].get(first)
                if known is None:
                    self.places[each][first] = known = {}
                    self.evaluated.setdefault(first, []).append(each)
                for at, count in places.items():
                    known[at] = max(count, known.get(at, 0))
            for each in self._nearby(kernel.roots):
                self.near.setdefault(each, []).append(first)

    def _store(self, node: Node) -> Kernel:
        """The kernel that stores the node: one that has its elements at hand, or a new one."""
        self.materialised.add(node)
        home = None
        is_cut = self._is_too_much(node)
        if not is_cut:  # else its readers would compute it all the same
            home = self._home(node, dict.fromkeys([*self.places[node], *self._sharing(node)]))
        if home is None:
            home = Kernel([node])
            self.kernels[home] = None
            self.cycles.add(node)
            if is_cut:
                self.cut.add(home)
            if node.op == "check":
                self.checks.append(home)
        else:
            home.roots.append(node)
            self.cycles.join(home.roots)
            if home in self.checks and (node.op != "check" or len(home.roots) == MAX_CHECKS):
                self.checks.remove(home)
            if self.places[node].pop(home, None) is not None:
                self.evaluated[home].remove(node)
        if home.kind == "pointwise":
            for each in self._nearby([node]):
                self.near.setdefault(each, []).append(home)
        return home

    def _home(self, node: Node, candidates: Iterable[Kernel]) -> Kernel | None:
        """The first of these kernels that can store the node beside what it stores already."""
        for kernel in candidates:
            fits = kernel.shape == node.shape and len(kernel.roots) < self._most_roots(kernel, node)
            fits = fits and self.values.get(kernel, 0) < MOST_VALUES
            # What the kernel reads at other places it would compute again all the same.
            fits = fits and {root_index(kernel.cluster, node)}.issuperset(
                self.places[node].get(kernel, ())
            )
            if fits and not self.cycles.closes([*kernel.roots, node]):
                return kernel
        return None

    def _most_roots(self, kernel: Kernel, node: Node) -> int:
        """How many nodes a kernel may store, the node among them."""
        return MAX_CHECKS if node.op == "check" and kernel in self.checks else MAX_ROOTS

    def _sharing(self, node: Node) -> list[Kernel]:
        """Pointwise kernels that have something of full size that the node needs."""
        ours = self._nearby([node])
        found: dict[Kernel, None] = {}
        for other in ours:
            if other.type.numel == node.type.numel:
                found |= dict.fromkeys(self.near.get(other, ()))
        if node.op == "check":
            found |= dict.fromkeys(self.checks)
        fitting = (kernel for kernel in found if kernel in self.kernels)
        return [
            kernel
            for kernel in fitting
            if kernel.shape == node.shape and len(kernel.roots) < self._most_roots(kernel, node)
        ]

    def _nearby(self, roots: list[Node]) -> list[Node]:
        """The roots and what is computed for them, the nearest nodes first, up to a number."""
        found: dict[Node, None] = {}
        waiting = list(roots)
        for node in waiting:  # which grows
            if len(found) >= NEARBY:
                break
            if node in found or node.op in LEAVES:
                continue
            found[node] = None
            if node in roots or not (node in self.materialised or node.op in STORED):
                waiting.extend(node.inputs)
        return list(found)


def _kind(node: Node) -> str:
    """The kind of a producer that the table of fusions has a row for."""
    if is_window_sum(node):
        return "window-sum"
    if is_unrolled(node):
        return "unrolled"
    return "join" if node.kind == "concat" and len(node.inputs) > FEW_PARTS else node.kind


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
    # Of a concat, all parts are looked at for each element.
    is_repeated = node.kind in ("window", "gather", "concat")
    is_repeated = is_repeated or (node.kind == "take" and position == 0)
    if elements < result and not is_repeated:
        return max(1, count * elements // result)
    return count
