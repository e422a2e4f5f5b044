"""Rows of values written or added at places of a tensor, one row after the other.

`out[place[m, w], w]` takes `source[m, w]` for m = 0, 1, …, so that the last write wins and sums
have one order on every device and at every call, which atomics would not give. A program has BLOCK
columns to itself. Places outside of the tensor are left out.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scatter(
    out_ptr,  # [EXTENT, WIDTH], updated
    place_ptr,  # element of row m and column w: m * ROW_STRIDE + w * COLUMN_STRIDE
    source_ptr,  # [ROWS, WIDTH]
    ROWS: tl.constexpr,
    EXTENT: tl.constexpr,
    WIDTH: tl.constexpr,
    ROW_STRIDE: tl.constexpr,
    COLUMN_STRIDE: tl.constexpr,
    ADDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for row in range(ROWS):
        place = tl.load(
            place_ptr + row * ROW_STRIDE + column * COLUMN_STRIDE, mask=column < WIDTH, other=-1
        ).to(tl.int64)
        is_written = (column < WIDTH) & (place >= 0) & (place < EXTENT)
        target = out_ptr + place * WIDTH + column
        value = tl.load(source_ptr + row.to(tl.int64) * WIDTH + column, mask=is_written)
        if ADDS:
            value += tl.load(target, mask=is_written)
        tl.store(target, value, mask=is_written)
        # The next row may name the same places.
        tl.debug_barrier()
