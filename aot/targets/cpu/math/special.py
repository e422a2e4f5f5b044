"""Special functions of f64 as LLVM IR text; those of f32 are these, rounded.

Error functions by a fitted level (M. M. Shepherd, J. G. Laframboise, Mathematics of Computation 36,
1981), their inverses by Newton's steps on its logarithm, gamma functions by a fitted polynomial and
Stirling's series, Bessel functions by polynomials between and asymptotic forms beyond 8 (A. J.
Harrison, Fast and Accurate Bessel Function Computation, 2009, explains the factored zeros).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aotc.aot.targets.cpu.math import coefficients as fitted
from aotc.aot.targets.cpu.math.angles import DOUBLES
from aotc.aot.targets.cpu.math.formats import F64, LOG2_E, LOG2_E_REST, log_limits
from aotc.aot.targets.cpu.math.functions import (
    DOUBLE_ERFC_CENTRE,
    DOUBLE_ERFC_LIMIT,
    FUNCTIONS,
    log2_parts,
    product_parts,
    sum_parts,
    trunc,
)
from aotc.aot.targets.cpu.math.vector_ir import Value

LN2, LN2_REST = 0.6931471805599453, 2.3190468138462996e-17
LN10, LN10_REST = 2.302585092994046, -2.1707562233822494e-16
LOG10_2, LOG10_2_REST = 0.3010299956639812, -2.8037281277851704e-18
PI_REST = 1.2246467991473532e-16
HALF_ROOT, HALF_ROOT_REST = 0.7071067811865476, -4.833646656726457e-17  # √½
HALF_ROOT_PI = 0.8862269254527580  # √π / 2
LARGEST = 1.7976931348623157e308

log1p, log, exp, erf, erfc = (
    FUNCTIONS["double"][name].build for name in ("log1p", "log", "exp", "erf", "erfc")
)


# -- exponentials and logarithms -------------------------------------------------------------------


def exp10(x: Value) -> Value:
    """2ⁿ e^(r log 10) with r = x − n log10 2."""
    x = x.at_most(310.0).at_least(-325.0)
    n_float, n = F64.nearest(x, 1 / LOG10_2)
    # The high part has so few bits that its product with n is exact.
    high = 0.30102999566406652
    r = n_float.fma(-(LOG10_2 - high + LOG10_2_REST), n_float.fma(-high, x))
    product, lost = product_parts(r, LN10)
    return F64.scaled(F64.power(product + r.fma(LN10_REST, lost)), n_float, n)


def log10(x: Value) -> Value:
    high, low = log2_parts(x)
    product, lost = product_parts(high, LOG10_2)
    return log_limits(x, product + high.fma(LOG10_2_REST, low.fma(LOG10_2, lost)))


def asinh(x: Value) -> Value:
    size = x.abs()
    square = size * size
    inner = log1p(size + square / ((square + 1.0).sqrt() + 1.0))
    result = (size > 1e9).select(log(size) + LN2, inner)
    result = (size < 1e-9).select(size, result)
    return x.is_nan().select(x, result.copysign(x))


def acosh(x: Value) -> Value:
    t = x - 1.0
    inner = log1p(t + (t * t + (t + t)).sqrt())
    result = (x > 1e9).select(log(x) + LN2, inner)
    return (x < 1.0).select(x.like(math.nan), result)


def atanh(x: Value) -> Value:
    """Of a small x by the series of log's polynomial, whose variable x is."""
    size = x.abs()
    z = size * size
    near = (size * z * 0.5).fma(z.polynomial(fitted.LOG["double"]), size)
    far = log1p((size + size) / (1.0 - size)) * 0.5
    far = size.equals(1.0).select(x.like(math.inf), far)
    return (size < 0.17).select(near, far).copysign(x)


# -- roots -----------------------------------------------------------------------------------------


