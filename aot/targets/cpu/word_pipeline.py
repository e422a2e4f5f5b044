"""Products by words, or of floats, that end in stores, and whose operands both stand in memory.

    for each block of the result:
        for k in …:                    the loop around the product, with the sums in registers
        the block through the stores

A loop around a product that adds up a short depth a turn would take its sums from memory and leave
them there each time. Windows have such depths: the channels of a kernel offset, or of a row of
them. Where a turn is deep, its sums are added to those of the turns before, of one block: these
stay in the nearest cache, and rows of the left operand are read to their end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from aotc.aot.targets.cpu import (
    control,
    depths,
    dot,
    fused_store,
    operands,
    tile_dot,
    tiles,
    word_sides,
)
from aotc.aot.targets.cpu.dot_tiles import Tile, choose_tile
from aotc.aot.targets.cpu.evaluate import Kernel, StoredProduct
from aotc.aot.targets.cpu.linear import Int
from aotc.aot.targets.cpu.tile_pipeline import start_of
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.word_sides import Instruction
from aotc.aot.targets.cpu.writer import Operand, constant

MOST_DEPTH = 128  # of a turn of words: where it is longer, sums in memory cost little
MOST_WHOLE_DEPTH = 512  # of a sum of f32
MOST_LANES = 2  # vectors of columns of f32: more are worth a copy of the windows
REGISTERS = 32  # that a block of sums needs beside what the loop around carries
RunBut: TypeAlias = Callable[[Operation, Operation], None]
"""Lowers the block of a loop without one of its operations."""


def write(kernel: Kernel, stored: StoredProduct, run: RunBut) -> bool:
    """Lowers a product with its stores, if it suits; else False, and nothing is written."""
    product = _product(kernel, stored, run)
    if product is None:
        return False
    with kernel.width(1):
        dot.multiply(kernel, product)
    return True


def _product(kernel: Kernel, stored: StoredProduct, run: RunBut) -> dot.Product | None:
    operation, shape = stored.dot, stored.dot.results[0].type.shape or ()
    depth = (operation.operands[0].type.shape or (0, 0))[-1]
    if stored.operation is operation or len(shape) != 2:
        return None
    if kernel.isa.registers < REGISTERS or not operands.is_zero(kernel, start_of(stored)):
        return None
    is_deep = depth > MOST_DEPTH
    instruction, kept = (None, depth) if is_deep else _instruction(kernel, stored, run)
    if instruction is None and not _is_direct(kernel, stored, run):
        return None
    whole_depth = _depth(kernel, stored)
    is_short = 0 < whole_depth <= MOST_WHOLE_DEPTH
    limits = fused_store.limits(stored, kernel)
    kind = operation.results[0].type.element
    pack = 1 if instruction is None else instruction.pack
    tile = choose_tile(kernel, *shape, kept // pack, kind, limits[1])

    turns = functools.partial(_turns, kernel, stored, run, instruction, kept, tile)
    if shape[0] < tile.rows:
        return None
    with kernel.probe(), kernel.width(1), turns([]) as turn:
        of_left = depths.depths_of(kernel, operation)[0] if turn.limit is not None else None
        if of_left is not None and not tiles.end_at_multiples((of_left.end,), tile.unroll):
            tile = tile._replace(unroll=1)
        turn.loop.next_values = []
    return dot.Product(
        turn.a,
        turn.b,
        instruction,
        (shape[0], shape[1]),
        None,
        kept,
        constant(kept, "i32"),
        kind,
        tile,
        is_new=True,
        is_apart=is_deep and operands.is_apart(operation) and not is_short,
        limits=limits,
        stored=stored,
        is_last=None,
        turns=turns,
        whole_depth=whole_depth,
    )


@contextmanager
def _turns(
    kernel: Kernel,
    stored: StoredProduct,
    run: RunBut,
    instruction: Instruction | None,
    kept: int,
    tile: Tile,
    start: Sequence[Operand],
) -> Iterator[dot.Turn]:
    """The turns of the loop around a product, which carry the sums from `start` on."""
    operation, rows = stored.dot, (stored.dot.results[0].type.shape or ())[0]
    left, right = operation.operands[:2]
    with control.turns(kernel, stored.operation, {operation.operands[2]}, start) as loop:
        run(stored.operation, operation)
        if instruction is not None:
            columns = tile.vectors * tile.width
            words = word_sides.left_of(kernel, left, instruction, kept)
            panel = word_sides.right_of(kernel, right, columns, instruction, kept)
            yield dot.Turn(loop, words, panel)
            return
        of_left, of_right = depths.depths_of(kernel, operation)
        a = dot.side(kernel, operation, rows, is_left=True, depth=of_left)
        b = dot.side(kernel, operation, rows, is_left=False, depth=of_right)
        ends = () if of_left is None else (of_left.end,)
        yield dot.Turn(loop, a, b, tiles.limit(kernel, ends, kept)[0] if ends else None)


@contextmanager
def _turn(kernel: Kernel, stored: StoredProduct, run: RunBut) -> Iterator[None]:
    """Inside, a turn of the loop around a product has come to it; nothing of it is written."""
    operation = stored.dot
    with (
        kernel.probe(),
        kernel.width(1),
        control.turns(kernel, stored.operation, {operation.operands[2]}) as loop,
    ):
        run(stored.operation, operation)
        yield
        loop.next_values = []


def _is_direct(kernel: Kernel, stored: StoredProduct, run: RunBut) -> bool:
    """Whether f32 are multiplied where both operands stand: many a turn, or in few columns and a
    sum no longer than one that is added up at once elsewhere."""
    operation = stored.dot
    rows, columns = operation.results[0].type.shape or (0, 0)
    kinds = {each.type.element for each in operation.operands}
    if len(kinds) > 1 or not kinds & {"f32", "f64"}:
        return False
    is_deep = (operation.operands[0].type.shape or (0, 0))[1] > MOST_DEPTH
    if is_deep and rows < dot.FEWEST_ROWS:  # rows of the right operand may be far apart
        return False
    is_narrow = kinds == {"f32"} and columns <= MOST_LANES * kernel.isa.lanes
    is_short = 0 < _depth(kernel, stored) <= MOST_WHOLE_DEPTH
    if not is_deep and not (is_narrow and is_short):
        return False
    with _turn(kernel, stored, run):
        ends = depths.depths_of(kernel, operation)
        return all(
            dot.is_direct(
                kernel, value, rows, is_left, is_cut=is_deep and end is not None and end.is_whole
            )
            for value, end, is_left in zip(operation.operands, ends, (True, False), strict=False)
        )


def _depth(kernel: Kernel, stored: StoredProduct) -> int:
    """Of all turns of the loop around a product; 0 where that is not known."""
    depth = (stored.dot.operands[0].type.shape or (0, 0))[1]
    ends = [kernel.scalars[x] for x in stored.operation.operands[:3]]
    known = [each.constant for each in ends if isinstance(each, Int) and each.constant is not None]
    return len(range(*known)) * depth if len(known) == len(ends) else 0


def _instruction(
    kernel: Kernel, stored: StoredProduct, run: RunBut
) -> tuple[Instruction | None, int]:
    """By which words are multiplied where both operands stand in memory as words are read, else
    None; and elements of the depth without those that both masks leave out. Where they stand may
    depend on the turn."""
    operation = stored.dot
    with _turn(kernel, stored, run):
        left, right = operation.operands[:2]
        whole, kept = (left.type.shape or (0, 0))[1], depths.kept(kernel, operation)
        load = operands.plain_load(kernel, left, is_cut=kept < whole)
        found = None
        if tile_dot.shape_of(kernel, operation) is None:
            found = word_sides.instruction_of(kernel, operation)
        is_read = (
            load is not None and operands.step(kernel, load.operands[0], 1, may_be_kept=True) == 1
        )
        if found is not None and not (
            is_read
            and kept % found.pack == 0
            and word_sides.is_in_place(kernel, right, found, kept)
        ):
            found = None
    return found, kept
