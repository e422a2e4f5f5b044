"""Pointwise groups → kernels over 2-D tiles: rows x, contiguous lanes y."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.size import Extent, content, kernel_text, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.emit import INDENT, Body
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.lower.tiles import (
    VECTOR_BYTES,
    WARP,
    blocks,
    is_mostly_along,
    pointwise_candidates,
    power_above,
    power_below,
)
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Tracer, loaded_by, window_terms
from aotc.aot.traits import TargetTraits

_DIMS = ("[:, None]", "[None, :]")


def lower_pointwise(group: Group, traits: TargetTraits) -> KernelSpec:
    """One store of each root; every operand is computed where it is needed."""
    candidates = _candidates(group, traits)
    body, masks = Body(), dict[Symbol, str]()
    symbols = (group.domain.rows, group.domain.lanes)
    is_gpu = traits.is_gpu
    starts = _gpu_starts(*symbols) if is_gpu else _cpu_starts(*symbols)
    for axis, (symbol, start, dim) in enumerate(zip(symbols, starts, _DIMS, strict=True)):
        if symbol.extent == 1:
            continue
        block = f"{symbol.name.upper()}BLOCK"
        # Where one program has all of a dim its elements' numbers are known to a processor's code,
        # which pays where the ends of rows are much of them.
        is_one = not is_gpu and all(each.grid[axis] == 1 for each in candidates)
        is_one = is_one and typical(symbol.extent) <= SHORT_ROW
        first = "" if is_one else f"{start} + "
        body.write(f"{symbol.name} = {first}tl.arange(0, {block}){dim}")
        if kernel_file.has_tail(symbol, kernel_file.blocks_of(candidates, block)):
            kernel_file.write_mask(body, symbol, masks)
    lines, stores = body.lines, _stores(group, masks, is_gpu)
    if is_gpu and len(stores) <= MOST_TWICE and _has_ragged_end(group, masks):
        lanes, mask = lines
        lines = [
            lanes,
            f"if {starts[1]} + YBLOCK <= {kernel_text(group.domain.lanes.extent)}:",
            *_indented(_stores(group, {}, is_gpu)),
            "else:",
            *_indented([mask, *stores]),
        ]
    else:
        lines = [*lines, *stores]
    return kernel_file.kernel_of(group, [kernel_file.Draft("", lines)], candidates)


def _stores(group: Group, masks: dict[Symbol, str], is_gpu: bool) -> list[str]:
    """The lines that compute and store the roots."""
    body = Body()
    emitter = kernel_file.emitter_of(group, body, masks, is_of_gpu=is_gpu)
    kernel_file.write_stores(emitter, group.roots)
    return body.lines


def _has_ragged_end(group: Group, masks: dict[Symbol, str]) -> bool:
    """Whether a mask would have threads load single elements: one that ends within a vector."""
    rows, lanes = group.domain.rows, group.domain.lanes
    if rows.extent != 1 or lanes not in masks or _largest_divisor(lanes.extent) >= VECTOR:
        return False
    reads = [ix.linear(need.index, need.node.shape) for need in _traced(group).accesses]
    return typical(lanes.extent) >= RAGGED and any(each == ix.of(lanes) for each in reads)


def _indented(lines: Sequence[str]) -> list[str]:
    return [textwrap.indent(line, INDENT) for line in lines]


def _cpu_starts(rows: Symbol, lanes: Symbol) -> tuple[str, str]:
    """First element of a program's tile: one grid axis each."""
    return "tl.program_id(0) * XBLOCK", "tl.program_id(1) * YBLOCK"


def _gpu_starts(rows: Symbol, lanes: Symbol) -> tuple[str, str]:
    """The same over one grid axis: neighbours in time are neighbours in memory, no axis limit."""
    if lanes.extent == 1 or rows.extent == 1:
        return "tl.program_id(0) * XBLOCK", "tl.program_id(0) * YBLOCK"
    blocks = f"tl.cdiv({kernel_text(lanes.extent)}, YBLOCK)"
    return f"tl.program_id(0) // {blocks} * XBLOCK", f"tl.program_id(0) % {blocks} * YBLOCK"