def _cbrt_parts(x: Value) -> tuple[Value, Value, Value, Value]:
    """∛|x| = (y − rest) · scale: (y, rest, scale, whether |x| is neither 0 nor infinite)."""
    size = x.abs()
    small = size < 1e-290
    size = small.select(size * 2.0**300, size)
    y = F64.exp2(F64.log2(size) * (1 / 3))
    square, lost = product_parts(y, y)
    rest = (square.fma(y, -size) + lost * y) / (square * 3.0)
    usual = (size > 0.0) & (size < math.inf)
    return y, rest, small.select(y.like(2.0**-100), 1.0), usual


def cbrt(x: Value) -> Value:
    y, rest, scale, usual = _cbrt_parts(x)
    return usual.select((y - rest) * scale, x.abs()).copysign(x)


def rcbrt(x: Value) -> Value:
    """1 / (y − rest) = i + i (1 − i y + i rest) with i near 1 / y."""
    y, rest, scale, usual = _cbrt_parts(x)
    inverse = 1.0 / y
    inverse = inverse.fma(inverse.fma(rest, inverse.fma(-y, 1.0)), inverse) / scale
    return usual.select(inverse, 1.0 / x.abs()).copysign(x)


def _norm_parts(values: tuple[Value, ...]) -> tuple[Value, Value, Value]:
    """(√(sum of squares) of the values times a power of two, what it lacks, that power)."""
    sizes = [x.abs() for x in values]
    largest = sizes[0]
    for size in sizes[1:]:
        largest = (size > largest).select(size, largest)
    scale = largest.like(1.0)
    scale = (largest > 1e150).select(scale * 2.0**-600, scale)
    scale = (largest < 1e-150).select(scale * 2.0**600, scale)
    total, rest = sizes[0].like(0.0), sizes[0].like(0.0)
    for size in sizes:
        scaled = size * scale
        square, lost = product_parts(scaled, scaled)
        added = total + square
        part = added - total
        rest = rest + (lost + ((square - part) + (total - (added - part))))
        total = added
    root = (total + rest).sqrt()
    usual = (root > 0.0) & (root < math.inf)
    correction = (root.fma(-root, total) + rest) / (root + root)
    return root, usual.select(correction, 0.0), scale


def _with_infinity(result: Value, values: tuple[Value, ...], limit: float) -> Value:
    """An infinite one decides, whatever the others are."""
    infinite = values[0].is_infinite()
    for x in values[1:]:
        infinite = infinite | x.is_infinite()
    return infinite.select(result.like(limit), result)


def norm(*values: Value) -> Value:
    root, rest, scale = _norm_parts(values)
    return _with_infinity((root + rest) * (1.0 / scale), values, math.inf)


def rnorm(*values: Value) -> Value:
    root, rest, scale = _norm_parts(values)
    inverse = 1.0 / root
    # 1 / (root + rest), with what the division lost.
    better = inverse.fma(root.fma(-inverse, 1.0) - rest * inverse, inverse)
    inverse = ((root > 0.0) & (root < math.inf)).select(better, inverse)
    return _with_infinity(inverse * scale, values, 0.0)


# -- angles in turns -------------------------------------------------------------------------------


def _half_turns(x: Value) -> tuple[Value, Value, Value, Value]:
    """(sin, cos of the rest, quadrant, rest) of π x."""
    reduced = x - trunc(x * 0.5) * 2.0
    n_float, n = F64.nearest(reduced, 2.0)
    r = n_float.fma(-0.5, reduced)
    angle, lost = product_parts(r, math.pi)
    lost = r.fma(PI_REST, lost)
    sine, cosine = DOUBLES.near(angle)
    return cosine.fma(lost, sine), lost.fma(-sine, cosine), n, r


def sinpi(x: Value) -> Value:
    sine, cosine, n, _ = _half_turns(x)
    result = DOUBLES.signed(sine, cosine, n)
    result = result.equals(0.0).select(result.like(0.0).copysign(x), result)
    return (x.abs() < math.inf).select(result, x - x)


def cospi(x: Value) -> Value:
    sine, cosine, n, _ = _half_turns(x)
    result = DOUBLES.signed(sine, cosine, n + 1)
    result = result.equals(0.0).select(result.like(0.0), result)
    return (x.abs() < math.inf).select(result, x - x)


