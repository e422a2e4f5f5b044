"""Discrete Fourier transforms of rows, by butterflies.

`fourier`, for GPUs, of powers of two: a row is in registers, split by the upper three bits of its
elements' places (Cooley and Tukey, 1965): eight tensors, of which each thread transforms its
elements by eight. Between two such passes a tensor's upper bits and the numbers of the tensors
change places, through shared memory; the last pass has what is left, one to three bits.

`fourier_rows`, `fourier_short` and `fourier_columns`, for processors, of products of 2, 3 and 5:
passes go from one buffer in memory to another, in Stockham's order (`aot/ir/butterflies.py`).

Roots of unity are read from a table; each error is that of a few roundings an element, where a
product with a matrix adds up all terms.
"""

from __future__ import annotations

import triton
import triton.language as tl

DIAGONAL: tl.constexpr = tl.constexpr(0.70710678118654752440)  # cosine of an eighth of a turn
SINE_OF_THIRD: tl.constexpr = tl.constexpr(0.86602540378443864676)
COSINE_OF_FIFTH: tl.constexpr = tl.constexpr(0.30901699437494742410)
COSINE_OF_FIFTHS: tl.constexpr = tl.constexpr(-0.80901699437494742410)  # of two fifths
SINE_OF_FIFTH: tl.constexpr = tl.constexpr(0.95105651629515357212)
SINES_OF_FIFTHS: tl.constexpr = tl.constexpr(0.61803398874989484820)  # of two by that of one


@triton.jit
def _two(x, y):
    """Two numbers' transform, of pairs of real and imaginary parts."""
    return (x[0] + y[0], x[1] + y[1]), (x[0] - y[0], x[1] - y[1])


@triton.jit
def _quarter_on(x, SIGN: tl.constexpr):
    """A quarter of a turn."""
    return -SIGN * x[1], SIGN * x[0]


@triton.jit
def _four(a, b, c, d, SIGN: tl.constexpr):
    even, odd = _two(a, c)
    other, last = _two(b, d)
    first, third = _two(even, other)
    second, fourth = _two(odd, _quarter_on(last, SIGN))
    return first, second, third, fourth


@triton.jit
def _eight(a, b, c, d, e, f, g, h, SIGN: tl.constexpr):
    even = _four(a, c, e, g, SIGN)
    odd = _four(b, d, f, h, SIGN)
    second = odd[1]
    second = (second[0] - SIGN * second[1]) * DIAGONAL, (second[1] + SIGN * second[0]) * DIAGONAL
    fourth = odd[3]
    fourth = (-fourth[0] - SIGN * fourth[1]) * DIAGONAL, (SIGN * fourth[0] - fourth[1]) * DIAGONAL
    found0, found4 = _two(even[0], odd[0])
    found1, found5 = _two(even[1], second)
    found2, found6 = _two(even[2], _quarter_on(odd[2], SIGN))
    found3, found7 = _two(even[3], fourth)
    return found0, found1, found2, found3, found4, found5, found6, found7


@triton.jit
def _times_root(x, roots_ptr, place, N: tl.constexpr):
    """By the root of that many parts of a turn."""
    re = tl.load(roots_ptr + place)
    im = tl.load(roots_ptr + N + place)
    return x[0] * re - x[1] * im, x[0] * im + x[1] * re


@triton.jit
def _times_roots(x, roots_ptr, place, N: tl.constexpr):
    """Number by number, each by its own multiple of a place."""
    return (
        x[0],
        _times_root(x[1], roots_ptr, place, N),
        _times_root(x[2], roots_ptr, 2 * place, N),
        _times_root(x[3], roots_ptr, 3 * place, N),
        _times_root(x[4], roots_ptr, 4 * place, N),
        _times_root(x[5], roots_ptr, 5 * place, N),
        _times_root(x[6], roots_ptr, 6 * place, N),
        _times_root(x[7], roots_ptr, 7 * place, N),
    )


@triton.jit
def _joined(x, PART: tl.constexpr):
    """One part of eight tensors as one, its last dims the bits of their numbers, low ones first."""
    low = tl.join(tl.join(x[0][PART], x[1][PART]), tl.join(x[2][PART], x[3][PART]))
    high = tl.join(tl.join(x[4][PART], x[5][PART]), tl.join(x[6][PART], x[7][PART]))
    return tl.join(low, high)


@triton.jit
def _parted(x):
    """Eight tensors, of the last dims' bits."""
    low, high = tl.split(x)
    a, c = tl.split(low)
    e, g = tl.split(high)
    a0, a1 = tl.split(a)
    c0, c1 = tl.split(c)
    e0, e1 = tl.split(e)
    g0, g1 = tl.split(g)
    return a0, a1, c0, c1, e0, e1, g0, g1


