"""Decides which nodes get a buffer, and which kernel stores them; others are computed where read.

Walks from the outputs backwards and notes, for every node, at which points each kernel would
evaluate it, and how often. A node with several readers is computed in a kernel that its readers
already share, or recomputed at each point, or stored: whichever cost.py finds cheapest. A value
that is read at shifted points, a step of a stencil, is computed again at each of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.infer import PACK_N
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import Extent, Shape, proves_at_most, typical
from aotc.aot.schedule.attention import attention_accesses, attention_domain
from aotc.aot.schedule.calls import MEMORY_KINDS, call_clusters
from aotc.aot.schedule.cost import chain, is_worth_a_buffer
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.domain import batch_index, matmul_domain, operand_accesses
from aotc.aot.schedule.fission import Fission
from aotc.aot.schedule.fuse import fusion
from aotc.aot.schedule.group import GroupKind, Root
from aotc.aot.schedule.grow import (
    MATMULS,
    Cluster,
    clusters,
    element_index,
    is_consistent,
    row_indices,
    row_symbols,
)
from aotc.aot.schedule.sibling_fusion import fuse_siblings, is_held
from aotc.aot.schedule.strided_stores import leave_strided_views
from aotc.aot.schedule.trace import (
    LEAVES,
    STORED,
    Access,
    accesses,
    data_index,
    is_unrolled,
    is_window_sum,
    kept_extents,
    lookup_index,
    reduced_extents,
    unrolled_index,
    viewed,
)
from aotc.aot.traits import TargetTraits

# Where a kernel evaluates a node for each element that it stores: an index into the node, and the
# conditions under which the value there is used.
Point = tuple[tuple[Index, ...], tuple[Bound, ...]]


def root_index(cluster: Cluster | None, node: Node) -> Point:
    """Where a kernel evaluates a node that it stores, or that its cluster has."""
    if cluster is not None:
        known = element_index(cluster, node)
        if known is not None and len(known) == node.type.rank:
            return known, ()
    return _elements(node.shape), ()


def operand_indices(cluster: Cluster | None, node: Node, point: Point) -> list[Point]:
    """The points in its operands that a node at a point needs, in the operands' order."""
    index, guard = point
    found = _needs(cluster, node, index)
    if found is None:
        return [(_elements(operand.shape), guard) for operand in node.inputs]
    return [(need.index, (*guard, *need.conditions)) for need in found]


def _needs(
    cluster: Cluster | None, node: Node, index: tuple[Index, ...]
) -> Sequence[Access] | None:
    """What a node at an index needs of each operand; None where that is all of them."""
    if node.kind == "reduce":
        return [Access(node.inputs[0], _reduced(cluster, node, index))]
    if node.kind in MATMULS:
        domain = matmul_domain(node)
        return operand_accesses(node, domain, batch_index(node, domain))
    if node.kind == "attention":
        return attention_accesses(node, attention_domain(node))
    if node.kind in MEMORY_KINDS:
        return None
    if node.kind in ("take", "gather"):
        data, indices = node.inputs
        where = lookup_index(node, index)
        # Each look-up is an index of its own.
        loaded = ix.symbol(f"loaded {id(indices)} {where}", data.shape[node.attr("axis")])
        return Access(data, data_index(node, index, loaded)), Access(indices, where)
    return accesses(node, index)