# -- error functions -------------------------------------------------------------------------------


def _level(x: Value) -> Value:
    """e^(x²) erfc x for ½ ≤ x ≤ 27.3."""
    place = (x - DOUBLE_ERFC_CENTRE) / (x + DOUBLE_ERFC_CENTRE)
    return place.polynomial(fitted.ERFC["double"]) / x.fma(2.0, 1.0)


def _exp_of_square(x: Value, sign: float, low: Value | None = None, shift: int = 0) -> Value:
    """e^(sign · (x + low)²) · 2^shift, with what the square loses; |x| ≤ 27.3."""
    square, lost = product_parts(x, x)
    if low is not None:
        lost = (x + x).fma(low, lost)
    r, n_float, n = F64.reduce_exponent(square * sign)
    return F64.scaled(F64.power(lost.fma(sign, r)), n_float + float(shift), n + shift)


def erfcx(x: Value) -> Value:
    size = x.abs()
    near = _exp_of_square(size.at_most(0.5), 1.0) * erfc(x.at_most(0.5).at_least(-0.5))
    w = 1.0 / (size * size)
    series = w.polynomial((1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875))
    far = series * (ONE_BY_ROOT_PI / size)
    positive = (size < DOUBLE_ERFC_LIMIT).select(_level(size.at_most(DOUBLE_ERFC_LIMIT)), far)
    # 27 is beyond where the sum overflows.
    other = _exp_of_square(size.at_most(27.0), 1.0) * 2.0 - positive
    result = (x < 0.0).select(other, positive)
    result = (size < 0.5).select(near, result)
    return (x < -26.7).select(x.like(math.inf), result)


def normcdf(x: Value) -> Value:
    """½ erfc(−x / √2), the quotient in two parts."""
    size = x.abs().at_most(38.6)
    a, low = product_parts(size, HALF_ROOT)
    low = size.fma(HALF_ROOT_REST, low)
    tail = _level(a.at_least(0.5).at_most(DOUBLE_ERFC_LIMIT))
    tail = _exp_of_square(a, -1.0, low) * tail * 0.5
    far = (x > 0.0).select(1.0 - tail, tail)
    near = erfc(-x * HALF_ROOT) * 0.5
    return (a < 0.5).select(near, far)


def _erfinv_near(x: Value) -> Value:
    """erf⁻¹ x for |x| ≤ ½: the series, then two steps of Halley's."""
    w = x * x * math.pi
    series = w.polynomial((1.0, 1 / 12, 7 / 480, 127 / 40320, 4369 / 5806080))
    y = x * HALF_ROOT_PI * series
    for _ in range(2):
        u = (erf(y) - x) * _exp_of_square(y, 1.0) * HALF_ROOT_PI
        y = y - u / (y * u + 1.0)
    return x.equals(0.0).select(x, y)


def _erfcinv_tail(q: Value) -> Value:
    """erfc⁻¹ q for 0 < q ≤ ½: S. Winitzki's approximation (2008), then steps on the logarithm."""
    logarithm = log(q) + log1p(1.0 - q)
    c = logarithm * 0.5 + 2 / (math.pi * 0.147)
    y = ((c * c - logarithm * (1 / 0.147)).sqrt() - c).sqrt()
    for _ in range(2):
        y = y + (log(_level(y)) - log(q) - y * y) * _level(y) * HALF_ROOT_PI
    # The last one on the quotient itself, with 2²⁰⁰ on both sides: q may be subnormal.
    level = _level(y)
    found = _exp_of_square(y, -1.0, shift=200) * level
    ratio = 1.0 - (q * 2.0**200) / found
    return y + ratio * level * HALF_ROOT_PI


def _inside(result: Value, q: Value) -> Value:
    """∞ where q, the distance from an end of the range, is 0, NaN beyond that end."""
    result = q.equals(0.0).select(result.like(math.inf), result)
    return (q >= 0.0).select(result, result.like(math.nan))


