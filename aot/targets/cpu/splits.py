"""Where the loops along the lanes are cut because a load begins or ends there.

A row of parts joined, or with a margin around it, asks at each element which part it is of, and
reads each part under a mask. Between the places where an answer changes all answers are known: of
the parts one is left, which is read without a mask.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.targets.cpu import tiles
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import VIEWS, Kernel
from aotc.aot.targets.cpu.linear import Int
from aotc.aot.targets.cpu.tiles import Conjunct, Split
from aotc.aot.targets.cpu.ttir import Operation, Value

FEWEST_VECTORS = 4  # of a row; of fewer most would be where an answer changes
MOST_SPLITS = 4  # the text is written twice for each
MOST_OPERATIONS = 256  # of that text


def splits_of(
    kernel: Kernel,
    values: Sequence[Value],
    shape: Sequence[int],
    lane: int,
    cuts: Sequence[Conjunct],
) -> list[Split]:
    """The places along the lanes at which loads behind the values begin or end, in their order, but
    for where `cuts` end all; none where that order is not known."""
    if shape[lane] < FEWEST_VECTORS * kernel.isa.lanes or kernel.guard is not None:
        return []
    found: dict[int, list[tuple[Conjunct, bool]]] = {}
    inside = set[int | None]()
    first = None
    ended = {cut.comparison for cut in cuts}
    for comparison, path in _compared(kernel, values):
        if comparison in ended:
            continue
        assert comparison.owner is not None
        solved = tiles.threshold(kernel, comparison.owner, path, shape)
        if solved is None or solved[0].dim != lane:
            continue
        place, holds_below = solved[0].upper, solved[1]
        first = first or place
        apart = kernel.lanes.add(place, first, -1).constant
        if apart is None:
            return []
        found.setdefault(apart, []).append((Conjunct(comparison, path, solved[0]), holds_below))
        inside.add(apart if _may_split(place, shape[lane]) else None)
    if len(inside - {None}) > MOST_SPLITS:
        return []
    return [Split(each[0][0].bound.upper, tuple(each)) for _, each in sorted(found.items())]


def _may_split(place: Int, size: int) -> bool:
    """Whether a place may be within a row; where it is known not to be, the answer is one."""
    return place.constant is None or 0 < place.constant < size


def _compared(kernel: Kernel, values: Sequence[Value]) -> list[tuple[Value, tuple[Operation, ...]]]:
    """The comparisons in masks of loads behind the values, each with the views on the way; none
    where that is a long text."""
    found: dict[tuple[Value, tuple[Operation, ...]], None] = {}
    seen: set[tuple[Value, tuple[Operation, ...], bool]] = set()
    waiting: list[tuple[Value, tuple[Operation, ...], bool]] = [(v, (), False) for v in values]
    while waiting:
        value, path, is_mask = entry = waiting.pop()
        made = value.owner
        is_stored = value in kernel.buffers or value in kernel.pending or value in kernel.shifted
        if entry in seen or made is None or is_stored or not value.type.is_tensor:
            continue
        seen.add(entry)
        if len(seen) > MOST_OPERATIONS:
            return []
        if made.name in VIEWS:
            waiting.append((made.operands[0], (*path, made), is_mask))
        elif made.name == "tt.load":
            sizes = made.integers("operandSegmentSizes") or [1, 0, 0]
            waiting += [(mask, path, True) for mask in made.operands[1 : 1 + sizes[1]]]
        elif is_mask and made.name == "arith.cmpi":
            found[value, path] = None
        elif made.name == "arith.andi" if is_mask else made.name in RULES:
            waiting += [(operand, path, is_mask) for operand in made.operands]
    return [*found]