@triton.jit
def _exchanged_part(x, DONE: tl.constexpr, LEFT: tl.constexpr, PART: tl.constexpr):
    """Lanes `[T, LEFT * DONE]` of elements that are left and results so far; tensors' numbers are
    the newest results. The upper bits of LEFT become the numbers, and these lanes before DONE."""
    whole = _joined(x, PART)
    T: tl.constexpr = whole.shape[0]
    if LEFT >= 8:
        whole = tl.reshape(whole, (T, 2, 2, 2, LEFT // 8, DONE, 2, 2, 2))
        whole = tl.permute(whole, (0, 4, 8, 7, 6, 5, 3, 2, 1))
    elif LEFT == 4:  # numbers: the results' upper bit, the elements' two
        whole = tl.reshape(whole, (T, 2, 2, DONE, 2, 2, 2))
        whole = tl.permute(whole, (0, 5, 4, 3, 6, 2, 1))
    else:  # the results' upper two, the elements' one
        whole = tl.reshape(whole, (T, 2, DONE, 2, 2, 2))
        whole = tl.permute(whole, (0, 3, 2, 4, 5, 1))
    return _parted(tl.reshape(whole, (T, LEFT * DONE, 2, 2, 2)))


@triton.jit
def _exchanged(x, DONE: tl.constexpr, LEFT: tl.constexpr):
    re = _exchanged_part(x, DONE, LEFT, 0)
    im = _exchanged_part(x, DONE, LEFT, 1)
    return (
        (re[0], im[0]),
        (re[1], im[1]),
        (re[2], im[2]),
        (re[3], im[3]),
        (re[4], im[4]),
        (re[5], im[5]),
        (re[6], im[6]),
        (re[7], im[7]),
    )


@triton.jit
def _last(x, LEFT: tl.constexpr, SIGN: tl.constexpr):
    """The pass over what is left: results' upper bits are below the elements' in the numbers."""
    if LEFT == 8:
        return _eight(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], SIGN)
    if LEFT == 4:
        even = _four(x[0], x[2], x[4], x[6], SIGN)
        odd = _four(x[1], x[3], x[5], x[7], SIGN)
        return even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]
    found0, found4 = _two(x[0], x[4])
    found1, found5 = _two(x[1], x[5])
    found2, found6 = _two(x[2], x[6])
    found3, found7 = _two(x[3], x[7])
    return found0, found1, found2, found3, found4, found5, found6, found7


