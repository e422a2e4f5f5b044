"""Places of the elements of rows in order: by digits of their keys, the smallest digit first.

A key is an element's bits as an unsigned number that stands as the element does: NaN is greatest,
-0.0 equals 0.0, and a key of a descending order is the complement. Sorting by digits is stable
(Knuth, The Art of Computer Programming 3, 5.2.5). Where few of a row's elements are wanted, the
last key among them is found first, bit by bit: the greatest number that fewer keys are below of.

`order_rows` and `take_least`: a program has rows of its own, one after the other, and memory for
two copies of one. It goes over elements one by one, so it is for processors whose programs are
threads.

`sort_rows`, for GPUs: a program puts rows in order in its registers (Batcher, "Sorting Networks and
Their Applications", 1968). An element is a word: its key in the upper half and its place in the
lower one, so that no two are equal and the order is stable. `select_rows` finds what is wanted of
longer rows alone, bit by bit as above, and leaves it in the order in which it is.
`nth_places` finds the element at one rank of a row, such as its median, in the same way.

`count_digits`, `sum_digits` and `order_by_digit`, for GPUs, are one digit of a sort, of eight bits.
An element is such a word, so that each digit reads and writes both at once. A row has PARTS
programs of LENGTH elements each: the first kernel counts the digits of each part, the second adds
these counts up from part to part, and in the third every program knows by these sums where its
elements of each digit go.

`sort_runs` and `merge_runs`, for GPUs, put such words in order by comparing them: runs in
registers, then several runs at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _key_of(x, IS_DESCENDING: tl.constexpr, KEY: tl.constexpr):
    """Keys of elements, in the lowest bits of a KEY."""
    WIDTH: tl.constexpr = x.dtype.primitive_bitwidth
    if WIDTH == 8:
        UNSIGNED: tl.constexpr = tl.uint8
    elif WIDTH == 16:
        UNSIGNED: tl.constexpr = tl.uint16
    elif WIDTH == 32:
        UNSIGNED: tl.constexpr = tl.uint32
    else:
        UNSIGNED: tl.constexpr = tl.uint64
    bits = x.to(UNSIGNED, bitcast=True)
    top = tl.full(x.shape, 1, UNSIGNED) << (WIDTH - 1)
    if x.dtype.is_floating():
        is_negative = (bits >> (WIDTH - 1)) != 0
        bits = tl.where(is_negative, ~bits, bits | top)
        bits = tl.where(x == 0.0, top, bits)
        bits = tl.where(x != x, ~tl.full(x.shape, 0, UNSIGNED), bits)
    elif x.dtype.is_int_signed():
        bits = bits ^ top
    if IS_DESCENDING:
        bits = ~bits
    return bits.to(KEY)


@triton.jit
def _count_below(keys_ptr, N, limit, BLOCK: tl.constexpr, KEY: tl.constexpr):
    """How many of N keys are below a limit."""
    lanes = tl.arange(0, BLOCK)
    found = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, N, BLOCK):
        keys = tl.load(keys_ptr + start + lanes, mask=start + lanes < N, other=-1)
        found += (keys.to(KEY, bitcast=True) < limit).to(tl.int32)
    return tl.sum(found, 0)


@triton.jit
def _last_among(
    keys_ptr, N, WANTED, BITS: tl.constexpr, BLOCK: tl.constexpr, KEY: tl.constexpr
):  # fmt: skip
    """The last of the first WANTED of N keys in order, and how many are below it."""
    last = tl.full((), 0, KEY)
    below = tl.full((), 0, tl.int32)
    for step in range(BITS):
        limit = last | (tl.full((), 1, KEY) << (BITS - 1 - step).to(KEY))
        count = _count_below(keys_ptr, N, limit, BLOCK, KEY)
        is_reached = count < WANTED
        last = tl.where(is_reached, limit, last)
        below = tl.where(is_reached, count, below)
    return last, below


@triton.jit
def _keep_below_bound(
    keys_ptr, places_ptr, row_ptr, N, WANTED,
    IS_DESCENDING: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr, KEY: tl.constexpr,
):  # fmt: skip
    """Keys and places of the elements up to a bound that WANTED of them are not above, and how many
    they are: as many groups of GROUP elements have their least up to it."""
    GROUP: tl.constexpr = 16
    lanes = tl.arange(0, BLOCK)
    rows = tl.arange(0, GROUP) * BLOCK
    least_ptr = keys_ptr + N
    groups = tl.full((), 0, tl.int32)
    for start in range(0, N, GROUP * BLOCK):
        at = start + rows[:, None] + lanes[None, :]
        keys = _key_of(tl.load(row_ptr + at, mask=at < N), IS_DESCENDING, KEY)
        keys = tl.where(at < N, keys, ~tl.full((GROUP, BLOCK), 0, KEY))
        least = tl.min(keys, 0)
        tl.store(least_ptr + groups + lanes, least.to(keys_ptr.dtype.element_ty, bitcast=True))
        groups += BLOCK
    bound, _ = _last_among(least_ptr, groups, WANTED, BITS, BLOCK, KEY)
    kept = tl.full((), 0, tl.int32)
    for start in range(0, N, BLOCK):
        at = start + lanes
        keys = _key_of(tl.load(row_ptr + at, mask=at < N), IS_DESCENDING, KEY)
        is_kept = (keys <= bound) & (at < N)
        if tl.sum(is_kept.to(tl.int32), 0) > 0:
            for place in range(start, tl.minimum(start + BLOCK, N)):
                key = _key_of(tl.load(row_ptr + place), IS_DESCENDING, KEY)
                # What is not kept is written over by the next.
                tl.store(keys_ptr + kept, key.to(keys_ptr.dtype.element_ty, bitcast=True))
                tl.store(places_ptr + kept, place)
                kept += (key <= bound).to(tl.int32)
    return kept


@triton.jit
def _keep_first(
    keys_ptr, places_ptr, target, COUNT, WANTED,
    BITS: tl.constexpr, BLOCK: tl.constexpr, KEY: tl.constexpr,
):  # fmt: skip
    """The first WANTED of COUNT keys, not yet in order, and their places, from `target` on."""
    last, below = _last_among(keys_ptr, COUNT, WANTED, BITS, BLOCK, KEY)
    ties = WANTED - below
    kept = target
    for at in range(COUNT):
        raw = tl.load(keys_ptr + at)
        key = raw.to(KEY, bitcast=True)
        is_tied = (key == last) & (ties > 0)
        tl.store(keys_ptr + kept, raw)
        tl.store(places_ptr + kept, tl.load(places_ptr + at))
        kept += ((key < last) | is_tied).to(tl.int32)
        ties -= is_tied.to(tl.int32)


@triton.jit
def _sort_by_rank(
    out_ptr, keys_ptr, places_ptr, COUNT, WANTED, SPAN: tl.constexpr, KEY: tl.constexpr
):  # fmt: skip
    """The first WANTED of COUNT elements, at most SPAN, each where as many others stand before."""
    lanes = tl.arange(0, SPAN)
    keys = tl.load(keys_ptr + lanes, mask=lanes < COUNT, other=-1).to(KEY, bitcast=True)
    is_before = keys[None, :] < keys[:, None]
    is_tied = (keys[None, :] == keys[:, None]) & (lanes[None, :] < lanes[:, None])
    is_before = (is_before | is_tied) & (lanes < COUNT)[None, :]
    rank = tl.sum(is_before.to(tl.int32), 1)
    places = tl.load(places_ptr + lanes, mask=lanes < COUNT, other=0)
    tl.store(out_ptr + rank, places, mask=(lanes < COUNT) & (rank < WANTED))


@triton.jit
def _sort_by_digits(
    keys_ptr, places_ptr, counts_ptr, source, target, COUNT,
    DIGITS: tl.constexpr, KEY: tl.constexpr,
):  # fmt: skip
    """Keys and places of COUNT elements from `source` on in order; returns where they then are."""
    values = tl.arange(0, 256)
    for digit in tl.static_range(DIGITS):
        tl.store(counts_ptr + digit * 256 + values, tl.zeros((256,), tl.int32))
    for at in range(COUNT):
        key = tl.load(keys_ptr + source + at).to(KEY, bitcast=True)
        for digit in tl.static_range(DIGITS):
            value = ((key >> (8 * digit)) & 255).to(tl.int32)
            count_ptr = counts_ptr + digit * 256 + value
            tl.store(count_ptr, tl.load(count_ptr) + 1)
    for digit in range(DIGITS):
        shift = (8 * digit).to(KEY)
        first = tl.load(keys_ptr + source).to(KEY, bitcast=True)
        value = ((first >> shift) & 255).to(tl.int32)
        own_ptr = counts_ptr + digit * 256
        if tl.load(own_ptr + value) != COUNT:  # else all have one digit
            counts = tl.load(own_ptr + values)
            tl.store(own_ptr + values, tl.cumsum(counts, 0) - counts)
            for at in range(COUNT):
                raw = tl.load(keys_ptr + source + at)
                place = tl.load(places_ptr + source + at)
                value = ((raw.to(KEY, bitcast=True) >> shift) & 255).to(tl.int32)
                to = tl.load(own_ptr + value)
                tl.store(own_ptr + value, to + 1)
                tl.store(keys_ptr + target + to, raw)
                tl.store(places_ptr + target + to, place)
            before = source
            source = target
            target = before
    return source


@triton.jit
def sort_rows(
    out_ptr,  # [ROWS, WANTED], places
    values_ptr,  # the same, elements
    data_ptr,  # [ROWS, N]
    ROWS,
    N,
    WANTED,
    IS_DESCENDING: tl.constexpr,
    HAS_VALUES: tl.constexpr,
    SPAN: tl.constexpr,  # the power of two above N
    KEPT: tl.constexpr,  # that above WANTED
    TILE: tl.constexpr,  # rows of a program
):
    rows = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)[:, None]
    lanes = tl.arange(0, SPAN)[None, :]
    is_there = (rows < ROWS) & (lanes < N)
    key = _key_of(tl.load(data_ptr + rows * N + lanes, mask=is_there), IS_DESCENDING, tl.uint32)
    # Where a key has 16 bits at most, a word has 32.
    HALF: tl.constexpr = 16 if data_ptr.dtype.element_ty.primitive_bitwidth <= 16 else 32
    WORD: tl.constexpr = tl.int32 if HALF == 16 else tl.int64
    LAST: tl.constexpr = 2**31 - 1 if HALF == 16 else 2**63 - 1
    signed = (key.to(tl.int64) - (1 << (HALF - 1))).to(WORD)
    word = tl.where(is_there, (signed << HALF) | lanes.to(WORD), LAST)
    if KEPT < SPAN:
        word = ~tl.topk(~word, KEPT, dim=1)
    else:
        word = tl.sort(word, dim=1)
    place = (word & ((1 << HALF) - 1)).to(tl.int32)
    kept = tl.arange(0, KEPT)[None, :]
    is_wanted = (rows < ROWS) & (kept < WANTED)
    tl.store(out_ptr + rows * WANTED + kept, place, mask=is_wanted)
    if HAS_VALUES:
        value = tl.load(data_ptr + rows * N + place, mask=is_wanted)
        tl.store(values_ptr + rows * WANTED + kept, value, mask=is_wanted)


@triton.jit
def select_rows(
    out_ptr,  # as `sort_rows` has them
    values_ptr,
    data_ptr,
    ROWS,
    N,
    WANTED,
    IS_DESCENDING: tl.constexpr,
    HAS_VALUES: tl.constexpr,
    SPAN: tl.constexpr,
    TILE: tl.constexpr,
):
    BITS: tl.constexpr = data_ptr.dtype.element_ty.primitive_bitwidth
    rows = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)[:, None]
    lanes = tl.arange(0, SPAN)[None, :]
    is_there = (rows < ROWS) & (lanes < N)
    data = tl.load(data_ptr + rows * N + lanes, mask=is_there)
    key = _key_of(data, IS_DESCENDING, tl.uint32)
    last = tl.zeros((TILE, 1), tl.uint32)
    below = tl.zeros((TILE, 1), tl.int32)
    for step in range(BITS):
        limit = last | (tl.full((), 1, tl.uint32) << (BITS - 1 - step).to(tl.uint32))
        count = tl.sum(((key < limit) & is_there).to(tl.int32), 1)[:, None]
        is_reached = count < WANTED
        last = tl.where(is_reached, limit, last)
        below = tl.where(is_reached, count, below)
    is_below = (key < last) & is_there
    is_last = (key == last) & is_there
    # How many of both there are up to each element: below in the upper half, equal in the lower.
    counts = tl.cumsum((is_below.to(tl.int32) << 16) + is_last.to(tl.int32), 1)
    equal = counts & 0xFFFF
    at = (counts >> 16) + tl.minimum(equal, WANTED - below) - 1
    is_wanted = is_below | (is_last & (equal <= WANTED - below))
    tl.store(out_ptr + rows * WANTED + at, lanes, mask=is_wanted)
    if HAS_VALUES:
        tl.store(values_ptr + rows * WANTED + at, data, mask=is_wanted)


@triton.jit
def nth_places(
    out_ptr,  # [ROWS], places
    values_ptr,  # the same, elements
    data_ptr,  # [ROWS, N]
    ranks_ptr,  # [ROWS] i64, below N; anything where there are none
    ROWS,
    N,
    WANTED,
    HAS_RANKS: tl.constexpr,
    HAS_VALUES: tl.constexpr,
    SPAN: tl.constexpr,
    TILE: tl.constexpr,
):
    """The element at a rank of its row, or the last of the first WANTED."""
    BITS: tl.constexpr = data_ptr.dtype.element_ty.primitive_bitwidth
    KEY: tl.constexpr = tl.uint64 if BITS == 64 else tl.uint32
    rows = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)[:, None]
    lanes = tl.arange(0, SPAN)[None, :]
    is_there = (rows < ROWS) & (lanes < N)
    key = _key_of(tl.load(data_ptr + rows * N + lanes, mask=is_there), False, KEY)
    rank = tl.full((TILE, 1), 0, tl.int32) + (WANTED - 1)
    if HAS_RANKS:
        rank = tl.load(ranks_ptr + rows, mask=rows < ROWS, other=0).to(tl.int32)
    found = tl.zeros((TILE, 1), KEY)
    below = tl.zeros((TILE, 1), tl.int32)
    for step in range(BITS):
        limit = found | (tl.full((), 1, KEY) << (BITS - 1 - step).to(KEY))
        count = tl.sum(((key < limit) & is_there).to(tl.int32), 1)[:, None]
        is_reached = count <= rank
        found = tl.where(is_reached, limit, found)
        below = tl.where(is_reached, count, below)
    is_equal = (key == found) & is_there
    is_it = is_equal & (tl.cumsum(is_equal.to(tl.int32), 1) == rank - below + 1)
    place = tl.sum(tl.where(is_it, lanes, 0), 1)[:, None]
    tl.store(out_ptr + rows, place, mask=rows < ROWS)
    if HAS_VALUES:
        value = tl.load(data_ptr + rows * N + place, mask=rows < ROWS)
        tl.store(values_ptr + rows, value, mask=rows < ROWS)


@triton.jit
def order_rows(
    out_ptr,  # [ROWS, WANTED] i32
    keys_ptr,  # [programs, 2, N] of the size of a KEY
    places_ptr,  # [programs, 2, N] i32
    counts_ptr,  # [programs, DIGITS, 256] i32
    data_ptr,  # [ROWS, N]
    ROWS,
    N,
    WANTED,
    IS_DESCENDING: tl.constexpr,
    IS_PART: tl.constexpr,
    HAS_BOUND: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """IS_PART: what is wanted is found before it is put in order; HAS_BOUND: among what is not
    above a bound. SPAN: the most elements that are put in order then, or 0 for many."""
    BITS: tl.constexpr = data_ptr.dtype.element_ty.primitive_bitwidth
    DIGITS: tl.constexpr = BITS // 8
    KEY: tl.constexpr = tl.uint64 if BITS == 64 else tl.uint32
    program = tl.program_id(0)
    keys_ptr += program.to(tl.int64) * 2 * N
    places_ptr += program.to(tl.int64) * 2 * N
    counts_ptr += program * DIGITS * 256
    lanes = tl.arange(0, BLOCK)
    for row in range(program, ROWS, tl.num_programs(0)):
        row_ptr = data_ptr + row.to(tl.int64) * N
        count = tl.full((), N, tl.int32)
        first = tl.full((), 0, tl.int32)
        if HAS_BOUND:
            count = _keep_below_bound(
                keys_ptr, places_ptr, row_ptr, N, WANTED, IS_DESCENDING, BITS, BLOCK, KEY
            )
        else:
            for start in range(0, N, BLOCK):
                at = start + lanes
                keys = _key_of(tl.load(row_ptr + at, mask=at < N), IS_DESCENDING, KEY)
                raw = keys.to(keys_ptr.dtype.element_ty, bitcast=True)
                tl.store(keys_ptr + at, raw, mask=at < N)
                tl.store(places_ptr + at, at, mask=at < N)
        if IS_PART:
            first += N
            _keep_first(keys_ptr, places_ptr, first, count, WANTED, BITS, BLOCK, KEY)
            count = tl.full((), WANTED, tl.int32)
        to_ptr = out_ptr + row.to(tl.int64) * WANTED
        if SPAN:
            _sort_by_rank(to_ptr, keys_ptr + first, places_ptr + first, count, WANTED, SPAN, KEY)
        else:
            found = _sort_by_digits(
                keys_ptr, places_ptr, counts_ptr, first, N - first, count, DIGITS, KEY
            )
            for start in range(0, WANTED, BLOCK):
                at = start + lanes
                places = tl.load(places_ptr + found + at, mask=at < WANTED)
                tl.store(to_ptr + at, places, mask=at < WANTED)


@triton.jit
def take_least(
    out_ptr,  # [ROWS, WANTED] i32
    data_ptr,  # [ROWS, N], N at most SPAN
    ROWS,
    N,
    WANTED,
    IS_DESCENDING: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Few elements of short rows, one after the other: the least that is left."""
    BITS: tl.constexpr = data_ptr.dtype.element_ty.primitive_bitwidth
    KEY: tl.constexpr = tl.uint64 if BITS == 64 else tl.uint32
    lanes = tl.arange(0, SPAN)
    for row in range(tl.program_id(0), ROWS, tl.num_programs(0)):
        row_ptr = data_ptr + row.to(tl.int64) * N
        keys = _key_of(tl.load(row_ptr + lanes, mask=lanes < N), IS_DESCENDING, KEY)
        is_left = lanes < N
        for at in range(WANTED):
            least = tl.min(tl.where(is_left, keys, ~tl.full((SPAN,), 0, KEY)), 0)
            place = tl.min(tl.where(is_left & (keys == least), lanes, SPAN), 0)
            tl.store(out_ptr + row.to(tl.int64) * WANTED + at, place)
            is_left = is_left & (lanes != place)


