"""Discrete Fourier transforms of rows and columns on processors.

Lengths are products of 2, 3, 5 and 7. Passes go from one buffer in memory to another, in Stockham's
order (`aot/ir/butterflies.py`). Roots of unity are read from a table.
"""

from __future__ import annotations

import triton
import triton.language as tl

from aotc.kernels.templates.fourier.butterflies import butterfly


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
        if RADIX > 5:
            last = tl.join(x[6][PART], x[RADIX - 1][PART])
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
    x = butterfly(x, RADIX, SIGN)
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
