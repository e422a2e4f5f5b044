#!/usr/bin/env python3
"""Fit the polynomials of `aot/targets/cpu/math/coefficients.py` and print that file.

Of f32: weighted least squares made minimax by Lawson's iteration (C. L. Lawson, 1961: each sample's
weight is multiplied by its error), after the usual range reductions (W. J. Cody and W. Waite,
"Software Manual for the Elementary Functions", 1980). Coefficients are rounded one by one, from the
lowest power up, and the others fitted again, so that rounding costs little. Rational ones are
linearised.

Of f64: interpolation in Chebyshev nodes with 60 digits, which is within a small factor of the best
polynomial (J. C. Mason, D. C. Handscomb, "Chebyshev Polynomials", 2003, 5.5); the degree is the
lowest whose error, by the row's weight, is below a tenth of f64's.
"""

from __future__ import annotations

import functools
import itertools
import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mpmath
import numpy as np

Array = np.ndarray
Function = Callable[[mpmath.mpf], mpmath.mpf]
SAMPLES, DOUBLE_SAMPLES = 2000, 400
ROUNDS = 60
LARGEST_DOUBLE_ERROR = 2.0**-53 / 10
TITLE = '''\
"""Coefficients of the vector math by element, lowest power first, and their relative errors.

Made by `scripts/fit_polynomials.py`.
"""

# fmt: off'''


@dataclass(frozen=True, slots=True)
class Fit:
    """numerator(x) / denominator(x) ≈ target(x), |weight · error| least, between the ends.

    degrees: of numerator and denominator of the fit for f32; is_rounded: its coefficients are f32.
    has_double: there is one for f64, which has no denominator and finds its degree.
    """

    name: str
    comment: str
    target: Function
    weight: Function
    ends: tuple[float, float]
    degrees: tuple[int, int] | None = None
    has_double: bool = False
    is_rounded: bool = True


def _tail(function: Function, *series: float) -> Function:
    """(function(x) − series) / x^len(series): what is left after the exact first terms."""

    def target(x: mpmath.mpf) -> mpmath.mpf:
        head = sum(c * x**i for i, c in enumerate(series))
        return (function(x) - head) / x ** len(series)

    return target


def _odd(function: Function, power: int) -> tuple[Function, Function]:
    """Target and weight in s = x²: (function(x) − x) / x³ for power 3, function(x) / x for 1."""

    def target(s: mpmath.mpf) -> mpmath.mpf:
        x = mpmath.sqrt(s)
        return (function(x) - (x if power == 3 else 0)) / x**power

    return target, lambda s: mpmath.sqrt(s) ** power / function(mpmath.sqrt(s))


