"""Follows indices backwards through a group: which elements of its operands an element needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from aotc.aot.ir import access
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import Extent, Shape, typical
from aotc.aot.ir.viewed import through_view

_LOADED = "loaded by "
LEAVES = frozenset({"scalar", "extent", "iota"})
STORED = frozenset({"input", "constant"})
UNROLL_WINDOW = 64  # elements of a pooling window that are unrolled inside a pointwise kernel
UNROLL_CELL = 16  # elements of a cell, whose places are known, that are
UNROLL_PLAIN = 4  # elements of any other reduction that are
LONG_WINDOW = 16  # neighbouring elements of one window that are read as a row,
FAR_APART = 4  # where the windows beside it begin so many elements on


@dataclass(frozen=True, slots=True)
class Access:
    """One operand's index, and the conditions under which its value is used."""

    node: Node
    index: tuple[Index, ...]
    conditions: tuple[Bound, ...] = ()


Boundary = Callable[[Node], bool]
Contract = Callable[[Node, tuple[Index, ...]], list[Access]]


def accesses(node: Node, index: Sequence[Index]) -> list[Access]:
    """What `node` at `index` reads of each operand, for every kind but reductions and matmuls.

    The element that `take` and `gather` load is an unknown symbol here.
    """
    position = tuple(index)
    if node.kind in ("pointwise", "check"):
        return [
            Access(operand, access.through_broadcast(position, node.shape, operand.shape))
            for operand in node.inputs
        ]
    if node.kind == "concat":
        extents = [operand.shape[node.attr("axis")] for operand in node.inputs]
        rows = access.through_concat(position, node.attr("axis"), extents)
        return [
            Access(operand, inner, (condition,) if condition else ())
            for operand, (inner, condition) in zip(node.inputs, rows, strict=True)
        ]
    if node.kind in ("take", "gather"):
        return _accesses_of_lookup(node, position)
    return [_through_view(node, position)] if node.inputs else []


def _through_view(node: Node, index: tuple[Index, ...]) -> Access:
    source = node.inputs[0]
    if node.op == "pad":
        inner, conditions = access.through_pad(index, node.attr("low"), source.shape)
        return Access(source, inner, tuple(conditions))
    return Access(source, through_view(node, index))