def erfinv(x: Value) -> Value:
    size = x.abs()
    q = 1.0 - size
    tail = _inside(_erfcinv_tail(q.at_most(0.5)), q)
    near = _erfinv_near(x.at_most(0.5).at_least(-0.5))
    return (size < 0.5).select(near, tail.copysign(x))


def erfcinv(x: Value) -> Value:
    other = 2.0 - x
    q = (x > 1.0).select(other, x)
    tail = _inside(_erfcinv_tail(q.at_most(0.5)), q)
    tail = (x > 1.0).select(-tail, tail)
    near = _erfinv_near((1.0 - x).at_most(0.5).at_least(-0.5))
    return (q > 0.5).select(near, tail)


def normcdfinv(x: Value) -> Value:
    return erfcinv(x + x) * -1.4142135623730951


# -- gamma functions -------------------------------------------------------------------------------

HALF_LOG_TWO_PI = 0.9189385332046728
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
FROM_STIRLING = 10.0
LARGEST_GAMMA = 190.0  # Γ of it times 2⁻³⁰⁰ is finite, and 1 / Γ below every number


def _stirling_rest(x: Value) -> Value:
    """log Γ(x) − (x − ½) log x + x − ½ log 2π for x ≥ 10."""
    inverse = 1.0 / x
    return inverse * (inverse * inverse).polynomial(STIRLING)


def _to_interval(x: Value, low: float, high: float, steps: int) -> tuple[Value, Value]:
    """(y, p) with low ≤ y < high and Γ(x) = p Γ(y), of x ≥ low."""
    product = x.like(1.0)
    for _ in range(steps):
        is_above = x >= high
        x = is_above.select(x - 1.0, x)
        product = is_above.select(product * x, product)
    return x, product


def _gamma_parts(x: Value) -> tuple[Value, Value, Value]:
    """Γ(x) = m · 2ⁿ of a positive x: (m, n as a float, n as an integer)."""
    small = x < 1.0
    y, product = _to_interval(small.select(x + 1.0, x).at_most(FROM_STIRLING), 1.0, 2.0, 8)
    near = (y - 1.5).polynomial(fitted.GAMMA["double"]) * product
    near = small.select(near / x, near)
    # The exponent of Stirling's formula in two parts: it multiplies its error.
    large = x.at_least(FROM_STIRLING).at_most(LARGEST_GAMMA)
    high, low = log2_parts(large)
    factor = large - 0.5
    exponent, lost = product_parts(factor, high)
    lost = factor.fma(low, lost)
    less, less_lost = product_parts(large, LOG2_E)
    less_lost = large.fma(LOG2_E_REST, less_lost)
    total, rest = sum_parts(exponent, -less)
    rest = rest + (lost - less_lost) + (_stirling_rest(large) + HALF_LOG_TWO_PI) * LOG2_E
    n_float, n = F64.nearest(total + rest, 1.0)
    power = F64.power_of_fraction((total - n_float) + rest)
    is_near = x < FROM_STIRLING
    m = is_near.select(near, power)
    return m, is_near.select(x.like(0.0), n_float), is_near.select(n.like(0), n)


def tgamma(x: Value) -> Value:
    size = x.abs()
    m, n_float, n = _gamma_parts(size)
    positive = F64.scaled(m, n_float, n)
    # Γ(−x) = −π / (x sin πx Γ(x))
    other = (math.pi / (sinpi(size) * m)) / size
    negative = F64.scaled(-other, -n_float, -n)
    result = (x < 0.0).select(negative, positive)
    result = (size < 1e-20).select(1.0 / x, result)
    result = (x > 172.0).select(x.like(math.inf), result)
    is_pole = (x < 0.0) & x.equals(trunc(x))
    result = is_pole.select(x.like(math.nan), result)
    return x.is_nan().select(x, result)


