"""Discrete Fourier transforms of rows on GPUs, of lengths that are products of 2, 3, 5 and 7.

A program has whole rows, and its passes go from one half of memory of its own to the other, in
Stockham's order (`aot/ir/butterflies.py`): what is written is read again from the cache. The first
pass reads the operands, the last one writes the results. Roots of unity are read from a table.
"""

from __future__ import annotations

import triton
import triton.language as tl

from aotc.kernels.templates.fourier.butterflies import butterfly


@triton.jit
def _given(
    re_ptr, im_ptr, at, place, mask, K: tl.constexpr, GAP: tl.constexpr, RADIX: tl.constexpr,
    N: tl.constexpr, HOP: tl.constexpr, IS_REAL: tl.constexpr, IS_HALF: tl.constexpr,
):  # fmt: skip
    """Number K of a first butterfly; any where it has fewer. Of a half of a spectrum of reals the
    others are their conjugates in reverse."""
    place += (K if K < RADIX else 0) * GAP
    is_mirrored = place > N // 2
    if IS_HALF:
        place = tl.where(is_mirrored, N - place, place)
    re = tl.load(re_ptr + at + place * HOP, mask=mask, other=0.0)
    if IS_REAL:
        im = tl.zeros(re.shape, re.dtype)
    else:
        im = tl.load(im_ptr + at + place * HOP, mask=mask, other=0.0)
        if IS_HALF:
            im = tl.where(is_mirrored, -im, im)
    return re, im


@triton.jit
def _given_numbers(
    re_ptr, im_ptr, at, place, mask, GAP: tl.constexpr, RADIX: tl.constexpr, N: tl.constexpr,
    HOP: tl.constexpr, IS_REAL: tl.constexpr, IS_HALF: tl.constexpr,
):  # fmt: skip
    """Those of the first butterflies, GAP apart."""
    return (
        _given(re_ptr, im_ptr, at, place, mask, 0, GAP, RADIX, N, HOP, IS_REAL, IS_HALF),
        _given(re_ptr, im_ptr, at, place, mask, 1, GAP, RADIX, N, HOP, IS_REAL, IS_HALF),
        _given(re_ptr, im_ptr, at, place, mask, 2, GAP, RADIX, N, HOP, IS_REAL, IS_HALF),
        _given(re_ptr, im_ptr, at, place, mask, 3, GAP, RADIX, N, HOP, IS_REAL, IS_HALF),
        _given(re_ptr, im_ptr, at, place, mask, 4, GAP, RADIX, N, HOP, IS_REAL, IS_HALF),
        _given(re_ptr, im_ptr, at, place, mask, 5, GAP, RADIX, N, HOP, IS_REAL, IS_HALF),
        _given(re_ptr, im_ptr, at, place, mask, 6, GAP, RADIX, N, HOP, IS_REAL, IS_HALF),
        _given(re_ptr, im_ptr, at, place, mask, 7, GAP, RADIX, N, HOP, IS_REAL, IS_HALF),
    )


