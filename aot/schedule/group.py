"""Group and Schedule: which nodes share a kernel, over which domain, and the text form of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.schedule.trace import LEAVES, Access

GroupKind = Literal["pointwise", "row", "matmul", "attention", "call", "torch", "control"]
UNLAUNCHED = ("torch", "control")  # kinds of groups that no kernel is made of
LONGEST = 3  # operations in a name
WORK_KINDS = ("pointwise", "reduce", "check")


@dataclass(frozen=True, slots=True)
class Domain:
    """Loop symbols of a kernel: one program axis, two tile dims, one of them or a third reduced.

    pointwise: rows x, lanes y. row: rows x, lanes r (reduced); where the kept dim is the contiguous
    one: outer z, rows r (reduced), lanes y. matmul: outer z (batch), rows x, lanes y, reduced k.
    attention: outer z (heads), rows x (queries), lanes y (elements of a value), reduced s (keys).
    """

    outer: Symbol
    rows: Symbol
    lanes: Symbol
    reduced: Symbol | None = None
    # Axes of a pointwise kernel's roots, outermost loop first; empty: in their own order.
    order: tuple[int, ...] = ()

    @property
    def is_reduced_in_lanes(self) -> bool:
        """Whether the reduced symbol is the last dim of the tile."""
        return self.reduced == self.lanes

    def __str__(self) -> str:
        parts = [symbol for symbol in (self.outer, self.rows, self.lanes) if symbol.extent != 1]
        if self.reduced not in (None, self.rows, self.lanes):
            parts.append(self.reduced)
        return "×".join(str(symbol.extent) for symbol in parts) or "1"


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What is written at some of the domain's elements, each to a place of its own."""

    value: Access
    place: Access  # the index along one dim, of which those outside of the tensor are left out
    loaded: Symbol  # it, in the index of the root
    conditions: tuple[Bound, ...]  # when an element is one of the rows


@dataclass(frozen=True, slots=True)
class Part:
    """Columns of a product that a root has elements for, which a symbol of its own counts."""

    symbol: Symbol
    element: Index  # the symbol's value at a column, in terms of the domain's lanes
    conditions: tuple[Bound, ...]  # when the column is one of them
    column: Index  # the column of an element, in terms of the symbol


