"""Requests for the parts of a product's operands that are multiplied next.

They run beside multiplications that wait for nothing, at the pace at which these go on, so that
memory is asked evenly. What lies behind the end of an operand is asked for too: a hint about memory
that nobody reads.
"""

from __future__ import annotations

from typing import NamedTuple

from aotc.aot.targets.cpu import operands
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES
from aotc.aot.targets.cpu.linear import Int, Pointer, integer
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.ttir import Value
from aotc.aot.targets.cpu.writer import constant

LINE_BYTES = 64  # of the cache


class Share(NamedTuple):
    """One of `count` shares of what is asked for."""

    place: Int
    count: int


def of_rows(kernel: Kernel, loaded: Value, first: Index, size: tuple[int, int], own: Share) -> None:
    """Asks for a share of the lines in a part of an operand, which begins at `first`; nothing where
    its elements do not lie in rows or columns at a steady distance."""
    load, item_bytes = loaded.owner, ITEMSIZE_BYTES[loaded.type.element]
    if load is None or load.name != "tt.load" or kernel.guard is not None:
        return
    steps = [operands.step(kernel, load.operands[0], dim) for dim in range(2)]
    if None in steps or 1 not in steps:
        return
    along = steps.index(1)
    lines = -(-size[along] * item_bytes // LINE_BYTES)  # of a row
    rows = size[1 - along]
    requests = -(-lines * rows // own.count)
    lanes = kernel.lanes
    with kernel.width(1):
        start = lanes.multiply(own.place, integer(requests))
        for request in range(requests):
            which = lanes.add(start, integer(request))
            line = lanes.divide(which, integer(lines), remainder=True)
            row = _at_most(kernel, lanes.divide(which, integer(lines), remainder=False), rows - 1)
            moved = [row, row]
            moved[along] = lanes.multiply(line, integer(LINE_BYTES // item_bytes))
            index = tuple(lanes.add(each, more) for each, more in zip(first, moved, strict=True))
            pointer = kernel.at(load.operands[0], index)
            assert isinstance(pointer, Pointer)
            ask(kernel, pointer)


def ask(kernel: Kernel, pointer: Pointer) -> None:
    """Asks for the line of an address, into the second cache."""
    address = kernel.lanes.operand(pointer)
    kernel.writer.effect(f"call void @llvm.prefetch.p0({address}, i32 0, i32 2, i32 1)")


def _at_most(kernel: Kernel, value: Int, most: int) -> Int:
    if value.constant is not None:
        return integer(min(value.constant, most))
    found = kernel.lanes.operand(value)
    return kernel.lanes.atom(
        kernel.writer.call("llvm.smin.i32", "i32", [found, constant(most, "i32")]), "i32"
    )
