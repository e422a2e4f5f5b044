"""Functions of f32 that take a processor fewer operations than the general ones, as exact as these.

Kernels hold a copy of the functions that they call. The coefficients are those of
`aot/targets/cpu/math/coefficients.py`.
"""

import triton
import triton.language as tl


@triton.jit
def gelu_by_tail(x):
    """x · Φ(x) by the tail t = Φ(−|x|) = 2^(|x| P(|x|) − 1), which is 0 from 5.6 on; then x · t for
    x < 0, else x · (1 − t). Off by at most 2e-8 · |x| and three roundings."""
    size = tl.abs(x)
    # Even and odd powers by themselves: half as many multiply-adds wait for each other.
    square = size * size
    odd = tl.fma(square, 1.8676432489428407e-07, 4.322140375734307e-05)
    even = tl.fma(square, -4.503187483351212e-06, -0.0001805493957363069)
    odd = tl.fma(odd, square, -0.00017455939087085426)
    even = tl.fma(even, square, 0.007124489173293114)
    odd = tl.fma(odd, square, -0.05253901705145836)
    even = tl.fma(even, square, -0.4591955542564392)
    odd = tl.fma(odd, square, -1.151106357574463)
    exponent = tl.fma(tl.fma(even, size, odd), size, -1.0)
    # 2^(n + r) for a whole n and |r| ≤ ½: 1.5 · 2²³ has no place for the bits of r.
    shifted = exponent + 12582912.0
    r = exponent - (shifted - 12582912.0)
    square = r * r
    even = tl.fma(square, 0.0001546288258396089, 0.009618062525987625)
    odd = tl.fma(square, 0.0013390984386205673, 0.05550359562039375)
    even = tl.fma(even, square, 0.24022650718688965)
    odd = tl.fma(odd, square, 0.6931471824645996)
    power = tl.fma(tl.fma(even, r, odd), r, 1.0)
    n = shifted.to(tl.int32, bitcast=True) << 23
    # Choices between a sum and what it is of, or 0, are masks of the addition's own.
    bits = tl.where(size < 5.6, power.to(tl.int32, bitcast=True) + n, 0)
    tail = bits.to(tl.float32, bitcast=True)
    return x * tl.where(x >= 0, 1.0 - tail, tail)
