"""Chooses the loops of a kernel: which symbol runs along the vector lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.schedule.group import Domain
from aotc.aot.schedule.grow import kept_extents, matmul_symbols, row_symbols
from aotc.aot.schedule.trace import Contract, Demand, Tracer, loaded_by, reduction_index
from aotc.aot.schedule.traits import TargetTraits

ONE = Symbol("z", 1)
# Price of one loaded or stored element, relative to a contiguous one in vector code.
BROADCAST_PRICE, STRIDED_PRICE, SCATTERED_PRICE = 0.1, 4.0, 8.0


def kept_index(domain: Domain) -> Index:
    """Linear position among the kept elements of a row domain."""
    if domain.is_reduced_in_lanes:
        return ix.of(domain.rows)
    return ix.of(domain.outer) * domain.lanes.extent + ix.of(domain.lanes)


def pointwise_domains(shape: Sequence[int]) -> list[Domain]:
    """All splits of the axes into rows x and lanes y, most lanes first."""
    found = []
    for split in range(len(shape) + 1):
        rows, lanes = prod(shape[:split]), prod(shape[split:])
        found.append(Domain(ONE, Symbol("x", rows), Symbol("y", lanes)))
    return list({(row.rows, row.lanes): row for row in found}.values())


def pointwise_index(domain: Domain, shape: Sequence[int]) -> tuple[Index, ...]:
    """Index of an element of `shape` at the symbols of the domain."""
    position = ix.of(domain.rows) * domain.lanes.extent + ix.of(domain.lanes)
    return ix.unravel(position, shape)


def row_domains(anchor: Node) -> list[Domain]:
    """Lanes along the reduced axes, or along a run of the last kept axes."""
    kept, reduced = row_symbols(anchor)
    found = [Domain(ONE, kept, reduced, reduced)]
    extents = kept_extents(anchor)
    for split in range(len(extents)):
        lanes = prod(extents[split:])
        if lanes > 1:
            outer = Symbol("z", prod(extents[:split]))
            found.append(Domain(outer, reduced, Symbol("y", lanes), reduced))
    return found


def matmul_domain(anchor: Node) -> Domain:
    """Batch z, rows x, columns y and the inner k of a matmul."""
    return Domain(*matmul_symbols(anchor))


def cheapest(
    domains: Iterable[Domain],
    trace: Callable[[Domain], Tracer],
    stores: Callable[[Domain], list[Demand]],
    traits: TargetTraits,
) -> Domain:
    """The domain whose accesses along the lanes are the cheapest; the first of equals."""
    options = list(domains)
    if len(options) == 1:
        return options[0]
    prices = [
        _price([*trace(domain).accesses, *stores(domain)], domain, traits) for domain in options
    ]
    return options[prices.index(min(prices))]


def _price(accesses: Iterable[Demand], domain: Domain, traits: TargetTraits) -> float:
    total = 0.0
    for access in accesses:
        offset = ix.linear(access.index, access.node.shape)
        loaded = frozenset().union(*map(loaded_by, offset.symbols()))
        varies = {symbol for symbol in offset.symbols() if not loaded_by(symbol)}
        varies |= {symbol for symbol in _symbols(domain) if symbol.name in loaded}
        repeats = prod(symbol.extent for symbol in varies)
        stride = None if domain.lanes.name in loaded else offset.stride(domain.lanes)
        price = {None: SCATTERED_PRICE, 0: BROADCAST_PRICE, 1: 1.0}.get(stride, STRIDED_PRICE)
        total += price * repeats
    lanes = domain.lanes.extent
    return total * -(-lanes // traits.lanes) * traits.lanes / lanes


def _symbols(domain: Domain) -> list[Symbol]:
    found = [domain.outer, domain.rows, domain.lanes, domain.reduced]
    return [symbol for symbol in found if symbol is not None]


def row_contract(kept: Index, reduced: Symbol) -> Contract:
    """What a reduction of the row kernel reads: its operand at all the reduced elements."""

    def contract(node: Node, index: tuple[Index, ...]) -> list[Demand]:
        return [Demand(node.inputs[0], reduction_index(node, kept, ix.of(reduced)))]

    return contract


def matmul_contract(domain: Domain) -> Contract:
    """What the matmul reads: A at (batch, x, k), B at (batch, k, y), packed or not."""

    def contract(node: Node, index: tuple[Index, ...]) -> list[Demand]:
        return list(operand_demands(node, domain, index[:-2]))

    return contract


def operand_demands(node: Node, domain: Domain, batch: tuple[Index, ...]) -> tuple[Demand, Demand]:
    """Index of both operands of a matmul at the domain's symbols."""
    assert domain.reduced is not None
    rows, columns, inner = ix.of(domain.rows), ix.of(domain.lanes), ix.of(domain.reduced)
    left, right = node.inputs
    if node.kind == "matmul_packed":
        width = right.shape[2]
        panels = (columns // width, inner, columns % width)
        return Demand(left, (rows, inner)), Demand(right, panels)
    shape = node.shape[:-2]
    return (
        Demand(left, (*ix.through_broadcast(batch, shape, left.shape[:-2]), rows, inner)),
        Demand(right, (*ix.through_broadcast(batch, shape, right.shape[:-2]), inner, columns)),
    )
