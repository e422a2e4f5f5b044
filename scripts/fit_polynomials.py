#!/usr/bin/env python3
"""Fit the polynomials of `aot/targets/cpu/math/single_coefficients.py` and print that file.

Weighted least squares made minimax by Lawson's iteration (C. L. Lawson, 1961: each sample's weight
is multiplied by its error), after the usual range reductions (W. J. Cody and W. Waite, "Software
Manual for the Elementary Functions", 1980). Coefficients are rounded one by one, from the lowest
power up, and the others fitted again, so that rounding costs little. Rational ones are linearised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np

Array = np.ndarray
SAMPLES = 2000
ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Fit:
    """numerator(x) / denominator(x) ≈ target(x), |weight · error| least, on [low, high]."""

    name: str
    target: Callable[[mpmath.mpf], mpmath.mpf]
    weight: Callable[[mpmath.mpf], mpmath.mpf]
    low: float
    high: float
    degree: int
    denominator: int = 0
    double: bool = False
    comment: str = ""


def _tail(function: Callable, *series: float) -> Callable:
    """(function(x) − series) / x^len(series): what is left after the exact first terms."""

    def target(x: mpmath.mpf) -> mpmath.mpf:
        head = sum(c * x**i for i, c in enumerate(series))
        return (function(x) - head) / x ** len(series)

    return target


def _odd(function: Callable, power: int) -> Callable:
    """In s = x²: (function(x) − x) / x³ for power 3, function(x) / x for power 1."""

    def target(s: mpmath.mpf) -> mpmath.mpf:
        x = mpmath.sqrt(s)
        return (function(x) - (x if power == 3 else 0)) / x**power

    return target


def _root_weight(function: Callable, power: int) -> Callable:
    return lambda s: mpmath.sqrt(s) ** power / function(mpmath.sqrt(s))


def _log2_1p(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.log(1 + x, 2)


ERFC_CENTRE = 1.875  # where the complement below is nearly an f32


def level_complement(centre: float) -> Callable:
    """(1 + 2 x) e^(x²) erfc(x) at t = (x − centre) / (x + centre): 1 to 1.3.

    M. M. Shepherd, J. G. Laframboise, Mathematics of Computation 36 (1981).
    """

    def target(t: mpmath.mpf) -> mpmath.mpf:
        x = centre * (1 + t) / (1 - t)
        return (1 + 2 * x) * mpmath.exp(x * x) * mpmath.erfc(x)

    return target


def place_of(x: float, centre: float) -> float:
    """Where the complement's polynomial has x."""
    return (x - centre) / (x + centre)