@triton.jit
def _passed(x, roots_ptr, lanes, DONE: tl.constexpr, LEFT: tl.constexpr, N: tl.constexpr,
            SIGN: tl.constexpr):  # fmt: skip
    """One pass, over the upper bits of LEFT elements of each of DONE results."""
    x = _exchanged(x, DONE, LEFT)
    if LEFT > 8:
        x = _eight(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], SIGN)
        x = _times_roots(x, roots_ptr, lanes // (8 * DONE) * (8 * DONE), N)
    else:
        x = _last(x, LEFT, SIGN)
    return x


@triton.jit
def _element(
    re_ptr, im_ptr, at, lanes, mask, NUMBER: tl.constexpr, N: tl.constexpr, HOP: tl.constexpr,
    IS_REAL: tl.constexpr, IS_HALF: tl.constexpr,
):  # fmt: skip
    """Of a half of a spectrum of reals the others are their conjugates in reverse."""
    place = lanes + NUMBER * (N // 8)
    IS_MIRRORED: tl.constexpr = IS_HALF and NUMBER >= 4
    if IS_MIRRORED:
        place = N - place
    at += place * HOP
    re = tl.load(re_ptr + at, mask=mask, other=0.0)
    if IS_REAL:
        return re, tl.zeros(re.shape, re.dtype)
    im = tl.load(im_ptr + at, mask=mask, other=0.0)
    if IS_MIRRORED:
        im = -im
    return re, im


@triton.jit
def _store(
    out_ptr, to, x, mask, HOP: tl.constexpr, KEEP: tl.constexpr, STEP: tl.constexpr,
    IS_REAL: tl.constexpr, HAS_IM: tl.constexpr,
):  # fmt: skip
    """What of the results is among the first KEEP of a row: pairs, or real parts. IS_REAL: of
    reals, whose results at no turn and at half a turn are real."""
    lanes = tl.arange(0, STEP)[None, :]
    for number in tl.static_range(8):
        if number * STEP < KEEP:
            is_kept = mask & (lanes + number * STEP < KEEP)
            place = to + number * STEP * HOP
            if HAS_IM:
                im = x[number][1]
                if IS_REAL and number % 4 == 0:
                    im = tl.where(lanes == 0, 0.0, im)
                if KEEP < STEP:  # few numbers, of single lanes
                    tl.store(out_ptr + place, x[number][0], mask=is_kept)
                    tl.store(out_ptr + place + 1, im, mask=is_kept)
                else:
                    pair = tl.join(x[number][0], im)
                    places = place[:, :, None] + tl.arange(0, 2)[None, None, :]
                    kept = tl.broadcast_to(is_kept[:, :, None], pair.shape)
                    tl.store(out_ptr + places, pair, mask=kept)
            else:
                tl.store(out_ptr + place, x[number][0], mask=is_kept)


@triton.jit
def fourier(
    out_ptr,  # real parts [ROWS, KEEP], or where HAS_IM complex numbers [ROWS, KEEP, 2]
    re_ptr,  # [ROWS, N], or where IS_HALF the first [ROWS, N // 2 + 1]
    im_ptr,  # the same, not read where IS_REAL
    roots_ptr,  # [2, N]: cosine and sine of SIGN times so many Nths of a turn
    ROWS,
    INNER,  # rows of a run; FAR from one run to the next, NEAR from row to row, and so for `out`
    FAR,
    NEAR,
    HOP: tl.constexpr,  # from element to element
    OUT_FAR,
    OUT_NEAR,
    OUT_HOP: tl.constexpr,
    N: tl.constexpr,
    KEEP: tl.constexpr,
    SIGN: tl.constexpr,
    IS_REAL: tl.constexpr,
    IS_HALF: tl.constexpr,
    HAS_IM: tl.constexpr,
    T: tl.constexpr,
):
    """A program has T rows; IS_HALF: of a spectrum of reals; HAS_IM: imaginary parts are wanted."""
    STEP: tl.constexpr = N // 8
    rows = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)[:, None]
    lanes = tl.arange(0, STEP)[None, :]
    mask = rows < ROWS
    at = rows // INNER * FAR + rows % INNER * NEAR
    x = _eight(
        _element(re_ptr, im_ptr, at, lanes, mask, 0, N, HOP, IS_REAL, IS_HALF),
        _element(re_ptr, im_ptr, at, lanes, mask, 1, N, HOP, IS_REAL, IS_HALF),
        _element(re_ptr, im_ptr, at, lanes, mask, 2, N, HOP, IS_REAL, IS_HALF),
        _element(re_ptr, im_ptr, at, lanes, mask, 3, N, HOP, IS_REAL, IS_HALF),
        _element(re_ptr, im_ptr, at, lanes, mask, 4, N, HOP, IS_REAL, IS_HALF),
        _element(re_ptr, im_ptr, at, lanes, mask, 5, N, HOP, IS_REAL, IS_HALF),
        _element(re_ptr, im_ptr, at, lanes, mask, 6, N, HOP, IS_REAL, IS_HALF),
        _element(re_ptr, im_ptr, at, lanes, mask, 7, N, HOP, IS_REAL, IS_HALF),
        SIGN,
    )
    x = _times_roots(x, roots_ptr, lanes, N)
    for number in tl.static_range(4):
        if STEP >> (3 * number) > 1:
            x = _passed(x, roots_ptr, lanes, 1 << (3 * number), STEP >> (3 * number), N, SIGN)
    to = rows // INNER * OUT_FAR + rows % INNER * OUT_NEAR + lanes * OUT_HOP
    _store(out_ptr, to, x, mask, OUT_HOP, KEEP, STEP, IS_REAL, HAS_IM)


@triton.jit
def _plus(x, y, FACTOR: tl.constexpr):
    """x + FACTOR * y, rounded once."""
    factor = tl.full(x[0].shape, FACTOR, x[0].dtype)
    return tl.fma(y[0], factor, x[0]), tl.fma(y[1], factor, x[1])


@triton.jit
def _rotated_both(x, y, FACTOR: tl.constexpr):
    """x + FACTOR * y rotated by a quarter, and x - FACTOR * that."""
    up, down = tl.full(x[0].shape, FACTOR, x[0].dtype), tl.full(x[0].shape, -FACTOR, x[0].dtype)
    return (
        (tl.fma(y[1], down, x[0]), tl.fma(y[0], up, x[1])),
        (tl.fma(y[1], up, x[0]), tl.fma(y[0], down, x[1])),
    )


@triton.jit
def _three(a, b, c, SIGN: tl.constexpr):
    both, apart = _two(b, c)
    second, third = _rotated_both(_plus(a, both, -0.5), apart, SIGN * SINE_OF_THIRD)
    return _plus(a, both, 1.0), second, third


@triton.jit
def _five(a, b, c, d, e, SIGN: tl.constexpr):
    outer, apart = _two(b, e)
    inner, between = _two(c, d)
    near = _plus(_plus(a, outer, COSINE_OF_FIFTH), inner, COSINE_OF_FIFTHS)
    far = _plus(_plus(a, outer, COSINE_OF_FIFTHS), inner, COSINE_OF_FIFTH)
    rotated = _plus(apart, between, SINES_OF_FIFTHS)
    second, last = _rotated_both(near, rotated, SIGN * SINE_OF_FIFTH)
    rotated = _plus(between, apart, -SINES_OF_FIFTHS)
    third, fourth = _rotated_both(far, rotated, -SIGN * SINE_OF_FIFTH)
    return _plus(_plus(a, outer, 1.0), inner, 1.0), second, third, fourth, last


@triton.jit
def _butterfly(x, RADIX: tl.constexpr, SIGN: tl.constexpr):
    if RADIX == 2:
        found = _two(x[0], x[1])
    elif RADIX == 3:
        found = _three(x[0], x[1], x[2], SIGN)
    elif RADIX == 4:
        found = _four(x[0], x[1], x[2], x[3], SIGN)
    elif RADIX == 5:
        found = _five(x[0], x[1], x[2], x[3], x[4], SIGN)
    else:
        found = _eight(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], SIGN)
    return found


