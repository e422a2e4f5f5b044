"""Blocks of accumulators: how many rows and vectors of a product stay in registers at a time."""

from __future__ import annotations

from typing import NamedTuple

from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES
from aotc.aot.targets.cpu.writer import Operand

# About what a core of 2022 to 2025 takes, in cycles (AMD Zen 5, Intel Sapphire Rapids).
LATENCY = 4.5  # a multiply-add; two begin a cycle
NEAR_LOAD = 0.25  # a load from the nearest cache beside multiply-adds
FAR_LOAD = 1.0  # that a vector of the right operand takes longer, from the second cache
TALLEST, WIDEST = 8, 8  # rows and vectors of a tile
TALLEST_NARROW = 16  # rows of a tile of one vector
CUT_COLUMNS = 32  # of a strip, where it is not known how many are asked for


class Tile(NamedTuple):
    """Shape of the block of accumulators: `rows` × `vectors` vectors of `width` lanes."""

    rows: int
    vectors: int
    width: int
    unroll: int


def choose_tile(
    kernel: Kernel,
    rows: int,
    columns: int,
    depth: int,
    kind: str = "f32",
    wanted: Operand | None = None,
    unit: int = 0,
) -> Tile:
    """The block of accumulators that multiplies so many rows and columns in the fewest cycles.

    wanted: columns that anybody asks for, if not all of them are. unit: a strip may have any
    multiple of so many columns; 0: powers of two alone.
    """
    width = min(kernel.isa.lanes * ITEMSIZE_BYTES["f32"] // ITEMSIZE_BYTES[kind], columns)
    is_known = wanted is None or wanted.text.isdigit()
    count = int(wanted.text) if wanted is not None and is_known else columns
    most = columns if is_known else min(columns, CUT_COLUMNS)
    across = [v for v in range(1, WIDEST + 1) if v * width <= most]
    across = [v for v in across if v in (1, 2, 4, 8) or (unit and v * width % unit == 0)]
    across = [v for v in across if -(-count // (v * width)) * v * width <= columns]
    fitting = [
        (tall, vectors)
        for vectors in [v for v in across if v > 1] or across
        for tall in range(1, min(rows, TALLEST if vectors > 1 else TALLEST_NARROW) + 1)
        if tall * vectors + (2 + vectors if tall > 1 else 3) <= kernel.isa.registers
    ]

    def cycles(block: tuple[int, int]) -> float:
        strips = -(-count // (block[1] * width))
        return strips * _rows_cycles(rows, *block, rest_height(rows, *block))

    tall, vectors = min(fitting, key=cycles)
    unroll = 4 if vectors == 1 and depth % 4 == 0 else 2 if depth % 2 == 0 else 1
    return Tile(tall, vectors, width, unroll)


def rest_height(rows: int, tall: int, vectors: int) -> int:
    """Height of the blocks behind those of full height: of one with the rows that are left, or of
    two with these and a full block's, where that takes less time; 0: no rows are left."""
    rest = rows % tall
    half = (tall + rest) // 2
    if not rest or rows < tall + rest or (tall + rest) % 2:
        return rest
    heights = rest, half
    return min(heights, key=lambda height: _rows_cycles(rows, tall, vectors, height))


def _rows_cycles(rows: int, tall: int, vectors: int, height: int) -> float:
    """Cycles of a strip for one element of the depth, with blocks of a height behind full ones."""
    if not height:
        return rows // tall * _step(tall, vectors)
    count = 1 if rows % tall == height else 2
    whole = (rows - count * height) // tall
    return whole * _step(tall, vectors) + count * _step(height, vectors)


def _step(rows: int, vectors: int) -> float:
    """Cycles of a tile for one element of the depth: a load for each row and each vector."""
    return max(rows * vectors / 2, LATENCY) + NEAR_LOAD * (rows + vectors) + FAR_LOAD * vectors
