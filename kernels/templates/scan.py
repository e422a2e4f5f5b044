"""Running sums, products, sums of exponentials and extremes along a dim of a tensor.

A program goes along a row a block at a time, or along so many columns at once, and carries what
stands at its end: for sums and products one value, of f32 in f64 as eager torch does, for
exponentials the largest and their sum relative to it, for extremes the value and its place.
A row is one program's, so that results do not depend on the number of threads.

A program goes over its elements in turn: on a processor, whose programs are threads, over several
rows, on a GPU over one row, or one block of a row.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Exponents within a block that may be summed relative to its largest: a running result is rounded
# as a number of this size is, however small it is, and the exponentials do not underflow.
FARTHEST: tl.constexpr = tl.constexpr(16.0)


@triton.jit
def _multiplied(left, right):
    return left * right


@triton.jit
def _larger(left, right):
    return tl.where(right > left, right, left)


@triton.jit
def _smaller(left, right):
    return tl.where(right < left, right, left)


@triton.jit
def _key_of(x, KIND: tl.constexpr):
    """Signed integers that stand as the numbers do: NaN beyond all others in the direction of the
    kind and, where places are wanted, zeros equal."""
    if not x.dtype.is_floating():
        return x
    WIDTH: tl.constexpr = x.dtype.primitive_bitwidth
    KEY: tl.constexpr = tl.int64 if WIDTH == 64 else tl.int32
    FURTHEST: tl.constexpr = 2 ** (WIDTH - 1) - 1
    bits = x.to(KEY, bitcast=True)
    keys = bits ^ ((bits >> (WIDTH - 1)) & FURTHEST)
    if KIND == "max_place" or KIND == "min_place":
        keys = tl.where(x == 0.0, 0, keys)
    beyond = tl.full(x.shape, FURTHEST, KEY)
    if KIND == "min" or KIND == "min_place":
        beyond = -beyond - 1
    return tl.where(x != x, beyond, keys)


@triton.jit
def _of_key(keys, OF: tl.constexpr):
    """The numbers that keys were made of."""
    if not OF.is_floating():
        return keys
    WIDTH: tl.constexpr = OF.primitive_bitwidth
    FURTHEST: tl.constexpr = 2 ** (WIDTH - 1) - 1
    bits = keys ^ ((keys >> (WIDTH - 1)) & FURTHEST)
    return bits.to(OF, bitcast=True)


@triton.jit
def _exponentials(left, left_sum, right, right_sum):
    """log(s e^m + t e^n) as the larger exponent, NaN first, and the sum relative to it."""
    is_right = (right > left) | (right != right)
    peak = tl.where(is_right, right, left)
    lower = tl.where(is_right, left, right)
    away = tl.where(left == right, 0.0, lower - peak)  # infinities are not subtracted
    share = tl.exp(away)
    total = tl.where(is_right, left_sum * share + right_sum, left_sum + right_sum * share)
    return peak, total


@triton.jit
def _end_of(found, IS_REVERSED: tl.constexpr):
    """The last result of a block."""
    last = 0 if IS_REVERSED else found.shape[0] - 1
    return tl.sum(tl.gather(found, tl.full((1,), last, tl.int32), 0), 0)


@triton.jit
def _scan_block(x, at, value, other, KIND: tl.constexpr, IS_REVERSED: tl.constexpr):
    """Running results of a block behind what was before it, and what is behind both. Extremes are
    keys; the last one's place is the furthest where an element is its own running extreme."""
    IS_PLACE: tl.constexpr = KIND == "max_place" or KIND == "min_place"
    if KIND == "sum":
        found = tl.cumsum(x, 0, reverse=IS_REVERSED)
        running = found + value
        value += _end_of(found, IS_REVERSED)
    elif KIND == "prod":
        found = tl.associative_scan(x, 0, _multiplied, reverse=IS_REVERSED)
        running = found * value
        value *= _end_of(found, IS_REVERSED)
    elif KIND == "max" or KIND == "max_place":
        found = tl.associative_scan(x, 0, _larger, reverse=IS_REVERSED)
        running = _larger(value, found)
        value = _larger(value, _end_of(found, IS_REVERSED))
    else:
        found = tl.associative_scan(x, 0, _smaller, reverse=IS_REVERSED)
        running = _smaller(value, found)
        value = _smaller(value, _end_of(found, IS_REVERSED))
    if IS_PLACE:
        places = tl.where(x == running, at, other)
        if IS_REVERSED:
            running = tl.associative_scan(places, 0, _smaller, reverse=True)
        else:
            running = tl.associative_scan(places, 0, _larger)
        other = _end_of(running, IS_REVERSED)
    return running, value, other