@triton.jit
def _kept(
    own_ptr, place, mask, roots_ptr, turn, K: tl.constexpr, GAP: tl.constexpr, RADIX: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    """Number K of a later butterfly, times its root to the K; any where it has fewer."""
    NUMBER: tl.constexpr = K if K < RADIX else 0
    places = 2 * (place + NUMBER * GAP)[:, :, None] + tl.arange(0, 2)[None, None, :]
    re, im = tl.split(tl.load(own_ptr + places, mask=mask[:, :, None], other=0.0))
    if NUMBER > 0:
        cosine = tl.load(roots_ptr + NUMBER * turn, mask=mask, other=0.0)
        sine = tl.load(roots_ptr + N + NUMBER * turn, mask=mask, other=0.0)
        found = tl.fma(re, cosine, im * sine * -1.0), tl.fma(re, sine, im * cosine)
    else:
        found = re, im
    return found


@triton.jit
def _kept_numbers(
    own_ptr, place, mask, roots_ptr, turn, GAP: tl.constexpr, RADIX: tl.constexpr, N: tl.constexpr
):
    """Those of a later pass, GAP apart, which the pass before left, parts in turn."""
    return (
        _kept(own_ptr, place, mask, roots_ptr, turn, 0, GAP, RADIX, N),
        _kept(own_ptr, place, mask, roots_ptr, turn, 1, GAP, RADIX, N),
        _kept(own_ptr, place, mask, roots_ptr, turn, 2, GAP, RADIX, N),
        _kept(own_ptr, place, mask, roots_ptr, turn, 3, GAP, RADIX, N),
        _kept(own_ptr, place, mask, roots_ptr, turn, 4, GAP, RADIX, N),
        _kept(own_ptr, place, mask, roots_ptr, turn, 5, GAP, RADIX, N),
        _kept(own_ptr, place, mask, roots_ptr, turn, 6, GAP, RADIX, N),
        _kept(own_ptr, place, mask, roots_ptr, turn, 7, GAP, RADIX, N),
    )


@triton.jit
def _keep(own_ptr, x, place, mask, COUNT: tl.constexpr, RADIX: tl.constexpr):
    """Results of butterflies for the next pass, COUNT apart."""
    for number in tl.static_range(RADIX):
        places = 2 * (place + number * COUNT)[:, :, None] + tl.arange(0, 2)[None, None, :]
        tl.store(own_ptr + places, tl.join(x[number][0], x[number][1]), mask=mask[:, :, None])


@triton.jit
def _store(
    out_ptr, to, x, lanes, mask, COUNT: tl.constexpr, RADIX: tl.constexpr, N: tl.constexpr,
    KEEP: tl.constexpr, HOP: tl.constexpr, IS_REAL: tl.constexpr, HAS_IM: tl.constexpr,
):  # fmt: skip
    """What of the results is among the first KEEP of a row: pairs, or real parts. IS_REAL: of
    reals, whose results at no turn and at half a turn are real."""
    for number in tl.static_range(RADIX):
        if number * COUNT < KEEP:
            place = lanes + number * COUNT
            is_kept = mask & (place < KEEP)
            if HAS_IM:
                im = x[number][1]
                if IS_REAL:
                    im = tl.where((place == 0) | (2 * place == N), 0.0, im)
                places = (to + place * HOP)[:, :, None] + tl.arange(0, 2)[None, None, :]
                pair = tl.join(x[number][0], im)
                tl.store(out_ptr + places, pair, mask=is_kept[:, :, None])
            else:
                tl.store(out_ptr + to + place * HOP, x[number][0], mask=is_kept)


@triton.jit
def _pass(
    out_ptr, to, re_ptr, im_ptr, at, to_ptr, from_ptr, roots_ptr, row, is_row,
    HOP: tl.constexpr, OUT_HOP: tl.constexpr, N: tl.constexpr, KEEP: tl.constexpr,
    SIGN: tl.constexpr, IS_REAL: tl.constexpr, IS_HALF: tl.constexpr, HAS_IM: tl.constexpr,
    OWN_NEAR: tl.constexpr, OWN_HOP: tl.constexpr, RADIX: tl.constexpr, DONE: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """A pass of `aot/ir/butterflies.py` over rows, from operands or from memory of the program's
    own, to results or to that memory."""
    COUNT: tl.constexpr = N // RADIX
    GAP: tl.constexpr = COUNT // DONE
    lanes = tl.arange(0, WIDTH)[None, :]
    mask = is_row & (lanes < COUNT)
    j = lanes // GAP
    place = j * (RADIX * GAP) + lanes % GAP
    if DONE == 1:
        x = _given_numbers(re_ptr, im_ptr, at, place, mask, GAP, RADIX, N, HOP, IS_REAL, IS_HALF)
    else:
        own = row * OWN_NEAR + place * OWN_HOP
        x = _kept_numbers(from_ptr, own, mask, roots_ptr, j * GAP, GAP * OWN_HOP, RADIX, N)
    x = butterfly(x, RADIX, SIGN)
    if GAP == 1:
        _store(out_ptr, to, x, lanes, mask, COUNT, RADIX, N, KEEP, OUT_HOP, IS_REAL, HAS_IM)
    else:
        own = row * OWN_NEAR + lanes * OWN_HOP
        _keep(to_ptr, x, own, mask, COUNT * OWN_HOP, RADIX)
        tl.debug_barrier()


@triton.jit
def fourier_passes(
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
    OWN_NEAR: tl.constexpr,  # in memory of its own, from row to row
    OWN_HOP: tl.constexpr,  # and from element to element
    RADICES: tl.constexpr,
    DONE: tl.constexpr,
    WIDTHS: tl.constexpr,  # powers of two above the places of each pass
    own_ptr,  # [programs, 2, T * N, 2]
):
    """A program has T rows; IS_HALF: of a spectrum of reals; HAS_IM: imaginary parts are wanted."""
    row = tl.arange(0, T)[:, None]
    rows = tl.program_id(0).to(tl.int64) * T + row
    at = rows // INNER * FAR + rows % INNER * NEAR
    to = rows // INNER * OUT_FAR + rows % INNER * OUT_NEAR
    half_ptr = own_ptr + tl.program_id(0).to(tl.int64) * (4 * T * N)
    other_ptr = half_ptr + 2 * T * N
    for number in tl.static_range(len(RADICES)):
        _pass(
            out_ptr, to, re_ptr, im_ptr, at, half_ptr, other_ptr, roots_ptr, row, rows < ROWS,
            HOP, OUT_HOP, N, KEEP, SIGN, IS_REAL, IS_HALF, HAS_IM, OWN_NEAR, OWN_HOP,
            RADICES[number], DONE[number], WIDTHS[number],
        )  # fmt: skip
        half_ptr, other_ptr = other_ptr, half_ptr