@triton.jit
def _number_of_row(
    re_ptr, im_ptr, roots_ptr, at, j, mask, is_line,
    K: tl.constexpr, GAP: tl.constexpr, RADIX: tl.constexpr, DONE: tl.constexpr,
    TURNS: tl.constexpr,
):  # fmt: skip
    """Number K of a butterfly, times its root; any where it has fewer."""
    NUMBER: tl.constexpr = K if K < RADIX else 0
    place = at + NUMBER * GAP
    re = tl.load(re_ptr + place, mask=mask, other=0.0)
    if im_ptr is None:
        im = tl.zeros(re.shape, re.dtype)
    else:
        im = tl.load(im_ptr + place, mask=mask, other=0.0)
    if DONE > 1 and NUMBER > 0:
        root = roots_ptr + (DONE - 1 + (NUMBER - 1) * DONE) + j
        cosine = tl.load(root, mask=is_line, other=0.0)
        sine = tl.load(root + TURNS, mask=is_line, other=0.0)
        whole = tl.fma(re, cosine, im * sine * -1.0), tl.fma(re, sine, im * cosine)
    else:
        whole = re, im
    return whole


@triton.jit
def _sides(x, RADIX: tl.constexpr, PART: tl.constexpr):
    """One part of the results, their numbers' bits as dims behind the others, low ones first."""
    found = tl.join(x[0][PART], x[1][PART])
    if RADIX > 2:
        found = tl.join(found, tl.join(x[2][PART], x[RADIX - 1 if RADIX == 3 else 3][PART]))
    if RADIX > 4:
        third = tl.join(x[4][PART], x[RADIX - 1 if RADIX == 5 else 5][PART])
        last = third
        if RADIX == 8:
            last = tl.join(x[6][PART], x[7][PART])
        found = tl.join(found, tl.join(third, last))
    return found


@triton.jit
def _with_sides(to, mask, RADIX: tl.constexpr, COUNT: tl.constexpr, APART: tl.constexpr):
    """Places of all results of butterflies, COUNT apart, and which there are; of both parts."""
    number = tl.arange(0, 2)
    to, mask = tl.expand_dims(to, -1), tl.expand_dims(mask, -1)
    if RADIX > 2:
        number = number[:, None] + 2 * tl.arange(0, 2)[None, :]
        to, mask = tl.expand_dims(to, -1), tl.expand_dims(mask, -1)
    if RADIX > 4:
        number = number[:, :, None] + 4 * tl.arange(0, 2)[None, None, :]
        to, mask = tl.expand_dims(to, -1), tl.expand_dims(mask, -1)
    to, mask = to + number * COUNT, mask & (number < RADIX)
    if APART:
        to = tl.expand_dims(to, -1) + tl.arange(0, 2) * APART
        mask = tl.broadcast_to(tl.expand_dims(mask, -1), to.shape)
    return to, mask