def _candidates(group: Group, traits: TargetTraits) -> tuple[Candidate, ...]:
    rows, lanes = group.domain.rows, group.domain.lanes
    element_bytes = group.bytes / max(1, typical(rows.extent * lanes.extent))
    if not traits.is_gpu:
        traced = _traced(group)
        most = TRANSPOSED_LANES if _is_transposed(group, traced) else None
        has_rows = most is None and typical(rows.extent) > 1
        if has_rows and _shared_cost(group, traced) >= SHARED_COST:
            most = SHARED_LANES
        return pointwise_candidates(rows.extent, lanes.extent, element_bytes, traits, most)
    shape = PointwiseShape(
        rows.extent,
        lanes.extent,
        element_bytes,
        functions=sum(OPS[node.op].cost >= FUNCTION_COST for node in group.nodes),
        is_transposed=_is_transposed(group, _traced(group)),
        window_terms=window_terms(group.nodes),
        item_bytes=max(DTYPES[root.node.dtype].itemsize_bytes for root in group.roots),
    )
    return gpu_candidates(shape, traits)


def _traced(group: Group) -> Tracer:
    """What an element of the group needs."""
    reads = set(group.reads)
    tracer = Tracer(lambda node: node in reads)
    for need in (need for root in group.roots for need in root.needs):
        tracer.visit(need.node, need.index)
    return tracer


def _shared_cost(group: Group, traced: Tracer) -> float:
    """Operations for one element that are the same for all rows of a tile."""
    rows = group.domain.rows

    def varies_with_rows(index: Sequence[Index]) -> bool:
        symbols = frozenset[Symbol]().union(*(part.symbols() for part in index))
        return any(symbol == rows or rows.name in loaded_by(symbol) for symbol in symbols)

    return sum(
        OPS[node.op].cost
        for node, index in traced.visited
        if node.kind == "pointwise" and not varies_with_rows(index)
    )


def _is_transposed(group: Group, traced: Tracer) -> bool:
    """Whether a load or store is contiguous along the rows of the tile, not along its lanes."""
    offsets = [ix.linear(need.index, need.node.shape) for need in traced.accesses]
    offsets += [ix.linear(root.index, root.node.shape) for root in group.roots]
    rows, lanes = group.domain.rows, group.domain.lanes
    return any(
        offset.stride(lanes) not in (0, 1) and is_mostly_along(offset, rows) for offset in offsets
    )


SMALLEST_PROGRAM = 256  # elements
VECTOR = 8  # elements that a thread of a GPU loads at once, at most
MOST_TWICE = 64  # lines that are written with a mask and without
RAGGED = 2048  # elements from which on there are programs without a mask
LARGEST_PROGRAM = 4096  # elements of a pointwise tile: more only cost registers
# Of a CPU: a cache line of an operand that lies along the rows is read again for each row that it
# has elements of, and so many lines stay in the first cache.
TRANSPOSED_LANES = 128
# Of a CPU: what is the same for all rows of a tile is computed once and kept in the first cache.
SHARED_COST = 16.0  # operations from which this pays
SHARED_LANES = 512
SHORT_ROW = 512  # elements
TRANSPOSED_TILE = 64  # side of a square tile that changes the order of elements in shared memory
WIDE = 8  # tiles along the lanes from which a partial tile does not matter
FEWEST_WAVES = 2  # programs for each multiprocessor that a small kernel is cut into
FUNCTION_COST = 10.0  # operations from which a node counts as a function: an instruction that waits
FUNCTIONS_FOR_8_WARPS = 3
# Terms of a sum over a window from which on tiles have more threads than lanes, and threads several
# rows: see `row/gpu_candidates.py` (H200, bf16, 25,088 places of 96 channels: nine terms in 5.9 µs
# for 10.5, 49 in 21 for 42).
FEWEST_TERMS = 9
WINDOW_LANES = (64, 32)  # of such a tile: the first that divides all, or the last
WINDOW_ROWS = 32
WINDOW_BYTES = 32  # of a thread


