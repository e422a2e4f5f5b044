"""Transforms of two to eight numbers, each a pair of tensors: real and imaginary parts.

SIGN: of the exponents of the roots of unity.
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

COSINE_OF_SEVENTH: tl.constexpr = tl.constexpr(0.62348980185873353053)
COSINE_OF_SEVENTHS: tl.constexpr = tl.constexpr(-0.22252093395631440429)  # of two sevenths
COSINE_OF_THREE_SEVENTHS: tl.constexpr = tl.constexpr(-0.90096886790241912624)
SINE_OF_SEVENTHS: tl.constexpr = tl.constexpr(0.97492791218182360702)  # of two sevenths
SINE_OF_SEVENTH: tl.constexpr = tl.constexpr(0.80193773580483825247)  # of one, by that of two
SINE_OF_THREE_SEVENTHS: tl.constexpr = tl.constexpr(0.44504186791262880858)  # by that of two


@triton.jit
def two(x, y):
    """Two numbers' transform, of pairs of real and imaginary parts."""
    return (x[0] + y[0], x[1] + y[1]), (x[0] - y[0], x[1] - y[1])


@triton.jit
def quarter_on(x, SIGN: tl.constexpr):
    """A quarter of a turn."""
    return -SIGN * x[1], SIGN * x[0]


@triton.jit
def four(a, b, c, d, SIGN: tl.constexpr):
    even, odd = two(a, c)
    other, last = two(b, d)
    first, third = two(even, other)
    second, fourth = two(odd, quarter_on(last, SIGN))
    return first, second, third, fourth


@triton.jit
def eight(a, b, c, d, e, f, g, h, SIGN: tl.constexpr):
    even = four(a, c, e, g, SIGN)
    odd = four(b, d, f, h, SIGN)
    second = odd[1]
    second = (second[0] - SIGN * second[1]) * DIAGONAL, (second[1] + SIGN * second[0]) * DIAGONAL
    fourth = odd[3]
    fourth = (-fourth[0] - SIGN * fourth[1]) * DIAGONAL, (SIGN * fourth[0] - fourth[1]) * DIAGONAL
    found0, found4 = two(even[0], odd[0])
    found1, found5 = two(even[1], second)
    found2, found6 = two(even[2], quarter_on(odd[2], SIGN))
    found3, found7 = two(even[3], fourth)
    return found0, found1, found2, found3, found4, found5, found6, found7


@triton.jit
def plus(x, y, FACTOR: tl.constexpr):
    """x + FACTOR * y, rounded once."""
    factor = tl.full(x[0].shape, FACTOR, x[0].dtype)
    return tl.fma(y[0], factor, x[0]), tl.fma(y[1], factor, x[1])


@triton.jit
def rotated_both(x, y, FACTOR: tl.constexpr):
    """x + FACTOR * y rotated by a quarter, and x - FACTOR * that."""
    up, down = tl.full(x[0].shape, FACTOR, x[0].dtype), tl.full(x[0].shape, -FACTOR, x[0].dtype)
    return (
        (tl.fma(y[1], down, x[0]), tl.fma(y[0], up, x[1])),
        (tl.fma(y[1], up, x[0]), tl.fma(y[0], down, x[1])),
    )


@triton.jit
def three(a, b, c, SIGN: tl.constexpr):
    both, apart = two(b, c)
    second, third = rotated_both(plus(a, both, -0.5), apart, SIGN * SINE_OF_THIRD)
    return plus(a, both, 1.0), second, third


@triton.jit
def five(a, b, c, d, e, SIGN: tl.constexpr):
    outer, apart = two(b, e)
    inner, between = two(c, d)
    near = plus(plus(a, outer, COSINE_OF_FIFTH), inner, COSINE_OF_FIFTHS)
    far = plus(plus(a, outer, COSINE_OF_FIFTHS), inner, COSINE_OF_FIFTH)
    rotated = plus(apart, between, SINES_OF_FIFTHS)
    second, last = rotated_both(near, rotated, SIGN * SINE_OF_FIFTH)
    rotated = plus(between, apart, -SINES_OF_FIFTHS)
    third, fourth = rotated_both(far, rotated, -SIGN * SINE_OF_FIFTH)
    return plus(plus(a, outer, 1.0), inner, 1.0), second, third, fourth, last


@triton.jit
def _three_of(x, y, z, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """x + FIRST * y + SECOND * z."""
    return plus(plus(x, y, FIRST), z, SECOND)


@triton.jit
def seven(a, b, c, d, e, f, g, SIGN: tl.constexpr):
    one, apart = two(b, g)
    other, between = two(c, f)
    third, near = two(d, e)
    first = _three_of(a, one, other, COSINE_OF_SEVENTH, COSINE_OF_SEVENTHS)
    first = plus(first, third, COSINE_OF_THREE_SEVENTHS)
    second = _three_of(a, one, other, COSINE_OF_SEVENTHS, COSINE_OF_THREE_SEVENTHS)
    second = plus(second, third, COSINE_OF_SEVENTH)
    last = _three_of(a, one, other, COSINE_OF_THREE_SEVENTHS, COSINE_OF_SEVENTH)
    last = plus(last, third, COSINE_OF_SEVENTHS)
    rotated = _three_of(between, apart, near, SINE_OF_SEVENTH, SINE_OF_THREE_SEVENTHS)
    found1, found6 = rotated_both(first, rotated, SIGN * SINE_OF_SEVENTHS)
    rotated = _three_of(apart, between, near, -SINE_OF_THREE_SEVENTHS, -SINE_OF_SEVENTH)
    found2, found5 = rotated_both(second, rotated, SIGN * SINE_OF_SEVENTHS)
    rotated = _three_of(near, apart, between, SINE_OF_THREE_SEVENTHS, -SINE_OF_SEVENTH)
    found3, found4 = rotated_both(last, rotated, SIGN * SINE_OF_SEVENTHS)
    whole = plus(_three_of(a, one, other, 1.0, 1.0), third, 1.0)
    return whole, found1, found2, found3, found4, found5, found6


@triton.jit
def butterfly(x, RADIX: tl.constexpr, SIGN: tl.constexpr):
    if RADIX == 2:
        found = two(x[0], x[1])
    elif RADIX == 3:
        found = three(x[0], x[1], x[2], SIGN)
    elif RADIX == 4:
        found = four(x[0], x[1], x[2], x[3], SIGN)
    elif RADIX == 5:
        found = five(x[0], x[1], x[2], x[3], x[4], SIGN)
    elif RADIX == 7:
        found = seven(x[0], x[1], x[2], x[3], x[4], x[5], x[6], SIGN)
    else:
        found = eight(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], SIGN)
    return found