def lookup_index(node: Node, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """Index into the second operand of `take` or `gather`."""
    if node.op == "gather":
        return index
    axis = node.attr("axis")
    return index[axis : axis + len(node.inputs[1].shape)]


def data_index(node: Node, index: tuple[Index, ...], loaded: Index) -> tuple[Index, ...]:
    """Index into the first operand of `take` or `gather`, given the value of the second."""
    axis = node.attr("axis")
    if node.op == "gather":
        return (*index[:axis], loaded, *index[axis + 1 :])
    return access.through_take(index, axis, len(node.inputs[1].shape), loaded)


def _accesses_of_lookup(node: Node, index: tuple[Index, ...]) -> list[Access]:
    data, indices = node.inputs
    where = lookup_index(node, index)
    loaded = ix.of(loaded_symbol(where, data.shape[node.attr("axis")]))
    return [Access(indices, where), Access(data, data_index(node, index, loaded))]


def loaded_symbol(where: Sequence[Index], extent: Extent) -> Symbol:
    """What stands for an index that is loaded from a place."""
    behind = sorted({symbol.name for part in where for symbol in part.symbols()})
    return Symbol(f"{_LOADED}{' '.join(behind)}", extent)


def inverse(node: Node, index: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """Index of the result of a view, given the operand's; None where it is no bijection."""
    if node.op == "reshape":
        return access.through_reshape(index, node.inputs[0].shape, node.shape)
    if node.op == "permute":
        return tuple(index[dim] for dim in node.attr("dims"))
    if node.op == "expand" and node.shape == node.inputs[0].shape:
        return index
    return None


def reduced_extents(node: Node) -> Shape:
    """Extents of the reduced axes of a reduction's operand."""
    return tuple(node.inputs[0].shape[axis] for axis in node.attr("axes"))


def kept_extents(node: Node) -> Shape:
    """Extents of the other axes."""
    axes = node.attr("axes")
    return tuple(dim for axis, dim in enumerate(node.inputs[0].shape) if axis not in axes)


def is_unrolled(node: Node) -> bool:
    """Whether a reduction is so small that it is written out inside a pointwise kernel."""
    if node.kind != "reduce" or REDUCTIONS[node.op].result:
        return False
    count = prod(reduced_extents(node))
    if not isinstance(count, int):
        return False
    if count <= UNROLL_PLAIN or (count <= UNROLL_WINDOW and _reads_window(node.inputs[0])):
        return True
    return count <= UNROLL_CELL and _reads_cells(node.inputs[0])


def is_window_sum(node: Node) -> bool:
    """Whether an unrolled reduction is a convolution of each channel by itself."""
    return is_unrolled(node) and node.inputs[0].op == "mul" and _reads_window(node.inputs[0])


def window_terms(nodes: Iterable[Node]) -> int:
    """Terms of the longest such sum among the nodes, 0 where there is none."""
    sums = (typical(prod(reduced_extents(node))) for node in nodes if is_window_sum(node))
    return max(sums, default=0)


def _reads_window(node: Node) -> bool:
    if node.op == "window":
        return not _are_rows(node)
    if node.op == "mul":  # a convolution of each channel by itself
        return any(map(_reads_window, node.inputs))
    return node.kind in ("view", "pad") and _reads_window(node.inputs[0])


def _reads_cells(node: Node) -> bool:
    """Whether the elements are those at places that a table has, or fillers."""
    if node.op == "where":
        return any(map(_reads_cells, node.inputs))
    if node.op == "take":
        return node.inputs[1].op == "constant"
    return node.kind == "view" and _reads_cells(node.inputs[0])


def _are_rows(node: Node) -> bool:
    """Whether elements of a window lie together, and the same ones of its neighbours do not."""
    is_last = node.attr("axes")[-1] == len(node.inputs[0].shape) - 1
    step, dilation = node.attr("strides")[-1], node.attr("dilations")[-1]
    is_long = bool(node.attr("sizes")[-1] >= LONG_WINDOW)
    return is_last and is_long and dilation == 1 and bool(step >= FAR_APART)


def reduction_index(node: Node, kept: Index, reduced: Index) -> tuple[Index, ...]:
    """Index of a reduction's operand: kept axes from one linear position, reduced from another."""
    outer = iter(ix.unravel(kept, kept_extents(node)))
    inner = iter(ix.unravel(reduced, reduced_extents(node)))
    axes = node.attr("axes")
    return tuple(next(inner if at in axes else outer) for at in range(len(node.shape)))


@dataclass(slots=True)
class Tracer:
    """Walks from roots to the `boundary`; notes each access to it, the index of each stop and the
    conditions on the way."""

    boundary: Boundary
    contract: Contract | None = None
    accesses: dict[Access, None] = field(default_factory=dict)
    visited: dict[tuple[Node, tuple[Index, ...]], None] = field(default_factory=dict)
    conditions: dict[Bound, None] = field(default_factory=dict)

    def visit(self, node: Node, index: tuple[Index, ...]) -> None:
        """Follow `node` at `index` to all that it reads."""
        if (node, index) in self.visited or node.op in LEAVES:
            return
        if node.op in STORED or self.boundary(node):
            self.accesses[Access(node, index)] = None
            return
        for need in self._needs(node, index):
            self.conditions |= dict.fromkeys(need.conditions)
            self.visit(need.node, need.index)
        self.visited[node, index] = None

    def _needs(self, node: Node, index: tuple[Index, ...]) -> list[Access]:
        if node.kind not in ("reduce", "matmul", "matmul_packed", "attention"):
            return accesses(node, index)
        if is_unrolled(node):
            return [Access(node.inputs[0], unrolled_index(node, index))]
        return self.contract(node, index) if self.contract else []


Structure = tuple[tuple[Any, ...], ...]


def structure(roots: Sequence[Node], boundary: Boundary) -> Structure:
    """What the roots compute of the boundary's nodes, of which the types alone count: equal for
    those whose accesses are equal but for the nodes that they name."""
    numbers: dict[Node, int] = {}
    rows: list[tuple[Any, ...]] = []

    def number(node: Node) -> int:
        if node not in numbers:
            if node.op in STORED or boundary(node):
                row: tuple[Any, ...] = ("", node.type)
            else:
                row = (node.op, node.identity, *map(number, node.inputs))
            numbers[node] = len(rows)
            rows.append(row)
        return numbers[node]

    return (tuple(map(number, roots)), *rows)


def unrolled_index(node: Node, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """Index of a small reduction's operand, reduced axes as symbols that stand for constants."""
    axes, source = node.attr("axes"), node.inputs[0].shape
    return tuple(
        ix.symbol(f"window{axis}", source[axis]) if axis in axes else index[axis]
        for axis in range(len(source))
    )


def viewed(node: Node) -> Node:
    """What a node's elements are, but for how they are arranged."""
    while node.kind == "view":
        node = node.inputs[0]
    return node


def is_loaded(symbol: Symbol) -> bool:
    """Whether it stands for an index that is loaded, not for a loop."""
    return symbol.name.startswith(_LOADED)


def loaded_by(symbol: Symbol) -> frozenset[str]:
    """Names of the symbols that a loaded index varies with; none of a loop symbol, nor of an index
    that is the same everywhere."""
    if not is_loaded(symbol):
        return frozenset()
    return frozenset(symbol.name.removeprefix(_LOADED).split())


def behind_views(need: Access) -> tuple[Access, list[Node]]:
    """What is read behind the views of an operand, and these, the outermost first."""
    views = []
    while need.node.kind == "view":
        views.append(need.node)
        (need,) = accesses(need.node, need.index)
    return need, views
