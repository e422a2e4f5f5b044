"""Sums over windows: neighbouring rows read mostly the same memory, so they are computed together.

A load that begins anywhere takes two lines of the cache, and a sum of products waits for loads more
than for its arithmetic. Of two rows each load is made once, where both are computed in the order in
which memory is read: the second row's sum is one row of the window behind the first one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aotc.aot.targets.cpu import tiles
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import VIEWS, Kernel
from aotc.aot.targets.cpu.linear import Int, Linear, Pointer, integer
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.tiles import Conjunct
from aotc.aot.targets.cpu.ttir import Value
from aotc.aot.targets.cpu.writer import Operand

FEWEST_LOADS = 9  # of neighbours behind an element, from which that is worth the longer text
ROWS = 2  # more have sums for which there are no registers beside the factors
REGISTERS = 32  # that this takes


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a tile that are computed together: along which dimension, and in which order what is
    behind their values is evaluated, each step a value and the number of the row."""

    dim: int
    steps: Sequence[tuple[Value, int]]

    def indices(self, kernel: Kernel, index: Index) -> list[Index]:
        """Those of all rows, of the first one's."""
        return [_moved(kernel, index, self.dim, row) for row in range(ROWS)]


def rows_of(
    kernel: Kernel,
    values: Sequence[Value],
    lane: int,
    width: int,
    cuts: Sequence[Conjunct],
) -> Rows | None:
    """How rows are computed together; None where they do not read the same memory, or there is one
    left over."""
    shape = values[0].type.shape or ()
    dims = [dim for dim in range(len(shape)) if dim != lane]
    if not dims or kernel.isa.registers < REGISTERS or shape[dims[-1]] % ROWS:
        return None
    dim = dims[-1]
    if not tiles.end_at_multiples([cut for cut in cuts if cut.bound.dim == dim], ROWS):
        return None
    with kernel.width(width), kernel.probe() as depth:
        index = [kernel.lanes.atom(Operand(f"%dim{d}", "i32", depth), "i32") for d in dims]
        at = list[Int](index)
        at[dims.index(dim)] = kernel.lanes.atom(
            Operand("%row", "i32", depth), "i32", ROWS, natural=True
        )
        lanes = kernel.lanes.atom(Operand("%place", "i32", depth), "i32", width, natural=True)
        at.insert(lane, Int("i32", lanes.base, Linear((), 1)))
        found = [_Steps(kernel) for _ in range(ROWS)]
        for row, steps in enumerate(found):
            for value in values:
                steps.walk(value, _moved(kernel, tuple(at), dim, row))
        return _together(kernel, dim, found)


def _together(kernel: Kernel, dim: int, found: Sequence[_Steps]) -> Rows | None:
    first, *others = ({place for place, _ in steps.loads} for steps in found)
    if len(first) < FEWEST_LOADS or any(2 * len(first & other) < len(first) for other in others):
        return None
    origin = found[0].loads[0][0][1]
    order: list[tuple[int, int, int, Value]] = []
    for row, steps in enumerate(found):
        last = None
        for number, (value, place) in enumerate(steps.order):
            if place is not None:
                apart = kernel.lanes.add(place, origin, -1).constant
                if apart is None:
                    return None
                last = apart if last is None else max(last, apart)
            if last is not None:
                order.append((last, row, number, value))
    order.sort(key=lambda step: step[:3])
    return Rows(dim, [(value, row) for _, row, _, value in order])


def _moved(kernel: Kernel, index: Index, dim: int, rows: int) -> Index:
    """The index so many rows on."""
    moved = kernel.lanes.add(index[dim], integer(rows))
    return (*index[:dim], moved, *index[dim + 1 :])


@dataclass(slots=True)
class _Steps:
    """What is evaluated for a value at its own index, operands first, and what of it is loaded."""

    kernel: Kernel
    order: list[tuple[Value, Int | None]] = field(default_factory=list)
    """Each with the element of memory that it loads the first of, or an operand does."""
    loads: list[tuple[tuple[Operand, Int], Value]] = field(default_factory=list)
    seen: set[Value] = field(default_factory=set)

    def walk(self, value: Value, index: Index) -> None:
        """Goes through the operands that have the value's own shape."""
        made = value.owner
        if value in self.seen or made is None or not value.type.is_tensor:
            return
        self.seen.add(value)
        if made.name == "tt.load":
            pointer = self.kernel.at(made.operands[0], index)
            if isinstance(pointer, Pointer) and not pointer.offset.is_uniform:
                self.loads.append(((pointer.base, pointer.offset), value))
                self.order.append((value, pointer.offset))
        elif made.name in RULES and made.name not in VIEWS:
            for operand in made.operands:
                self.walk(operand, index)
            self.order.append((value, None))
