"""Small pointwise kernels that wait for nothing of each other, several in one launch.

A launch costs a GPU some 2 µs, however little it does, and the host a node of a graph: a training
step counts the batches that each norm has seen, one number at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotc.aot.ir.graph import Graph
from aotc.aot.ir.size import Shape, proves_at_most
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.materialize import MAX_ROOTS, Kernel
from aotc.aot.traits import TargetTraits

SMALL = 4096  # elements that one program computes


def with_small_together(
    found: Iterable[Kernel], graph: Graph, traits: TargetTraits
) -> list[Kernel]:
    """The kernels for a GPU, small ones of one shape joined where neither leads to the other."""
    kernels = list(found)
    if not traits.is_gpu:
        return kernels
    known = set(graph.nodes())  # products of few rows may store others
    cycles = Cycles(graph, ([each for each in row.roots if each in known] for row in kernels))
    homes: dict[Shape, Kernel] = {}
    kept: list[Kernel] = []
    for kernel in kernels:
        if not _is_small(kernel) or not known.issuperset(kernel.roots):
            kept.append(kernel)
            continue
        shape = kernel.roots[0].shape
        home = homes.get(shape)
        roots = [*(home.roots if home else ()), *kernel.roots]
        if home is not None and len(roots) <= MAX_ROOTS and not cycles.closes(roots):
            home.roots[:] = roots
            cycles.join(roots)
            continue
        homes[shape] = kernel
        kept.append(kernel)
    return kept


def _is_small(kernel: Kernel) -> bool:
    is_plain = kernel.cluster is None and kernel.elements is None and not kernel.placed
    return (
        is_plain
        and all(root.op != "check" for root in kernel.roots)
        and proves_at_most(kernel.roots[0].type.numel, SMALL)
    )
