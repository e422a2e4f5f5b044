"""Which tile of rows and columns a program takes: tables by device, kernel and length of a row.

A row up to a limit of the table is held by one program from its load to its store. A longer one is
read in steps of a tile's columns, several times where that is needed.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

from aotc.kernels.library.devices import CPU, GPU, is_gpu
from aotc.kernels.library.layouts import Rows


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


class _Step(NamedTuple):
    columns: int
    num_warps: int


class _Kernel(NamedTuple):
    """whole: up to so many elements (of one row, or of rows side by side) → those of a tile, and
    its warps. step: of what is longer."""

    whole: tuple[_Row, ...]
    step: _Step


# On a GPU: 32 elements a thread for most, the best of 1 to 8 rows by 1 to 32 warps on an H200. On
# the CPU a row is read again from its cache.
_WHOLE = (
    _Row(2048, 2048, 2),
    _Row(4096, 4096, 4),
    _Row(8192, 8192, 8),
    _Row(16384, 16384, 16),
    _Row(32768, 32768, 32),
)
_WHOLE_CPU = (_Row(65536, 4096, 1),)
TILES = {
    GPU: {
        "softmax": _Kernel(_WHOLE, _Step(16384, 32)),
        "softmax gradient": _Kernel(_WHOLE, _Step(16384, 32)),
        "losses": _Kernel(_WHOLE[:2], _Step(4096, 8)),
        "layer norm": _Kernel(
            (*_WHOLE[:3], _Row(16384, 16384, 8), _Row(32768, 32768, 16)),
            _Step(8192, 8),
        ),
        "rms norm": _Kernel((*_WHOLE[:3], _Row(16384, 16384, 8)), _Step(8192, 32)),
        "group norm": _Kernel(_WHOLE, _Step(8192, 8)),
        "norm gradient": _Kernel(_WHOLE[:-1], _Step(16384, 32)),
        "group gradients": _Kernel((), _Step(16384, 16)),
    },
    CPU: {
        "softmax": _Kernel(_WHOLE_CPU, _Step(4096, 1)),
        "softmax gradient": _Kernel(_WHOLE_CPU, _Step(8192, 1)),
        "losses": _Kernel(_WHOLE_CPU, _Step(4096, 1)),
        "layer norm": _Kernel(_WHOLE_CPU, _Step(4096, 1)),
        "rms norm": _Kernel(_WHOLE_CPU, _Step(4096, 1)),
        "group norm": _Kernel(_WHOLE_CPU, _Step(4096, 1)),
        "norm gradient": _Kernel((_Row(16384, 4096, 1),), _Step(4096, 1)),
        "group gradients": _Kernel((), _Step(4096, 1)),
    },
}
_SIDE_BY_SIDE = 32
"""Rows of a tile where they, not their elements, lie side by side: a line of memory."""
_MOST_SIDE_BY_SIDE = 8192
"""Elements of their tiles: of f64 as much as shared memory exchanges between threads."""
POINTWISE = {GPU: (2048, 8), CPU: (16384, 1)}
"""Elements and warps of a program over elements that do not depend on each other."""


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def row_tile(device: torch.device, rows: Rows, kernel: str) -> Tile:
    """The tile of a kernel, a key of the table, for these rows."""
    return _row_tile(device.type, rows.count, rows.length, rows.inner, kernel)


@functools.lru_cache(4096)
def _row_tile(device: str, count: int, length: int, inner: int, kernel: str) -> Tile:
    whole, step = TILES[device][kernel]
    columns = power_of_two(length)
    side_by_side = min(_SIDE_BY_SIDE, power_of_two(inner))
    size = columns * side_by_side
    for row in whole:
        if size <= row.most_elements:
            together = min(max(side_by_side, row.elements // columns), power_of_two(count))
            return Tile(together, columns, row.num_warps, True)
    most = step.columns if side_by_side == 1 else min(step.columns, _MOST_SIDE_BY_SIDE)
    return Tile(side_by_side, most // side_by_side, step.num_warps, False)


class Persistent(NamedTuple):
    """The tile of a kernel that goes on from row to row, for rows up to `most_columns`.

    most_columns: of a row, rounded up to a power of two. rows: of a tile, a power of two.
    at_a_time: programs for each multiprocessor.
    reads_ahead: whether a program loads its next rows before it works on those it has.
    keeps_weights: whether it keeps the weights of its columns from row to row.
    """

    most_columns: int
    rows: int
    num_warps: int
    at_a_time: int
    reads_ahead: bool = False
    keeps_weights: bool = True

    def programs(self, device: torch.device, count: int, groups: int) -> int:
        """How many programs share `count` rows of each of so many groups."""
        return min(-(-count // self.rows), max(1, self.at_a_time * processors(device) // groups))


_CPU_SUMS = (
    Persistent(512, 8, 1, 1, False),
    Persistent(2048, 4, 1, 1, False),
    Persistent(8192, 1, 1, 1, False),
)
# What a kernel keeps while it goes on from row to row → up to so many columns → its tile.
_PERSISTENT = {
    GPU: {
        "a loss": (
            Persistent(1024, 2, 1, 20, True),
            Persistent(2048, 1, 1, 16, True),
            Persistent(4096, 1, 2, 8, True),
        ),
        "one sum a column": (
            Persistent(256, 4, 4, 8, True),
            Persistent(1024, 2, 4, 5, True, False),
            Persistent(2048, 1, 8, 4, True, False),
            Persistent(4096, 1, 16, 2, True, False),
            Persistent(8192, 1, 16, 2, False, False),
            Persistent(16384, 1, 32, 1, False, False),
        ),
        "two sums a column": (
            Persistent(256, 4, 4, 6, True),
            Persistent(1024, 2, 4, 4, True),
            Persistent(2048, 1, 4, 4, True, False),
            Persistent(4096, 1, 8, 2, True),
            Persistent(8192, 1, 16, 1, True),
        ),
        "sums of channels": (
            Persistent(512, 4, 2, 8),
            Persistent(1024, 2, 2, 8),
            Persistent(2048, 1, 2, 8),
            Persistent(4096, 1, 4, 4),
            Persistent(8192, 1, 8, 2),
            Persistent(16384, 1, 16, 1),
        ),
    },
    CPU: {
        "a loss": (),
        "one sum a column": _CPU_SUMS,
        "two sums a column": _CPU_SUMS,
        "sums of channels": _CPU_SUMS,
    },
}  # fmt: skip


@functools.lru_cache(4096)
def persistent_tile(device: str, count: int, columns: int, keeps: str) -> Persistent | None:
    """The tile for `count` rows of so many columns, a power of two, of a kernel that keeps `keeps`,
    a key of the table; None where a row is too long for one program."""
    for tile in _PERSISTENT[device][keeps]:
        if columns <= tile.most_columns:
            return tile._replace(rows=min(tile.rows, power_of_two(count)))
    return None


@functools.cache
def processors(device: torch.device) -> int:
    """How many programs of a large tile run at a time: multiprocessors, or some threads."""
    if is_gpu(device):
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return 4
