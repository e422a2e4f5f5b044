#!/usr/bin/env python3
"""Fit the polynomials of `aot/targets/cpu/math/double_coefficients.py` and print that file.

Interpolation in Chebyshev nodes with 60 digits, which is within a small factor of the best
polynomial (J. C. Mason, D. C. Handscomb, "Chebyshev Polynomials", 2003, 5.5); the degree is the
lowest whose error, by the row's weight, is below a tenth of f64's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath
from fit_polynomials import (
    HALF_LN2,
    QUARTER,
    _odd,
    _root_weight,
    _tail,
    level_complement,
    place_of,
)

LARGEST_ERROR = 2.0**-53 / 10
SAMPLES = 400


@dataclass(frozen=True, slots=True)
class Fit:
    """P(x) ≈ target(x), |weight · error| ≤ `LARGEST_ERROR`, on [low, high]."""

    name: str
    comment: str
    target: Callable[[mpmath.mpf], mpmath.mpf]
    weight: Callable[[mpmath.mpf], mpmath.mpf]
    low: float
    high: float


def _log_ratio(z: mpmath.mpf) -> mpmath.mpf:
    """(log((1 + s) / (1 − s)) − 2 s) / s³ at z = s²."""
    s = mpmath.sqrt(z)
    return (mpmath.log((1 + s) / (1 - s)) - 2 * s) / s**3


ERF_CENTRE, ERFC_CENTRE = 2.75, 3.75


def _scaled_complement(t: mpmath.mpf) -> mpmath.mpf:
    """e^(x²) erfc(x) at t = (x − 2.75) / (x + 2.75)."""
    x = ERF_CENTRE * (1 + t) / (1 - t)
    return mpmath.exp(x * x) * mpmath.erfc(x)


FITS = (
    Fit(
        "EXPM1",
        "e^r − 1 = r + r² P(r), |r| ≤ ln2 / 2",
        _tail(mpmath.exp, 1, 1),
        lambda r: r**2 / mpmath.expm1(r),
        -HALF_LN2,
        HALF_LN2,
    ),
    Fit(
        "EXP2",
        "2^r = 1 + r P(r), |r| ≤ 1/2",
        _tail(lambda r: mpmath.mpf(2) ** r, 1),
        lambda r: r,
        -0.5,
        0.5,
    ),
    Fit(
        "LOG",
        "log(1 + f) = 2 s + s³ P(s²), s = f / (2 + f), √½ ≤ 1 + f ≤ √2",
        _log_ratio,
        lambda z: z / 2,
        0.0,
        0.02944,
    ),
    Fit(
        "SIN",
        "sin r = r + r³ P(r²), |r| ≤ π/4",
        _odd(mpmath.sin, 3),
        _root_weight(mpmath.sin, 3),
        0.0,
        QUARTER,
    ),
    Fit(
        "COS",
        "cos r = 1 − r²/2 + r⁴ P(r²), |r| ≤ π/4",
        _tail(lambda z: mpmath.cos(mpmath.sqrt(z)), 1, -0.5),
        lambda z: z**2,
        0.0,
        QUARTER,
    ),
    Fit(
        "ATAN",
        "atan x = x + x³ P(x²), |x| ≤ tan(π/8)",
        _odd(mpmath.atan, 3),
        _root_weight(mpmath.atan, 3),
        0.0,
        0.1716,
    ),
    Fit(
        "ASIN",
        "asin x = x + x³ P(x²), |x| ≤ 1/2",
        _odd(mpmath.asin, 3),
        _root_weight(mpmath.asin, 3),
        0.0,
        0.25,
    ),
    Fit(
        "ERF",
        "erf x = x + x P(x²), |x| ≤ 1",
        lambda z: mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1,
        lambda z: mpmath.sqrt(z) / mpmath.erf(mpmath.sqrt(z)),
        0.0,
        1.0,
    ),
    Fit(
        "ERF_COMPLEMENT",
        "erfc x = e^(−x²) P((x − 2.75) / (x + 2.75)), 1 ≤ x ≤ 6",
        _scaled_complement,
        lambda t: mpmath.erfc(ERF_CENTRE * (1 + t) / (1 - t)) / _scaled_complement(t),
        place_of(1, ERF_CENTRE),
        place_of(6, ERF_CENTRE),
    ),
    Fit(
        "ERFC",
        "erfc x = e^(−x²) P((x − 3.75) / (x + 3.75)) / (1 + 2 x), 1/2 ≤ x ≤ 27.3",
        level_complement(ERFC_CENTRE),
        lambda t: 1 / level_complement(ERFC_CENTRE)(t),
        place_of(0.5, ERFC_CENTRE),
        place_of(27.3, ERFC_CENTRE),
    ),
)


def solve(fit: Fit) -> tuple[list[float], float]:
    """(coefficients from the lowest power up, largest weighted error) of one row."""
    for degree in range(3, 30):
        found = _interpolated(fit, degree)
        error = _largest_error(fit, found)
        if error <= LARGEST_ERROR:
            return [float(value) for value in found], float(error)
    raise ValueError(f"{fit.name}: no polynomial of degree 29 or less is good enough")


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
    middle, half = mpmath.mpf(fit.high + fit.low) / 2, mpmath.mpf(fit.high - fit.low) / 2
    angles = [mpmath.pi * (2 * place + 1) / (2 * count) for place in range(count)]
    return [middle + half * mpmath.cos(angle) for angle in angles]


def _largest_error(fit: Fit, coefficients: list[mpmath.mpf]) -> mpmath.mpf:
    samples = _chebyshev(fit, SAMPLES)
    found = (mpmath.polyval(coefficients[::-1], x) - fit.target(x) for x in samples)
    return max(abs(fit.weight(x) * each) for x, each in zip(samples, found, strict=True))


def main() -> None:
    """Print the coefficients file."""
    mpmath.mp.dps = 60
    print('"""Coefficients of f64 functions, lowest power first; by', end=" ")
    print('`scripts/fit_double_polynomials.py`."""')
    for fit in FITS:
        coefficients, error = solve(fit)
        print(f"\n# {fit.comment}; relative error {error:.1e}")
        print(f"{fit.name} = (", *(f"    {value!r}," for value in coefficients), ")", sep="\n")


if __name__ == "__main__":
    main()