def _lgamma_positive(x: Value) -> Value:
    """log |Γ(x)| of x > 0."""
    small = x < 1.0
    y, product = _to_interval(small.select(x + 1.0, x).at_most(FROM_STIRLING), 1.0, 3.0, 7)
    # y - 1 and y - 2 have no error, of a small x neither.
    one, two = small.select(x, y - 1.0), small.select(x - 1.0, y - 2.0)
    near = (one * two) * two.polynomial(fitted.LGAMMA["double"])
    logarithm = log(small.select(x, product))
    near = small.select(near - logarithm, near + logarithm)
    large = x.at_least(FROM_STIRLING)
    far = (large - 0.5) * (log(large) - 1.0) + (HALF_LOG_TWO_PI - 0.5 + _stirling_rest(large))
    far = x.is_infinite().select(x, far)
    return (x < FROM_STIRLING).select(near, far)


def lgamma(x: Value) -> Value:
    size = x.abs()
    positive = _lgamma_positive(size)
    sine = sinpi(size).abs()
    negative = log(math.pi / (sine * size.at_least(1e-100))) - positive
    result = (x < 0.0).select(negative, positive)
    result = (size < 1e-20).select(-log(size), result)
    is_pole = (x < 0.0) & x.equals(trunc(x))
    result = (is_pole | x.is_infinite()).select(x.like(math.inf), result)
    return x.is_nan().select(x, result)


# -- Bessel functions ------------------------------------------------------------------------------

EULER = 0.5772156649015329
ONE_BY_ROOT_PI = 0.5641895835477563
BESSEL_SPLIT = 8.0
# By order: the zeros below 8 and the one beyond, each in two parts.
BESSEL_ZEROS = (
    (
        (2.404825557695773, -1.176691651530894e-16),
        (5.520078110286311, 8.088597146146722e-17),
        (8.653727912911013, -2.92812607320779e-16),
    ),
    (
        (3.8317059702075125, -1.5269184090088067e-16),
        (7.015586669815619, -9.414165653410389e-17),
        (10.173468135062722, 4.482162274768888e-16),
    ),
)
NEUMANN_ZEROS = (
    (
        (0.8935769662791675, 2.6596231539720385e-17),
        (3.957678419314858, -1.0764340697562706e-16),
        (7.086051060301773, -8.835285723085408e-17),
        (10.222345043496418, -7.967395050308809e-16),
    ),
    (
        (2.197141326031017, -4.8259835876454966e-17),
        (5.429681040794135, 4.162514026670377e-16),
        (8.596005868331169, 2.8415838340063664e-16),
    ),
)
# As the fits have them.
NEUMANN_LOW_PLACE, NEUMANN_HIGH_PLACE = (0.2054, 0.7502), (5.3, 2.7)
NEUMANN_SPLIT, FROM_NEUMANN_MIDDLE = 2.6, 0.58
MODIFIED = (fitted.BESSEL_I0["double"], fitted.BESSEL_I1["double"])
NEAR = (fitted.BESSEL_J0["double"], fitted.BESSEL_J1["double"])
NEUMANN_LOW = (fitted.BESSEL_Y0["double"], fitted.BESSEL_Y1["double"])
NEUMANN_HIGH = (fitted.BESSEL_Y0_HIGH["double"], fitted.BESSEL_Y1_HIGH["double"])
FAR_P = (fitted.BESSEL_P0["double"], fitted.BESSEL_P1["double"])
FAR_Q = (fitted.BESSEL_Q0["double"], fitted.BESSEL_Q1["double"])


def _series(order: int, count: int) -> list[float]:
    """Coefficients in (x / 2)² of I_order(x) / (x / 2)^order."""
    return [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(count)]


def _modified_bessel(x: Value, order: int) -> Value:
    """I₀ or I₁: the series up to 8, beyond it e^x / √x times a polynomial in 16 / x − 1."""
    size = x.abs()
    half = size.at_most(BESSEL_SPLIT) * 0.5
    near = (half * half).polynomial(_series(order, 30))
    near = near * half if order else near
    far = size.at_least(BESSEL_SPLIT)
    level = (16.0 / far - 1.0).polynomial(MODIFIED[order])
    r, n_float, n = F64.reduce_exponent(far.at_most(720.0))
    result = F64.scaled(F64.power(r) * (level / far.sqrt()), n_float, n)
    result = (size > 714.0).select(size.like(math.inf), result)
    result = (size < BESSEL_SPLIT).select(near, result)
    result = x.is_nan().select(x, result)
    return result.copysign(x) if order else result