@triton.jit
def _digit_of(words, SHIFT: tl.constexpr):
    """Eight bits of words."""
    return ((words >> SHIFT) & 255).to(tl.int32)


@triton.jit
def _with_bit(digit, step, lanes):
    """A bit for each of 32 elements whose digit has a bit set."""
    bit = tl.full((32,), 1, tl.uint32) << lanes.to(tl.uint32)
    return tl.sum(tl.where(((digit >> step) & 1) != 0, bit, 0), 0)


@triton.jit
def _chosen(number, step, those):
    """Those that have a bit of a number set, where it is set there, and else the others."""
    return tl.where(((number >> step) & 1) != 0, those, ~those)


@triton.jit
def _same_digit(digit, lanes):
    """A bit for each of 32 elements that has a digit: one of each element's, and each of all 256 as
    `[16, 16]`. Found bit by bit of the digits; 256 is none."""
    halves = tl.arange(0, 16)
    there = ~_with_bit(digit, 8, lanes)
    own = there + tl.zeros((32,), tl.uint32)
    upper = there + tl.zeros((16, 1), tl.uint32)
    lower = tl.full((1, 16), 0xFFFFFFFF, tl.uint32)
    for step in tl.static_range(4):
        those = _with_bit(digit, step, lanes)
        own &= _chosen(digit, step, those)
        lower &= _chosen(halves[None, :], step, those)
        those = _with_bit(digit, 4 + step, lanes)
        own &= _chosen(digit, 4 + step, those)
        upper &= _chosen(halves[:, None], step, those)
    return own, upper & lower