@dataclass(frozen=True, slots=True)
class PointwiseShape:
    """What the tile of a pointwise kernel depends on."""

    rows: Extent
    lanes: Extent
    element_bytes: float  # traffic of one element, all operands together
    functions: int  # exponentials and the like for one element
    is_transposed: bool  # some operand is contiguous along the rows
    window_terms: int = 0  # of a sum over a window that each element is, by weights of all rows
    item_bytes: int = 4  # of an element that is stored


def _largest_divisor(extent: Extent) -> int:
    """Largest power of two that divides the extent at every call."""
    return content(extent) & -content(extent)


def _lanes_block(lanes: Extent, elements: int) -> int:
    """Lanes of one tile: a divisor of all lanes where that is wide enough, so that no mask is."""
    if typical(lanes) >= elements * WIDE:
        return elements
    divisor = min(_largest_divisor(lanes), elements)
    whole = min(power_above(typical(lanes)), elements)
    return divisor if divisor >= min(128, whole) else whole


def gpu_candidates(shape: PointwiseShape, traits: TargetTraits) -> tuple[Candidate, ...]:
    """Configs XBLOCK, YBLOCK, num_warps; the grid is one axis, lane blocks within row blocks."""
    total = typical(shape.rows * shape.lanes)
    windows = tuple(_window_candidates(shape, traits))
    pick = power_below(traits.program_bytes / max(1.0, shape.element_bytes))
    pick = max(SMALLEST_PROGRAM, min(LARGEST_PROGRAM, pick * 2 if shape.functions else pick))
    while pick > SMALLEST_PROGRAM and total < pick * traits.multiprocessors * FEWEST_WAVES:
        pick //= 2
    found = []
    for elements in (pick, pick * 2, max(SMALLEST_PROGRAM, pick // 2)):
        for more in (1, 2):
            found.append(_pointwise(shape, elements, more, traits))
    return tuple(dict.fromkeys((*windows, *found)))


def _window_candidates(shape: PointwiseShape, traits: TargetTraits) -> Iterator[Candidate]:
    """Tiles of sums over windows whose weights are the same for all rows."""
    lanes = next((each for each in WINDOW_LANES if content(shape.lanes) % each == 0), 0)
    lanes = lanes or WINDOW_LANES[-1]
    is_wide = typical(shape.rows) >= WINDOW_ROWS and typical(shape.lanes) >= lanes
    if shape.window_terms < FEWEST_TERMS or shape.is_transposed or not is_wide:
        return
    rows, each = WINDOW_ROWS, max(1, WINDOW_BYTES // shape.item_bytes)
    across = blocks(shape.lanes, lanes)
    while rows > 1 and typical(blocks(shape.rows, rows) * across) < traits.multiprocessors:
        rows, each = rows // 2, max(VECTOR_BYTES // shape.item_bytes, each // 2)
    for elements in (each, max(1, each // 2)):
        warps = max(2, min(8, rows * lanes // (elements * WARP)))
        config = (("XBLOCK", rows), ("YBLOCK", lanes), ("num_warps", warps))
        yield Candidate(config, (blocks(shape.rows, rows) * across, 1, 1))


def _pointwise(
    shape: PointwiseShape, elements: int, more_warps: int, traits: TargetTraits
) -> Candidate:
    lanes_block = _lanes_block(shape.lanes, elements)
    if shape.is_transposed:
        elements = max(elements, TRANSPOSED_TILE**2 // 2)
        total = typical(shape.rows * shape.lanes)
        while elements > SMALLEST_PROGRAM and total < elements * traits.multiprocessors:
            elements //= 2
        side = power_below(sqrt(elements))  # which is a whole one: lanes have at most as many rows
        lanes_block = min(power_above(typical(shape.lanes)), side, TRANSPOSED_TILE)
    rows_block = min(power_above(typical(shape.rows)), max(1, elements // lanes_block))
    programs = blocks(shape.rows, rows_block) * blocks(shape.lanes, lanes_block)
    warps = 4 if shape.functions < FUNCTIONS_FOR_8_WARPS else 8
    # A thread has at least four elements.
    warps = max(1, min(warps * more_warps, rows_block * lanes_block // (4 * WARP)))
    config = (("XBLOCK", rows_block), ("YBLOCK", lanes_block), ("num_warps", warps))
    return Candidate(config, (programs, 1, 1))
