"""How the arguments and results of a graph belong to a program's inputs and outputs, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.aten_graph import Fixed, Imported, Made, Passed, Sized, Taken, Viewed
from aotc.aot.capture.sizes import Sizes
from aotc.aot.errors import DimUnreadable
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.plan import SizeTable
from aotc.runtime.extent import Row


@dataclass(frozen=True, slots=True)
class Numbered:
    """A result that is a size of the call: value `index` of the interface's rows."""

    index: int


@dataclass(frozen=True, slots=True)
class Interface:
    """One graph's. Plain data: it is stored beside torch's own record of a compiled function.

    dims: where each size of a call is read: (argument, axis), or (argument, None) where the
    argument is the number itself. rows: what is computed of them, as `runtime/extent.py` has it.
    """

    taken: tuple[Taken, ...]
    results: tuple[Made | Passed | Viewed | Fixed | Numbered, ...]
    dims: tuple[tuple[int, int | None], ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def has_program(self) -> bool:
        """Whether anything is computed."""
        return any(isinstance(row, Made) for row in self.results)


def interface_of(imported: Imported, arguments: Sequence[Any], sizes: Sizes) -> Interface:
    """The interface of an imported graph; `arguments` are its examples, fake tensors and numbers.

    Raises `DimUnreadable` for a size that no argument shows.
    """
    table = SizeTable(sizes.dims)
    results = tuple(
        Numbered(table.index(row.size)) if isinstance(row, Sized) else row
        for row in imported.results
    )
    dims = tuple(_read(dim, arguments, sizes) for dim in sizes.dims)
    return Interface(imported.taken, results, dims, tuple(table.rows))


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
