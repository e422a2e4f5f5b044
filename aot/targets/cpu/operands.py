"""How the elements of a product's operands lie in memory: a row's distance from the next, pairs;
and how they are added up."""

from __future__ import annotations

import math

from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.linear import Int, Lane, Linear, Pointer, integer
from aotc.aot.targets.cpu.memory import CONTIGUOUS, Index
from aotc.aot.targets.cpu.ttir import Dense, Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

MOST_APART = "maxNumImpreciseAcc"
"""Attribute of a dot: how many products may be added up before they go to the accumulator. It is 0,
which sets no limit, unless a kernel says otherwise (`max_num_imprecise_acc` in Triton)."""


def is_apart(dot: Operation) -> bool:
    """Whether products are added up by themselves before they go to the accumulator.

    Integers are exact in any order.
    """
    is_float = dot.results[0].type.element in ("f32", "f64")
    return is_float and dot.integer(MOST_APART) != 1


def plain_load(kernel: Kernel, value: Value, *, is_cut: bool = False) -> Operation | None:
    """The load that a value is, if it is one without a mask whose elements stand nowhere else.
    is_cut: nothing is read where its mask does not hold, so that it may have one."""
    load = value.owner
    if load is None or load.name != "tt.load" or (len(load.operands) > 1 and not is_cut):
        return None
    is_elsewhere = value in kernel.buffers or value in kernel.pending
    is_checked = kernel.guard is not None or load.integer("isVolatile")
    return None if is_elsewhere or is_checked else load


def is_zero(kernel: Kernel, value: Value) -> bool:
    """Whether a tensor is zeros that stand nowhere in memory."""
    made = value.owner
    if made is None or made.name != "arith.constant" or value in kernel.buffers:
        return False
    found = made.attributes["value"]
    numbers = found.values if isinstance(found, Dense) else (found,)
    return all(number == 0 and math.copysign(1, float(number)) > 0 for number in numbers)


def step(kernel: Kernel, pointer: Value, dim: int, *, may_be_kept: bool = False) -> int | None:
    """Elements from one place of a dimension to the next; None where that varies, and where what
    the other dimension adds is kept in memory, unless that `may_be_kept`."""
    with kernel.width(1), kernel.probe(), kernel.probe(may_skip=not may_be_kept) as depth:
        place = Operand("%place", "i32", depth)
        index = [integer(0), integer(0)]
        index[dim] = kernel.lanes.atom(place, "i32", natural=True)
        found = kernel.at(pointer, tuple(index))
        if not isinstance(found, Pointer) or found.base.depth == depth:
            return None
        varying = [row for row in found.offset.base.terms if row[0].operand.depth == depth]
        if len(varying) > 1 or any(atom.origin != place for atom, _ in varying):
            return None
        return sum(factor for _, factor in varying)


def row_step(kernel: Kernel, pointer: Value, rows: int, columns: int) -> int | None:
    """Elements of memory from one row of a block to the next, where each block of so many rows and
    columns has its rows at a steady distance and their elements side by side; else None."""
    with kernel.probe() as outer, kernel.probe() as depth:
        first, step = _block(kernel, pointer, (rows, columns), (outer, depth), 1)[0]
        return step if first is not None and first.offset.stride == CONTIGUOUS else None


def word_step(kernel: Kernel, pointer: Value, pack: int, block: tuple[int, int]) -> int | None:
    """Elements from `pack` rows to the next ones, where in each block of so many rows and columns
    these lie side by side: element (k, n) at place pack · n + k mod pack of word k / pack. None
    where they do not."""
    with kernel.probe() as outer, kernel.probe() as depth:
        found = _block(kernel, pointer, block, (outer, depth), pack)
        first, step = found[0]
        if first is None:
            return None
        for place, (other, own) in enumerate(found):
            if other is None or own != step or other.offset.stride != Linear((), pack):
                return None
            if kernel.lanes.add(other.offset, first.offset, -1).constant != place:
                return None
        return step


def is_paired(kernel: Kernel, value: Value, wide: str) -> bool:
    """Whether the right operand is bf16 that is read two rows at a time, an aligned pair each."""
    depth, columns = value.type.shape or (1, 1)
    if value.type.element != "bf16" or wide != "f32" or depth % 2 or columns < 2:
        return False
    load, width = plain_load(kernel, value), min(kernel.isa.lanes, columns)
    found = None if load is None else word_step(kernel, load.operands[0], 2, (2, width))
    return found is not None


def of_pairs(kernel: Kernel, value: Value, index: Index) -> Operand:
    """One row's elements of words of a pair of rows, as f32: the upper or the lower half."""
    lanes, load = kernel.lanes, value.owner
    assert load is not None
    row, column = index
    which = lanes.divide(row, integer(2), remainder=True).constant
    assert which is not None
    pointer = kernel.at(load.operands[0], (lanes.add(row, integer(-which)), column))
    assert isinstance(pointer, Pointer)
    first = pointer.at(Int(pointer.offset.kind, pointer.offset.base))
    address, kind = lanes.operand(first), lanes.vector_type("i32")
    text, min_depth = f"load {kind}, {address}, align 2", kernel.min_depth(load)
    words = kernel.writer.load(text, kind, [address], min_depth)
    if which:
        words = lanes.binary("and", words, constant(-65536, "i32"))
    else:
        words = lanes.binary("shl", words, constant(16, "i32"))
    return lanes.cast("bitcast", words, "float")


def _block(
    kernel: Kernel, pointer: Value, size: tuple[int, int], depths: tuple[int, int], factor: int
) -> list[tuple[Pointer | None, int]]:
    """For each row below `factor`: the pointers at row `factor` · x of some block and so many
    further, its columns as lanes, with the step along x; None where that varies."""
    marks = [Operand(f"%block{each}", "i32", depths[0]) for each in range(2)]
    mark = Operand("%row", "i32", depths[1])
    found = []
    with kernel.width(size[1]):
        lanes = kernel.lanes
        block = [
            lanes.atom(each, "i32", multiple, natural=True)
            for each, multiple in zip(marks, size, strict=True)
        ]
        x = lanes.multiply(lanes.atom(mark, "i32", natural=True), integer(factor))
        for start in range(factor):
            row = lanes.add(lanes.add(block[0], x), integer(start))
            at = kernel.at(pointer, (row, Int("i32", block[1].base, Linear((), 1))))
            found.append(_with_step(at, mark))
    return found


def _with_step(found: Lane, mark: Operand) -> tuple[Pointer | None, int]:
    if not isinstance(found, Pointer) or found.base.depth == mark.depth:
        return None, 0
    terms = (*found.offset.base.terms, *found.offset.stride.terms)
    varying = [(atom.origin, step) for atom, step in terms if atom.operand.depth == mark.depth]
    if any(origin != mark for origin, _ in varying) or len(varying) > 1:
        return None, 0
    return found, varying[0][1] if varying else 0