@triton.jit
def _bits_set(x):
    """How many bits of 32 are set."""
    x -= (x >> 1) & 0x55555555
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def count_digits(
    out_ptr,  # [ROWS, PARTS, 256] i32
    words_ptr,  # [ROWS, N] i64
    N: tl.constexpr,
    PARTS: tl.constexpr,
    LENGTH: tl.constexpr,
    SHIFT: tl.constexpr,
):
    """A program is one warp, and goes over its part 32 elements at a time."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    lanes = tl.arange(0, 32)
    halves = tl.arange(0, 16)
    words_ptr += row * N
    first = part * LENGTH
    end = tl.minimum(first + LENGTH, N)
    counts = tl.zeros((16, 16), tl.int32)
    words = tl.load(words_ptr + first + lanes, mask=first + lanes < end, other=0)
    for at in range(first, end, 32):
        ahead = at + 32 + lanes
        following = tl.load(words_ptr + ahead, mask=ahead < end, other=0)
        digit = tl.where(at + lanes < end, _digit_of(words, SHIFT), 256)
        _, each = _same_digit(digit, lanes)
        counts += _bits_set(each)
        words = following
    to = halves[:, None] * 16 + halves[None, :]
    tl.store(out_ptr + (row * PARTS + part) * 256 + to, counts)


@triton.jit
def sum_digits(
    out_ptr,  # [ROWS, PARTS, 256] i32
    counts_ptr,  # what `count_digits` found
    PARTS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program has BLOCK of the digits, and goes over TILE parts at a time."""
    row = tl.program_id(1).to(tl.int64)
    digits = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    parts = tl.arange(0, TILE)
    counts_ptr += row * PARTS * 256
    out_ptr += row * PARTS * 256
    before = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, PARTS, TILE):
        part = first + parts[:, None]
        at = part * 256 + digits[None, :]
        counts = tl.load(counts_ptr + at, mask=part < PARTS, other=0)
        tl.store(out_ptr + at, tl.cumsum(counts, 0) + before[None, :], mask=part < PARTS)
        before += tl.sum(counts, 0)


