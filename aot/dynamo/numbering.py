"""From an imported graph to the interface of its program: where a call shows its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from aotc.aot.capture.aten_graph import Imported
from aotc.aot.capture.aten_signature import Fixed, Made, Result, Sized, Viewed
from aotc.aot.capture.sizes import Sizes
from aotc.aot.dynamo.calling import Interface, Numbered
from aotc.aot.errors import DimUnreadable
from aotc.aot.ir.size import Dim, Extent, size_of
from aotc.aot.plan import SizeTable


def interface_of(imported: Imported, arguments: Sequence[Any], sizes: Sizes) -> Interface:
    """The interface of an imported graph; `arguments` are its examples, fake tensors and numbers.

    Raises `DimUnreadable` for a size that no argument shows.
    """
    table = SizeTable(sizes.dims)
    results = tuple(_result(row, table) for row in imported.results)
    made = tuple(_made(row, table) for row in imported.made)
    dims = read_dims(arguments, sizes)
    return Interface(imported.taken, made, results, dims, tuple(table.rows))


def numbered(extent: Extent, table: SizeTable) -> int | Numbered:
    """An extent as a number, or as one of the table."""
    return extent if isinstance(extent, int) else Numbered(table.index(extent))


def _made(row: Made, table: SizeTable) -> Made:
    """An output whose strides are numbers of the table."""
    if row.strides is None:
        return row
    return replace(row, strides=tuple(numbered(each, table) for each in row.strides))


def _result(row: Result, table: SizeTable) -> Any:
    """A result whose sizes are numbers of the table."""

    def number(extent: Extent) -> int | Numbered:
        return numbered(extent, table)

    if isinstance(row, Sized):
        return Fixed(row.size) if isinstance(row.size, int) else number(row.size)
    if isinstance(row, Viewed):
        base, shape, strides = (
            tuple(map(number, each)) for each in (row.base, row.shape, row.strides)
        )
        return Viewed(row.is_argument, row.place, base, shape, strides, number(row.offset))
    return row


def read_dims(arguments: Sequence[Any], sizes: Sizes) -> tuple[tuple[int, int | None], ...]:
    """Where each dim of `sizes` is read; raises `DimUnreadable`."""
    return tuple(_read(dim, arguments, sizes) for dim in sizes.dims)


def _read(dim: Dim, arguments: Sequence[Any], sizes: Sizes) -> tuple[int, int | None]:
    for place, value in enumerate(arguments):
        if isinstance(value, torch.SymInt) and _is_dim(value, dim, sizes):
            return place, None
    for place, value in enumerate(arguments):
        if isinstance(value, torch.Tensor):
            for axis, extent in enumerate(value.shape):
                if _is_dim(extent, dim, sizes):
                    return place, axis
    raise DimUnreadable(name=dim.name)


def _is_dim(extent: Any, dim: Dim, sizes: Sizes) -> bool:
    return not isinstance(extent, int) and sizes.symbols.get(extent.node.expr) == size_of(dim)
