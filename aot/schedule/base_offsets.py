"""Where a kernel's reads of a buffer begin, so that its pointer is given from there.

Steps of a recurrence read one buffer at places of their own, and are one kernel so: the place is in
the launch, not in the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.schedule.trace import Access

Starts = tuple[tuple[Node, int], ...]


def starts(accesses: Iterable[Access], movable: Collection[Node]) -> Starts:
    """Elements before the first one that any access reads, of the `movable` nodes with such.

    Only a buffer of the arena is movable: inputs, outputs and weights are given as they begin.
    """
    first: dict[Node, int] = {}
    for access in accesses:
        node = access.node
        if node not in movable:
            continue
        low, high = ix.linear(access.index, node.shape).bounds()
        start = 0
        # Of an access that only a condition keeps inside its buffer, the bounds say nothing; of one
        # of dynamic size, too little.
        if isinstance(low, int) and isinstance(high, int) and isinstance(node.type.numel, int):
            start = low if 0 <= low <= high < node.type.numel else 0
        first[node] = min(start, first.get(node, start))
    return tuple((node, low) for node, low in first.items() if low > 0)