def _power_of_two(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.mpf(2) ** x


def _log2_1p(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.log(1 + x, 2)


def _log_ratio(z: mpmath.mpf) -> mpmath.mpf:
    """(log((1 + s) / (1 − s)) − 2 s) / s³ at z = s²."""
    s = mpmath.sqrt(z)
    return (mpmath.log((1 + s) / (1 - s)) - 2 * s) / s**3


def _erf_tail(s: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erf(mpmath.sqrt(s)) / mpmath.sqrt(s) - 1


def _scaled_complement(centre: float, is_level: bool = True) -> Function:
    """e^(x²) erfc(x) at t = (x − centre) / (x + centre), if level times 1 + 2 x: 1 to 1.3.

    M. M. Shepherd, J. G. Laframboise, Mathematics of Computation 36 (1981).
    """

    def target(t: mpmath.mpf) -> mpmath.mpf:
        x = centre * (1 + t) / (1 - t)
        return (1 + 2 * x if is_level else 1) * mpmath.exp(x * x) * mpmath.erfc(x)

    return target


def _places(low: float, high: float, centre: float) -> tuple[float, float]:
    """Where the complement's polynomial has the ends of a range."""
    return (low - centre) / (low + centre), (high - centre) / (high + centre)


def _log_gamma(t: mpmath.mpf) -> mpmath.mpf:
    """log Γ(2 + t) without its zeros at 0 and -1."""
    return mpmath.loggamma(2 + t) / (t * (1 + t))


def _modified_bessel(order: int) -> Function:
    """e^(−x) √x I(x) at t = 16 / x − 1."""

    def target(t: mpmath.mpf) -> mpmath.mpf:
        x = 16 / (1 + t)
        return mpmath.besseli(order, x) * mpmath.exp(-x) * mpmath.sqrt(x)

    return target


@functools.cache
def _zeros(function: Function, order: int, first: int, count: int) -> list[mpmath.mpf]:
    """Zeros of a Bessel function, by mpmath's function that finds them one by one."""
    return [function(order, first + place) for place in range(count)]


def _bessel_near(order: int) -> Function:
    """J(x) / x^order without its zeros, and the one beyond, at t = x² / 32 − 1."""

    def target(t: mpmath.mpf) -> mpmath.mpf:
        square = 32 * (1 + t)
        x = mpmath.sqrt(square)
        zeros = _zeros(mpmath.besseljzero, order, 1, 3)
        return mpmath.besselj(order, x) / x**order / mpmath.fprod(square - z**2 for z in zeros)

    return target


def _neumann_low(order: int) -> Function:
    """x^order Y(x) without its first zero at t of x = e^(0.2054 + 0.7502 t), 0.58 to 2.6."""

    def target(t: mpmath.mpf) -> mpmath.mpf:
        x = mpmath.exp(mpmath.mpf("0.2054") + mpmath.mpf("0.7502") * t)
        (zero,) = _zeros(mpmath.besselyzero, order, 1, 1)
        return mpmath.bessely(order, x) * x**order / (x - zero)

    return target


def _neumann_high(order: int) -> Function:
    """Y(x) without its zeros, and those beside the ends, at t = (x − 5.3) / 2.7."""

    def target(t: mpmath.mpf) -> mpmath.mpf:
        x = mpmath.mpf("5.3") + mpmath.mpf("2.7") * t
        zeros = _zeros(mpmath.besselyzero, order, 1, 4 - order)
        return mpmath.bessely(order, x) / mpmath.fprod(x - z for z in zeros)

    return target


def _asymptotic(order: int, is_q: bool) -> Function:
    """P, or Q x / 8, of Hankel's asymptotic form at t = 128 / x² − 1."""

    def target(t: mpmath.mpf) -> mpmath.mpf:
        x = mpmath.sqrt(128 / (1 + t))
        angle = x - (2 * order + 1) * mpmath.pi / 4
        j, y = mpmath.besselj(order, x), mpmath.bessely(order, x)
        cosine, sine = mpmath.cos(angle), mpmath.sin(angle)
        wave = (y * cosine - j * sine) * x / 8 if is_q else j * cosine + y * sine
        return wave * mpmath.sqrt(mpmath.pi * x / 2)

    return target


def _relative(name: str, comment: str, target: Function, ends: tuple[float, float]) -> Fit:
    """A row for f64 whose relative error is least."""
    cached = functools.cache(target)
    return Fit(name, comment, cached, lambda t: 1 / cached(t), ends, has_double=True)


HALF_LN2 = -0.3466, 0.3466
HALF = -0.5, 0.5
WHOLE = -1.0, 1.0
SQRT = math.sqrt(0.5) - 1, math.sqrt(2) - 1
QUARTER = 0.0, (math.pi / 4) ** 2
TAN = 0.0, 0.1716
LEVEL, DOUBLE_LEVEL = _scaled_complement(1.875), _scaled_complement(3.75)
FAR = _scaled_complement(2.75, is_level=False)
FITS = (
    Fit(
        "EXP",
        "e^r = 1 + r P(r), |r| ≤ ln2 / 2",
        _tail(mpmath.exp, 1),
        lambda r: r / mpmath.exp(r),
        HALF_LN2,
        (4, 0),
    ),
    Fit(
        "EXPM1",
        "e^r − 1 = r + r² P(r), |r| ≤ ln2 / 2",
        _tail(mpmath.exp, 1, 1),
        lambda r: r**2 / mpmath.expm1(r),
        HALF_LN2,
        (4, 0),
        has_double=True,
    ),
    Fit(
        "EXP2",
        "2^r = 1 + r P(r), |r| ≤ 1/2",
        _tail(_power_of_two, 1),
        lambda r: r,
        HALF,
        (5, 0),
        has_double=True,
    ),
    Fit(
        "SHORT_EXP2",
        "2^r = 1 + r P(r) for 16 bits, |r| ≤ 1/2",
        _tail(_power_of_two, 1),
        lambda r: r,
        HALF,
        (3, 0),
    ),
    Fit(
        "LOG",
        "log(1 + f) = f − f²/2 + f³ P(f), √½ ≤ 1 + f ≤ √2",
        _tail(mpmath.log1p, 0, 1, -0.5),
        lambda x: x**3 / mpmath.log1p(x),
        SQRT,
        (7, 0),
    ),
    Fit(
        "LOG",
        "log(1 + f) = 2 s + s³ P(s²), s = f / (2 + f), √½ ≤ 1 + f ≤ √2",
        _log_ratio,
        lambda z: z / 2,
        (0.0, 0.02944),
        has_double=True,
    ),
    Fit("SIN", "sin r = r + r³ P(r²), |r| ≤ π/4", *_odd(mpmath.sin, 3), QUARTER, (2, 0), True),
    Fit(
        "COS",
        "cos r = 1 − r²/2 + r⁴ P(r²), |r| ≤ π/4",
        _tail(lambda s: mpmath.cos(mpmath.sqrt(s)), 1, -0.5),
        lambda s: s**2,
        QUARTER,
        (2, 0),
        has_double=True,
    ),
    Fit(
        "ERF",
        "log2 erfc x = x P(x), 0 ≤ x ≤ 3.93; of erf x",
        lambda x: mpmath.log(mpmath.erfc(x), 2) / x,
        lambda x: x * mpmath.log(2) * mpmath.erfc(x) / mpmath.erf(x),
        (1e-9, 3.93),
        (8, 0),
    ),
    # For gelu: the error counts in proportion to the tail, but not less than of a small one.
    Fit(
        "NORMAL_TAIL",
        "log2 Φ(−x) = x P(x) − 1, 0 ≤ x ≤ 5.6; of Φ(−x), absolute",
        lambda x: (mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2, 2) + 1) / x,
        lambda x: x * mpmath.log(2) * max(mpmath.erfc(x / mpmath.sqrt(2)) / 2, 0.0015),
        (1e-9, 5.6),
        (8, 0),
    ),
    Fit(
        "SHORT_NORMAL_TAIL",
        "log2 Φ(−x) = x P(x) − 1 for 16 bits, 0 ≤ x ≤ 5.6; of Φ(−x) or 0.0025",
        lambda x: (mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2, 2) + 1) / x,
        lambda x: x * mpmath.log(2) * min(1, mpmath.erfc(x / mpmath.sqrt(2)) / 2 / 0.0025),
        (1e-9, 5.6),
        (5, 0),
    ),
    Fit(
        "ERF_NEAR",
        "erf x = x + x P(x²), |x| ≤ 1/2; of 1 − erf x",
        _erf_tail,
        mpmath.sqrt,
        (0, 0.25),
        (4, 0),
    ),
    Fit(
        "ERF_NEAR",
        "erf x = x + x P(x²), |x| ≤ 1",
        _erf_tail,
        lambda s: mpmath.sqrt(s) / mpmath.erf(mpmath.sqrt(s)),
        (0.0, 1.0),
        has_double=True,
    ),
    Fit(
        "ERF_FAR",
        "erfc x = e^(−x²) P((x − 2.75) / (x + 2.75)), 1 ≤ x ≤ 6",
        FAR,
        lambda t: mpmath.erfc(2.75 * (1 + t) / (1 - t)) / FAR(t),
        _places(1, 6, 2.75),
        has_double=True,
    ),
    Fit(
        "ERFC",
        "erfc x = e^(−x²) P((x − 1.875) / (x + 1.875)) / (1 + 2 x), 1/2 ≤ x ≤ 10.1",
        LEVEL,
        lambda t: 1 / LEVEL(t),
        _places(0.5, 10.1, 1.875),
        (9, 0),
    ),
    Fit(
        "ERFC",
        "erfc x = e^(−x²) P((x − 3.75) / (x + 3.75)) / (1 + 2 x), 1/2 ≤ x ≤ 27.3",
        DOUBLE_LEVEL,
        lambda t: 1 / DOUBLE_LEVEL(t),
        _places(0.5, 27.3, 3.75),
        has_double=True,
    ),
    Fit("ATAN", "atan x = x + x³ P(x²), |x| ≤ tan(π/8)", *_odd(mpmath.atan, 3), TAN, (3, 0), True),
    Fit("ASIN", "asin x = x + x³ P(x²), |x| ≤ 1/2", *_odd(mpmath.asin, 3), (0, 0.25), (4, 0), True),
    Fit(
        "POW_LOG2",
        "log2(1 + f) = f P(f), in f64, for pow of f32",
        _tail(_log2_1p, 0),
        lambda x: x / _log2_1p(x),
        SQRT,
        (14, 0),
        is_rounded=False,
    ),
    Fit(
        "POW_EXP2",
        "2^r = 1 + r P(r), in f64, for pow of f32",
        _tail(_power_of_two, 1),
        lambda x: x,
        HALF,
        (7, 0),
        is_rounded=False,
    ),
    _relative("GAMMA", "Γ(1.5 + t), |t| ≤ 1/2", lambda t: mpmath.gamma(1.5 + t), HALF),
    _relative("LGAMMA", "log Γ(2 + t) = t (1 + t) P(t), |t| ≤ 1", _log_gamma, WHOLE),
    *(
        _relative(
            f"BESSEL_I{order}",
            f"I{order}(x) = e^x / √x P(16 / x − 1), x ≥ 8",
            _modified_bessel(order),
            WHOLE,
        )
        for order in (0, 1)
    ),
    *(
        _relative(
            f"BESSEL_J{order}",
            f"J{order}(x) = x^{order} (x² − z₁²) … P(x² / 32 − 1), x ≤ 8",
            _bessel_near(order),
            WHOLE,
        )
        for order in (0, 1)
    ),
    *(
        _relative(
            f"BESSEL_Y{order}",
            f"Y{order}(x) = x^−{order} (x − z₁) P(t), x = e^(0.2054 + 0.7502 t), 0.58 ≤ x ≤ 2.6",
            _neumann_low(order),
            WHOLE,
        )
        for order in (0, 1)
    ),
    *(
        _relative(
            f"BESSEL_Y{order}_HIGH",
            f"Y{order}(x) = (x − z₁) … P((x − 5.3) / 2.7), 2.6 ≤ x ≤ 8",
            _neumann_high(order),
            WHOLE,
        )
        for order in (0, 1)
    ),
    *(
        _relative(
            f"BESSEL_{'Q' if is_q else 'P'}{order}",
            f"{'Q x / 8' if is_q else 'P'} of order {order} at 128 / x² − 1, x ≥ 8",
            _asymptotic(order, is_q),
            WHOLE,
        )
        for order in (0, 1)
        for is_q in (False, True)
    ),
)


# -- f32 -------------------------------------------------------------------------------------------


def solve_single(fit: Fit) -> tuple[list[float], list[float], float]:
    """(numerator, denominator without its 1, largest weighted error) of one row."""
    nodes = np.cos(np.pi * (np.arange(SAMPLES) + 0.5) / SAMPLES)
    low, high = fit.ends
    x = (high + low) / 2 + (high - low) / 2 * nodes
    exact = [mpmath.mpf(float(v)) for v in x]
    target = np.array([float(fit.target(v)) for v in exact])
    weight = np.array([float(fit.weight(v)) for v in exact])
    scale = max(abs(low), abs(high))
    degree, denominator = fit.degrees
    columns = [(x / scale) ** i for i in range(degree + 1)]
    columns += [-target * (x / scale) ** i for i in range(1, denominator + 1)]
    powers = [*range(degree + 1), *range(1, denominator + 1)]
    matrix = np.stack(columns, axis=1)
    solution = np.zeros(len(columns))
    for fixed in range(len(columns) + 1):
        solution[fixed:] = _lawson(matrix, target, weight, solution, fixed, degree)
        if fixed < len(columns) and fit.is_rounded:
            unit = scale ** powers[fixed]
            solution[fixed] = float(np.float32(solution[fixed] / unit)) * unit
    values = [float(v) / scale**p for v, p in zip(solution, powers, strict=True)]
    error = float(np.max(np.abs(_error(matrix, target, weight, solution, degree))))
    return values[: degree + 1], values[degree + 1 :], error


def _error(m: Array, target: Array, weight: Array, solution: Array, degree: int) -> Array:
    bottom = 1 - (m[:, degree + 1 :] @ solution[degree + 1 :]) / target
    return weight * (m @ solution - target) / bottom


def _lawson(
    matrix: Array, target: Array, weight: Array, solution: Array, fixed: int, degree: int
) -> Array:
    """The columns from `fixed` on, fitted with the earlier ones held; empty when all are held."""
    if fixed == matrix.shape[1]:
        return solution[fixed:]
    lawson, trial = np.ones(len(target)), solution.copy()
    best, best_error = solution[fixed:].copy(), math.inf
    for _ in range(ROUNDS):
        bottom = 1 - (matrix[:, degree + 1 :] @ trial[degree + 1 :]) / target
        row = np.sqrt(lawson) * weight / np.abs(bottom)
        rest = target - matrix[:, :fixed] @ solution[:fixed]
        trial[fixed:] = np.linalg.lstsq(matrix[:, fixed:] * row[:, None], rest * row, rcond=None)[0]
        error = np.abs(_error(matrix, target, weight, trial, degree))
        if error.max() < best_error:
            best, best_error = trial[fixed:].copy(), float(error.max())
        lawson *= error / error.max() + 1e-3
        lawson /= lawson.mean()
    return best


# -- f64 -------------------------------------------------------------------------------------------


def solve_double(fit: Fit) -> tuple[list[float], float]:
    """(coefficients from the lowest power up, largest weighted error) of one row."""
    for degree in range(3, 36):
        found = _interpolated(fit, degree)
        error = _largest_error(fit, found)
        if error <= LARGEST_DOUBLE_ERROR:
            return [float(value) for value in found], float(error)
    raise ValueError(f"{fit.name}: no polynomial of degree 35 or less is good enough")


def _interpolated(fit: Fit, degree: int) -> list[mpmath.mpf]:
    """The polynomial through the target at the Chebyshev nodes, by Newton's divided differences."""
    nodes = _chebyshev(fit, degree + 1)
    differences = [fit.target(node) for node in nodes]
    for order in range(1, len(nodes)):
        for place in reversed(range(order, len(nodes))):
            rise = differences[place] - differences[place - 1]
            differences[place] = rise / (nodes[place] - nodes[place - order])
    powers = [mpmath.mpf(0)]
    for node, difference in zip(reversed(nodes), reversed(differences), strict=True):
        shifted = [mpmath.mpf(0), *powers]
        for place, value in enumerate(powers):
            shifted[place] -= node * value
        shifted[0] += difference
        powers = shifted
    return powers[: degree + 1]


def _chebyshev(fit: Fit, count: int) -> list[mpmath.mpf]:
    low, high = fit.ends
    middle, half = mpmath.mpf(high + low) / 2, mpmath.mpf(high - low) / 2
    angles = [mpmath.pi * (2 * place + 1) / (2 * count) for place in range(count)]
    return [middle + half * mpmath.cos(angle) for angle in angles]


def _largest_error(fit: Fit, coefficients: list[mpmath.mpf]) -> mpmath.mpf:
    samples = _chebyshev(fit, DOUBLE_SAMPLES)
    found = (mpmath.polyval(coefficients[::-1], x) - fit.target(x) for x in samples)
    return max(abs(fit.weight(x) * each) for x, each in zip(samples, found, strict=True))


# -- the file --------------------------------------------------------------------------------------


def tables(fit: Fit) -> Iterator[tuple[str, str, list[float], float]]:
    """(name, element, coefficients, error) of each table of a row."""
    if fit.degrees is not None:
        mpmath.mp.dps = 40
        above, below, error = solve_single(fit)
        for name, values in ((fit.name, above), (f"{fit.name}_DENOMINATOR", [1.0, *below])):
            if len(values) > 1:
                rounded = [float(np.float32(each)) for each in values]
                yield name, "float", rounded if fit.is_rounded else values, error
    if fit.has_double:
        mpmath.mp.dps = 60
        yield fit.name, "double", *solve_double(fit)


def main() -> None:
    """Print the coefficients file."""
    print(TITLE)
    found = [(fit.comment, *table) for fit in FITS for table in tables(fit)]
    for name, rows in itertools.groupby(found, key=lambda row: row[1]):
        print(f"\n{name} = {{")
        for comment, _, element, values, error in rows:
            numbers = textwrap.wrap(", ".join(map(repr, values)), width=92)
            print(f"    # {comment}; error {error:.1e}")
            print(
                f'    "{element}": (', *(f"        {line}" for line in numbers), "    ),", sep="\n"
            )
        print("}")


if __name__ == "__main__":
    main()
