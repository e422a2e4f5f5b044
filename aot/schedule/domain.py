"""Chooses the loops of a kernel: which symbol runs along the vector lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from math import inf, prod

from aotc.aot.ir import access
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Remainder, Symbol
from aotc.aot.ir.infer import PACK_N, packed_columns
from aotc.aot.ir.size import Extent, Quotient, Shape, divides, fixed, is_static, typical
from aotc.aot.schedule.group import Domain
from aotc.aot.schedule.grow import column_symbol, matmul_symbols, row_symbols
from aotc.aot.schedule.lane_steps import has_plain_answers, lane_steps
from aotc.aot.schedule.trace import (
    Access,
    Boundary,
    Contract,
    Tracer,
    is_loaded,
    kept_extents,
    loaded_by,
    reduced_extents,
    reduction_index,
)
from aotc.aot.traits import TargetTraits

SMALLEST_RUN = 8  # elements of a contiguous run of k worth a loop of its own
MOST_ORDERED = 4  # axes of rows of which every order is tried
ONE = Symbol("z", 1)
# Price of one loaded or stored element, relative to a contiguous one in vector code.
BROADCAST_PRICE, RUNS_PRICE, STRIDED_PRICE, SCATTERED_PRICE = 0.1, 1.25, 4.0, 8.0
NEAR_PRICE = 0.75  # of each vector that elements are picked from, and once of all
NEAR_VECTORS = 4  # at most
SCATTER_PRICE = 2.0  # of a store to other than neighbours, relative to a load, on a processor
MASK_PRICE = 1.0  # of a condition that does not hold from one lane to another alone
_PRICES: dict[Extent | None, float] = {
    None: SCATTERED_PRICE,
    0: BROADCAST_PRICE,
    1: 1.0,
    -1: RUNS_PRICE,
}


def kept_index(domain: Domain) -> Index:
    """Linear position among the kept elements of a row domain."""
    if domain.is_reduced_in_lanes:
        return ix.of(domain.rows)
    return ix.of(domain.outer) * domain.lanes.extent + ix.of(domain.lanes)


def pointwise_domains(shape: Sequence[Extent]) -> list[Domain]:
    """Splits of the axes into rows x and lanes y, most lanes first; then other axes as lanes."""
    found = []
    for split in range(len(shape) + 1):
        rows, lanes = Symbol("x", prod(shape[:split])), Symbol("y", prod(shape[split:]))
        found.append(Domain(ONE, rows, lanes))
    for axis, extent in enumerate(shape[:-1]):
        order = (*(other for other in range(len(shape)) if other != axis), axis)
        rows = Symbol("x", prod(shape[other] for other in order[:-1]))
        found.append(Domain(ONE, rows, Symbol("y", extent), order=order))
    return list(dict.fromkeys(found))


def run_domains(flat: Domain, traced: Tracer) -> list[Domain]:
    """Lanes along runs over which the indices read in a flat domain are linear, such as parts of an
    axis."""
    whole, found = flat.lanes.extent, []
    lengths = set().union(
        *(breaks(ix.linear(need.index, need.node.shape), flat.lanes) for need in traced.accesses)
    )
    for length in sorted(each for each in lengths if isinstance(each, int)):
        if length >= SMALLEST_RUN and divides(length, whole):
            found.append(Domain(ONE, Symbol("x", whole // length), Symbol("y", length)))
    return found


def pointwise_index(domain: Domain, shape: Sequence[Extent]) -> tuple[Index, ...]:
    """Index of an element of `shape` at the symbols of the domain."""
    position = ix.of(domain.rows) * domain.lanes.extent + ix.of(domain.lanes)
    if not domain.order:
        return ix.unravel(position, shape)
    inner = ix.unravel(position, [shape[axis] for axis in domain.order])
    return access.through_permute(inner, domain.order)


def row_domains(root_op: Node) -> list[Domain]:
    """Lanes along the reduced axes, or along a run of the last kept axes."""
    kept, reduced = row_symbols(root_op)
    found = [Domain(ONE, kept, reduced, reduced)]
    extents = kept_extents(root_op)
    for split in range(len(extents)):
        lanes = prod(extents[split:])
        if lanes != 1:
            outer = Symbol("z", prod(extents[:split]))
            found.append(Domain(outer, reduced, Symbol("y", lanes), reduced))
    return found


def matmul_domain(root_op: Node, column_group: int = 1) -> Domain:
    """Batch z, rows x, columns y (or so many of them together) and the inner k of a matmul."""
    return replace(Domain(*matmul_symbols(root_op)), lanes=column_symbol(root_op, column_group))


def cheapest(
    domains: Iterable[Domain],
    trace: Callable[[Domain], Tracer],
    stores: Callable[[Domain], list[Access]],
    traits: TargetTraits,
) -> Domain:
    """The domain whose accesses along the lanes are the cheapest; the first of equals."""
    options = list(domains)
    if len(options) == 1:
        return options[0]
    prices = [_price(trace(domain), stores(domain), domain, traits) for domain in options]
    return options[prices.index(min(prices))]


def along_memory(
    domain: Domain, shape: Shape, trace: Callable[[Domain], Tracer], traits: TargetTraits
) -> Domain:
    """The domain with its rows in the order in which its operands are contiguous, if its lanes are
    strided there: a CPU then transposes square blocks in registers."""
    axes = domain.order or tuple(range(len(shape)))
    inner = len(axes) - 1
    while inner > 0 and prod(shape[axis] for axis in axes[inner:]) != domain.lanes.extent:
        inner -= 1
    rows = [axis for axis in axes[:inner] if shape[axis] != 1]
    if traits.is_gpu or not is_static(shape) or not 1 < len(rows) <= MOST_ORDERED:
        return domain

    def along(option: Domain) -> Extent | None:
        """The stride along the rows of the one access whose lanes are strided; 0 if there is
        none."""
        offsets = [ix.linear(need.index, need.node.shape) for need in trace(option).accesses]
        if len(offsets) != 1 or any(map(loaded_by, offsets[0].symbols())):
            return 0
        lanes = offsets[0].stride(option.lanes)
        return offsets[0].stride(option.rows) if isinstance(lanes, int) and lanes > 1 else 0

    if along(domain) in (0, 1):
        return domain
    ones = [axis for axis in axes[:inner] if shape[axis] == 1]
    orders = ((*ones, *order, *axes[inner:]) for order in permutations(rows))
    options = (replace(domain, order=order) for order in orders)
    return next((option for option in options if along(option) == 1), domain)


def _price(traced: Tracer, stores: list[Access], domain: Domain, traits: TargetTraits) -> float:
    total = 0.0
    if not traits.is_gpu:  # of which each thread has an index and its conditions anyway
        total += MASK_PRICE * sum(
            not has_plain_answers(condition, domain.lanes, traits.lanes)
            for condition in traced.conditions
        )
    reads = [_price_of(need, domain, traits, is_read=True) for need in traced.accesses]
    written = [_price_of(need, domain, traits) for need in stores]
    most = max((times for _, times in reads), default=0)
    is_strided = all(price >= STRIDED_PRICE for price, times in reads if times == most)
    if not traits.is_gpu and is_strided:
        # Where elements are read along the lanes, blocks of them are transposed in registers.
        written = [
            (price * (SCATTER_PRICE if price >= STRIDED_PRICE else 1.0), times)
            for price, times in written
        ]
    total += sum(price * times for price, times in (*reads, *written))
    lanes = max(1, typical(domain.lanes.extent))
    return total * -(-lanes // traits.lanes) * traits.lanes / lanes


def _price_of(
    need: Access, domain: Domain, traits: TargetTraits, is_read: bool = False
) -> tuple[float, int]:
    """(price of an element along the lanes, how many times so many lanes are loaded or stored)"""
    offset = ix.linear(need.index, need.node.shape)
    loaded = frozenset().union(*map(loaded_by, offset.symbols()))
    repeats = prod(typical(symbol.extent) for symbol in varies_with(need, domain))
    stride = None if domain.lanes.name in loaded else offset.stride(domain.lanes)
    price = _PRICES.get(stride, STRIDED_PRICE)
    if stride == 0 and not traits.is_gpu:  # it is loaded once a row
        vectors = -(-typical(domain.lanes.extent) // traits.lanes)
        price = max(price, 1.0 / max(1, vectors))
    if stride is None and not loaded and _has_runs(offset, domain, traits):
        price = RUNS_PRICE
    elif price >= STRIDED_PRICE and is_read and not loaded and not traits.is_gpu:
        price = min(price, _price_of_near(offset, domain, traits))
    return 1.0 if domain.lanes.extent == 1 else price, repeats


def _price_of_near(offset: Index, domain: Domain, traits: TargetTraits) -> float:
    """The price of elements at known distances, which are read as a few vectors."""
    steps = lane_steps(offset, domain.lanes, traits.lanes)
    if steps is None:
        return inf
    vectors = len({step // traits.lanes for step in steps})
    return NEAR_PRICE * (1 + vectors) if vectors <= NEAR_VECTORS else inf


def _has_runs(offset: Index, domain: Domain, traits: TargetTraits) -> bool:
    """Whether the lanes are contiguous in runs of whole vectors. Code for GPUs computes an address
    for each lane, and does not use such runs."""
    lengths = breaks(offset, domain.lanes)
    if traits.is_gpu or not lengths or not is_static(lengths):
        return False
    run = min(lengths)
    if any(length % traits.lanes for length in lengths) or not divides(run, domain.lanes.extent):
        return False
    inner = Symbol("c", run)
    step = {
        domain.lanes: ix.symbol("kernel_offset", domain.lanes.extent // run) * run + ix.of(inner)
    }
    return offset.substitute(step).stride(inner) == 1


def varies_with(need: Access, domain: Domain) -> set[Symbol]:
    """Loop symbols behind an access; for a loaded index, those it is loaded by."""
    symbols = {symbol for part in need.index for symbol in part.symbols()}
    loaded = frozenset().union(*map(loaded_by, symbols))
    own = (domain.outer, domain.rows, domain.lanes, domain.reduced)
    behind = {symbol for symbol in own if symbol is not None and symbol.name in loaded}
    return {symbol for symbol in symbols if not is_loaded(symbol)} | behind


def row_contract(kept: Index, reduced: Symbol) -> Contract:
    """What a reduction of the row kernel reads: its operand at all the reduced elements."""

    def contract(node: Node, index: tuple[Index, ...]) -> list[Access]:
        return [Access(node.inputs[0], reduction_index(node, kept, ix.of(reduced)))]

    return contract


def matmul_contract(domain: Domain) -> Contract:
    """What the matmul reads: A at (batch, x, k), B at (batch, k, y), packed or not.

    A reduction before it is one of a single row.
    """

    def contract(node: Node, index: tuple[Index, ...]) -> list[Access]:
        if node.kind == "reduce":
            return [whole_row(node)]
        return list(operand_accesses(node, domain, index[:-2]))

    return contract


def whole_row(node: Node) -> Access:
    """What a reduction of one row reads, at the symbol `s` of its elements."""
    elements = Symbol("s", prod(reduced_extents(node)))
    return Access(node.inputs[0], reduction_index(node, ix.ZERO, ix.of(elements)))


def operand_accesses(node: Node, domain: Domain, batch: tuple[Index, ...]) -> tuple[Access, Access]:
    """Index of both operands of a matmul at the domain's symbols, every column of its own."""
    assert domain.reduced is not None
    rows, inner = ix.of(domain.rows), ix.of(domain.reduced)
    columns = ix.of(Symbol(domain.lanes.name, node.shape[-1]))
    left, right = node.inputs
    if node.kind == "matmul_packed":
        columns += first_column(node, batch)
        panels = panel_index(right, columns // PACK_N, inner, columns % PACK_N)
        return Access(left, (*batch, rows, inner)), Access(right, panels)
    shape = node.shape[:-2]
    return (
        Access(left, (*access.through_broadcast(batch, shape, left.shape[:-2]), rows, inner)),
        Access(right, (*access.through_broadcast(batch, shape, right.shape[:-2]), inner, columns)),
    )


def first_column(packed: Node, batch: tuple[Index, ...]) -> Index:
    """Where one of several packed products begins among the columns of all panels."""
    return sum((part * packed_columns(fixed(packed.shape[-1])) for part in batch), ix.ZERO)


def panel_index(packed: Node, panel: Index, inner: Index, column: Index) -> tuple[Index, ...]:
    """Index of an element of a packed operand, of which several rows may lie side by side."""
    if packed.type.rank == 3:
        return panel, inner, column
    beside = packed.shape[-1]
    return panel, inner // beside, column, inner % beside


def batch_index(root_op: Node, domain: Domain) -> tuple[Index, ...]:
    """Index of a matmul's batch axes at the batch symbol."""
    return ix.unravel(ix.of(domain.outer), root_op.shape[:-2])


def contiguous_run(root_op: Node, domain: Domain, boundary: Boundary) -> Extent:
    """Elements of k that are contiguous in all buffers behind A: all of them, the length of a run,
    or 0. An implicit GEMM reads channels in runs, one for each kernel offset of the convolution's
    window. The factors of quantised rows are one number for each group: they split nothing."""
    assert domain.reduced is not None
    left, _ = operand_accesses(root_op, domain, batch_index(root_op, domain))
    tracer = Tracer(boundary)
    tracer.visit(left.node, left.index)
    offsets = [ix.linear(need.index, need.node.shape) for need in tracer.accesses]
    depth = domain.reduced
    return run_along([each for each in offsets if not _is_same_in_groups(each, depth)], depth)


def run_along(offsets: Sequence[Index], symbol: Symbol) -> Extent:
    """Elements that are contiguous at all offsets as the symbol grows: all of them, the length of a
    run, or 0. An offset that is linear in the symbol counts as one run, whatever its stride."""
    extent = symbol.extent
    broken = [offset for offset in offsets if offset.stride(symbol) is None]
    if not broken:
        return extent
    lengths = set().union(*(breaks(offset, symbol) for offset in broken))
    if not is_static(lengths):
        return 0
    run = min(lengths)
    if run < SMALLEST_RUN or not divides(run, extent):
        return 0
    inner = Symbol("c", run)
    step = {symbol: ix.symbol("kernel_offset", extent // run) * run + ix.of(inner)}
    strides = {offset.substitute(step).stride(inner) for offset in broken}
    return run if strides <= {0, 1} else 0


def _is_same_in_groups(offset: Index, symbol: Symbol) -> bool:
    """Whether the offset grows with the symbol, but not within groups of it."""
    if symbol not in offset.symbols() or offset.stride(symbol) is not None:
        return False
    lengths = breaks(offset, symbol)
    if not is_static(lengths) or not divides(min(lengths), symbol.extent):
        return False
    inner = Symbol("c", min(lengths))
    group = ix.symbol("group", symbol.extent // min(lengths))
    return inner not in offset.substitute({symbol: group * min(lengths) + ix.of(inner)}).symbols()


def breaks(index: Index, symbol: Symbol) -> set[Extent]:
    """Lengths of the runs of the symbol over which the index is linear in it."""
    found: set[Extent] = set()
    for atom, _ in index.terms:
        if isinstance(atom, Quotient | Remainder) and symbol in atom.dividend.symbols():
            # A quotient of a quotient breaks where the inner one does, or less often.
            found |= breaks(atom.dividend, symbol) or {atom.divisor}
    return found
