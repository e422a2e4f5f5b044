"""Which tile of rows and columns a program takes: a table by device and by the length of a row.

A row up to `MOST_WHOLE` elements is held by one program from its load to its store. A longer one is
read in steps of a tile's columns, several times where that is needed.
"""

from __future__ import annotations

import functools
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
# On a GPU: 32 elements a thread, the best of 1 to 8 rows by 1 to 32 warps on an H200.
_TABLE = {
    GPU: (
        _Row(2048, 2048, 2),
        _Row(4096, 4096, 4),
        _Row(8192, 8192, 8),
        _Row(16384, 16384, 16),
        _Row(32768, 32768, 32),
    ),
    CPU: (_Row(65536, 4096, 1),),
}
_STEP = {GPU: (8192, 32), CPU: (4096, 1)}
"""Columns and warps of a step over a longer row."""
_SIDE_BY_SIDE = 32
"""Rows of a tile where they, not their elements, lie side by side: a line of memory."""
POINTWISE = {GPU: (2048, 8), CPU: (16384, 1)}
"""Elements and warps of a program over elements that do not depend on each other."""


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def row_tile(
    device: torch.device, rows: Rows, most_whole: int = 1 << 30, steps_at_once: int = 1
) -> Tile:
    """The tile for these rows.

    most_whole: lowers the limit of the table for kernels that hold several tiles at a time.
    steps_at_once: of those through a longer row, for kernels that hold little between them.
    """
    return _row_tile(device.type, rows.count, rows.length, rows.inner, most_whole, steps_at_once)


@functools.lru_cache(4096)
def _row_tile(
    device: str, count: int, length: int, inner: int, most_whole: int, steps_at_once: int
) -> Tile:
    columns = power_of_two(length)
    side_by_side = min(_SIDE_BY_SIDE, power_of_two(inner))
    if columns * side_by_side > min(most_whole, MOST_WHOLE[device]):
        step, num_warps = _STEP[device]
        return Tile(side_by_side, steps_at_once * step // side_by_side, num_warps, False)
    size = columns * side_by_side
    row = next(each for each in _TABLE[device] if size <= each.most_elements)
    together = min(max(side_by_side, row.elements // columns), power_of_two(count))
    return Tile(together, columns, row.num_warps, True)


class _Sums(NamedTuple):
    most_columns: int
    rows: int
    num_warps: int
    at_a_time: int
    """Programs for each multiprocessor."""
    reads_ahead: bool
    """Whether a program loads its next rows before it works on those it has."""


# Sums of a column → up to so many columns → the tile of a kernel that goes on from row to row.
_SUMS = {
    GPU: {
        1: (
            _Sums(256, 4, 4, 8, True),
            _Sums(1024, 1, 4, 8, True),
            _Sums(2048, 1, 8, 4, True),
            _Sums(4096, 1, 16, 2, True),
            _Sums(8192, 1, 32, 1, True),
            _Sums(16384, 1, 16, 1, False),
        ),
        2: (
            _Sums(256, 4, 4, 6, True),
            _Sums(1024, 2, 4, 4, True),
            _Sums(2048, 1, 8, 3, True),
            _Sums(4096, 1, 8, 2, True),
            _Sums(8192, 1, 16, 1, True),
        ),
    },
    CPU: dict.fromkeys(
        (1, 2), (_Sums(512, 8, 1, 1, False), _Sums(2048, 4, 1, 1, False),
                 _Sums(8192, 1, 1, 1, False))
    ),
}  # fmt: skip


def sums_tile(device: torch.device, rows: Rows, sums: int) -> tuple[Tile, _Sums] | None:
    """The tile of a kernel that adds up one or two numbers of each column over rows; None where a
    row is too long for one that holds these sums."""
    columns = power_of_two(rows.length)
    for row in _SUMS[device.type][sums]:
        if columns <= row.most_columns:
            return Tile(row.rows, columns, row.num_warps, True), row
    return None


@functools.cache
def processors(device: torch.device) -> int:
    """How many programs of a large tile run at a time: multiprocessors, or some threads."""
    if is_gpu(device):
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return 4
