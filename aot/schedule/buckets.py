"""Ranges of sizes that get kernels of their own, since one choice of tiles does not suit them all.

A plan has a variant for each bucket: a range of each dim. The narrower a range, the more its
kernels may take for granted, up to the example's own sizes, for which all is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import isqrt

from aotc.aot.ir.size import Dim

# First sizes of the ranges of the dim with the most elements, and of the next one.
CUTS = ((9, 128), (16,))
SPREAD = 4  # typical over smallest size of a range that the example is not in


def buckets(dims: Sequence[Dim], has_example: bool = True) -> list[tuple[Dim, ...]]:
    """Ranges of all dims that together cover every call; the first that holds a call serves it.

    The example's sizes come first, unless not `has_example`, then the ranges, largest sizes first.
    """
    if not dims:
        return [()]
    largest = sorted(dims, key=lambda dim: (-dim.typical, dim.name))
    cuts = dict(zip(largest, CUTS, strict=False))
    parts = [_parts(dim, cuts.get(dim, ())) for dim in dims]
    example = tuple(replace(dim, low=dim.typical, high=dim.typical) for dim in dims)
    return list(dict.fromkeys([*[example] * has_example, *product(*parts)]))


def _parts(dim: Dim, cuts: Sequence[int]) -> list[Dim]:
    """The dim cut into ranges, each with a size of its own that is typical."""
    starts = [dim.low, *(cut for cut in cuts if dim.low < cut <= dim.high)]
    ends = [*(start - 1 for start in starts[1:]), dim.high]
    found = []
    for low, high in zip(starts, ends, strict=True):
        typical = dim.typical
        if not low <= typical <= high:
            typical = max(low, min(isqrt(low * high - 1) + 1, low * SPREAD))
        found.append(replace(dim, low=low, high=high, typical=typical))
    return found[::-1]
