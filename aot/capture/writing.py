"""Many writes at places as one kernel that makes them in order, where lookups would be too many."""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import Extent
from aotc.kernels.templates.registry import SCATTER, kernel_text

MOST_LOOKUPS = 2**22  # comparisons of a place with a write, beyond which writes are made one by one
LARGEST_BLOCK = 64  # elements of a program's block: small, so that every core gets some
LAUNCH_OPTIONS = (("num_stages", 1), ("num_warps", 1))


def is_large(index: Node, source: Node, extent: Extent, adds: bool) -> bool:
    """Whether looking up each place's writes costs more than making them one after another.

    `index` and `source` are `[.., m, ..]`; a sum looks at every element of the source, the last of
    several writes is found once for all elements with the same place.
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
    extent, rows = data.shape[axis], source.shape[axis]
    outer, inner = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    is_shared = index.type.numel == rows
    places = index if is_shared else build.expand(index, source.shape)
    block = min(1 << (inner - 1).bit_length(), LARGEST_BLOCK)
    numbers = {
        "ROWS": rows,
        "EXTENT": extent,
        "INNER": inner,
        "SHARED": is_shared,
        "ADDS": adds,
        "BLOCK": block,
    }
    arguments = (
        ("out_ptr", "stored", 0),
        ("place_ptr", "read", (0, 0)),
        ("source_ptr", "read", (1, 0)),
        *((name, "value", str(value)) for name, value in numbers.items()),
    )
    attrs = {
        "source": kernel_text(SCATTER),
        "function": SCATTER,
        "arguments": arguments,
        "candidates": ((LAUNCH_OPTIONS, (outer, -(-inner // block), 1)),),
        "results": ((data.dtype, data.shape),),
        "updates": ((0, 2),),
        "result": 0,
    }
    copied = make("copy", (data,), {"tag": "scatter"})
    return make("call", (places, source, copied), attrs)
