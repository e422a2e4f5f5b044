"""Many writes at places as one kernel that makes them in order, where lookups would be too many."""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import Extent
from aotc.kernels.templates.registry import SCATTER, scatter_text

MOST_LOOKUPS = 2**22  # comparisons of a place with a write, beyond which writes are made one by one
LARGEST_BLOCK = 64  # columns of a program: few rows are wide enough to give every core some
LAUNCH_OPTIONS = (("num_stages", 1), ("num_warps", 1))


def is_large(index: Node, source: Node, axis: int, extent: Extent, adds: bool) -> bool:
    """Whether looking up each place's writes costs more than making them one after another.

    `index` and `source` are `[.., m, ..]`; a sum looks at every column of the source, the last of
    several writes is found once for all columns with the same index.
    """
    pairs = (source if adds else index).type.numel
    sizes = (extent, pairs, *index.shape, *source.shape)
    # The text of a kernel tells its sizes: those that a call decides stay lookups.
    return all(isinstance(size, int) for size in sizes) and int(extent) * int(pairs) > MOST_LOOKUPS


def write(data: Node, index: Node, source: Node, axis: int, adds: bool) -> Node:
    """`data` with the rows of `source` along `axis` added, or written, at the places `index`.

    `data` [.., n, ..] and `source` [.., m, ..] agree in the other dims; those of `index`
    [.., m, ..] may be 1, and then hold for all.
    """
    rank = data.type.rank
    order = (axis, *(each for each in range(rank) if each != axis))
    back = tuple(order.index(each) for each in range(rank))
    before, places, values = (build.permute(item, order) for item in (data, index, source))
    rows, extent, width = places.shape[0], before.shape[0], math.prod(before.shape[1:])
    is_shared = places.type.numel == rows
    if not is_shared:
        places = build.expand(places, values.shape)
    block = min(1 << (width - 1).bit_length(), LARGEST_BLOCK)
    numbers = {
        "ROWS": rows,
        "EXTENT": extent,
        "WIDTH": width,
        "ROW_STRIDE": 1 if is_shared else width,
        "COLUMN_STRIDE": 0 if is_shared else 1,
        "ADDS": adds,
        "BLOCK": block,
    }
    arguments = (
        ("out_ptr", "stored", 0),
        ("place_ptr", "read", (0, 0)),
        ("source_ptr", "read", (1, 0)),
        *((name, "value", str(value)) for name, value in numbers.items()),
    )
    copied = make("copy", (before,), {"tag": "scatter"})
    attrs = {
        "source": scatter_text(),
        "function": SCATTER,
        "arguments": arguments,
        "candidates": ((LAUNCH_OPTIONS, (-(-width // block), 1, 1)),),
        "results": ((data.dtype, before.shape),),
        "updates": ((0, 2),),
        "result": 0,
    }
    made = make("call", (places, values, copied), attrs)
    return build.permute(made, back)
