"""Block sizes of memory-bound kernels on a GPU, as tables: the cost model's choice first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aotc.aot.ir.size import Extent, content, typical
from aotc.aot.lower.spec import Candidate
from aotc.aot.lower.tiles import blocks, power_above, power_below
from aotc.aot.traits import TargetTraits

WARP = 32  # threads
VECTOR_BYTES = 16  # one load or store of a thread
SMALLEST_PROGRAM = 256  # elements
LARGEST_PROGRAM = 4096  # elements of a pointwise tile: more only cost registers
TRANSPOSED_TILE = 64  # side of a square tile that changes the order of elements in shared memory
WIDE = 8  # tiles along the lanes from which a partial tile does not matter
FEWEST_WAVES = 2  # programs for each multiprocessor that a small kernel is cut into
FUNCTION_COST = 10.0  # operations from which a node counts as a function: an instruction that waits
FUNCTIONS_FOR_8_WARPS = 3


@dataclass(frozen=True, slots=True)
class PointwiseShape:
    """What the tile of a pointwise kernel depends on."""

    rows: Extent
    lanes: Extent
    element_bytes: float  # traffic of one element, all operands together
    functions: int  # exponentials and the like for one element
    is_transposed: bool  # some operand is contiguous along the rows


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


def pointwise_candidates(shape: PointwiseShape, traits: TargetTraits) -> tuple[Candidate, ...]:
    """Configs XBLOCK, YBLOCK, num_warps; the grid is one axis, lane blocks within row blocks."""
    total = typical(shape.rows * shape.lanes)
    pick = power_below(traits.program_bytes / max(1.0, shape.element_bytes))
    pick = max(SMALLEST_PROGRAM, min(LARGEST_PROGRAM, pick * 2 if shape.functions else pick))
    while pick > SMALLEST_PROGRAM and total < pick * traits.multiprocessors * FEWEST_WAVES:
        pick //= 2
    found = []
    for elements in (pick, pick * 2, max(SMALLEST_PROGRAM, pick // 2)):
        for more in (1, 2):
            found.append(_pointwise(shape, elements, more))
    return tuple(dict.fromkeys(found))


def _pointwise(shape: PointwiseShape, elements: int, more_warps: int) -> Candidate:
    lanes_block = _lanes_block(shape.lanes, elements)
    if shape.is_transposed:
        elements = max(elements, 2048)
        side = TRANSPOSED_TILE if elements >= TRANSPOSED_TILE**2 else TRANSPOSED_TILE // 2
        lanes_block = min(power_above(typical(shape.lanes)), side)
    rows_block = min(power_above(typical(shape.rows)), max(1, elements // lanes_block))
    programs = blocks(shape.rows, rows_block) * blocks(shape.lanes, lanes_block)
    warps = 4 if shape.functions < FUNCTIONS_FOR_8_WARPS else 8
    # A thread has at least four elements.
    warps = max(1, min(warps * more_warps, rows_block * lanes_block // (4 * WARP)))
    config = (("XBLOCK", rows_block), ("YBLOCK", lanes_block), ("num_warps", warps))
    return Candidate(config, (programs, 1, 1))


def distinct(found: Iterable[Candidate], most: int) -> tuple[Candidate, ...]:
    """The first `most` different candidates."""
    return tuple(dict.fromkeys(found))[:most]
