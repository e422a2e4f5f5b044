"""Fuses `scatter_rows` into the pointwise kernel that computes the rows.

A decode step applies the rotary embedding to query and key, and writes key and value into their
caches. A `scatter_rows` of its own is a launch that reads the few numbers that the launch before it
has stored. If no two rows go to one place, their order does not matter, and whoever computes an
element also stores it at its place: the rows of a kernel's own result, and those of the other
tensor that the op writes at the same places.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.index import Bound, Index, bound
from aotc.aot.ir.size import Extent, Shape, is_static, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.ir.viewed import strides_of
from aotc.aot.schedule.cycles import Cycles
from aotc.aot.schedule.group import Root, WrittenRows
from aotc.aot.schedule.materialize import MAX_ROOTS, Kernel
from aotc.aot.schedule.trace import Access, loaded_symbol


class _Tensor(NamedTuple):
    """Where an operand lies: in which memory, from which element on, in which steps."""

    memory: Node
    start: Extent
    shape: Shape
    strides: Shape


class _Write(NamedTuple):
    """One tensor that a `scatter_rows` writes rows into."""

    data: _Tensor
    places: _Tensor
    rows: _Tensor
    axis: int

    @property
    def row_dims(self) -> slice:
        """The dims of the rows that count them."""
        inside = len(self.data.shape) - self.axis - 1
        return slice(self.axis, len(self.rows.shape) - inside)


def with_rows_stored(found: list[Kernel], graph: Graph, stored: Collection[Node]) -> list[Kernel]:
    """The kernels, those of `scatter_rows` joined with the pointwise kernels of their rows.

    What only such an op reads is not stored by itself, unless it is among `stored`.
    """
    owner = {root: kernel for kernel in found for root in kernel.roots}
    fitting = [kernel for kernel in found if is_in_any_order(kernel.roots[0])]
    if not fitting:
        return found
    cycles, users = Cycles(graph, (kernel.roots for kernel in found)), graph.users()
    kept = dict.fromkeys(found)
    for kernel in fitting:
        call = kernel.roots[0].result(0)
        for number, write in enumerate(_writes(call)):
            source, home = write.rows.memory, owner.get(write.rows.memory)
            if home is None or not _may_store(home, call, number):
                continue
            together = [*home.roots, *kernel.roots]
            if cycles.closes(together):
                continue
            cycles.join(together)
            others = (user for user in users[source] if user.kind != "call")
            is_read = source in stored or any(others) or _calls(users[source]) != {call}
            results = [call.result(at) for at in range(len(call.attr("results")))]
            home.elements, home.rows_of[call] = source.shape, number
            home.roots = [root for root in home.roots if root is not source or is_read] + results
            owner |= dict.fromkeys(results, home)
            del kept[kernel]
            break
    return list(kept)


def _calls(nodes: Collection[Node]) -> set[Node]:
    """The first results of the calls among nodes."""
    return {node.result(0) for node in nodes if node.kind == "call"}


def is_in_any_order(call: Node) -> bool:
    """Whether a node is rows that are written, each to a place of its own."""
    if call.op != "placed" or call.attr("function") != "scatter_rows":
        return False
    write = _writes(call)[0]
    how = dict(call.attr("stored")[0][1])
    is_distinct = bool(prod(write.rows.shape[write.row_dims]) == how["distinct"])
    return bool(how["merge"] == "replace") and is_distinct


def _may_store(home: Kernel, call: Node, number: int) -> bool:
    """Whether a kernel that stores the memory of a result's rows can store the rows as well."""
    writes = _writes(call)
    if home.kind != "pointwise" or len(home.roots) + len(writes) > MAX_ROOTS:
        return False
    # What is updated must be there before any of the programs writes into it.
    is_updated = any(write.data.memory in home.roots for write in writes)
    return not is_updated and _coordinates(writes[number].rows) is not None


def _writes(call: Node) -> list[_Write]:
    """What each result of a `scatter_rows` is made of."""
    found = []
    for _, attributes, operands, _ in call.attr("stored"):
        places = (call.attr("operands")[number] for number in operands)
        data, index, rows = (_Tensor(call.inputs[number], *rest) for number, *rest in places)
        found.append(_Write(data, index, rows, dict(attributes)["axis"]))
    return found


class _Coordinate(NamedTuple):
    """A dim of rows in their memory: element // `step` % `extent` is the dim's index + `first`."""

    axis: int
    step: Extent
    extent: Extent | None  # None: of the outermost one
    first: int


