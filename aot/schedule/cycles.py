"""Decides whether nodes can be stored by one kernel without a dependency cycle between kernels.

Sets of nodes are bit sets (integers), in the graph's order: the ancestors and the descendants of a
node. A kernel of several roots counts as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aotc.aot.ir.graph import Graph, Node


class Cycles:
    """The roots of all kernels so far. The walk that makes them goes from the outputs backwards."""

    def __init__(self, graph: Graph, kernels: Iterable[Sequence[Node]]) -> None:
        nodes = graph.nodes()
        self._nodes = nodes
        self._order = {node: number for number, node in enumerate(nodes)}
        self._needed = self._closed(nodes, {node: node.inputs for node in nodes})
        self._needing = self._closed(nodes[::-1], graph.users())
        self._roots = 0
        self._shared = 0  # roots of kernels with several
        self._together: dict[int, tuple[Node, ...]] = {}  # number of such a root → all of them
        self._open: dict[tuple[Node, ...], None] = {}  # those that the walk is in the midst of
        for roots in kernels:
            self.join(roots)

    def _closed(
        self, nodes: Sequence[Node], edges: dict[Node, tuple[Node, ...]]
    ) -> dict[Node, int]:
        found: dict[Node, int] = {}
        for node in nodes:
            bits = 0
            for other in edges[node]:
                bits |= found[other] | (1 << self._order[other])
            found[node] = bits
        return found

    def add(self, root: Node) -> None:
        """Add a kernel with one root."""
        self._roots |= 1 << self._order[root]

    def join(self, roots: Sequence[Node]) -> None:
        """Add a kernel with these roots, in place of those that had some of them."""
        mask = self._mask(roots)
        self._roots |= mask
        if len(roots) == 1:
            return
        self._shared |= mask
        whole = tuple(roots)
        for root in roots:
            before = self._together.get(self._order[root])
            if before is not None:
                self._open.pop(before, None)
            self._together[self._order[root]] = whole
        self._open[whole] = None

    def passed(self, roots: Sequence[Node]) -> None:
        """Note that the walk has visited all of these roots: what it visits from now on precedes
        them."""
        self._open.pop(tuple(roots), None)

    def closes(self, roots: Sequence[Node]) -> bool:
        """Whether a kernel of these roots would depend on itself through another kernel."""
        ours = self._mask(roots)
        needed = self._any(self._needed, roots)
        needing = self._any(self._needing, roots)
        if needed & needing & self._roots & ~ours:
            return True
        low = min(self._order[root] for root in roots)
        seen = {self._together.get(self._order[root]) for root in roots}
        waiting = list(self._between(needed, low))
        for kernel in waiting:  # which grows
            if kernel in seen or set(kernel) <= set(roots):
                continue
            seen.add(kernel)
            behind = self._any(self._needed, kernel)
            if behind & ours or behind & needing & self._roots & ~ours:
                return True
            waiting.extend(self._between(behind, low))
        return False

    def leads(self, first: Sequence[Node], second: Sequence[Node]) -> bool:
        """Whether one of the second nodes depends on one of the first."""
        return bool(self._any(self._needed, second) & self._mask(first))

    def inside(self, roots: Sequence[Node], node: Node) -> list[Node]:
        """What a node needs that needs one of these roots."""
        bits = self._any(self._needing, roots) & self._needed[node]
        found = []
        while bits:
            lowest = bits & -bits
            found.append(self._nodes[lowest.bit_length() - 1])
            bits ^= lowest
        return found

    def _between(self, bits: int, low: int) -> Iterator[tuple[Node, ...]]:
        """Kernels of several roots among `bits` that may lead to what is at `low` or later."""
        found = (bits & self._shared) >> low
        while found:
            lowest = found & -found
            yield self._together[low + lowest.bit_length() - 1]
            found ^= lowest
        for kernel in self._open:
            if self._mask(kernel) & bits:
                yield kernel

    def _mask(self, nodes: Iterable[Node]) -> int:
        bits = 0
        for node in nodes:
            bits |= 1 << self._order[node]
        return bits

    def _any(self, table: dict[Node, int], nodes: Iterable[Node]) -> int:
        bits = 0
        for node in nodes:
            bits |= table[node]
        return bits
