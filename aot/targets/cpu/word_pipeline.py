"""Products by words that end in stores and whose operands both stand in memory, block by block.

    for each block of the result:
        for k in …:                    the loop around the product, with the sums in registers
        the block through the stores

A loop around a product that adds up a short depth a turn would take its sums from memory and leave
them there each time. Windows have such depths: the channels of a kernel offset, or of a row of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from aotc.aot.targets.cpu import control, depths, dot, fused_store, operands, tile_dot, word_sides
from aotc.aot.targets.cpu.dot_tiles import choose_tile
from aotc.aot.targets.cpu.evaluate import Kernel, StoredProduct
from aotc.aot.targets.cpu.tile_pipeline import start_of
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.word_sides import Instruction
from aotc.aot.targets.cpu.writer import Operand, constant

MOST_DEPTH = 128  # of a turn: where it is longer, sums in memory cost little
REGISTERS = 32  # that a block of sums needs beside what the loop around carries
RunBut: TypeAlias = Callable[[Operation, Operation], None]
"""Lowers the block of a loop without one of its operations."""


def write(kernel: Kernel, stored: StoredProduct, run: RunBut) -> bool:
    """Lowers a product with its stores, if it suits; else False, and nothing is written."""
    product = _product(kernel, stored, run)
    if product is None:
        return False
    with kernel.width(1):
        dot.strips(kernel, product)
    return True


def _product(kernel: Kernel, stored: StoredProduct, run: RunBut) -> dot.Product | None:
    operation, shape = stored.dot, stored.dot.results[0].type.shape or ()
    depth = (operation.operands[0].type.shape or (0, 0))[-1]
    if stored.operation is operation or len(shape) != 2 or depth > MOST_DEPTH:
        return None
    if kernel.isa.registers < REGISTERS or not operands.is_zero(kernel, start_of(stored)):
        return None
    instruction, kept = _instruction(kernel, stored, run)
    if instruction is None:
        return None
    limits = fused_store.limits(stored, kernel)
    kind = operation.results[0].type.element
    tile = choose_tile(kernel, *shape, kept // instruction.pack, kind, limits[1])

    @contextmanager
    def turns(start: Sequence[Operand]) -> Iterator[dot.Turn]:
        with control.turns(kernel, stored.operation, {operation.operands[2]}, start) as loop:
            run(stored.operation, operation)
            a = word_sides.left_of(kernel, operation.operands[0], instruction, kept)
            columns = tile.vectors * tile.width
            b = word_sides.right_of(kernel, operation.operands[1], columns, instruction, kept)
            yield dot.Turn(loop, a, b)

    if shape[0] < tile.rows:
        return None
    with kernel.probe(), kernel.width(1), turns([]) as turn:
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
        is_apart=False,
        limits=limits,
        stored=stored,
        is_last=None,
        turns=turns,
    )


def _instruction(
    kernel: Kernel, stored: StoredProduct, run: RunBut
) -> tuple[Instruction | None, int]:
    """By which words are multiplied where both operands stand in memory as words are read, else
    None; and elements of the depth without those that both masks leave out. Where they stand may
    depend on the turn."""
    operation = stored.dot
    with (
        kernel.probe(),
        kernel.width(1),
        control.turns(kernel, stored.operation, {operation.operands[2]}) as loop,
    ):
        run(stored.operation, operation)
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
        loop.next_values = []
    return found, kept
