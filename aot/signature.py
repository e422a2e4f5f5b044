"""The signature of a bundle: inputs, outputs, and what sizes obey where they are dynamic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from aotc.aot.errors import DimUnreadable
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.memory_order import NO_ORDERS, Order, Orders
from aotc.aot.ir.size import Dim, Extent, Guard, Size, content, divides, size_of
from aotc.aot.plan import SizeTable
from aotc.runtime.bundle import signature as runtime
from aotc.runtime.bundle.extent import Row
from aotc.runtime.bundle.manifest import Entry, TensorSpec
from aotc.runtime.bundle.signature import NO_SIZES, SessionDim, SessionSizes
from aotc.runtime.bundle.structure import PLAIN, Structure


@dataclass(frozen=True, slots=True)
class Signature:
    """What the manifest says of a call; the last three are empty where all shapes are fixed."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[runtime.Dim, ...] = ()
    sizes: tuple[Row, ...] = ()
    guards: tuple[runtime.Guard, ...] = ()

    def bind(
        self, shapes: Sequence[Sequence[int]], session: Mapping[str, int] = NO_SIZES
    ) -> list[int]:
        """The dims' sizes for these shapes of the inputs, as a call of a session reads them."""
        return self._read().bind(shapes, session)[: len(self.dims)]

    def outputs_at(
        self, shapes: Sequence[Sequence[int]], session: Mapping[str, int] = NO_SIZES
    ) -> tuple[TensorSpec, ...]:
        """The outputs for these shapes of the inputs."""
        read = self._read()
        return read.at(read.bind(shapes, session))[1]

    def entry(self, name: str, structure: Structure = PLAIN) -> Entry:
        """The manifest's row of an entry."""
        types = (self.dims, self.sizes, self.guards)
        return Entry(name, self.inputs, self.outputs, structure, *types)

    def _read(self) -> runtime.Signature:
        return runtime.Signature(self.inputs, self.outputs, self.dims, self.sizes, self.guards)


def signature(
    graph: Graph,
    dims: Sequence[Dim] = (),
    guards: Sequence[Guard] = (),
    others: Sequence[Dim] = (),
    orders: Orders = NO_ORDERS,
) -> Signature:
    """Names and types of inputs and outputs, as the manifest lists them, and their sizes.

    dims: those of the graph; others: those of all entries of the bundle, where it has several, in
    the order of its plans; orders: of memory, where it is not that of the graph's shapes. Raises
    `DimUnreadable` for one of `dims` that neither an input nor a state shows.
    """
    table = SizeTable(others or dims)
    inputs = _specs(graph.input_names, graph.given, table, orders.inputs)
    outputs = _specs(graph.output_names, graph.returned, table, orders.outputs)
    conditions = tuple(map(table.condition, guards))
    own = {dim.name: dim for dim in dims}
    read = tuple(
        _read(own[dim.name], graph) if dim.name in own else _elsewhere(dim)
        for dim in others or dims
    )
    return Signature(inputs, outputs, read, tuple(table.rows), conditions)


def _specs(
    names: Sequence[str], nodes: Sequence[Node], table: SizeTable, orders: Sequence[Order]
) -> tuple[TensorSpec, ...]:
    rows = zip(names, nodes, chain(orders, repeat(())), strict=False)  # those of states come last
    return tuple(
        TensorSpec(name, node.dtype, tuple(map(table.named, node.shape)), order)
        for name, node, order in rows
    )


def states(graphs: Sequence[Graph], dims: Sequence[Dim] = ()) -> SessionSizes:
    """Names and types of the states of all entries, each once, and the sizes that a session
    fixes."""
    state_nodes: dict[str, Node] = {}
    for graph in graphs:
        for state, node in zip(graph.states, graph.inputs[len(graph.given) :], strict=True):
            state_nodes.setdefault(state.name, node)
    names = {
        dim.name for node in state_nodes.values() for size in node.sizes() for dim in size.dims()
    }
    own = [dim for dim in dims if dim.name in names]
    table = SizeTable(own)
    specs = tuple(
        TensorSpec(name, node.dtype, tuple(map(table.named, node.shape)))
        for name, node in state_nodes.items()
    )
    sizes = tuple(SessionDim(dim.name, dim.low, dim.high, dim.typical) for dim in own)
    return SessionSizes(sizes, tuple(table.rows), specs)


def _read(dim: Dim, graph: Graph) -> runtime.Dim:
    """Where a call shows the dim: an input's dim that is a multiple of it, and a number."""
    found: list[tuple[int, int, int, int]] = []
    for place, node in enumerate(graph.given):
        for axis, extent in enumerate(node.shape):
            linear = _linear(extent, dim)
            if linear is not None:
                found.append((*linear, place, axis))
    if found:
        scale, offset, place, axis = min(found)
        return runtime.Dim(dim.name, dim.low, dim.high, place, axis, scale, offset)
    state_nodes = graph.inputs[len(graph.given) :]
    if not any(dim in size.dims() for node in state_nodes for size in node.sizes()):
        raise DimUnreadable(name=dim.name)
    return _elsewhere(dim)


def _elsewhere(dim: Dim) -> runtime.Dim:
    """A dim that no input shows: the session has it, or it is another entry's."""
    return runtime.Dim(dim.name, dim.low, dim.high, None, 0)


def _linear(extent: Extent, dim: Dim) -> tuple[int, int] | None:
    """(scale, offset) where the extent is scale · dim + offset."""
    if not isinstance(extent, Size) or extent.dims() != (dim,):
        return None
    offset = dict(extent.terms).get((), 0)
    rest, own = extent - offset, size_of(dim)
    if not divides(own, rest) or not isinstance(rest // own, int):
        return None
    return content(rest), offset