@dataclass(frozen=True, slots=True)
class Root:
    """A node that the group stores, and its index in terms of the domain's symbols.

    rows: where the node is a tensor that rows are written into; the rest of it stays. part: where
    the node has elements for some of a product's columns; its symbol stands for the lanes then.
    """

    node: Node
    index: tuple[Index, ...]
    rows: WrittenRows | None = None
    part: Part | None = None

    @property
    def needs(self) -> tuple[Access, ...]:
        """What is computed to store it."""
        rows = self.rows
        return (Access(self.node, self.index),) if rows is None else (rows.value, rows.place)


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one kernel. `reads` are the buffers it loads, in the order of its parameters."""

    kind: GroupKind
    label: str  # what it is like: `softmax`, `layer_norm`, `matmul`, or its main operations
    domain: Domain
    # The matmul, attention or call of its group (of torch too), the first reduction of a row group.
    root_op: Node | None
    roots: tuple[Root, ...]
    nodes: tuple[Node, ...]  # all nodes computed here, inlined ones included, operands first
    reads: tuple[Node, ...]
    bytes: int  # moved between memory and the kernel, each buffer element once
    operations: int
    # What is updated: (the read that is in a root's memory before it, the root).
    updates: tuple[tuple[Node, Node], ...] = ()
    # Values of 16-bit types that are rounded before anything reads them.
    rounded: frozenset[Node] = frozenset()
    # Reads whose pointer is given some elements after the buffer's first one.
    starts: tuple[tuple[Node, int], ...] = ()
    # How far apart columns of the product lie that meet in a program; 0: none of them do.
    distance: int = 0
    # Of a `control`: the schedule of each of its bodies.
    bodies: tuple[Schedule, ...] = ()

    @property
    def blocks(self) -> tuple[tuple[str, tuple[Schedule, ...]], ...]:
        """Of a `control`: its control words in the order of a plan, each with the schedules that
        follow it; the first word is empty. The condition of a `while` is computed before the loop,
        and again at the end of its block, so that one iteration is one stretch of launches."""
        assert self.root_op is not None
        form = self.root_op.attr("form")
        if form == "branch":
            first, other = self.bodies
            return ("", ()), ("if", (first,)), ("else", (other,)), ("end", ())
        if form == "while":
            condition, body = self.bodies
            return ("", (condition,)), ("while", (body, condition)), ("end", ())
        return ("", ()), ("repeat", self.bodies), ("end", ())

    def start(self, node: Node) -> int:
        """The element of a read that its pointer is given from."""
        return dict(self.starts).get(node, 0)

    def __str__(self) -> str:
        work = [node.op for node in self.nodes if node.kind not in ("view", *LEAVES)]
        return f"{self.kind} {self.domain}: {self.label} [{', '.join(work)}]"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Groups in the order of execution. Every node a group reads is an input, a constant or a root.

    `stored` names for each graph output the root that holds it: the same elements in row-major
    order, under another shape at most.
    """

    graph: Graph
    groups: tuple[Group, ...]
    stored: tuple[Node, ...]

    @property
    def steps(self) -> tuple[Group, ...]:
        """One group for each step of a plan: of a `control` those of its bodies, and one for each
        mark, of its word alone."""
        return tuple(self._steps())

    def _steps(self) -> Iterator[Group]:
        for group in self.groups:
            if group.kind != "control":
                yield group
                continue
            mark = replace(group, roots=(), nodes=(), reads=(), bytes=0, operations=0, bodies=())
            for word, schedules in group.blocks:
                if word:
                    yield replace(mark, label=word, updates=())
                for each in schedules:
                    yield from each.steps

    @property
    def launched(self) -> tuple[Group, ...]:
        """The groups that become kernels: all but the calls of torch, those of bodies too."""
        return tuple(group for group in self.steps if group.kind not in UNLAUNCHED)

    def __str__(self) -> str:
        names: dict[Node, str] = {}
        lines = []
        for number, group in enumerate(self.groups):
            lines.append(f"{number}: {group}")
            lines.append(f"    reads {_listed(group.reads, names, dict(group.starts))}")
            for position, root in enumerate(group.roots):
                names[root.node] = f"%{number}.{position}" if len(group.roots) > 1 else f"%{number}"
            stores = ", ".join(f"{names[root.node]} {root.node.type}" for root in group.roots)
            lines.append(f"    stores {stores}")
            for body in group.bodies:
                lines += (f"        {line}" for line in str(body).splitlines())
        return "\n".join([*lines, f"return {_listed(self.stored, names)}"]) + "\n"


def _listed(
    nodes: tuple[Node, ...], names: dict[Node, str], starts: Mapping[Node, int] | None = None
) -> str:
    places = starts or {}
    known = (
        (names.get(node) or _outside(node)) + (f" from {places[node]}" if node in places else "")
        for node in nodes
    )
    return ", ".join(known) or "nothing"


def _outside(node: Node) -> str:
    """An input or a constant, or a result without elements, which no group stores."""
    return str(node.attr("name")) if node.op in ("input", "constant") else str(node.type)


def label(kind: str, nodes: tuple[Node, ...]) -> str:
    """`softmax`, `layer_norm`, `matmul_add_gelu`, `add_mul` … from the nodes of a kernel."""
    work = [node.op for node in nodes if node.kind in WORK_KINDS and node.op != "cast"]
    if kind == "row":
        return _row_label(work)
    if kind == "attention":
        (attention,) = (node for node in nodes if node.kind == "attention")
        if attention.attr("window"):
            return "window_attention"
        return "causal_attention" if attention.attr("causal") else "attention"
    if kind == "matmul":
        return "_".join([_matmul_name(nodes), *_after_matmul(nodes)[:LONGEST]])
    moved = [node.op for node in nodes if node.kind in ("pad", "concat", "take", "gather")]
    return "_".join(list(dict.fromkeys(moved + work))[:LONGEST]) or "copy"


def _row_label(work: list[str]) -> str:
    if {"max", "exp", "sum"} <= set(work):
        return "softmax"
    if {"rsqrt", "sqrt"} & set(work):
        return "layer_norm" if work.count("sum") > 1 else "rms_norm"
    return "_".join(list(dict.fromkeys(work))[:LONGEST])


def _matmul_name(nodes: tuple[Node, ...]) -> str:
    return "convolution" if any(node.op == "window" for node in nodes) else "matmul"


def _after_matmul(nodes: tuple[Node, ...]) -> list[str]:
    at = next(place for place, node in enumerate(nodes) if node.kind.startswith("matmul"))
    return [node.op for node in nodes[at:] if node.kind == "pointwise" and node.op != "cast"]