@triton.jit
def _butterflies(
    re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr, at, to, j, mask, is_line,
    GAP: tl.constexpr, COUNT: tl.constexpr, RADIX: tl.constexpr, DONE: tl.constexpr,
    SIGN: tl.constexpr, TURNS: tl.constexpr, APART: tl.constexpr = 0,
):  # fmt: skip
    """Of numbers GAP apart, results COUNT apart; no imaginary ones where im_to_ptr is None, but if
    APART is not 0: then at that distance from the real ones, stored with them, computed once."""
    x = (
        _number_of_row(re_ptr, im_ptr, roots_ptr, at, j, mask, is_line, 0, GAP, RADIX, DONE, TURNS),
        _number_of_row(re_ptr, im_ptr, roots_ptr, at, j, mask, is_line, 1, GAP, RADIX, DONE, TURNS),
        _number_of_row(re_ptr, im_ptr, roots_ptr, at, j, mask, is_line, 2, GAP, RADIX, DONE, TURNS),
        _number_of_row(re_ptr, im_ptr, roots_ptr, at, j, mask, is_line, 3, GAP, RADIX, DONE, TURNS),
        _number_of_row(re_ptr, im_ptr, roots_ptr, at, j, mask, is_line, 4, GAP, RADIX, DONE, TURNS),
        _number_of_row(re_ptr, im_ptr, roots_ptr, at, j, mask, is_line, 5, GAP, RADIX, DONE, TURNS),
        _number_of_row(re_ptr, im_ptr, roots_ptr, at, j, mask, is_line, 6, GAP, RADIX, DONE, TURNS),
        _number_of_row(re_ptr, im_ptr, roots_ptr, at, j, mask, is_line, 7, GAP, RADIX, DONE, TURNS),
    )
    x = _butterfly(x, RADIX, SIGN)
    to, mask = _with_sides(to, mask, RADIX, COUNT, APART)
    if APART:
        tl.store(re_to_ptr + to, tl.join(_sides(x, RADIX, 0), _sides(x, RADIX, 1)), mask=mask)
    else:
        tl.store(re_to_ptr + to, _sides(x, RADIX, 0), mask=mask)
        if im_to_ptr is not None:
            tl.store(im_to_ptr + to, _sides(x, RADIX, 1), mask=mask)


