"""Horizontal fusion of small, independent pointwise kernels: several in one launch (GPU).

A launch takes a GPU some 2 µs, however little it does, and the host a node of a graph. A training
step, for example, increments the batch counter of each batch norm, one number at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.size import Shape, proves_at_most
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.materialize import MAX_ROOTS, Kernel
from aotc.aot.schedule.trace import LEAVES, STORED
from aotc.aot.traits import TargetTraits

SMALL = 4096  # elements that one program computes
FEW = 24  # nodes that such a kernel computes
# Read at one point for each element, so that a node is computed once.
PLAIN_VIEWS = frozenset({"reshape", "expand"})


def fuse_small_kernels(found: Iterable[Kernel], graph: Graph, traits: TargetTraits) -> list[Kernel]:
    """Merges small kernels for a GPU that have one shape and do not depend on each other."""
    kernels = list(found)
    if not traits.is_gpu:
        return kernels
    known = set(graph.nodes())  # products of few rows may store others
    stored = {root for kernel in kernels for root in kernel.roots}
    cycles = Cycles(graph, ([each for each in row.roots if each in known] for row in kernels))
    homes: dict[Shape, Kernel] = {}
    kept: list[Kernel] = []
    for kernel in kernels:
        if not known.issuperset(kernel.roots) or not _is_small(kernel, stored):
            kept.append(kernel)
            continue
        shape, own = kernel.roots[0].shape, list(kernel.roots)
        home = homes.get(shape)
        if home is not None and _is_apart(home.roots, own, cycles):
            home.roots += own
            cycles.join(home.roots)
            continue
        homes[shape] = kernel
        kept.append(kernel)
    return kept


def _is_apart(roots: list[Node], own: list[Node], cycles: Cycles) -> bool:
    """Whether one kernel can store both without computing any node of one for the other."""
    if len(roots) + len(own) > MAX_ROOTS or cycles.closes([*roots, *own]):
        return False
    return not cycles.leads(roots, own) and not cycles.leads(own, roots)


def _is_small(kernel: Kernel, stored: Collection[Node]) -> bool:
    """Whether a kernel computes a few nodes, once each, on no more elements than one program
    has."""
    if kernel.cluster is not None or kernel.elements is not None or kernel.placed:
        return False
    if not proves_at_most(kernel.roots[0].type.numel, SMALL):
        return False
    seen: set[Node] = set()
    waiting = list(kernel.roots)
    while waiting:
        node = waiting.pop()
        if node in seen or node.op in STORED or (node in stored and node not in kernel.roots):
            continue
        seen.add(node)
        is_plain = node.kind == "pointwise" or node.op in PLAIN_VIEWS or node.op in LEAVES
        if not is_plain or len(seen) > FEW:
            return False
        waiting += node.inputs
    return True