def i0(x: Value) -> Value:
    return _modified_bessel(x, 0)


def i1(x: Value) -> Value:
    return _modified_bessel(x, 1)


def _without_zeros(x: Value, zeros: Sequence[tuple[float, float]]) -> Value:
    """The product of x − z, each in two parts: it has no error near a zero."""
    product = x.like(1.0)
    for high, low in zeros:
        product = product * ((x - high) - low)
    return product


def _bessel_near(x: Value, order: int) -> Value:
    """J₀ or J₁ of 0 ≤ x ≤ 8: its zeros times a polynomial."""
    zeros = BESSEL_ZEROS[order]
    opposite = [(-high, -low) for high, low in zeros]
    level = (x * x * (1 / 32) - 1.0).polynomial(NEAR[order])
    result = _without_zeros(x, zeros) * _without_zeros(x, opposite) * level
    return result * x if order else result


def _asymptotic(x: Value, order: int, is_second: bool) -> Value:
    """J or Y of x ≥ 8 by Hankel's form, whose angle is x − (2 order + 1) π / 4."""
    sine, cosine = DOUBLES.build("sin")(x), DOUBLES.build("cos")(x)
    along, across = cosine + sine, sine - cosine
    if order:
        along, across = across, -along
    inverse = 8.0 / x
    place = inverse * inverse * 2.0 - 1.0
    p, q = place.polynomial(FAR_P[order]), place.polynomial(FAR_Q[order]) * inverse
    wave = p * across + q * along if is_second else p * along - q * across
    result = wave * ONE_BY_ROOT_PI / x.sqrt()
    return (x < math.inf).select(result, 0.0)


def _bessel(x: Value, order: int) -> Value:
    size = x.abs()
    near = _bessel_near(size.at_most(BESSEL_SPLIT), order)
    far = _asymptotic(size.at_least(BESSEL_SPLIT), order, is_second=False)
    result = (size < BESSEL_SPLIT).select(near, far)
    if order:  # an odd function
        bits = result.cast("bitcast", "i64") ^ (x.cast("bitcast", "i64") & -(2**63))
        result = bits.cast("bitcast", "double")
    return x.is_nan().select(x, result)


def _neumann_series(order: int, count: int) -> list[float]:
    """Coefficients in (x / 2)², over (x / 2)^order, of Y without its logarithm and its pole."""
    harmonic = [sum(1 / j for j in range(1, k + 1)) for k in range(count + 1)]
    if not order:
        rows = ((-1) ** (k + 1) * harmonic[k] / math.factorial(k) ** 2 for k in range(count))
        return [2 / math.pi * row for row in rows]
    return [
        -((-1) ** k) * (harmonic[k] + harmonic[k + 1] - 2 * EULER)
        / (math.pi * math.factorial(k) * math.factorial(k + 1))
        for k in range(count)
    ]  # fmt: skip


def _neumann_middle(x: Value, order: int) -> Value:
    """Y₀ or Y₁ of 0.58 ≤ x ≤ 8: its zeros times a polynomial of log x, or, above 2.6, of x."""
    zeros = NEUMANN_ZEROS[order]
    middle, half = NEUMANN_LOW_PLACE
    low = ((log(x) - middle) * (1 / half)).polynomial(NEUMANN_LOW[order])
    low = low * _without_zeros(x, zeros[:1])
    middle, half = NEUMANN_HIGH_PLACE
    high = ((x - middle) / half).polynomial(NEUMANN_HIGH[order]) * _without_zeros(x, zeros)
    return (x < NEUMANN_SPLIT).select(low / x if order else low, high)


