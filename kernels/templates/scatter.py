"""Rows of values written at places of a tensor, or merged there, one row after the other.

`out[outer, place, inner]` takes `source[outer, m, inner]` for m = 0, 1, …: itself, or as MERGE says
its sum, prod, max or min with what is there. So the last write wins and sums have one order on
every device and at every call, which atomics would not give. Rows that differ in m % DISTINCT never
have one place. Places outside of the tensor are left out.

`scatter`: a program has one `outer`, one m % DISTINCT and BLOCK of `inner` to itself, and goes over
the rows. `scatter_shares`: it has a share of the places besides, and looks at the places of CHUNK
rows at once for those of its share. `scatter_copied`: into a copy, of which a program first makes
the part that it writes to. `…_both`: two tensors, whose rows have the same places.

`merge_each`: whole numbers, of which any order gives the same; a program has BLOCK elements of all
rows.

`count_places`: how many rows have each place; whole numbers, so that any order gives the same.

`sum_runs`: where the rows of each place stand beside each other in a list, a program has a place
and BLOCK of `inner`, and adds LINES rows at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scatter(
    out_ptr,  # [OUTER, EXTENT, INNER], updated
    place_ptr,  # [ROWS] or, where the places are not SHARED, [OUTER, ROWS, INNER]
    source_ptr,  # [OUTER // WITHIN, WITHIN, ROWS // BESIDE, BESIDE, INNER]
    ROWS,
    EXTENT,
    INNER,
    DISTINCT,
    WITHIN,
    FAR,  # steps along the dims of the source; the last one is 1
    NEAR,
    STEP,
    HOP,
    BESIDE: tl.constexpr,
    SHARED: tl.constexpr,
    MERGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    outer = tl.program_id(0).to(tl.int64) // DISTINCT
    first = (tl.program_id(0) % DISTINCT).to(tl.int32)
    inner = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows_ptr = source_ptr + (outer // WITHIN) * FAR + (outer % WITHIN) * NEAR + inner
    is_inner = inner < INNER
    for row in range(first, ROWS, DISTINCT):
        value_ptr = rows_ptr + _start_of(row, STEP, HOP, BESIDE)
        if SHARED:
            # A branch: where it is foreseen, the row behind is loaded before this one is stored.
            place = tl.load(place_ptr + row).to(tl.int64)
            if (place >= 0) & (place < EXTENT):
                target = out_ptr + (outer * EXTENT + place) * INNER + inner
                _write(target, value_ptr, is_inner, MERGE)
        else:
            element = (outer * ROWS + row) * INNER + inner
            place = tl.load(place_ptr + element, mask=is_inner, other=-1).to(tl.int64)
            target = out_ptr + (outer * EXTENT + place) * INNER + inner
            _write(target, value_ptr, is_inner & (place >= 0) & (place < EXTENT), MERGE)
        # The next row may name the same places.
        tl.debug_barrier()


@triton.jit
def scatter_copied(
    out_ptr,  # [OUTER, EXTENT, INNER]
    data_ptr,  # the same
    place_ptr,  # as `scatter` has them
    source_ptr,
    ROWS,
    EXTENT,
    INNER,
    DISTINCT,
    WITHIN,
    FAR,
    NEAR,
    STEP,
    HOP,
    BESIDE: tl.constexpr,
    SHARED: tl.constexpr,
    MERGE: tl.constexpr,
    BLOCK: tl.constexpr,  # INNER at least
    COPIED: tl.constexpr,
):
    """`scatter` into a copy of what a program writes to."""
    first = tl.program_id(0).to(tl.int64) * (EXTENT * INNER)
    for start in range(0, EXTENT * INNER, COPIED):
        lanes = start + tl.arange(0, COPIED)
        mask = lanes < EXTENT * INNER
        tl.store(out_ptr + first + lanes, tl.load(data_ptr + first + lanes, mask=mask), mask=mask)
    tl.debug_barrier()
    scatter(
        out_ptr, place_ptr, source_ptr, ROWS, EXTENT, INNER, DISTINCT, WITHIN, FAR, NEAR, STEP, HOP,
        BESIDE, SHARED, MERGE, BLOCK,
    )  # fmt: skip


@triton.jit
def _write(target, value_ptr, is_written, MERGE: tl.constexpr):
    value = tl.load(value_ptr, mask=is_written)
    if MERGE != "replace":
        old = tl.load(target, mask=is_written)
        if MERGE == "sum":
            value += old
        elif MERGE == "prod":
            value *= old
        elif MERGE == "max":
            value = tl.maximum(value, old, propagate_nan=tl.PropagateNan.ALL)
        else:
            value = tl.minimum(value, old, propagate_nan=tl.PropagateNan.ALL)
    tl.store(target, value, mask=is_written)


@triton.jit
def _start_of(row, STEP, HOP, BESIDE: tl.constexpr):
    return (row // BESIDE).to(tl.int64) * STEP + (row % BESIDE).to(tl.int64) * HOP


@triton.jit
def _places(place_ptr, outer, start, ROWS, INNER, SHARED: tl.constexpr, CHUNK: tl.constexpr):
    row = start + tl.arange(0, CHUNK)
    if SHARED:
        element = row.to(tl.int64)
    else:
        element = (outer * ROWS + row) * INNER + tl.program_id(1)
    return tl.load(place_ptr + element, mask=row < ROWS, other=-1)


@triton.jit
def scatter_shares(
    out_ptr,  # as `scatter` has them
    place_ptr,
    source_ptr,
    ROWS,
    EXTENT,
    INNER,
    WITHIN,
    FAR,
    NEAR,
    STEP,
    HOP,
    SHARES,
    BESIDE: tl.constexpr,
    SHARED: tl.constexpr,
    MERGE: tl.constexpr,
    BLOCK: tl.constexpr,  # 1 where the places are not SHARED
    CHUNK: tl.constexpr,
):
    outer = tl.program_id(0).to(tl.int64) // SHARES
    share = (EXTENT + SHARES - 1) // SHARES
    first = (tl.program_id(0) % SHARES) * share
    end = tl.minimum(first + share, EXTENT)
    inner = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inner = inner < INNER
    rows_ptr = source_ptr + (outer // WITHIN) * FAR + (outer % WITHIN) * NEAR + inner
    out_ptr += outer * EXTENT * INNER + inner
    chunk = tl.arange(0, CHUNK)
    NONE: tl.constexpr = CHUNK << 32  # above the key of every row
    following = _places(place_ptr, outer, 0, ROWS, INNER, SHARED, CHUNK)
    for start in range(0, ROWS, CHUNK):
        place = following  # the next ones are asked for before these are looked at
        following = _places(place_ptr, outer, start + CHUNK, ROWS, INNER, SHARED, CHUNK)
        is_own = (place >= first) & (place < end)
        key = NONE + tl.zeros((), tl.int64)
        keys = tl.full((CHUNK,), 0, tl.int64)
        if tl.max(is_own.to(tl.int32), axis=0) > 0:
            # The row's number in the upper half, its place in the lower: the least is the next row.
            keys = tl.where(is_own, (chunk.to(tl.int64) << 32) | place.to(tl.int64), NONE)
            key = tl.min(keys, axis=0)
        while key < NONE:
            target = out_ptr + (key & 0xFFFFFFFF) * INNER
            row = start + (key >> 32)
            _write(target, rows_ptr + _start_of(row, STEP, HOP, BESIDE), is_inner, MERGE)
            # The next row may name the same place.
            tl.debug_barrier()
            key = tl.min(tl.where(keys > key, keys, NONE), axis=0)


@triton.jit
def scatter_both(
    out_ptr,  # each as `scatter` has it
    second_out_ptr,
    place_ptr,
    source_ptr,
    second_source_ptr,
    ROWS,
    EXTENT,
    INNER,
    DISTINCT,
    WITHIN,
    FAR,
    NEAR,
    STEP,
    HOP,
    SECOND_WITHIN,
    SECOND_FAR,
    SECOND_NEAR,
    SECOND_STEP,
    SECOND_HOP,
    BESIDE: tl.constexpr,
    SHARED: tl.constexpr,
    MERGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if tl.program_id(2) == 0:
        scatter(
            out_ptr, place_ptr, source_ptr, ROWS, EXTENT, INNER, DISTINCT, WITHIN,
            FAR, NEAR, STEP, HOP, BESIDE, SHARED, MERGE, BLOCK,
        )  # fmt: skip
    else:
        scatter(
            second_out_ptr, place_ptr, second_source_ptr, ROWS, EXTENT, INNER, DISTINCT,
            SECOND_WITHIN, SECOND_FAR, SECOND_NEAR, SECOND_STEP, SECOND_HOP, BESIDE, SHARED, MERGE,
            BLOCK,
        )  # fmt: skip


@triton.jit
def scatter_shares_both(
    out_ptr,  # each as `scatter` has it
    second_out_ptr,
    place_ptr,
    source_ptr,
    second_source_ptr,
    ROWS,
    EXTENT,
    INNER,
    WITHIN,
    FAR,
    NEAR,
    STEP,
    HOP,
    SECOND_WITHIN,
    SECOND_FAR,
    SECOND_NEAR,
    SECOND_STEP,
    SECOND_HOP,
    SHARES,
    BESIDE: tl.constexpr,
    SHARED: tl.constexpr,
    MERGE: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    if tl.program_id(2) == 0:
        scatter_shares(
            out_ptr, place_ptr, source_ptr, ROWS, EXTENT, INNER, WITHIN,
            FAR, NEAR, STEP, HOP, SHARES, BESIDE, SHARED, MERGE, BLOCK, CHUNK,
        )  # fmt: skip
    else:
        scatter_shares(
            second_out_ptr, place_ptr, second_source_ptr, ROWS, EXTENT, INNER, SECOND_WITHIN,
            SECOND_FAR, SECOND_NEAR, SECOND_STEP, SECOND_HOP, SHARES, BESIDE, SHARED, MERGE, BLOCK,
            CHUNK,
        )  # fmt: skip


@triton.jit
def merge_each(
    out_ptr,  # as `scatter` has them
    place_ptr,
    source_ptr,
    ROWS,
    EXTENT,
    INNER,
    WITHIN,
    FAR,
    NEAR,
    STEP,
    HOP,
    BESIDE: tl.constexpr,
    SHARED: tl.constexpr,
    MERGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    outer = tl.program_id(1).to(tl.int64)
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = element // INNER
    inner = element % INNER
    is_there = row < ROWS
    if SHARED:
        place_ptr += row
    else:
        place_ptr += outer * ROWS * INNER + element
    place = tl.load(place_ptr, mask=is_there, other=-1).to(tl.int64)
    rows_ptr = source_ptr + (outer // WITHIN) * FAR + (outer % WITHIN) * NEAR
    value = tl.load(rows_ptr + _start_of(row, STEP, HOP, BESIDE) + inner, mask=is_there)
    target = out_ptr + (outer * EXTENT + place) * INNER + inner
    is_inside = (place >= 0) & (place < EXTENT)
    if MERGE == "sum":
        tl.atomic_add(target, value, mask=is_inside, sem="relaxed")
    elif MERGE == "max":
        tl.atomic_max(target, value, mask=is_inside, sem="relaxed")
    else:
        tl.atomic_min(target, value, mask=is_inside, sem="relaxed")


@triton.jit
def count_places(
    out_ptr,  # [OUTER, EXTENT] i32, updated
    place_ptr,  # [OUTER, ROWS] i32
    ROWS: tl.constexpr,
    EXTENT: tl.constexpr,
    SPAN: tl.constexpr,  # the power of two above EXTENT, or 0 where places are counted in memory
    PARTS: tl.constexpr,
    TILE: tl.constexpr,
):
    TILES: tl.constexpr = (ROWS + TILE * PARTS - 1) // (TILE * PARTS)
    outer = tl.program_id(1).to(tl.int64)
    place_ptr += outer * ROWS
    out_ptr += outer * EXTENT
    if SPAN:
        counts = tl.zeros((SPAN,), tl.int32)
        for tile in range(TILES):
            at = (tl.program_id(0) * TILES + tile) * TILE + tl.arange(0, TILE)
            place = tl.load(place_ptr + at, mask=at < ROWS, other=-1)
            # Numbers beyond the bins mean nothing, so what is left out is in the last one.
            is_inside = (place >= 0) & (place < EXTENT)
            counts += tl.histogram(tl.where(is_inside, place, EXTENT), SPAN)
        places = tl.arange(0, SPAN)
        is_counted = (places < EXTENT) & (counts > 0)
        tl.atomic_add(out_ptr + places, counts, mask=is_counted, sem="relaxed")
    else:
        for tile in range(TILES):
            at = (tl.program_id(0) * TILES + tile) * TILE + tl.arange(0, TILE)
            place = tl.load(place_ptr + at, mask=at < ROWS, other=-1)
            is_inside = (place >= 0) & (place < EXTENT)
            one = tl.full((TILE,), 1, tl.int32)
            tl.atomic_add(out_ptr + place, one, mask=is_inside, sem="relaxed")


@triton.jit
def sum_runs(
    out_ptr,  # [OUTER, EXTENT, INNER]
    row_ptr,  # [ROWS] i32, rows of the source
    start_ptr,  # [EXTENT + 1] i32, where the rows of each place begin among them
    source_ptr,  # [OUTER, LENGTH, INNER]
    EXTENT: tl.constexpr,
    INNER: tl.constexpr,
    LENGTH: tl.constexpr,
    LINES: tl.constexpr,
    BLOCK: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    place = tl.program_id(0)
    outer = tl.program_id(2).to(tl.int64)
    inner = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source_ptr += outer * LENGTH * INNER
    line = tl.arange(0, LINES)
    start = tl.load(start_ptr + place)
    end = tl.load(start_ptr + place + 1)
    total = tl.zeros((BLOCK,), ACCUMULATOR)
    for first in range(start, end, LINES):
        is_there = first + line < end
        row = tl.load(row_ptr + first + line, mask=is_there, other=0).to(tl.int64)
        value = tl.load(
            source_ptr + row[:, None] * INNER + inner[None, :],
            mask=is_there[:, None] & (inner < INNER)[None, :],
            other=0,
        )
        total += tl.sum(value.to(ACCUMULATOR), 0)
    target = out_ptr + (outer * EXTENT + place) * INNER + inner
    tl.store(target, total.to(out_ptr.dtype.element_ty), mask=inner < INNER)
