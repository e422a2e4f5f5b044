"""Rows of values written or added at places of a tensor, one row after the other.

`out[outer, place, inner]` takes `source[outer, m, inner]` for m = 0, 1, …, so that the last write
wins and sums have one order on every device and at every call, which atomics would not give. Rows
that differ in m % DISTINCT never have one place. A program has one `outer`, one m % DISTINCT and
BLOCK of `inner` to itself. Places outside of the tensor are left out.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scatter(
    out_ptr,  # [OUTER, EXTENT, INNER], updated
    place_ptr,  # [ROWS] or, where the places are not SHARED, [OUTER, ROWS, INNER]
    source_ptr,  # [OUTER // WITHIN, WITHIN, ROWS, INNER], steps FAR, NEAR, STEP and 1
    ROWS,
    EXTENT,
    INNER,
    DISTINCT,
    WITHIN,
    FAR,
    NEAR,
    STEP,
    SHARED: tl.constexpr,
    ADDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    outer = tl.program_id(0).to(tl.int64) // DISTINCT
    first = (tl.program_id(0) % DISTINCT).to(tl.int32)
    inner = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows_ptr = source_ptr + (outer // WITHIN) * FAR + (outer % WITHIN) * NEAR + inner
    for row in range(first, ROWS, DISTINCT):
        if SHARED:
            place = tl.load(place_ptr + row).to(tl.int64)
            is_written = (inner < INNER) & (place >= 0) & (place < EXTENT)
        else:
            element = (outer * ROWS + row) * INNER + inner
            place = tl.load(place_ptr + element, mask=inner < INNER, other=-1).to(tl.int64)
            is_written = (inner < INNER) & (place >= 0) & (place < EXTENT)
        target = out_ptr + (outer * EXTENT + place) * INNER + inner
        value = tl.load(rows_ptr + row.to(tl.int64) * STEP, mask=is_written)
        if ADDS:
            value += tl.load(target, mask=is_written)
        tl.store(target, value, mask=is_written)
        # The next row may name the same places.
        tl.debug_barrier()