@triton.jit
def _are_passed_over(x, value, KIND: tl.constexpr):
    """Whether no number of a block changes the running extreme, a key, or the place of it that is
    asked for."""
    extreme = _of_key(value, x.dtype)
    is_behind = x < extreme if KIND == "max" or KIND == "max_place" else x > extreme
    if KIND == "max_place" or KIND == "min_place":
        if x.dtype.is_floating():
            is_behind = is_behind | ((extreme != extreme) & (x == x))
    elif x.dtype.is_floating():
        WORD: tl.constexpr = tl.int64 if x.dtype.primitive_bitwidth == 64 else tl.int32
        is_equal = x.to(WORD, bitcast=True) == extreme.to(WORD, bitcast=True)
        is_behind = is_behind | is_equal | (extreme != extreme)
    else:
        is_behind = is_behind | (x == extreme)
    return tl.min(is_behind.to(tl.int32), 0) != 0


@triton.jit
def _store_extremes(
    out_ptr, best_ptr, row_ptr, at, is_there, value, other,
    KIND: tl.constexpr, IDENTITY: tl.constexpr, IS_REVERSED: tl.constexpr, OF: tl.constexpr,
    LOOKS: tl.constexpr,
):  # fmt: skip
    """A block's running extremes, or their places and perhaps both, stored; what is behind it.
    LOOKS: at the whole block first, of which a long row has few that change anything."""
    IS_VALUE: tl.constexpr = KIND == "max" or KIND == "min"
    is_passed_over = False
    if LOOKS:
        x = tl.load(row_ptr + at, mask=is_there, other=IDENTITY).to(OF)
        is_passed_over = _are_passed_over(x, value, KIND)
    if is_passed_over:
        end = _of_key(value, OF) if IS_VALUE else other
        all_of_it = tl.broadcast_to(end.to(out_ptr.dtype.element_ty), at.shape)
        tl.store(out_ptr + at, all_of_it, mask=is_there)
        if best_ptr is not None:
            kept = tl.broadcast_to(tl.load(row_ptr + other), at.shape)
            tl.store(best_ptr + at, kept, mask=is_there)
    else:
        keys = _key_of(tl.load(row_ptr + at, mask=is_there, other=IDENTITY).to(OF), KIND)
        running, value, other = _scan_block(keys, at, value, other, KIND, IS_REVERSED)
        found = _of_key(running, OF) if IS_VALUE else running
        tl.store(out_ptr + at, found.to(out_ptr.dtype.element_ty), mask=is_there)
        if best_ptr is not None:
            best = tl.load(row_ptr + running, mask=is_there)
            tl.store(best_ptr + at, best, mask=is_there)
    return value, other


@triton.jit
def _store_exponentials(to_ptr, x, is_there, value, other, IS_REVERSED: tl.constexpr):
    """A block's running sums of exponentials as exponents, stored; what is behind it."""
    largest = tl.max(x, 0)
    # NaN, which a largest passes over, and infinity, as beyond any distance.
    is_odd = tl.max(((x != x) | (x == float("inf"))).to(tl.int32), 0) != 0
    finite = tl.where(x == float("-inf"), largest, x)
    is_near = (largest - tl.min(finite, 0) < FARTHEST) | (largest == float("-inf"))
    if is_near & (is_odd == 0) & (value == value) & (value != float("inf")):
        peak = tl.maximum(value, largest)
        base = tl.where(peak == float("-inf"), 0.0, peak)
        own = tl.exp(x - base)
        found = tl.cumsum(own, 0, reverse=IS_REVERSED)
        before = tl.where(value == float("-inf"), 0.0, other * tl.exp(value - base))
        # Where the others add nothing to the largest, as before the first element, it is the sum.
        top = _larger(value, tl.associative_scan(x, 0, _larger, reverse=IS_REVERSED))
        total = found + before
        running = tl.where(total == tl.exp(top - base), top, base + tl.log(total))
        tl.store(to_ptr, running.to(to_ptr.dtype.element_ty), mask=is_there)
        value = peak
        other = before + _end_of(found, IS_REVERSED)
    else:
        ones = tl.full(x.shape, 1.0, x.dtype)
        found, sums = tl.associative_scan((x, ones), 0, _exponentials, reverse=IS_REVERSED)
        running, total = _exponentials(value, other, found, sums)
        running += tl.log(total)
        tl.store(to_ptr, running.to(to_ptr.dtype.element_ty), mask=is_there)
        end = _end_of(found, IS_REVERSED)
        value, other = _exponentials(value, other, end, _end_of(sums, IS_REVERSED))
    return value, other


