"""When many writes at places are made in order by a kernel, since lookups would be too many."""

from __future__ import annotations

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Extent

MOST_LOOKUPS = 2**22  # comparisons of a place with a write, beyond which writes are made one by one


def is_large(index: Node, source: Node, extent: Extent, adds: bool) -> bool:
    """Whether looking up each place's writes costs more than making them one after another.

    `index` and `source` are `[.., m, ..]`; a sum looks at every element of the source, the last of
    several writes is found once for all elements with the same place.
    """
    pairs = (source if adds else index).type.numel
    sizes = (extent, pairs, *index.shape, *source.shape)
    # The text of a kernel tells its sizes: those that a call decides stay lookups.
    return all(isinstance(size, int) for size in sizes) and int(extent) * int(pairs) > MOST_LOOKUPS
