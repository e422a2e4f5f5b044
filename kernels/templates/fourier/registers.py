"""Discrete Fourier transforms of rows on GPUs, in f32, of lengths that are powers of two.

A row is in registers, split by the upper three bits of its elements' places (Cooley and Tukey,
1965): eight tensors, of which each thread transforms its elements by eight. Between two such passes
a tensor's upper bits and the numbers of the tensors change places, through shared memory; the last
pass has what is left, one to three bits. Roots of unity are read from a table; each error is that
of a few roundings an element, where a product with a matrix adds up all terms.
"""

from __future__ import annotations

import triton
import triton.language as tl

from aotc.kernels.templates.fourier.butterflies import eight, four, two


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
        return eight(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], SIGN)
    if LEFT == 4:
        even = four(x[0], x[2], x[4], x[6], SIGN)
        odd = four(x[1], x[3], x[5], x[7], SIGN)
        return even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]
    found0, found4 = two(x[0], x[4])
    found1, found5 = two(x[1], x[5])
    found2, found6 = two(x[2], x[6])
    found3, found7 = two(x[3], x[7])
    return found0, found1, found2, found3, found4, found5, found6, found7


@triton.jit
def _passed(x, roots_ptr, lanes, DONE: tl.constexpr, LEFT: tl.constexpr, N: tl.constexpr,
            SIGN: tl.constexpr):  # fmt: skip
    """One pass, over the upper bits of LEFT elements of each of DONE results."""
    x = _exchanged(x, DONE, LEFT)
    if LEFT > 8:
        x = eight(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], SIGN)
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
    x = eight(
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
