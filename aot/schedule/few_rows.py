"""Fuses pointwise kernels into the products of few rows that they read.

A decode step multiplies one row by weights, applies the rotary embedding to query and key, and
writes key and value into their caches; a second launch for that reads a few numbers that the first
one has just stored. If each element that it stores needs one column of the product, or two at a
fixed distance, the program that has both columns stores it:

    y₁ = x₁·cos - x₂·sin,  y₂ = x₂·cos + x₁·sin,  of columns i and i + d/2 of a head, or 2i and 2i+1

The weights keep their layout. A program of few rows reads whole columns of them from anywhere, so
which columns are paired is an index in its kernel (`Group.distance`), and entry points that
multiply many rows read the same weights in their own order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node, walk
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import typical
from aotc.aot.schedule.columns import Columns, columns_of
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.domain import matmul_domain, operand_accesses
from aotc.aot.schedule.factors import is_computed_of, stored_factors
from aotc.aot.schedule.group import Part, Root
from aotc.aot.schedule.grow import matmul_symbols
from aotc.aot.schedule.materialize import MAX_ROOTS, Kernel, compared
from aotc.aot.schedule.trace import STORED, Access, Tracer, accesses
from aotc.aot.schedule.written_rows import is_in_any_order, memory_of_rows, rows_root, updated_by
from aotc.aot.traits import TargetTraits

# Of a product. Descriptors, by which tiles of more rows come, know no order of columns but that of
# memory: by the cost model products of 1,152 to 10,240 columns take up to 1.0 µs longer without
# them at 16 rows, 1.6 at 32 and 3.5 at 64, and a launch takes 2.
MOST_ROWS = 16
_FOLLOWED = frozenset({"pointwise", "view", "pad", "concat", "take", "gather"})


def with_columns_read(
    found: list[Kernel], graph: Graph, kept: Collection[Node], traits: TargetTraits
) -> list[Kernel]:
    """The kernels, with those that read products of few rows merged into these; nodes of `kept` are
    stored, whoever reads them."""
    products = [kernel for kernel in found if traits.is_gpu and _is_of_few_rows(kernel)]
    if not products:
        return found
    roots = {root for kernel in found for root in kernel.roots}
    readers: dict[Node, list[Kernel]] = {}
    for kernel in found:
        for node in _read(kernel, roots):
            readers.setdefault(node, []).append(kernel)
    products = [each for each in products if _has_fitting(each, readers, roots)]
    same = compared(graph) if products else ()  # numbers that are the same bits wherever read
    products = [each for each in products if each.roots[0] not in same]
    if not products:
        return found
    known = frozenset(graph.nodes())  # of a call's results those that are used
    cycles = Cycles(graph, ([each for each in row.roots if each in known] for row in found))
    left, joined = dict.fromkeys(found), list[Kernel]()
    for product in products:
        (tip,) = product.roots
        joining = _Joining(product, tip, roots)
        taken: set[Kernel] = set()
        for kernel in readers[tip]:
            if kernel not in left or not _may_join(kernel):
                continue
            together = [*product.roots, *_results(kernel)]
            used = [each for each in together if each in known]
            if len(together) <= MAX_ROOTS and not cycles.closes(used) and joining.takes(kernel):
                cycles.join(used)
                product.roots = together
                taken.add(kernel)
                del left[kernel]
        if taken:
            is_read = tip in kept or not taken.issuperset(readers[tip])
            _store_all(product, joining, is_read)
            joined.append(product)
    return [*left, *stored_factors(joined, roots, cycles, traits)]


def _store_all(product: Kernel, joining: _Joining, is_read: bool) -> None:
    """Have the product's kernel store all results, its own one if it is read elsewhere."""
    assert product.cluster is not None
    tip, *others = product.roots
    own = Root(tip, product.cluster.index[tip])
    product.roots = [tip, *others] if is_read else others
    product.placed = (own, *joining.placed) if is_read else tuple(joining.placed)
    product.distance = joining.distance


def _is_of_few_rows(kernel: Kernel) -> bool:
    """Whether a kernel is a product of few rows, stored as a matrix and nowhere else."""
    if kernel.kind != "matmul" or kernel.cluster is None or len(kernel.roots) > 1:
        return False
    root_op, (tip,) = kernel.cluster.root_op, kernel.roots
    if root_op.kind != "matmul" or kernel.cluster.column_group > 1:
        return False
    batch, rows, columns, _ = matmul_symbols(root_op)
    if batch.extent != 1 or typical(rows.extent) > MOST_ROWS or not isinstance(columns.extent, int):
        return False
    offset = ix.linear(kernel.cluster.index[tip], tip.shape)
    return columns.extent > 1 and offset == ix.of(rows) * columns.extent + ix.of(columns)


def _has_fitting(
    product: Kernel, readers: Mapping[Node, Sequence[Kernel]], roots: Collection[Node]
) -> bool:
    """Whether kernels read a product that may join it; a convolution has kernels of its own."""
    assert product.cluster is not None
    before = walk((product.cluster.root_op.inputs[0],), roots)
    is_plain = not any(node.op == "window" for node in before)
    return is_plain and any(map(_may_join, readers.get(product.roots[0], ())))


def _may_join(kernel: Kernel) -> bool:
    return kernel.kind in ("pointwise", "call")


def _results(kernel: Kernel) -> list[Node]:
    """What a kernel stores; of a call all its results."""
    if kernel.kind != "call":
        return kernel.roots
    call = kernel.roots[0].result(0)
    return [call.result(at) for at in range(len(call.attr("results")))]