def _reduced(cluster: Cluster | None, node: Node, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """The index of a reduction's operand."""
    if is_unrolled(node):
        return unrolled_index(node, index)
    (operand,) = node.inputs
    if cluster is not None and cluster.kind == "row":
        known = cluster.index.get(operand)
        if known is not None:
            return known
        kept, reduced = row_symbols(cluster.root_op)
        if row_symbols(node) == (kept, reduced):
            return row_indices(node, ix.of(kept), ix.of(reduced))[operand]
    axes = node.attr("axes")
    return tuple(
        ix.symbol(f"reduced{axis}", extent) if axis in axes else index[axis]
        for axis, extent in enumerate(operand.shape)
    )


def _elements(shape: Sequence[Extent]) -> tuple[Index, ...]:
    return tuple(ix.of(Symbol(f"i{axis}", extent)) for axis, extent in enumerate(shape))


REPEATED_WORK = 8.0  # operations behind an element that rows had better read than repeat
MAX_ROOTS = 8  # stores of one kernel; more only spill registers
MAX_CHECKS = 64  # of one kernel: each is done before the next begins
FEWEST_TERMS = 9  # of a sum over a window, whose margin is stored before
FEW_PARTS = 4  # of a concat that is read like a view
MOST_POINTS = 16  # at which one kernel evaluates a node for each of its elements
MOST_VALUES = 768  # evaluated in one kernel for each of its elements: its text, and registers
# Loads in the text of a kernel for a GPU times the square of its values: for each load Triton walks
# over all that hangs together with other loads, a minute for 160 lookups in 1,600 lines.
MOST_WALKED = 6_000_000
# Values and loads in the text of a kernel for a CPU; LLVM takes 10 s for 3,000.
MOST_WRITTEN = 1024
LOOKUP_LOADS = 10  # of loads that a lookup counts for: what it hangs on is walked over, too
DEEPEST = 96  # values between an element that a kernel stores and one that it computes for that
NEARBY = 64  # nodes behind a root in which work that two kernels share is looked for
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LONGEST_ROW = 8192  # elements that a program sums at once, in registers
MOST_COLUMNS = 16384  # of the product: with more, its programs repeat too much of the work

Points = dict[Point, int]  # point → how often a kernel evaluates a node there


@dataclass(slots=True, eq=False)
class Kernel:
    """A kernel in the making: the nodes it stores, and its cluster if it is no pointwise kernel."""

    roots: list[Node]
    cluster: Cluster | None = None
    # The shape that is computed where rows are written; for each such call which result's rows.
    elements: Shape | None = None
    rows_of: dict[Node, int] = field(default_factory=dict)
    # Of a product that stores what others compute of its columns: where, and how far apart two lie.
    placed: tuple[Root, ...] = ()
    distance: int = 0

    @property
    def kind(self) -> GroupKind:
        """`pointwise`, `row`, `matmul` …"""
        return self.cluster.kind if self.cluster else "pointwise"

    @property
    def shape(self) -> Shape | None:
        """Shape that a further root must have; None where there can be none."""
        if self.cluster is None:
            return self.elements or self.roots[0].shape
        if self.cluster.is_split:
            return None
        return self.cluster.root_op.inputs[0].shape if self.kind == "row" else None


def kernels(graph: Graph, stored: Iterable[Node], traits: TargetTraits) -> list[Kernel]:
    """All kernels of the graph, unordered; every node of `stored` is a root of one."""
    return _Materializer(graph, traits).run(frozenset(stored))


class _Materializer:
    """The backward walk: points of evaluation and the kernels so far."""

    def __init__(self, graph: Graph, traits: TargetTraits) -> None:
        self.traits = traits
        self.nodes, self.users = graph.nodes(), graph.users()
        self.wanted: frozenset[Node] = frozenset()
        found = leave_strided_views(
            clusters(graph, traits, Fission.of(graph, traits)), graph, traits
        )
        found, self.absorbed = absorbed(found, graph, traits)
        found = fuse_siblings(found, graph, traits)
        made = [Kernel(cluster.roots, cluster) for cluster in found]
        made += [Kernel([*each.members], each) for each in call_clusters(graph)]
        self.kernels = dict.fromkeys(made)  # in the order in which they were made
        self.owner = {
            node: kernel for kernel in made if kernel.cluster for node in kernel.cluster.members
        }
        self.materialised = {root for kernel in made for root in kernel.roots}
        self.cycles = Cycles(graph, (kernel.roots for kernel in made))
        self.ahead = {kernel: set(kernel.roots) for kernel in made}  # roots that the walk comes to
        self.points: dict[Node, dict[Kernel, Points]] = {node: {} for node in self.nodes}
        self.evaluated: dict[Kernel, list[Node]] = {}  # what each kernel evaluates
        self.values: dict[Kernel, int] = {}  # how many values that is, a node at several points
        # For a GPU: how often the text of a kernel has a node at a point, if more than once, since
        # sums are written out; of all nodes together; and of these the loads.
        self.copies: dict[tuple[Kernel, Node, Point], int] = {}
        self.written: dict[Kernel, int] = {}
        self.loads: dict[Kernel, int] = {}
        self.cut: set[Kernel] = set()  # whose first root was too much for its readers
        self.depths: dict[Node, int] = dict.fromkeys(self.nodes, 0)
        self.heights = _heights(self.nodes)
        self.checks: list[Kernel] = []  # kernels of nothing else
        self.near: dict[Node, list[Kernel]] = {}  # pointwise kernels that compute a node, or may
        self.margins = frozenset() if traits.is_gpu else margins(self.nodes)

    def run(self, stored: frozenset[Node]) -> list[Kernel]:
        self.wanted = stored
        for node in reversed(self.nodes):
            if node.op in STORED or (node.op in LEAVES and node not in stored):
                continue
            if node in self.owner:
                kernel = self.owner[node]
                point = root_index(kernel.cluster, node)
                self._count_operands(node, {kernel: {point: typical(node.type.numel)}})
                if node not in kernel.roots:  # of a split kernel: its other readers repeat it
                    self._inline(node)
                self.ahead[kernel].discard(node)
                if node in kernel.roots and not self.ahead[kernel]:
                    self.cycles.passed(kernel.roots)
            elif node in stored or self._needs_buffer(node):
                kernel = self._store(node)
                if len(kernel.roots) > 1:  # it may compute this on the way to another root
                    self._deepen(node)
                point = root_index(kernel.cluster, node)
                self._count_operands(node, {kernel: {point: typical(node.type.numel)}})
            else:
                self._inline(node)
        return list(self.kernels)

    def _inline(self, node: Node) -> None:
        """Compute the node in the kernels that read it."""
        for kernel, points in self.points[node].items():
            self.values[kernel] = self.values.get(kernel, 0) + len(points)
            self._write(kernel, node, points)
        self._deepen(node)
        self._count_operands(node, self.points[node])

    def _write(self, kernel: Kernel, node: Node, points: Points) -> None:
        """Count what the text of a kernel has of a node."""
        written = self._written(kernel, node, points)
        self.written[kernel] = self.written.get(kernel, 0) + written
        self.loads[kernel] = self.loads.get(kernel, 0) + written * _loads(node)

    def _written(self, kernel: Kernel, node: Node, points: Points) -> int:
        return sum(self.copies.get((kernel, node, point), 1) for point in points)

    def _deepen(self, node: Node) -> None:
        """Note that the text of a kernel has the node's operands within the node's."""
        is_lookup = node.kind in ("take", "gather")
        for place, operand in enumerate(node.inputs):
            depth = self.depths[node] + 1
            if is_lookup and place:  # where the data are numbers of places, the index is in theirs
                depth += self.heights.get(node.inputs[0], 0)
            self.depths[operand] = max(self.depths[operand], depth)

    def _count_operands(self, node: Node, found: Mapping[Kernel, Points]) -> None:
        for kernel, points in found.items():
            for point, count in points.items():
                self._count_at(kernel, node, point, count)

    def _count_at(self, kernel: Kernel, node: Node, point: Point, count: int) -> None:
        """Note what the node at one point needs of its operands."""
        cluster = kernel.cluster
        for position, at in enumerate(operand_indices(cluster, node, point)):
            operand = node.inputs[position]
            if cluster and operand in cluster.members:
                continue
            share = _evaluations(node, position, count)
            if kernel.kind == "row" and not self.traits.is_gpu:
                share = max(share, self._in_rows(kernel, node, position, count))
            readers = self.points[operand]
            if kernel not in readers:
                readers[kernel] = {}
                self.evaluated.setdefault(kernel, []).append(operand)
            # Several readers at one point share the value.
            readers[kernel][at] = max(share, readers[kernel].get(at, 0))
            copies = self.copies.get((kernel, node, point), 1) * _terms(node)
            if copies > 1:
                known = self.copies.get((kernel, operand, at), 1)
                self.copies[kernel, operand, at] = max(known, copies)

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
        readers = self.points[node]
        if node in self.margins or self._is_too_much(node):
            return True
        verdicts = {fusion(_kind(node), kernel.kind).verdict for kernel in readers}
        if verdicts <= {"always"}:
            return False
        if "never" in verdicts:
            return True
        self._join_readers(node)
        total = sum(sum(points.values()) for points in readers.values())
        costs = (node, total, len(readers), self.materialised, self.traits)
        loading = self._loading(node, total)
        if is_worth_a_buffer(*costs, loading=loading):
            return True
        # A kernel that is there anyway can store it for no launch of its own.
        is_free = is_worth_a_buffer(*costs, is_launched=True, loading=loading)
        return is_free and self._home(node, readers) is not None

    def _loading(self, node: Node, evaluations: int) -> int:
        """How many of the evaluations load what they need: a processor's vectors compute every part
        of a concat for all lanes, but the masks of loads leave out those of other parts."""
        if self.traits.is_gpu:
            return evaluations
        waiting, share = [node], 0.0
        for last in waiting:  # which grows
            for user in self.users[last]:
                if user.kind == "concat":
                    whole = max(1, typical(user.type.numel))
                    share = max(share, typical(last.type.numel) / whole)
                elif user in self.materialised or user.kind not in ("view", "pointwise"):
                    return evaluations
                elif user not in waiting:
                    waiting.append(user)
            if len(waiting) > NEARBY or not self.users[last]:
                return evaluations
        return ceil(evaluations * min(1.0, share))

    def _is_too_much(self, node: Node) -> bool:
        """Whether the text of a kernel that computes the node too would be too long or too deep."""
        if self.depths[node] >= DEEPEST:
            return True
        return any(
            len(points) > MOST_POINTS
            or self.values.get(kernel, 0) + len(points) > MOST_VALUES
            or self._grows_long(kernel, self._written(kernel, node, points), node)
            for kernel, points in self.points[node].items()
        )

    def _grows_long(self, kernel: Kernel, written: int, node: Node) -> bool:
        """Whether a kernel takes long to compile with a node so many times more. With a sum that is
        written out come its terms, and better the sum is stored than each of them."""
        terms = [node.inputs[0]] * _terms(node) if is_unrolled(node) else []
        values = self.written.get(kernel, 0) + written * (1 + len(terms))
        loads = _loads(node) + sum(map(_loads, map(viewed, terms)))
        return self._is_long(values, self.loads.get(kernel, 0) + written * loads)

    def _is_long(self, written: int, loads: int) -> bool:
        """Whether a kernel of so many values and loads takes long to compile."""
        if self.traits.is_gpu:
            return loads * written**2 > MOST_WALKED
        return written + loads > MOST_WRITTEN

    def _join_readers(self, node: Node) -> None:
        """Make one kernel of the pointwise kernels that read the node at its own elements."""
        readers = [
            kernel
            for kernel in self.points[node]
            if kernel.kind == "pointwise"
            and prod(kernel.shape or ()) == node.type.numel
            and kernel not in self.cut  # else it would be as deep as before
        ]
        for kernel in readers[1:]:
            first = readers[0]
            roots = first.roots + kernel.roots
            values = self.values.get(first, 0) + self.values.get(kernel, 0)
            written = self.written.get(first, 0) + self.written.get(kernel, 0)
            loads = self.loads.get(first, 0) + self.loads.get(kernel, 0)
            is_large = len(roots) > MAX_ROOTS or values > MOST_VALUES
            is_large |= self._is_long(written, loads)
            if first.shape != kernel.shape or is_large or self.cycles.closes(roots):
                continue
            first.roots = roots
            self.values[first] = values
            self.written[first], self.loads[first] = written, loads
            self.cycles.join(roots)
            del self.kernels[kernel]
            for each in self.evaluated.pop(kernel, ()):
                points, known = self.points[each].pop(kernel), self.points[each].get(first)
                if known is None:
                    self.points[each][first] = known = {}
                    self.evaluated.setdefault(first, []).append(each)
                for at, count in points.items():
                    known[at] = max(count, known.get(at, 0))
            for each in self._nearby(kernel.roots):
                self.near.setdefault(each, []).append(first)

    def _store(self, node: Node) -> Kernel:
        """The kernel that stores the node: one that has its elements at hand, or a new one."""
        self.materialised.add(node)
        home = None
        is_cut = self._is_too_much(node)
        if not is_cut:  # else its readers would compute it all the same
            others = [*self._reducing(node), *self._sharing(node)]
            home = self._home(node, dict.fromkeys([*self.points[node], *others]))
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
            if self.points[node].pop(home, None) is not None:
                self.evaluated[home].remove(node)
        if home.kind == "pointwise":
            for each in self._nearby([node]):
                self.near.setdefault(each, []).append(home)
        return home

    def _home(self, node: Node, candidates: Iterable[Kernel]) -> Kernel | None:
        """The first of these kernels that can store the node beside what it stores already."""
        for kernel in candidates:
            fits = self._has_elements(kernel, node)
            fits = fits and len(kernel.roots) < self._most_roots(kernel, node)
            fits = fits and self.values.get(kernel, 0) < MOST_VALUES
            # What the kernel reads at other points it would compute again all the same.
            fits = fits and {root_index(kernel.cluster, node)}.issuperset(
                self.points[node].get(kernel, ())
            )
            if fits and not self.cycles.closes([*kernel.roots, node]):
                return kernel
        return None

    def _has_elements(self, kernel: Kernel, node: Node) -> bool:
        """Whether a kernel goes over as many elements in the same order; a CPU's lanes take them in
        the very shape."""
        if kernel.kind != "row" or not self.traits.is_gpu or kernel.shape is None:
            return kernel.shape == node.shape
        return bool(prod(kernel.shape) == node.type.numel)

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

    def _reducing(self, node: Node) -> list[Kernel]:
        """Kernels of reductions over rows that the node needs, and of which they have a tensor in
        registers or near caches that it needs too: a norm whose statistics are results as well."""
        ours = self._nearby([node])
        found = dict.fromkeys(self.owner[each] for each in ours if each in self.owner)
        return [
            kernel
            for kernel in found
            if is_held(kernel.cluster)
            and self._has_elements(kernel, node)
            and any(each.type.numel == node.type.numel for each in self._read_by(kernel, ours))
            and self._is_computed_there(kernel, node)
        ]

    def _is_computed_there(self, kernel: Kernel, node: Node) -> bool:
        """Whether a kernel has at each element what a node needs of its reductions there, and
        nothing between them is for others too: a kernel that stored a part of that would wait for
        this one and be waited for."""
        cluster = kernel.cluster
        assert cluster is not None
        members = cluster.members
        between = [each for each in self.cycles.inside(kernel.roots, node) if each not in members]
        inside = {node, *members, *between}
        is_alone = all(
            each.kind in ("pointwise", "view")
            and each not in self.wanted
            and inside.issuperset(self.users[each])
            for each in between
        )
        place = element_index(cluster, node)
        if not is_alone or place is None:
            return False
        index, tips = {**cluster.index, node: place}, (*cluster.roots, node)
        return is_consistent(replace(cluster, members=inside, index=index, tips=tips))

    def _read_by(self, kernel: Kernel, nodes: Container[Node]) -> Iterator[Node]:
        """Those of the nodes that a kernel of reductions has in registers, or reads for that."""
        assert kernel.cluster is not None
        return (each for each in self._nearby([*kernel.cluster.members]) if each in nodes)

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


def margins(nodes: Iterable[Node]) -> frozenset[Node]:
    """Pads that sums over windows read: a vector costs a mask for each element of the window, more
    than its product, and a stored margin none."""
    found: set[Node] = set()
    for node in nodes:
        if is_window_sum(node) and _terms(node) >= FEWEST_TERMS:
            waiting = list(node.inputs)
            while waiting:
                operand = waiting.pop()
                if operand.op == "pad":
                    found.add(operand)
                elif operand.kind in ("view", "window") or operand is node.inputs[0]:
                    waiting += operand.inputs
    return frozenset(found)


def _kind(node: Node) -> str:
    """The kind of a producer that the table of fusions has a row for."""
    if is_window_sum(node):
        return "window-sum"
    if is_unrolled(node):
        return "unrolled"
    return "join" if node.kind == "concat" and len(node.inputs) > FEW_PARTS else node.kind


def _terms(node: Node) -> int:
    """How often the text of a kernel contains the operand of a node, for each time that it contains
    the node."""
    return typical(prod(reduced_extents(node))) if is_unrolled(node) else 1


def _loads(node: Node) -> int:
    """For how many loads a node counts in the text of a kernel: one for each part of a concat."""
    if node.kind in ("take", "gather"):
        return LOOKUP_LOADS
    if node.kind == "concat":
        return len(node.inputs)
    return _terms(node) if node.kind == "reduce" else 0


def _heights(nodes: Iterable[Node]) -> dict[Node, int]:
    """How many calls lie between a node and the numbers of places that it is computed of, for those
    nodes that are computed of some where they are read."""
    heights: dict[Node, int] = {}
    for node in nodes:
        if node.op == "iota":
            heights[node] = 1
        elif node.kind in ("pointwise", "view", "take", "gather"):
            below = max((heights.get(operand, 0) for operand in node.inputs), default=0)
            heights |= {node: below + 1} if below else {}
    return heights


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


def compared(graph: Graph) -> frozenset[Node]:
    """Computed floats that both sides of a comparison are chosen from, moved on one side.

    `x == x.amax()` holds where the largest element lies only if both sides are the same bits. Two
    kernels that compute a value may round it differently: whether a product and a sum become one
    fused multiply-add depends on what else reads the product. Such a value is stored, and both
    sides read it.
    """
    found: set[Node] = set()
    for node in graph.nodes():
        if node.op not in COMPARISONS or node.inputs[0].type.kind != "float":
            continue
        right = _sources(node.inputs[1])
        left = _sources(node.inputs[0]) if right else {}  # a literal has none
        common = left.keys() & right.keys()
        found.update(source for source in common if left[source] or right[source])
    return frozenset(source for source in found if source.type.numel)


def _sources(value: Node) -> dict[Node, bool]:
    """What the elements are chosen from, and whether moved on the way there."""
    found: dict[Node, bool] = {}
    seen: set[tuple[Node, bool]] = set()
    waiting = [(value, False)]
    while waiting:
        node, is_moved = entry = waiting.pop()
        if entry in seen or node.type.kind != "float" or node.op in (*STORED, *LEAVES):
            continue
        seen.add(entry)
        if OPS[node.op].is_choice or node.op == "cast":
            moves = is_moved or node.kind != "pointwise"
            waiting += [(operand, moves) for operand in node.inputs]
        else:
            found[node] = found.get(node, False) or is_moved
    return found


def absorbed(
    found: list[Cluster], graph: Graph, traits: TargetTraits
) -> tuple[list[Cluster], frozenset[Node]]:
    """The clusters that stay kernels, and the nodes of those that a product takes over: norms of a
    single row, which each of its programs computes by itself.

    A product of one row reads the row in every program anyway; a kernel of one program that only
    norms it costs more than the few sums that all programs repeat. Decoding has such a norm before
    every product of a layer.
    """
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
    is_row = row.extent == 1 and proves_at_most(reduced.extent, LONGEST_ROW)
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
