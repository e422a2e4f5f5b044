"""Index expressions of dynamic extents: simplified where every call agrees."""

from __future__ import annotations

import itertools

import pytest

from aotc.aot.ir import access
from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Index, Remainder, Symbol
from aotc.aot.ir.size import Dim, size_of, substitute

BATCH, ROWS = Dim("batch", 1, 8, 2), Dim("rows", 2, 9, 4)
batch, rows = size_of(BATCH), size_of(ROWS)


def number(value, sizes):
    return substitute(value, sizes)


def value_of(index: Index, values: dict[str, int], sizes: dict[Dim, int]) -> int:
    """The value by plain floored arithmetic."""
    total = number(index.constant, sizes)
    for atom, coefficient in index.terms:
        if isinstance(atom, Symbol):
            part = values[atom.name]
        elif isinstance(atom, Remainder):
            part = value_of(atom.dividend, values, sizes) % number(atom.divisor, sizes)
        else:
            part = value_of(atom.dividend, values, sizes) // number(atom.divisor, sizes)
        total += part * number(coefficient, sizes)
    return total


RESHAPES = [
    ((batch * rows, 12), (batch, rows, 3, 4)),
    ((batch, rows, 12), (batch * rows, 12)),
    ((batch, 12 * rows), (batch, rows, 4, 3)),
    ((rows, batch), (batch * rows,)),
    ((batch * 3, rows), (3, batch * rows)),
]


@pytest.mark.parametrize(("shape", "source"), RESHAPES)
@pytest.mark.parametrize("sizes", [{BATCH: 1, ROWS: 2}, {BATCH: 3, ROWS: 5}])
def test_reshape_keeps_positions(shape, source, sizes):
    symbols = [Symbol(f"i{axis}", extent) for axis, extent in enumerate(shape)]
    inner = access.through_reshape([ix.of(symbol) for symbol in symbols], shape, source)
    extents = [number(extent, sizes) for extent in shape]
    inside = [number(extent, sizes) for extent in source]
    for place in itertools.product(*map(range, extents)):
        values = {symbol.name: at for symbol, at in zip(symbols, place, strict=True)}
        position = found = 0
        for at, extent in zip(place, extents, strict=True):
            position = position * extent + at
        for part, extent in zip(inner, inside, strict=True):
            at = value_of(part, values, sizes)
            assert 0 <= at < extent
            found = found * extent + at
        assert found == position


def test_heads_of_rows_need_no_division():
    row, column = Symbol("x", batch * rows), Symbol("y", 12)
    split = access.through_reshape(
        (ix.of(row), ix.of(column)), (batch * rows, 12), (batch * rows, 3, 4)
    )
    joined = access.through_reshape(split, (batch * rows, 3, 4), (batch * rows, 12))
    assert joined == (ix.of(row), ix.of(column))


def test_text_names_the_kernel_parameters():
    index = ix.linear((ix.symbol("x", batch), ix.symbol("y", rows)), (batch, rows))
    assert str(index) == "x*size_rows + y"
    assert str(index % rows) == "y"
    assert str(index // rows) == "x"
