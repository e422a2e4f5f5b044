"""Discrete Fourier transforms of rows of a power of two of elements, by butterflies in registers.

A row is split by the upper three bits of its elements' places (Cooley and Tukey, 1965): eight
tensors, of which each thread transforms its elements by eight. Between two such passes a tensor's
upper bits and the numbers of the tensors change places, through shared memory; the last pass has
what is left, one to three bits. Roots of unity are read from a table; each error is that of a few
roundings an element, where a product with a matrix adds up all terms.
"""

from __future__ import annotations

import triton
import triton.language as tl

DIAGONAL: tl.constexpr = tl.constexpr(0.70710678118654752440)  # cosine of an eighth of a turn


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
def _element(re_ptr, im_ptr, at, mask, IS_REAL: tl.constexpr):
    re = tl.load(re_ptr + at, mask=mask, other=0.0)
    if IS_REAL:
        return re, tl.zeros(re.shape, re.dtype)
    return re, tl.load(im_ptr + at, mask=mask, other=0.0)


@triton.jit
def _store(out_ptr, to, x, mask, KEEP: tl.constexpr, STEP: tl.constexpr, PART: tl.constexpr):
    """What of a part is among the first KEEP of a row."""
    lanes = tl.arange(0, STEP)[None, :]
    for number in tl.static_range(8):
        if number * STEP < KEEP:
            is_kept = mask & (lanes + number * STEP < KEEP)
            tl.store(out_ptr + to + number * STEP, x[number][PART], mask=is_kept)


@triton.jit
def fourier(
    re_out_ptr,  # [ROWS, KEEP]
    im_out_ptr,  # the same
    re_ptr,  # [ROWS, N]
    im_ptr,  # the same, not read where IS_REAL
    roots_ptr,  # [2, N]: cosine and sine of SIGN times so many Nths of a turn
    ROWS,
    N: tl.constexpr,
    KEEP: tl.constexpr,
    SIGN: tl.constexpr,
    IS_REAL: tl.constexpr,
    HAS_IM: tl.constexpr,
    T: tl.constexpr,
):
    """A program has T rows; HAS_IM: imaginary parts are wanted."""
    STEP: tl.constexpr = N // 8
    rows = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)[:, None]
    lanes = tl.arange(0, STEP)[None, :]
    mask = rows < ROWS
    at = rows * N + lanes
    x = _eight(
        _element(re_ptr, im_ptr, at, mask, IS_REAL),
        _element(re_ptr, im_ptr, at + STEP, mask, IS_REAL),
        _element(re_ptr, im_ptr, at + 2 * STEP, mask, IS_REAL),
        _element(re_ptr, im_ptr, at + 3 * STEP, mask, IS_REAL),
        _element(re_ptr, im_ptr, at + 4 * STEP, mask, IS_REAL),
        _element(re_ptr, im_ptr, at + 5 * STEP, mask, IS_REAL),
        _element(re_ptr, im_ptr, at + 6 * STEP, mask, IS_REAL),
        _element(re_ptr, im_ptr, at + 7 * STEP, mask, IS_REAL),
        SIGN,
    )
    x = _times_roots(x, roots_ptr, lanes, N)
    for number in tl.static_range(4):
        if STEP >> (3 * number) > 1:
            x = _passed(x, roots_ptr, lanes, 1 << (3 * number), STEP >> (3 * number), N, SIGN)
    to = rows * KEEP + lanes
    _store(re_out_ptr, to, x, mask, KEEP, STEP, 0)
    if HAS_IM:
        _store(im_out_ptr, to, x, mask, KEEP, STEP, 1)
