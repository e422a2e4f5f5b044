"""Where the masks of a product's operands end along the inner dimension: zeros follow in both.

Nothing is multiplied there, so that the loop over the depth ends, and what stands in memory behind
the masks is never read.
"""

from __future__ import annotations

from typing import NamedTuple

from aotc.aot.targets.cpu import operands, tiles
from aotc.aot.targets.cpu.evaluate import VIEWS, Kernel
from aotc.aot.targets.cpu.ttir import Operation, Value


class Depth(NamedTuple):
    """Where the mask of an operand ends along the inner dimension: zeros follow."""

    end: tiles.Conjunct
    is_whole: bool
    """The mask says nothing else."""


def depths_of(kernel: Kernel, dot: Operation) -> tuple[Depth, Depth] | tuple[None, None]:
    """Those of both operands, where they end at the same place."""
    left, right = (_depth(kernel, dot.operands[place], 1 - place) for place in range(2))
    if left is None or right is None or left.end.bound.upper != right.end.bound.upper:
        return None, None
    return left, right


def kept(kernel: Kernel, dot: Operation) -> int:
    """Elements of the depth that are multiplied: fewer than there are where the masks of both
    operands end at a place that is known, and say nothing else."""
    whole = (dot.operands[0].type.shape or (0, 0))[1]
    left, right = depths_of(kernel, dot)
    if left is None or right is None or not (left.is_whole and right.is_whole):
        return whole
    upper = left.end.bound.upper.constant
    return whole if upper is None or upper <= 0 else min(whole, upper)


def _depth(kernel: Kernel, value: Value, dim: int) -> Depth | None:
    load = value.owner
    if load is None or load.name != "tt.load" or kernel.guard is not None:
        return None
    if len(load.operands) != 3 or not operands.is_zero(kernel, load.operands[2]):
        return None
    mask = load.operands[1]
    cuts = tiles.conjuncts(kernel, mask, value.type.shape or ())
    found = next((cut for cut in cuts if cut.bound.dim == dim), None)
    return None if found is None else Depth(found, len(cuts) == 1 and _is_one_comparison(mask))


def _is_one_comparison(mask: Value) -> bool:
    made = mask.owner
    while made is not None and made.name in VIEWS:
        made = made.operands[0].owner
    return made is not None and made.name == "arith.cmpi"