@triton.jit
def order_by_digit(
    out_ptr,  # [ROWS, N] i64
    words_ptr,  # as `count_digits` has them
    sums_ptr,  # [ROWS, PARTS, 256] i32, what `sum_digits` found
    N: tl.constexpr,
    PARTS: tl.constexpr,
    LENGTH: tl.constexpr,
    SHIFT: tl.constexpr,
):
    """A program is one warp, and goes over its part 32 elements at a time."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    lanes = tl.arange(0, 32)
    digits = tl.arange(0, 256)
    words_ptr += row * N
    out_ptr += row * N
    sums_ptr += row * PARTS * 256 + digits
    first = part * LENGTH
    end = tl.minimum(first + LENGTH, N)
    total = tl.load(sums_ptr + (PARTS - 1) * 256)
    earlier = tl.load(sums_ptr + (part - 1) * 256, mask=(digits >= 0) & (part > 0), other=0)
    start = tl.reshape(tl.cumsum(total, 0) - total + earlier, (16, 16))
    words = tl.load(words_ptr + first + lanes, mask=first + lanes < end, other=0)
    for at in range(first, end, 32):
        ahead = at + 32 + lanes
        following = tl.load(words_ptr + ahead, mask=ahead < end, other=0)
        is_there = at + lanes < end
        digit = tl.where(is_there, _digit_of(words, SHIFT), 256)
        own, each = _same_digit(digit, lanes)
        up_to = own << (31 - lanes).to(tl.uint32)  # and the others are cut off
        before = tl.gather(tl.reshape(start, (256,)), digit & 255, 0)
        tl.store(out_ptr + before + _bits_set(up_to) - 1, words, mask=is_there)
        start += _bits_set(each)
        words = following


@triton.jit
def sort_runs(
    out_ptr,  # [ROWS, N] i64
    words_ptr,  # the same
    N: tl.constexpr,
    LENGTH: tl.constexpr,  # of a run
    TILE: tl.constexpr,  # runs of a program
):
    row = tl.program_id(1).to(tl.int64)
    runs = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    at = runs * LENGTH + tl.arange(0, LENGTH)[None, :]
    words = tl.load(words_ptr + row * N + at, mask=at < N, other=2**63 - 1)
    tl.store(out_ptr + row * N + at, tl.sort(words, dim=1), mask=at < N)


@triton.jit
def merge_runs(
    out_ptr,  # [ROWS, N] i64
    words_ptr,  # the same, runs of LENGTH in order, no two words of a row alike
    N: tl.constexpr,
    LENGTH: tl.constexpr,
    WAYS: tl.constexpr,  # runs that become one
    BLOCK: tl.constexpr,
):
    """A word goes behind as many others as are below it in the runs, which is its place in its own:
    one search in each, side by side."""
    row = tl.program_id(1).to(tl.int64)
    words_ptr += row * N
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    words = tl.load(words_ptr + at, mask=at < N, other=0)
    first = at // (WAYS * LENGTH) * (WAYS * LENGTH)
    starts = tl.minimum(first + tl.arange(0, WAYS)[None, :] * LENGTH, N)
    low = starts
    high = tl.minimum(starts + LENGTH, N)
    steps = LENGTH
    while steps > 0:
        middle = (low + high) // 2
        is_open = low < high
        others = tl.load(words_ptr + middle, mask=is_open, other=0)
        is_below = others < words
        low = tl.where(is_open & is_below, middle + 1, low)
        high = tl.where(is_open & ~is_below, middle, high)
        steps //= 2
    to = first + tl.sum(low - starts, 1)[:, None]
    tl.store(out_ptr + row * N + to, words, mask=at < N)
