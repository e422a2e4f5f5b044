"""Sizes of AOTAutograd's graphs: torch's symbols as dims, with the ranges that its guards hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch

from aotc.aot.capture.sizes import LARGEST_EXTENT, Sizes
from aotc.aot.ir.size import Dim, Size, size_of

FIXED = Sizes({}, (), ())


def sizes_in(examples: Sequence[Any]) -> Sizes:
    """The sizes that the arguments of a graph show: fake tensors, and numbers that are sizes.

    torch checks its own guards before a call, so that none are left to us.
    """
    found: dict[Any, Dim] = {}
    for extent, high in _extents(examples):
        symbol = extent.node.expr
        if symbol.is_Symbol and isinstance(extent.node.hint, int):  # else a ragged dim, or none
            dim = _dim(extent, high)
            known = found.setdefault(symbol, dim)
            found[symbol] = min(known, dim, key=lambda each: each.high)
    return Sizes({symbol: size_of(dim) for symbol, dim in found.items()}, (), ())


def at_sizes(sizes: Sizes, examples: Sequence[Any], arguments: Sequence[Any]) -> Sizes:
    """The same symbols as the numbers that a call's arguments show."""
    known: dict[Any, int] = {}
    for example, value in zip(examples, arguments, strict=True):
        if isinstance(example, torch.SymInt):
            if example.node.expr in sizes.symbols:  # a ragged dim is no number
                known[example.node.expr] = int(value)
        elif isinstance(example, torch.Tensor):
            for extent, number in zip(example.shape, value.shape, strict=True):
                if isinstance(extent, torch.SymInt):
                    known[extent.node.expr] = number
    return Sizes({symbol: known[symbol] for symbol in sizes.symbols}, (), ())


def number_ranges(examples: Sequence[Any], sizes: Sizes) -> dict[int, tuple[int, int]]:
    """Place of each argument that is a number and no tensor's size → what its dim allows."""
    shown = {
        extent.node.expr
        for example in examples
        if isinstance(example, torch.Tensor)
        for extent in example.shape
        if isinstance(extent, torch.SymInt)
    }
    found = {}
    for place, example in enumerate(examples):
        if isinstance(example, torch.SymInt) and example.node.expr not in shown:
            size = sizes.symbols.get(example.node.expr)
            if isinstance(size, int):  # the one number of its range that a dim may be
                found[place] = (size, size)
            for dim in size.dims() if isinstance(size, Size) else ():
                found[place] = (dim.low, dim.high)
    return found


def _extents(examples: Sequence[Any]) -> Iterator[tuple[torch.SymInt, int]]:
    """Each size of a call, with the largest that it may be so that elements fit 31 bits."""
    for example in examples:
        if isinstance(example, torch.SymInt):
            yield example, LARGEST_EXTENT
        elif isinstance(example, torch.Tensor):
            rest = prod(extent for extent in example.shape if isinstance(extent, int))
            for extent in example.shape:
                if isinstance(extent, torch.SymInt):
                    yield extent, LARGEST_EXTENT // max(rest, 1)


def _dim(extent: torch.SymInt, high: int) -> Dim:
    """The dim of a symbol: the range of its guards within what 32 bits address."""
    node = extent.node
    allowed = node.shape_env.var_to_range[node.expr]
    low = int(allowed.lower) if getattr(allowed.lower, "is_Integer", False) else 1
    if getattr(allowed.upper, "is_Integer", False):  # else infinity
        high = min(high, int(allowed.upper))
    low = max(1, low)
    high = max(low, high)
    return Dim(str(node.expr), low, high, min(max(int(node.hint), low), high))
