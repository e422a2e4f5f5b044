"""Which tile of rows and columns a program takes: a table by device and by the length of a row.

A row up to `MOST_WHOLE` elements is held by one program from its load to its store. A longer one is
read in steps of a tile's columns, several times where that is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from aotc.kernels.library.devices import CPU, GPU, is_gpu
from aotc.kernels.library.layouts import Rows

MOST_WHOLE = {GPU: 32768, CPU: 65536}
"""Elements of a row that one program holds. On a GPU 32 warps hold 32 each of 32,768 in registers;
on the CPU a row is read again from its cache."""


class Tile(NamedTuple):
    """rows, columns: powers of two. is_whole: whether the columns are all of a row."""

    rows: int
    columns: int
    num_warps: int
    is_whole: bool

    def grid(self, rows: Rows) -> tuple[int, ...]:
        """One program for each tile's rows; none where there are no elements."""
        return (-(-rows.count // self.rows) if rows.length else 0,)

    @property
    def constants(self) -> dict[str, Any]:
        """What kernels over rows take of it."""
        return {
            "ROWS": self.rows, "COLUMNS": self.columns, "WHOLE": self.is_whole,
            "num_warps": self.num_warps,
        }  # fmt: skip


class _Row(NamedTuple):
    most_elements: int
    elements: int
    """Of a tile, at least: short rows go together."""
    num_warps: int


# Up to so many elements (of one row, or of rows side by side) → those of a tile, and its warps.
_TABLE = {
    GPU: (
        _Row(256, 1024, 4),
        _Row(1024, 2048, 4),
        _Row(2048, 2048, 4),
        _Row(4096, 4096, 8),
        _Row(8192, 8192, 8),
        _Row(16384, 16384, 16),
        _Row(32768, 32768, 32),
    ),
    CPU: (_Row(65536, 4096, 1),),
}
_STEP = {GPU: (8192, 16), CPU: (4096, 1)}
"""Columns and warps of a step over a longer row."""
_SIDE_BY_SIDE = 32
"""Rows of a tile where they, not their elements, lie side by side: a line of memory."""
POINTWISE = {GPU: (2048, 8), CPU: (16384, 1)}
"""Elements and warps of a program over elements that do not depend on each other."""


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def row_tile(device: torch.device, rows: Rows, most_whole: int = 1 << 30) -> Tile:
    """The tile for these rows; `most_whole` lowers the limit of the table for kernels that hold
    several tiles at a time."""
    columns = power_of_two(rows.length)
    side_by_side = min(_SIDE_BY_SIDE, power_of_two(rows.inner))
    if columns * side_by_side > min(most_whole, MOST_WHOLE[device.type]):
        step, num_warps = _STEP[device.type]
        return Tile(side_by_side, step // side_by_side, num_warps, False)
    size = columns * side_by_side
    row = next(each for each in _TABLE[device.type] if size <= each.most_elements)
    count = min(max(side_by_side, row.elements // columns), power_of_two(rows.count))
    return Tile(count, columns, row.num_warps, True)


def processors(device: torch.device) -> int:
    """How many programs of a large tile run at a time: multiprocessors, or some threads."""
    if is_gpu(device):
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return 4