HALF_LN2 = 0.3466
SQRT = math.sqrt(0.5) - 1, math.sqrt(2) - 1
QUARTER = (math.pi / 4) ** 2
FITS = (
    Fit(
        "EXP",
        _tail(mpmath.exp, 1),
        lambda x: x / mpmath.exp(x),
        -HALF_LN2,
        HALF_LN2,
        4,
        comment="e^r = 1 + r P(r), |r| ≤ ln2 / 2",
    ),
    Fit(
        "EXPM1",
        _tail(mpmath.exp, 1, 1),
        lambda x: x**2 / mpmath.expm1(x),
        -HALF_LN2,
        HALF_LN2,
        4,
        comment="e^r − 1 = r + r² P(r), |r| ≤ ln2 / 2",
    ),
    Fit(
        "EXP2",
        _tail(lambda x: mpmath.mpf(2) ** x, 1),
        lambda x: x,
        -0.5,
        0.5,
        5,
        comment="2^r = 1 + r P(r), |r| ≤ 1/2",
    ),
    Fit(
        "LOG",
        _tail(mpmath.log1p, 0, 1, -0.5),
        lambda x: x**3 / mpmath.log1p(x),
        *SQRT,
        7,
        comment="log(1 + f) = f − f²/2 + f³ P(f), √½ ≤ 1 + f ≤ √2",
    ),
    Fit(
        "SIN",
        _odd(mpmath.sin, 3),
        _root_weight(mpmath.sin, 3),
        0,
        QUARTER,
        2,
        comment="sin r = r + r³ P(r²), |r| ≤ π/4",
    ),
    Fit(
        "COS",
        _tail(lambda s: mpmath.cos(mpmath.sqrt(s)), 1, -0.5),
        lambda s: s**2,
        0,
        QUARTER,
        2,
        comment="cos r = 1 − r²/2 + r⁴ P(r²), |r| ≤ π/4",
    ),
    Fit(
        "TANH",
        _odd(mpmath.tanh, 1),
        _root_weight(mpmath.tanh, 1),
        0,
        81.2,
        6,
        3,
        comment="tanh x = x P(x²) / Q(x²), |x| ≤ 9.01",
    ),
    Fit(
        "ERF",
        _odd(mpmath.erf, 1),
        _root_weight(mpmath.erf, 1),
        0,
        15.4,
        6,
        5,
        comment="erf x = x P(x²) / Q(x²), |x| ≤ 3.92",
    ),
    Fit(
        "ERF_NEAR",
        lambda s: mpmath.erf(mpmath.sqrt(s)) / mpmath.sqrt(s) - 1,
        lambda s: mpmath.sqrt(s),
        0,
        0.25,
        4,
        comment="erf x = x + x P(x²), |x| ≤ 1/2; of 1 − erf x",
    ),
    Fit(
        "ERFC",
        level_complement(ERFC_CENTRE),
        lambda t: 1 / level_complement(ERFC_CENTRE)(t),
        place_of(0.5, ERFC_CENTRE),
        place_of(10.1, ERFC_CENTRE),
        9,
        comment="erfc x = e^(−x²) P((x − 1.875) / (x + 1.875)) / (1 + 2 x), 1/2 ≤ x ≤ 10.1",
    ),
    Fit(
        "ATAN",
        _odd(mpmath.atan, 3),
        _root_weight(mpmath.atan, 3),
        0,
        0.1716,
        3,
        comment="atan x = x + x³ P(x²), |x| ≤ tan(π/8)",
    ),
    Fit(
        "ASIN",
        _odd(mpmath.asin, 3),
        _root_weight(mpmath.asin, 3),
        0,
        0.25,
        4,
        comment="asin x = x + x³ P(x²), |x| ≤ 1/2",
    ),
    Fit(
        "LOG2_DOUBLE",
        _tail(_log2_1p, 0),
        lambda x: x / _log2_1p(x),
        *SQRT,
        14,
        double=True,
        comment="log2(1 + f) = f P(f), in f64, for pow",
    ),
    Fit(
        "EXP2_DOUBLE",
        _tail(lambda x: mpmath.mpf(2) ** x, 1),
        lambda x: x,
        -0.5,
        0.5,
        7,
        double=True,
        comment="2^r = 1 + r P(r), in f64, for pow",
    ),
)


def solve(fit: Fit) -> tuple[list[float], list[float], float]:
    """(numerator, denominator without its 1, largest weighted error) of one row."""
    nodes = np.cos(np.pi * (np.arange(SAMPLES) + 0.5) / SAMPLES)
    x = (fit.high + fit.low) / 2 + (fit.high - fit.low) / 2 * nodes
    exact = [mpmath.mpf(float(v)) for v in x]
    target = np.array([float(fit.target(v)) for v in exact])
    weight = np.array([float(fit.weight(v)) for v in exact])
    scale = max(abs(fit.low), abs(fit.high))
    columns = [(x / scale) ** i for i in range(fit.degree + 1)]
    columns += [-target * (x / scale) ** i for i in range(1, fit.denominator + 1)]
    powers = [*range(fit.degree + 1), *range(1, fit.denominator + 1)]
    matrix = np.stack(columns, axis=1)
    solution = np.zeros(len(columns))
    for fixed in range(len(columns) + 1):
        solution[fixed:] = _lawson(matrix, target, weight, solution, fixed, fit.degree)
        if fixed < len(columns) and not fit.double:
            unit = scale ** powers[fixed]
            solution[fixed] = float(np.float32(solution[fixed] / unit)) * unit
    values = [float(v) / scale**p for v, p in zip(solution, powers, strict=True)]
    error = float(np.max(np.abs(_error(matrix, target, weight, solution, fit.degree))))
    return values[: fit.degree + 1], values[fit.degree + 1 :], error


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


def main() -> None:
    """Print the coefficients file."""
    mpmath.mp.dps = 40
    print(
        '"""Polynomial coefficients, lowest power first; made by `scripts/fit_polynomials.py`."""'
    )
    for fit in FITS:
        numerator, denominator, error = solve(fit)
        print(f"\n# {fit.comment}; relative error {error:.1e}")
        rows = [(fit.name, numerator)]
        if denominator:
            rows.append((f"{fit.name}_DENOMINATOR", [1.0, *denominator]))
        for name, values in rows:
            texts = [repr(v if fit.double else float(np.float32(v))) for v in values]
            print(f"{name} = (", *(f"    {text}," for text in texts), ")", sep="\n")


if __name__ == "__main__":
    main()
