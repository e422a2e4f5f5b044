"""How many vectors of elements a store computes side by side.

An element of a long expression waits for one instruction after the other, and a processor looks
only so far ahead: it does not reach the next turn of the loop. Two vectors in one turn, instruction
by instruction, wait together. That needs the registers of AVX-512.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aotc.aot.targets.cpu import memory
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import VIEWS, Kernel
from aotc.aot.targets.cpu.linear import Int, Linear, Pointer, integer
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.ttir import Value
from aotc.aot.targets.cpu.usage import COSTS
from aotc.aot.targets.cpu.writer import Operand

LANES = 16  # of a processor with registers for two vectors
LONG = 10  # instructions that wait for each other: from one function on, two vectors are faster
FEWEST_VECTORS = 8  # of a row: of fewer, the last turn would mostly be without work
NARROW = frozenset({"f32", "f16", "bf16", "i32", "i1", "i8"})


def vectors_of(kernel: Kernel, values: list[Value], lane: int | None) -> int:
    """Two for long expressions of f32 over contiguous memory, along dimension `lane`; else one."""
    shape = values[0].type.shape or ()
    is_fit = lane is not None and kernel.isa.lanes == LANES and not kernel.pending
    if not is_fit or lane is None or shape[lane] < FEWEST_VECTORS * LANES:
        return 1
    width = 2 * LANES
    with kernel.width(width), kernel.writer.probe() as depth:
        mark = kernel.lanes.atom(Operand("%place", "i32", depth), "i32", width, natural=True)
        index = [integer(0)] * len(shape)
        index[lane] = Int("i32", mark.base, Linear((), 1))
        walk = _Walk(kernel)
        longest = max(walk.length(value, tuple(index)) for value in values)
    return 2 if walk.is_fit and longest >= LONG else 1


@dataclass(slots=True)
class _Walk:
    """Goes through the expressions behind values; `is_fit` until one has other memory or types."""

    kernel: Kernel
    is_fit: bool = True
    known: dict[tuple[Value, Index], float] = field(default_factory=dict)

    def length(self, value: Value, index: Index) -> float:
        """Instructions on the longest way from memory to the value."""
        key = (value, index)
        if key not in self.known:
            self.known[key] = 0
            self.known[key] = self._length(value, index)
        return self.known[key]

    def _length(self, value: Value, index: Index) -> float:
        made = value.owner
        if made is None or not value.type.is_tensor or not self.is_fit:
            return 0
        if value in self.kernel.buffers or made.name == "tt.load":
            self.is_fit = value not in self.kernel.buffers and self._is_even(
                made.operands[0], index
            )
            return 0
        if made.name in VIEWS:
            return self.length(*VIEWS[made.name](self.kernel, made, value, index))
        if made.name in RULES:
            self.is_fit = value.type.element in NARROW
            return COSTS.get(made.name, 1) + max(self.length(x, index) for x in made.operands)
        self.is_fit = made.name in ("arith.constant", "tt.splat", "tt.make_range")
        return 0

    def _is_even(self, pointer: Value, index: Index) -> bool:
        """Whether the lanes read neighbouring elements, or all the same one."""
        found = self.kernel.at(pointer, index)
        is_one = isinstance(found, Pointer) and found.offset.is_uniform
        return is_one or memory.is_contiguous(found)