def _read(kernel: Kernel, roots: Collection[Node]) -> Iterable[Node]:
    """The results of other kernels that a kernel reads."""
    own, found = set(kernel.roots), dict[Node, None]()
    waiting, seen = [each for root in kernel.roots for each in root.inputs], set[Node]()
    while waiting:
        node = waiting.pop()
        if node in seen or node in own or node.op in STORED:
            continue
        seen.add(node)
        if node in roots:
            found[node] = None
        else:
            waiting += node.inputs
    return found


@dataclass(slots=True)
class _Joining:
    """A product and the kernels that are merged into it: what it then stores besides its own
    result."""

    product: Kernel
    tip: Node
    roots: Collection[Node]
    placed: list[Root] = field(default_factory=list)
    distance: int = 0
    parts: dict[tuple[int, Index], Part] = field(default_factory=dict)

    def takes(self, kernel: Kernel) -> bool:
        """Whether the product can store what a kernel stores; from then on it does."""
        nodes = _results(kernel)
        own = {*self.product.roots, *nodes}
        if kernel.kind == "call" and not is_in_any_order(nodes[0]):
            return False
        # What is updated must be there before any of the programs writes into it.
        if own & {memory for node in nodes if node.kind == "call" for memory in updated_by(node)}:
            return False
        before, placed = self.distance, []
        for node in nodes:
            root = self._placed(node, own)
            if root is None:
                self.distance = before
                return False
            placed.append(root)
        self.placed += placed
        return True

    def _placed(self, node: Node, own: Collection[Node]) -> Root | None:
        """A result at the columns that it needs; None if it needs others."""
        memory = memory_of_rows(node) if node.kind == "call" else node
        if memory is None or node.op == "check":
            return None
        _, rows, columns, _ = self._symbols()
        if memory is self.tip:
            symbol, part = columns, None
        else:
            found = self._part(memory, own)
            if found is None:
                return None
            part = None if found.symbol == columns else found
            symbol = found.symbol
        element = ix.of(rows) * symbol.extent + ix.of(symbol)
        index = ix.unravel(element, memory.shape)
        if node.kind == "call":
            root = rows_root(node, node.attr("result"), index)
            return Root(node, root.index, root.rows, part)
        return Root(node, index, None, part)

    def _symbols(self) -> tuple[Symbol, Symbol, Symbol, Symbol]:
        assert self.product.cluster is not None
        return matmul_symbols(self.product.cluster.root_op)

    def _part(self, memory: Node, own: Collection[Node]) -> Part | None:
        """The columns that the elements of a row of `memory` stand for."""
        _, rows, columns, _ = self._symbols()
        count = typical(memory.type.numel) // typical(rows.extent)
        if count < 2 or memory.type.numel != rows.extent * count:
            return None
        element = Symbol("element", count)
        index = ix.unravel(ix.of(rows) * count + ix.of(element), memory.shape)
        needs = _needs(Access(memory, index), self.tip, lambda n: n in self.roots and n not in own)
        if needs is None:
            return None
        width = columns.length
        read = (ix.linear(need.index, need.node.shape) - ix.of(rows) * width for need in needs)
        conditions = (need.conditions for need in needs)
        found = columns_of(tuple(zip(read, conditions, strict=True)), element, width)
        if found is None or not self._may_meet(found.distance):
            return None
        self.distance = self.distance or found.distance
        return self._named(found, count, columns)

    def _named(self, found: Columns, count: int, columns: Symbol) -> Part:
        """The part with a symbol of its own; equal ones are one."""
        element, conditions = found.element_of(columns)
        if element == ix.of(columns) and count == columns.extent:
            return Part(columns, element, (), element)
        key = count, element
        if key not in self.parts:
            symbol = Symbol(f"part{len(self.parts)}", count)
            self.parts[key] = Part(symbol, element, conditions, found.column_of(symbol))
        return self.parts[key]

    def _may_meet(self, distance: int) -> bool:
        """Whether columns at this distance may be paired in the product's programs: if all pairs
        have one distance, and weights are still read along the depth by whole vectors."""
        if distance == 0:
            return True
        if self.distance:
            return distance == self.distance
        assert self.product.cluster is not None
        return distance == 1 or _is_along_depth(self.product.cluster.root_op, self.roots)


def _is_along_depth(root_op: Node, roots: Collection[Node]) -> bool:
    """Whether neighbours in memory of a product's right operand belong to one column."""
    domain = matmul_domain(root_op)
    assert domain.reduced is not None
    right = operand_accesses(root_op, domain, (ix.ZERO,) * (root_op.type.rank - 2))[1]
    tracer = Tracer(lambda node: node in roots)
    tracer.visit(right.node, right.index)
    offsets = [ix.linear(need.index, need.node.shape) for need in tracer.accesses]
    varying = [offset for offset in offsets if domain.reduced in offset.symbols()]
    return all(offset.stride(domain.lanes) not in (None, 1) for offset in varying)


def _needs(need: Access, tip: Node, is_boundary: Callable[[Node], bool]) -> list[Access] | None:
    """Where the tip is read, and under which conditions; None where it is read in other ways."""
    reads: dict[Node, bool] = {tip: True}
    found: dict[Access, None] = {}
    waiting, seen = [need], set[Access]()
    while waiting:
        at = waiting.pop()
        node = at.node
        if at in seen or not is_computed_of(node, reads, is_boundary):
            continue
        seen.add(at)
        if node is tip:
            found[at] = None
            continue
        if node.kind not in _FOLLOWED:
            return None
        for inner in accesses(node, at.index):
            conditions = tuple(dict.fromkeys((*at.conditions, *inner.conditions)))
            waiting.append(Access(inner.node, inner.index, conditions))
    return list(found)
