"""Ranges of sizes that get kernels of their own, since one choice of tiles does not suit them all.

A plan has a variant for each bucket: a range of each dim. The narrower a range, the more its
kernels may take for granted, up to the example's own sizes, for which all is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import isqrt, prod

from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.narrow import dims_of, possible_dims
from aotc.aot.ir.size import Dim, Extent, substitute, typical

# First sizes of the ranges of the dim that the work depends on most, and of the next one. On a GPU
# tiles have 16 to 256 rows, up to four are multiplied without tensor cores; a batch is one often.
Cuts = tuple[tuple[int, ...], tuple[int, ...]]
CUTS: Cuts = ((9, 128), (16,))
FINE_CUTS: Cuts = ((17, 65, 257, 1025), (2, 17))
FINE_CUTS_OF_ONE: Cuts = ((2, 5, 17, 65, 257, 1025), ())  # where no other dim is cut
SPREAD = 4  # typical over smallest size, at most, of a range that the example is not in
LEAST_GROWTH = 2  # of the work over the range of a dim that is cut
NOT_COMPUTED = frozenset({"input", "constant", "scalar", "extent", "view"})


def buckets(graph: Graph, is_fine: bool = False, has_example: bool = True) -> list[tuple[Dim, ...]]:
    """Ranges of all dims that together cover every call; the first that holds a call serves it.

    The example's sizes come first, unless not `has_example`, then the ranges, largest sizes first.
    is_fine: by factors of four, as tiles of a GPU want it.
    """
    dims = possible_dims(graph)
    if not dims:
        return [()]
    by_growth, cuts = _by_growth(graph, dims), CUTS
    if is_fine:
        cuts = FINE_CUTS if len(by_growth) > 1 else FINE_CUTS_OF_ONE
    return ranges(dims, by_growth, cuts, has_example)


def ranges(
    dims: Sequence[Dim], by_growth: Sequence[Dim], cuts: Cuts, has_example: bool = True
) -> list[tuple[Dim, ...]]:
    """The ranges of dims of which these are cut; see `buckets`."""
    example = tuple(replace(dim, low=dim.typical, high=dim.typical) for dim in dims)
    sizes = dict(zip(by_growth, cuts, strict=False))
    parts = [_parts(dim, sizes.get(dim, ())) for dim in dims]
    return list(dict.fromkeys([*[example] * has_example, *product(*parts)]))


def _by_growth(graph: Graph, dims: Sequence[Dim]) -> list[Dim]:
    """The dims over whose range the work grows, those with which it grows most first.

    The length of a cache that prompts are written to changes where they are written, and no tile.
    """
    whole = sum(map(_work, nodes_within(graph)))

    def growth(own: Dim, possible: Dim) -> float:
        ends = (possible.low, possible.high)
        low, high = (typical(substitute(whole, {own: each})) for each in ends)
        return high / max(low, 1)

    found = dict(zip(dims, map(growth, dims_of(graph), dims), strict=True))
    grows = [dim for dim in dims if found[dim] >= LEAST_GROWTH]
    return sorted(grows, key=lambda dim: (-found[dim], dim.name))


def _work(node: Node) -> Extent:
    """The multiplications of a product, the elements of what else is computed."""
    if node.kind in NOT_COMPUTED:
        return 0
    if node.kind in ("matmul", "matmul_packed"):
        return node.type.numel * node.inputs[0].shape[-1]
    if node.kind == "attention":
        query, key = (operand.shape for operand in node.inputs[:2])
        return prod(query) * key[2]
    return node.inputs[0].type.numel if node.kind == "reduce" else node.type.numel


def _parts(dim: Dim, sizes: Sequence[int]) -> list[Dim]:
    """The dim cut into ranges, each with a size of its own that is typical."""
    starts = [dim.low, *(size for size in sizes if dim.low < size <= dim.high)]
    ends = [*(start - 1 for start in starts[1:]), dim.high]
    found = []
    for low, high in zip(starts, ends, strict=True):
        typical_size = dim.typical
        if not low <= typical_size <= high:
            typical_size = max(low, min(_power_below(isqrt(low * high)), low * SPREAD))
        found.append(replace(dim, low=low, high=high, typical=typical_size))
    return found[::-1]


def _power_below(size: int) -> int:
    """The power of two that is at most so large: tiles are, and one row more would take another."""
    return 1 << max(size.bit_length() - 1, 0)