def _coordinates(rows: _Tensor) -> list[_Coordinate] | None:
    """The dims of rows by the elements of their memory, outermost first; None where one element
    may be several of the rows', or dims have no fixed steps."""
    if rows.start == 0 and _is_whole(rows):
        return []
    dims = [at for at, extent in enumerate(rows.shape) if extent != 1]
    steps = [rows.strides[at] for at in dims]
    if not is_static((rows.start, *steps)):
        return None
    dims.sort(key=lambda at: -typical(rows.strides[at]))
    found: list[_Coordinate] = []
    left, outer = typical(rows.start), 0
    for axis in dims:
        step, extent = typical(rows.strides[axis]), rows.shape[axis]
        if step == 0 or outer % step:
            return None
        first, left = left // step, left % step
        inside = outer // step if outer else None
        if inside is not None and (not isinstance(extent, int) or first + extent > inside):
            return None
        found.append(_Coordinate(axis, step, inside, first))
        outer = step
    return found if outer == 1 else None


def _is_whole(rows: _Tensor) -> bool:
    """Whether the rows are all of their memory, in its order."""
    return rows.strides == strides_of(rows.shape) and prod(rows.shape) == rows.memory.type.numel


def _position(rows: _Tensor, element: Index) -> tuple[tuple[Index, ...], tuple[Bound, ...]]:
    """The index among the rows of an element of their memory, and when it is one of them."""
    coordinates = _coordinates(rows)
    if not coordinates:
        return ix.unravel(element, rows.shape), ()
    index, conditions = [ix.ZERO] * len(rows.shape), list[Bound]()
    for axis, step, extent, first in coordinates:
        at = element // step - first if extent is None else element // step % extent - first
        index[axis] = at
        condition = bound(at, 0, rows.shape[axis])
        if condition is not None:
            conditions.append(condition)
    return tuple(index), tuple(conditions)


def rows_root(node: Node, number: int, domain_index: tuple[Index, ...]) -> Root:
    """What is stored of a result of `scatter_rows` by the kernel that computes the rows of the
    result `number`, at an element of their memory."""
    writes = _writes(node)
    write, home = writes[int(node.attr("result"))], writes[number].rows
    element = ix.linear(domain_index, home.memory.shape)
    position, conditions = _position(home, element)
    if write.rows == home:
        value = Access(home.memory, domain_index)
    else:
        value = Access(write.rows.memory, _index_of(write.rows, position), conditions)
    counted = write.row_dims
    row = ix.linear(position[counted], home.shape[counted])
    is_shared = prod(write.places.shape) == prod(home.shape[counted])
    at = row if is_shared else ix.linear(position, home.shape)  # else each element has its own
    place = Access(write.places.memory, ix.unravel(at, write.places.memory.shape), conditions)
    loaded = loaded_symbol((at,), write.data.shape[write.axis])
    index = (*position[: counted.start], ix.of(loaded), *position[counted.stop :])
    return Root(node, index, WrittenRows(value, place, loaded, conditions))


def memory_of_rows(node: Node) -> Node | None:
    """The tensor that has the rows of a result of `scatter_rows`, if each of its elements is one of
    them at most."""
    rows = _writes(node)[int(node.attr("result"))].rows
    return None if _coordinates(rows) is None else rows.memory


def updated_by(node: Node) -> tuple[Node, ...]:
    """The memory that a call updates."""
    return tuple(write.data.memory for write in _writes(node))


def _index_of(rows: _Tensor, position: Sequence[Index]) -> tuple[Index, ...]:
    """The index into their memory of an element of the rows."""
    element = ix.constant(rows.start)
    for at, step in zip(position, rows.strides, strict=True):
        element = element + at * step
    return ix.unravel(element, rows.memory.shape)


def written_bytes(root: Root) -> int:
    """Bytes of the rows that are stored as a root."""
    (rows, *_) = (write.rows for write in _writes(root.node))
    return typical(prod(rows.shape)) * DTYPES[root.node.dtype].itemsize_bytes


def updates_of(roots: Sequence[Node]) -> tuple[tuple[Node, Node], ...]:
    """What is in the memory of those roots that are written rows before these: (read, root)."""
    return tuple(
        (node.inputs[dict(node.attr("updates"))[node.attr("result")]], node)
        for node in roots
        if node.kind == "call"
    )