def _neumann(x: Value, order: int) -> Value:
    small = x.at_most(FROM_NEUMANN_MIDDLE)
    half = small * 0.5
    rest = (half * half).polynomial(_neumann_series(order, 10))
    logarithm = log(small) + ((0.0 if order else EULER) - LN2)
    rest = rest * half if order else rest
    small = (logarithm * _bessel_near(small, order)).fma(2 / math.pi, rest)
    if order:
        small = small - (2 / math.pi) / x
    middle = _neumann_middle(x.at_least(FROM_NEUMANN_MIDDLE).at_most(BESSEL_SPLIT), order)
    far = _asymptotic(x.at_least(BESSEL_SPLIT), order, is_second=True)
    result = (x < BESSEL_SPLIT).select((x < FROM_NEUMANN_MIDDLE).select(small, middle), far)
    result = x.equals(0.0).select(x.like(-math.inf), result)
    return ((x < 0.0) | x.is_nan()).select(x.like(math.nan), result)


def j0(x: Value) -> Value:
    return _bessel(x, 0)


def j1(x: Value) -> Value:
    return _bessel(x, 1)


def y0(x: Value) -> Value:
    return _neumann(x, 0)


def y1(x: Value) -> Value:
    return _neumann(x, 1)


def _upwards(n: Value, x: Value, first: Value, second: Value) -> Value:
    """The function of order n by f(k + 1) = 2 k / x · f(k) − f(k − 1), from orders 0 and 1 up."""

    def step(before: Value, now: Value, k: Value) -> tuple[list[Value], Value]:
        # An infinite one stays what it is.
        goes_on = (k < n) & (now.abs() < math.inf)
        following = (k.cast("sitofp", "double") * 2.0 / x).fma(now, -before)
        k = goes_on.select(k + 1, k)
        before, now = goes_on.select(now, before), goes_on.select(following, now)
        return [before, now, k], (k < n) & (now.abs() < math.inf)

    _, found, _ = x.text.repeated([first, second, n.like(0) + 1], step)
    return n.equals(0).select(first, found)


def _downwards(n: Value, x: Value, is_asked: Value) -> Value:
    """J of order n > x by the same recurrence from an order so far above n that it is nothing
    there, divided by J₀ + 2 J₂ + 2 J₄ + … = 1 (J. C. P. Miller, 1952).
    """
    n = is_asked.select(n, n.like(0))
    size = n.cast("sitofp", "double")
    above = ((size * 160.0).sqrt().cast("fptosi", "i32") + n) >> 1
    last = is_asked.select(above << 1, n.like(0))
    inverse = 2.0 / x

    def step(
        after: Value, now: Value, total: Value, found: Value, k: Value
    ) -> tuple[list[Value], Value]:
        goes_on = k > 0
        before = (k.cast("sitofp", "double") * inverse).fma(now, -after)
        found = k.equals(n).select(now, found)
        is_even = (k & 1).equals(1)  # before is of order k − 1
        total = (goes_on & is_even).select(total + before, total)
        after, now = goes_on.select(now, after), goes_on.select(before, now)
        k = goes_on.select(k - 1, k)
        scale = (now.abs() > 1e100).select(now.like(1e-200), 1.0)
        after, now, total, found = (value * scale for value in (after, now, total, found))
        return [after, now, total, found, k], k > 0

    nothing = x * 0.0
    start = [nothing, nothing + 1.0, nothing, nothing, last]
    _, zero, total, found, _ = x.text.repeated(start, step)
    return found / (total + total - zero)


def jn(n: Value, x: Value) -> Value:
    """J of order n ≥ 0: upwards where n ≤ |x|, downwards elsewhere."""
    size = x.abs()
    first, second = _bessel(size, 0), _bessel(size, 1)
    is_above = (n.cast("sitofp", "double") > size) & (n > 1)
    finite = (size < math.inf).select(size, 1.0)
    up = _upwards(is_above.select(n.like(1), n), finite.at_least(1e-300), first, second)
    is_tiny = size < 1e-160
    down = _downwards(n, is_tiny.select(size.like(1.0), finite), is_above & (is_tiny ^ 1))
    down = is_tiny.select(size.like(0.0), down)
    result = (is_above & (n > 1)).select(down, up)
    is_odd = (x < 0.0) & (n & 1).equals(1)
    result = is_odd.select(-result, result)
    return ((n < 0) | x.is_nan()).select(x.like(math.nan), result)


