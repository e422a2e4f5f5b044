"""Rows written or added at places, and copies by a launch of their own → calls of templates."""

from __future__ import annotations

from math import prod

from aotc.aot.ir.graph import Node
from aotc.aot.lower.call import Block, Called, Grid, from_template, places_of
from aotc.aot.lower.tiles import power_above
from aotc.kernels.templates.registry import SCATTER, STATE_COPY

LARGEST_BLOCK = 64  # elements of a program's block: small, so that every core gets some
COPIED_BLOCK = 4096  # elements of a program that copies


def scatter_rows(node: Node) -> Called:
    """A program has part of what lies within an index of `axis`, and goes over all rows."""
    (data, index, source), _, how = places_of(node)
    axis = how["axis"]
    rows = source.shape[axis]
    outer, inner = prod(data.shape[:axis]), prod(data.shape[axis + 1 :])
    block = min(power_above(inner), LARGEST_BLOCK)
    numbers = {
        "ROWS": rows,
        "EXTENT": data.shape[axis],
        "INNER": inner,
        "SHARED": prod(index.shape) == rows,
        "ADDS": how["adds"],
        "BLOCK": block,
    }
    reads = {"place": index, "source": source}
    blocks: list[tuple[Block, Grid]] = [({}, (outer, -(-inner // block), 1))]
    return from_template(
        SCATTER, "scatter", {"out": 0}, reads, numbers, blocks, num_stages=1, num_warps=1
    )


def copy(node: Node) -> Called:
    """A program copies a block of all elements."""
    (source,), _, _ = places_of(node)
    count = prod(source.shape)
    numbers = {"COUNT": count, "BLOCK": COPIED_BLOCK}
    blocks: list[tuple[Block, Grid]] = [({}, (-(-count // COPIED_BLOCK), 1, 1))]
    return from_template(
        STATE_COPY,
        "state_copy",
        {"out": 0},
        {"source": source},
        numbers,
        blocks,
        num_stages=1,
        num_warps=8,
    )