@triton.jit
def _pass(
    re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr,
    N: tl.constexpr, RADIX: tl.constexpr, DONE: tl.constexpr, SIGN: tl.constexpr,
    STEP: tl.constexpr, TURNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A pass of `aot/ir/butterflies.py` over one row, whose numbers lie STEP apart."""
    COUNT: tl.constexpr = N // RADIX
    GAP: tl.constexpr = COUNT // DONE
    lanes = tl.arange(0, WIDTH)[None, :]
    if HEIGHT == 1:
        to, at, j = lanes, lanes, lanes
        if DONE > 1:
            # As views: numbers that are divided are kept in memory, and read as any.
            SIDES: tl.constexpr = (WIDTH // GAP, GAP)
            j = tl.broadcast_to(tl.arange(0, WIDTH // GAP)[:, None], SIDES)
            at = j * (RADIX * GAP) + tl.arange(0, GAP)[None, :]
            j, at = tl.reshape(j, (1, WIDTH)), tl.reshape(at, (1, WIDTH))
        is_line = lanes < COUNT
        mask = is_line
    else:
        j = tl.arange(0, HEIGHT)[:, None]
        to = j * GAP + lanes
        at = j * (RADIX * GAP) + lanes
        is_line = j < DONE
        mask = is_line & (lanes < GAP)
    _butterflies(
        re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr, at * STEP, to, j, mask, is_line,
        GAP * STEP, COUNT, RADIX, DONE, SIGN, TURNS,
    )  # fmt: skip


@triton.jit
def _pass_of_columns(
    re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr,
    N: tl.constexpr, RADIX: tl.constexpr, DONE: tl.constexpr, SIGN: tl.constexpr,
    STEP: tl.constexpr, PITCH: tl.constexpr, TO_PITCH: tl.constexpr, HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, columns, APART: tl.constexpr = 0,
):  # fmt: skip
    """A pass over columns beside each other, STEP apart, whose numbers lie PITCH apart; over the
    first `columns` of them, if that is not None."""
    COUNT: tl.constexpr = N // RADIX
    GAP: tl.constexpr = COUNT // DONE
    j = tl.arange(0, HEIGHT)[:, None, None]
    place = tl.arange(0, WIDTH)[None, :, None]
    column = tl.arange(0, COLUMNS)[None, None, :]
    to = (j * GAP + place) * TO_PITCH + column
    at = (j * (RADIX * GAP) + place) * PITCH + column * STEP
    is_line = j < DONE
    mask = is_line & (place < GAP) & (column < COLUMNS)
    if columns is not None:
        mask = mask & (column < columns)
    _butterflies(
        re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr, at, to, j, mask, is_line,
        GAP * PITCH, COUNT * TO_PITCH, RADIX, DONE, SIGN, N, APART,
    )  # fmt: skip


@triton.jit
def _store_halved(
    re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr,
    N: tl.constexpr, KEEP: tl.constexpr, TURNS: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """The first KEEP of the transform of 2 N reals, of the transform z of N pairs of neighbours:
    (z_k + conj z_(N-k)) / 2 is that of the even ones, (z_k - conj z_(N-k)) / 2i of the odd ones,
    whose roots are stored halved. Imaginary parts of no turn and of half a turn are 0, whatever the
    data."""
    tl.store(re_ptr + N, tl.load(re_ptr))
    tl.store(im_ptr + N, tl.load(im_ptr))
    k = tl.arange(0, KEPT)
    mask = k < KEEP
    re = tl.load(re_ptr + k, mask=mask, other=0.0)
    im = tl.load(im_ptr + k, mask=mask, other=0.0)
    other_re = tl.load(re_ptr + (N - k), mask=mask, other=0.0)
    other_im = tl.load(im_ptr + (N - k), mask=mask, other=0.0)
    cosine = tl.load(roots_ptr + k, mask=mask, other=0.0)
    sine = tl.load(roots_ptr + TURNS + k, mask=mask, other=0.0)
    real, imaginary = im + other_im, re - other_re
    found = tl.fma(re + other_re, 0.5, tl.fma(real, cosine, imaginary * sine))
    tl.store(re_to_ptr + k, found, mask=mask)
    if im_to_ptr is not None:
        found = tl.fma(im - other_im, 0.5, tl.fma(real, sine, imaginary * cosine * -1.0))
        tl.store(im_to_ptr + k, tl.where((k == 0) | (k == N), 0.0, found), mask=mask)


@triton.jit
def _join_halves(
    re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr,
    N: tl.constexpr, TURNS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """What N numbers whose transform's parts are the even and the odd of 2 N reals are made of, of
    the first half h of the spectrum of these: h_k + conj h_(N-k) + i w_k (h_k - conj h_(N-k))."""
    k = tl.arange(0, WIDTH)
    mask = k < N
    re = tl.load(re_ptr + k * STEP, mask=mask, other=0.0)
    im = tl.load(im_ptr + k * STEP, mask=mask, other=0.0)
    other_re = tl.load(re_ptr + (N - k) * STEP, mask=mask, other=0.0)
    other_im = tl.load(im_ptr + (N - k) * STEP, mask=mask, other=0.0)
    im, other_im = tl.where(k == 0, 0.0, im), tl.where(k == 0, 0.0, other_im)
    cosine = tl.load(roots_ptr + k, mask=mask, other=0.0)
    sine = tl.load(roots_ptr + TURNS + k, mask=mask, other=0.0)
    real, imaginary = re - other_re, im + other_im
    found = re + other_re - tl.fma(real, sine, imaginary * cosine)
    tl.store(re_to_ptr + k, found, mask=mask)
    found = im - other_im + tl.fma(real, cosine, imaginary * sine * -1.0)
    tl.store(im_to_ptr + k, found, mask=mask)


@triton.jit
def _store_both(to_ptr, re_ptr, im_ptr, N: tl.constexpr, WIDTH: tl.constexpr):
    """Real and imaginary parts in turn."""
    SIDES: tl.constexpr = (WIDTH, 2)
    k = tl.reshape(tl.broadcast_to(tl.arange(0, WIDTH)[:, None], SIDES), (2 * WIDTH,))
    side = tl.reshape(tl.broadcast_to(tl.arange(0, 2)[None, :], SIDES), (2 * WIDTH,))
    to = tl.arange(0, 2 * WIDTH)
    mask = to < 2 * N
    re = tl.load(re_ptr + k, mask=mask, other=0.0)
    im = tl.load(im_ptr + k, mask=mask, other=0.0)
    tl.store(to_ptr + to, tl.where(side == 0, re, im), mask=mask)


@triton.jit
def _store_first(to_ptr, from_ptr, KEEP: tl.constexpr, KEPT: tl.constexpr):
    k = tl.arange(0, KEPT)
    tl.store(to_ptr + k, tl.load(from_ptr + k, mask=k < KEEP), mask=k < KEEP)


@triton.jit
def _store_row(
    re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr,
    N: tl.constexpr, KEEP: tl.constexpr, TURNS: tl.constexpr, FORM: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """What is behind the passes, if they did not store the results."""
    if FORM == "reals":
        _store_halved(
            re_to_ptr, im_to_ptr, re_ptr, im_ptr, roots_ptr + (N - 1), N, KEEP, TURNS, WIDTH
        )
    elif FORM == "spectrum":
        _store_both(re_to_ptr, re_ptr, im_ptr, N, WIDTH)
    elif KEEP != N:
        _store_first(re_to_ptr, re_ptr, KEEP, WIDTH)
        if im_to_ptr is not None:
            _store_first(im_to_ptr, im_ptr, KEEP, WIDTH)


@triton.jit
def fourier_rows(
    re_out_ptr,  # [ROWS, KEEP]
    im_out_ptr,  # the same
    re_ptr,  # [ROWS, N], [ROWS, 2 N] of "reals", [ROWS, N + 1] of a "spectrum"; by these steps
    im_ptr,  # the same, not read where IS_REAL
    roots_ptr,  # [2, TURNS], `pass_roots` of aot/ir/butterflies.py
    ROWS,
    N: tl.constexpr, TURNS: tl.constexpr, KEEP: tl.constexpr, SIGN: tl.constexpr,
    IS_REAL: tl.constexpr, HAS_IM: tl.constexpr, FORM: tl.constexpr, STEP: tl.constexpr,
    FIRST_STEP: tl.constexpr, ROW_STEP, RADICES: tl.constexpr, DONE: tl.constexpr,
    HEIGHTS: tl.constexpr, WIDTHS: tl.constexpr, WIDTH: tl.constexpr, PITCH: tl.constexpr,
    first_re_ptr,  # [programs, PITCH], as the next three
    first_im_ptr,
    second_re_ptr,
    second_im_ptr,
):  # fmt: skip
    """For processors: a program has rows of its own, one after the other, which go through memory
    of its own from pass to pass. FORM: "whole", or by N numbers for 2 N, of "reals" or back to them
    from half of their "spectrum". FIRST_STEP: between numbers of the first pass. HEIGHTS, WIDTHS,
    WIDTH: powers of two above a pass's places and above what is before or behind the passes."""
    PASSES: tl.constexpr = len(RADICES)
    own = tl.program_id(0) * PITCH
    first_re_ptr, first_im_ptr = first_re_ptr + own, first_im_ptr + own
    second_re_ptr, second_im_ptr = second_re_ptr + own, second_im_ptr + own
    for row in range(tl.program_id(0), ROWS, tl.num_programs(0)):
        re_from = re_ptr + row.to(tl.int64) * ROW_STEP
        im_from = im_ptr + row.to(tl.int64) * ROW_STEP
        re_to_ptr = re_out_ptr + row.to(tl.int64) * KEEP
        im_to_ptr = im_out_ptr + row.to(tl.int64) * KEEP
        if not HAS_IM:
            im_to_ptr = None
        if FORM == "spectrum":
            _join_halves(
                second_re_ptr, second_im_ptr, re_from, im_from, roots_ptr + (N - 1),
                N, TURNS, STEP, WIDTH,
            )  # fmt: skip
            re_from, im_from = second_re_ptr, second_im_ptr
        elif FORM == "reals":
            im_from = re_from + STEP
        elif IS_REAL:
            im_from = None
        for number in tl.static_range(PASSES):
            re_to = second_re_ptr if number % 2 else first_re_ptr
            im_to = second_im_ptr if number % 2 else first_im_ptr
            if number == PASSES - 1 and FORM == "whole" and KEEP == N:
                re_to = re_to_ptr
                im_to = im_to_ptr
            _pass(
                re_to, im_to, re_from, im_from, roots_ptr, N, RADICES[number], DONE[number], SIGN,
                FIRST_STEP if number == 0 else 1, TURNS, HEIGHTS[number], WIDTHS[number],
            )  # fmt: skip
            re_from = re_to
            im_from = im_to
        _store_row(re_to_ptr, im_to_ptr, re_from, im_from, roots_ptr, N, KEEP, TURNS, FORM, WIDTH)


@triton.jit
def fourier_columns(
    re_out_ptr,  # [OUTER, N, INNER]
    im_out_ptr,  # the same
    re_ptr,  # the same, columns STEP apart
    im_ptr,  # the same, not read where IS_REAL
    roots_ptr,  # [2, N], `pass_roots` of aot/ir/butterflies.py
    OUTER,
    OUTER_STEP,
    N: tl.constexpr, INNER: tl.constexpr, SIGN: tl.constexpr, IS_REAL: tl.constexpr,
    HAS_IM: tl.constexpr, STEP: tl.constexpr, RADICES: tl.constexpr, DONE: tl.constexpr,
    HEIGHTS: tl.constexpr, WIDTHS: tl.constexpr, COLUMNS: tl.constexpr,
    first_re_ptr,  # [programs, N, COLUMNS], as the next three
    first_im_ptr,
    second_re_ptr,
    second_im_ptr,
):  # fmt: skip
    """As `fourier_rows`, along a dim that is not the last one: of blocks of columns at once."""
    PASSES: tl.constexpr = len(RADICES)
    BLOCKS: tl.constexpr = (INNER + COLUMNS - 1) // COLUMNS
    own = tl.program_id(0) * (N * COLUMNS)
    first_re_ptr, first_im_ptr = first_re_ptr + own, first_im_ptr + own
    second_re_ptr, second_im_ptr = second_re_ptr + own, second_im_ptr + own
    for unit in range(tl.program_id(0), OUTER * BLOCKS, tl.num_programs(0)):
        outer = (unit // BLOCKS).to(tl.int64)
        column = unit % BLOCKS * COLUMNS
        columns = None
        if INNER % COLUMNS:
            columns = INNER - column
        re_from = re_ptr + outer * OUTER_STEP + column * STEP
        im_from = im_ptr + outer * OUTER_STEP + column * STEP
        if IS_REAL:
            im_from = None
        for number in tl.static_range(PASSES):
            re_to = second_re_ptr if number % 2 else first_re_ptr
            im_to = second_im_ptr if number % 2 else first_im_ptr
            if number == PASSES - 1:
                re_to = re_out_ptr + outer * (N * INNER) + column
                im_to = im_out_ptr + outer * (N * INNER) + column
                if not HAS_IM:
                    im_to = None
            _pass_of_columns(
                re_to, im_to, re_from, im_from, roots_ptr, N, RADICES[number], DONE[number], SIGN,
                1 if number else STEP, COLUMNS if number else INNER * STEP,
                INNER if number == PASSES - 1 else COLUMNS,
                HEIGHTS[number], WIDTHS[number], COLUMNS, columns,
            )  # fmt: skip
            re_from = re_to
            im_from = im_to


@triton.jit
def fourier_short(
    out_ptr,  # [ROWS, KEEP, 2]
    re_ptr,  # [ROWS, N] by ROW_STEP and STEP
    im_ptr,  # the same; where STEP is 2 behind each real part
    roots_ptr,  # [2, N], `pass_roots` of aot/ir/butterflies.py
    ROWS,
    N: tl.constexpr, KEEP: tl.constexpr, SIGN: tl.constexpr, STEP: tl.constexpr, ROW_STEP,
    RADICES: tl.constexpr, DONE: tl.constexpr, HEIGHTS: tl.constexpr, WIDTHS: tl.constexpr,
    TAKEN: tl.constexpr, STORED: tl.constexpr, BESIDE: tl.constexpr,
    first_ptr,  # [programs, 2 * N, BESIDE], as the next
    second_ptr,
):  # fmt: skip
    """As `fourier_rows`, of BESIDE rows at once, which are columns meanwhile. There are as many at
    least, and the last ones are those before the end. TAKEN, STORED: powers of two above what is
    read of a row at once and what is stored."""
    from_ptr = first_ptr + tl.program_id(0) * (2 * N * BESIDE)
    to_ptr = second_ptr + tl.program_id(0) * (2 * N * BESIDE)
    beside = tl.arange(0, BESIDE)
    taken, stored = tl.arange(0, TAKEN)[:, None], tl.arange(0, STORED)[None, :]
    for unit in range(tl.program_id(0), (ROWS + BESIDE - 1) // BESIDE, tl.num_programs(0)):
        row = tl.minimum(unit * BESIDE, ROWS - BESIDE).to(tl.int64)
        at = row * ROW_STEP + beside[None, :] * ROW_STEP + taken
        to = taken * (2 // STEP * BESIDE) + beside[None, :]
        mask = taken < N * STEP
        tl.store(from_ptr + to, tl.load(re_ptr + at, mask=mask), mask=mask)
        if STEP == 1:
            tl.store(from_ptr + BESIDE + to, tl.load(im_ptr + at, mask=mask), mask=mask)
        for number in tl.static_range(len(RADICES)):
            a, b = (to_ptr, from_ptr) if number % 2 else (from_ptr, to_ptr)
            _pass_of_columns(
                b, None, a, a + BESIDE, roots_ptr,
                N, RADICES[number], DONE[number], SIGN, 1, 2 * BESIDE, 2 * BESIDE,
                HEIGHTS[number], WIDTHS[number], BESIDE, None, BESIDE,
            )  # fmt: skip
        last_ptr = to_ptr if len(RADICES) % 2 else from_ptr
        mask = stored < 2 * KEEP
        found = tl.load(last_ptr + stored * BESIDE + beside[:, None], mask=mask)
        to = (row + beside[:, None]) * (2 * KEEP) + stored
        tl.store(out_ptr + to, found, mask=mask)