def yn(n: Value, x: Value) -> Value:
    """Y of order n ≥ 0, upwards."""
    result = _upwards(n, x, _neumann(x, 0), _neumann(x, 1))
    return ((n < 0) | x.is_nan()).select(x.like(math.nan), result)


def waves(lanes: int) -> tuple[str, ...]:
    """What `j0` and the like call of large angles."""
    return tuple(dict.fromkeys((*DOUBLES.cold("sin")(lanes), *DOUBLES.cold("cos")(lanes))))


# -- quotients and exponents -----------------------------------------------------------------------


def fdim(x: Value, y: Value) -> Value:
    result = (x > y).select(x - y, 0.0)
    return (x.is_nan() | y.is_nan()).select(x.like(math.nan), result)


def remainder(x: Value, y: Value) -> Value:
    """x − n · y for the integer n nearest to x / y, the even one of two."""
    fmod = FUNCTIONS["double"]["fmod"].build
    divisor, size = y.abs(), x.abs()
    is_large = divisor > LARGEST / 2
    rest = is_large.select(size, fmod(size, is_large.select(divisor, divisor + divisor)))
    # Twice the rest or half the divisor, whichever is exact.
    is_small = divisor < 2.0**-1000
    twice = is_small.select(rest + rest, rest)
    whole = is_small.select(divisor, divisor * 0.5)
    beyond = twice > whole
    lowered = beyond.select(rest - divisor, rest)
    twice = is_small.select(lowered + lowered, lowered)
    again = beyond & (twice >= whole)
    lowered = again.select(lowered - divisor, lowered)
    bits = lowered.cast("bitcast", "i64") ^ (x.cast("bitcast", "i64") & -(2**63))
    result = bits.cast("bitcast", "double")
    unfit = x.is_infinite() | x.is_nan() | y.is_nan() | y.equals(0.0)
    result = y.is_infinite().select(x, result)
    return unfit.select(x.like(math.nan), result)


def ldexp(x: Value, n: Value) -> Value:
    """x · 2ⁿ rounded once, of an i32."""
    n = n.cast("sext", "i64")
    n = (n > 3000).select(n.like(3000), n)
    n = (n < -3000).select(n.like(-3000), n)
    for _ in range(2):
        up, down = n > 1023, n < -1022
        # Below the normal numbers 53 bits stay, so that only the last step rounds.
        factor = down.select(x.like(2.0**-969), x.like(1.0))
        x = x * up.select(x.like(2.0**1023), factor)
        n = up.select(n - 1023, down.select(n + 969, n))
    n = (n > 1023).select(n.like(1023), n)
    n = (n < -1022).select(n.like(-1022), n)
    return x * F64.power_of_two(n)


def exponent(x: Value) -> Value:
    """The integer part of log2 |x| of a finite x that is not 0, as an i64."""
    size = x.abs()
    small = size < 2.0**-1022
    bits = small.select(size * 2.0**54, size).cast("bitcast", "i64")
    found = bits.logical_right(52) - 1023
    return small.select(found - 54, found)


def logb(x: Value) -> Value:
    result = F64.float_of(exponent(x))
    size = x.abs()
    result = (size < math.inf).select(result, size)
    return x.equals(0.0).select(x.like(-math.inf), result)


def ilogb(x: Value) -> Value:
    """As an i32: INT_MIN of 0 and NaN, INT_MAX of ∞."""
    found = exponent(x).cast("trunc", "i32")
    found = x.is_infinite().select(found.like(2**31 - 1), found)
    return (x.is_nan() | x.equals(0.0)).select(found.like(-(2**31)), found)