@triton.jit
def _store_running(
    out_ptr, row_ptr, at, N, value, KIND: tl.constexpr, IDENTITY: tl.constexpr,
    IS_REVERSED: tl.constexpr, IS_WHOLE: tl.constexpr,
):  # fmt: skip
    """A block's running sums or products, stored; what is behind it. IS_WHOLE: all of it is there,
    so that a processor's vectors stay in registers."""
    if IS_WHOLE:
        x = tl.load(row_ptr + at)
    else:
        x = tl.load(row_ptr + at, mask=at < N, other=IDENTITY)
    found, value, _ = _scan_block(x.to(value.dtype), at, value, value, KIND, IS_REVERSED)
    found = found.to(out_ptr.dtype.element_ty)
    if IS_WHOLE:
        tl.store(out_ptr + at, found)
    else:
        tl.store(out_ptr + at, found, mask=at < N)
    return value


@triton.jit
def _store_row(
    to_ptr, row_ptr, N, value, KIND: tl.constexpr, IDENTITY: tl.constexpr,
    IS_REVERSED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row's running sums or products: by whole blocks, and what is left of the last one."""
    whole = N // BLOCK * BLOCK
    lanes = tl.arange(0, BLOCK)
    if IS_REVERSED:
        for start in range(whole, N, BLOCK):
            value = _store_running(
                to_ptr, row_ptr, start + lanes, N, value, KIND, IDENTITY, True, False
            )
    # Addresses are carried: LLVM would keep a counter beside an integer's sum in one vector, and no
    # load would begin before the sum is known.
    begin = whole - BLOCK if IS_REVERSED else 0
    from_block = row_ptr + begin
    to_block = to_ptr + begin
    for _ in range(0, whole, BLOCK):
        value = _store_running(
            to_block, from_block, lanes, N, value, KIND, IDENTITY, IS_REVERSED, True
        )
        from_block += -BLOCK if IS_REVERSED else BLOCK
        to_block += -BLOCK if IS_REVERSED else BLOCK
    if not IS_REVERSED:
        for start in range(whole, N, BLOCK):
            value = _store_running(
                to_ptr, row_ptr, start + lanes, N, value, KIND, IDENTITY, False, False
            )


@triton.jit
def scan_rows(
    out_ptr,  # [ROWS, N], places i32 or i64
    data_ptr,  # [ROWS, N]
    ROWS,
    N,
    KIND: tl.constexpr,
    IDENTITY: tl.constexpr,
    IS_REVERSED: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    BLOCK: tl.constexpr,
    LOOKS: tl.constexpr = False,
    IS_PARTED: tl.constexpr = False,  # sums and products: blocks that are whole by themselves
    best_ptr=None,  # [ROWS, N], where the extremes are wanted beside their places
    IN_BLOCKS: tl.constexpr = False,
):
    """One row after the other, each by blocks; IN_BLOCKS: each block by itself. A program has rows
    that follow each other."""
    lanes = tl.arange(0, BLOCK)
    parts = tl.cdiv(N, BLOCK) if IN_BLOCKS else 1
    share = tl.cdiv(ROWS * parts, tl.num_programs(0))
    begin = tl.program_id(0) * share
    OTHER: tl.constexpr = ACCUMULATOR if KIND == "log_sum" else tl.int32
    IS_EXTREME: tl.constexpr = KIND != "sum" and KIND != "prod" and KIND != "log_sum"
    for unit in range(begin, tl.minimum(begin + share, ROWS * parts)):
        row, first, end = unit // parts, 0, N
        if IN_BLOCKS:
            first = unit % parts * BLOCK
            end = first + BLOCK
        row_ptr = data_ptr + row.to(tl.int64) * N
        to_ptr = out_ptr + row.to(tl.int64) * N
        value = tl.full((), IDENTITY, ACCUMULATOR)
        other = tl.full((), N - 1 if IS_REVERSED and KIND != "log_sum" else 0, OTHER)
        if IS_EXTREME:
            value = _key_of(value, KIND)
        if IS_PARTED:
            _store_row(to_ptr, row_ptr, N, value, KIND, IDENTITY, IS_REVERSED, BLOCK)
        for step in range(first if not IS_PARTED else N, end, BLOCK):
            at = (N - 1) // BLOCK * BLOCK - step + lanes if IS_REVERSED else step + lanes
            if IS_EXTREME:
                best_row = None
                if best_ptr is not None:
                    best_row = best_ptr + row.to(tl.int64) * N
                value, other = _store_extremes(
                    to_ptr, best_row, row_ptr, at, at < N, value, other,
                    KIND, IDENTITY, IS_REVERSED, ACCUMULATOR, LOOKS,
                )  # fmt: skip
            else:
                x = tl.load(row_ptr + at, mask=at < N, other=IDENTITY).to(ACCUMULATOR)
                if KIND == "log_sum":
                    value, other = _store_exponentials(
                        to_ptr + at, x, at < N, value, other, IS_REVERSED
                    )
                else:
                    found, value, other = _scan_block(x, at, value, other, KIND, IS_REVERSED)
                    tl.store(to_ptr + at, found.to(out_ptr.dtype.element_ty), mask=at < N)


@triton.jit
def scan_columns(
    out_ptr,  # [OUTER, N, INNER], places i32 or i64
    data_ptr,  # [OUTER, N, INNER]
    OUTER,
    N,
    INNER,
    KIND: tl.constexpr,
    IDENTITY: tl.constexpr,
    IS_REVERSED: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    BLOCK: tl.constexpr,
    best_ptr=None,  # [OUTER, N, INNER], where the extremes are wanted beside their places
):
    """Along a dim that is not the last one: a block of columns, from one row to the next."""
    OTHER: tl.constexpr = ACCUMULATOR if KIND == "log_sum" else tl.int32
    IS_VALUE: tl.constexpr = KIND == "max" or KIND == "min"
    IS_EXTREME: tl.constexpr = IS_VALUE or KIND == "max_place" or KIND == "min_place"
    blocks = (INNER + BLOCK - 1) // BLOCK
    for unit in range(tl.program_id(0), OUTER * blocks, tl.num_programs(0)):
        column = unit % blocks * BLOCK + tl.arange(0, BLOCK)
        is_there = column < INNER
        first = (unit // blocks).to(tl.int64) * N * INNER
        value = tl.full((BLOCK,), IDENTITY, ACCUMULATOR)
        other = tl.full((BLOCK,), 0, OTHER)
        best = value
        if IS_EXTREME:
            value = _key_of(value, KIND)
        for step in range(N):
            place = N - 1 - step if IS_REVERSED else step
            at = first + place.to(tl.int64) * INNER
            x = tl.load(data_ptr + at + column, mask=is_there, other=IDENTITY).to(ACCUMULATOR)
            if KIND == "sum":
                value += x
                found = value
            elif KIND == "prod":
                value *= x
                found = value
            elif KIND == "log_sum":
                ones = tl.full((BLOCK,), 1.0, ACCUMULATOR)
                value, other = _exponentials(value, other, x, ones)
                found = value + tl.log(other)
            else:
                keys = _key_of(x, KIND)
                if KIND == "max" or KIND == "max_place":
                    value = _larger(value, keys)
                else:
                    value = _smaller(value, keys)
                if IS_VALUE:
                    found = _of_key(value, ACCUMULATOR)
                else:
                    other = tl.where(keys == value, place, other)
                    found = other
                    if best_ptr is not None:
                        best = tl.where(keys == value, x, best)
                        kept = best.to(best_ptr.dtype.element_ty)
                        tl.store(best_ptr + at + column, kept, mask=is_there)
            tl.store(out_ptr + at + column, found.to(out_ptr.dtype.element_ty), mask=is_there)
