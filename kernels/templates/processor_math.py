"""Functions that take a processor fewer operations than the general ones: of f32 as exact as these,
of 16-bit results as exact as their type.

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
    slope = tl.fma(even, size, odd)
    # 2^(n + r) for a whole n and |r| ≤ ½: 1.5 · 2²³ has no place for the bits of r.
    shifted = tl.fma(slope, size, 12582911.0)
    r = tl.fma(slope, size, 12582911.0 - shifted)
    power = tl.fma(r, 0.0001546288258396089, 0.0013390984386205673)
    power = tl.fma(power, r, 0.009618062525987625)
    power = tl.fma(power, r, 0.05550359562039375)
    power = tl.fma(power, r, 0.24022650718688965)
    power = tl.fma(power, r, 0.6931471824645996)
    power = tl.fma(power, r, 1.0)
    n = shifted.to(tl.int32, bitcast=True) << 23
    bits = tl.where(size < 5.6, power.to(tl.int32, bitcast=True) + n, 0)
    tail = bits.to(tl.float32, bitcast=True)
    return x * tl.where(x >= 0, 1.0 - tail, tail)


@triton.jit
def gelu_by_short_tail(x):
    """The same of a 16-bit result, by shorter polynomials: off by at most 5e-6 of it or
    4e-9 · |x|, and three roundings."""
    size = tl.abs(x)
    square = size * size
    odd = tl.fma(square, 3.421488872845657e-05, 0.00807325541973114)
    even = tl.fma(square, -0.000774000829551369, -0.053351111710071564)
    odd = tl.fma(odd, square, -0.45886552333831787)
    even = tl.fma(even, square, -1.1511515378952026)
    slope = tl.fma(odd, size, even)
    shifted = tl.fma(slope, size, 12582911.0)
    r = tl.fma(slope, size, 12582911.0 - shifted)
    power = tl.fma(r, 0.00968132633715868, 0.05591985955834389)
    power = tl.fma(power, r, 0.2402203381061554)
    power = tl.fma(power, r, 0.6931214928627014)
    power = tl.fma(power, r, 1.0)
    n = shifted.to(tl.int32, bitcast=True) << 23
    bits = tl.where(size < 5.6, power.to(tl.int32, bitcast=True) + n, 0)
    tail = bits.to(tl.float32, bitcast=True)
    return x * tl.where(x >= 0, 1.0 - tail, tail)
