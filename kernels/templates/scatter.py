"""Rows of values written or added at places of a tensor, one row after the other.

`out[outer, place, inner]` takes `source[outer, m, inner]` for m = 0, 1, …, so that the last write
wins and sums have one order on every device and at every call, which atomics would not give. A
program has one `outer` and BLOCK of `inner` to itself. Places outside of the tensor are left out.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scatter(
    out_ptr,  # [OUTER, EXTENT, INNER], updated
    place_ptr,  # [ROWS] or, where the places are not SHARED, [OUTER, ROWS, INNER]
    source_ptr,  # [OUTER, ROWS, INNER]
    ROWS,
    EXTENT,
    INNER,
    SHARED: tl.constexpr,
    ADDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    outer = tl.program_id(0).to(tl.int64)
    inner = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    for row in range(ROWS):
        element = (outer * ROWS + row) * INNER + inner
        if SHARED:
            place = tl.load(place_ptr + row).to(tl.int64)
            is_written = (inner < INNER) & (place >= 0) & (place < EXTENT)
        else:
            place = tl.load(place_ptr + element, mask=inner < INNER, other=-1).to(tl.int64)
            is_written = (inner < INNER) & (place >= 0) & (place < EXTENT)
        target = out_ptr + (outer * EXTENT + place) * INNER + inner
        value = tl.load(source_ptr + element, mask=is_written)
        if ADDS:
            value += tl.load(target, mask=is_written)
        tl.store(target, value, mask=is_written)
        # The next row may name the same places.
        tl.debug_barrier()
