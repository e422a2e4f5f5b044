"""Values that several products of few rows share as factors, such as sines, computed once for all.

All layers apply the rotary embedding with the same angles. A pointwise kernel computes one sine in
each thread. In a product of few rows the threads divide the depth, and each computes all elements
of its tile, one after the other, when the sums are complete. So sines are expensive there, and from
some number of layers on a separate launch that stores them for all layers is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Shape, typical
from aotc.aot.schedule.cost import chain
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.grow import matmul_symbols
from aotc.aot.schedule.materialize import MAX_ROOTS, Kernel
from aotc.aot.schedule.trace import LEAVES, STORED
from aotc.aot.schedule.written_rows import memory_of_rows
from aotc.aot.traits import TargetTraits

OPERATION_NS = 2.0  # of one thread, where each waits for the one before: four cycles
TILE_COLUMNS = 2  # of a program's tile, at least

Boundary = Callable[[Node], bool]


def stored_factors(
    products: Sequence[Kernel], roots: Collection[Node], cycles: Cycles, traits: TargetTraits
) -> list[Kernel]:
    """Kernels for values that several products compute independently of their sums, where computing
    them in each product takes longer than a launch; `roots` are stored anyway."""
    costs: dict[Node, list[float]] = {}
    for product in products:
        assert product.cluster is not None
        rows = typical(matmul_symbols(product.cluster.root_op)[1].extent)
        for node in _factors(product, roots):
            work = chain(node, roots)[0] * rows * TILE_COLUMNS
            costs.setdefault(node, []).append(work * OPERATION_NS)
    together: dict[Shape, list[Node]] = {}
    for node, rows_ns in costs.items():
        if len(rows_ns) > 1:
            together.setdefault(node.shape, []).append(node)
    found: list[Kernel] = []
    for nodes in together.values():
        for part in _in_any_order(nodes[:MAX_ROOTS], cycles):
            if sum(sum(costs[node]) for node in part) > traits.launch_ns:
                cycles.join(part)
                found.append(Kernel(part))
    return found


def _in_any_order(nodes: list[Node], cycles: Cycles) -> list[list[Node]]:
    """The nodes in one kernel, or each in a kernel of its own if one kernel would depend on
    itself."""
    is_one = len(nodes) == 1 or not cycles.closes(nodes)
    return [nodes] if is_one else [[node] for node in nodes]


def _factors(product: Kernel, roots: Collection[Node]) -> Iterable[Node]:
    """What a product computes elementwise without its sum, to combine with the sum."""
    assert product.cluster is not None
    own, tip = set(product.roots), product.cluster.tip
    reads, found, seen = {tip: True}, dict[Node, None](), {tip}
    memories = (memory_of_rows(node) if node.kind == "call" else node for node in own)
    waiting = [node for node in memories if node is not None]

    def is_boundary(node: Node) -> bool:
        return node in roots and node not in own

    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        for operand in node.inputs:
            if is_computed_of(operand, reads, is_boundary):
                waiting.append(operand)
                continue
            while operand.kind == "view":
                (operand,) = operand.inputs
            if operand.kind == "pointwise" and operand not in roots:
                found[operand] = None
    return found


def is_computed_of(root: Node, known: dict[Node, bool], is_boundary: Boundary) -> bool:
    """Whether a value depends on one of those that are known to count; adds to `known`."""
    waiting = [root]
    while waiting:
        node = waiting[-1]
        if node not in known and (node.op in STORED | LEAVES or is_boundary(node)):
            known[node] = False
        unknown = [] if node in known else [each for each in node.inputs if each not in known]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        if node not in known:
            known[node] = any(known[each] for each in node.inputs)
    return known[root]
