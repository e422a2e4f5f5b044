"""Import rows of the gamma function's logarithm and its derivative, computed in f64.

In f64 the formulas keep what single precision would cancel near the roots, and need no cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from aotc.aot.capture.imports.call import Call, Row, Rows
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node

# C. Lanczos' series for g = 607/128 in P. Godfrey's coefficients (2001), relative error 10⁻¹⁵.
LANCZOS_SHIFT = 607.0 / 128.0
LANCZOS = (
    0.99999999999999709182, 57.156235665862923517, -59.597960355475491248, 14.136097974741747174,
    -0.49191381609762019978, 0.33994649984811888699e-4, 0.46523628927048575665e-4,
    -0.98374475304879564677e-4, 0.15808870322491248884e-3, -0.21026444172410488319e-3,
    0.21743961811521264320e-3, -0.16431810653676389022e-3, 0.84418223983852743293e-4,
    -0.26190838401581408670e-4, 0.36899182659531622704e-5,
)  # fmt: skip
HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
# digamma x ≈ log x − 1/2x − Σ B(2k) / (2k x^2k), here from the highest k = 7 down.
BERNOULLI = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
ASYMPTOTIC = 10  # from here on that series is good to f64's precision


def _log_gamma(x: Node) -> Node:
    """log |Γ(x)|, by reflection below ½; ∞ at the poles and at both infinities, 0 at 1 and 2."""
    is_left = x < 0.5
    z = build.pointwise("where", is_left, 1.0 - x, x) - 1.0
    series: Node | float = LANCZOS[0]
    for place, coefficient in enumerate(LANCZOS[1:], 1):
        series = coefficient / (z + float(place)) + series
    shifted = z + (LANCZOS_SHIFT + 0.5)
    power = (z + 0.5) * (build.unary("log", shifted) - 1.0)
    rest = build.unary("log", series) + (HALF_LOG_2_PI - LANCZOS_SHIFT)
    right = power + rest
    # The distance to the nearest integer, which next to 0 is the number itself.
    nearest = build.unary("round", x)
    fraction = abs(x - nearest)
    sine = build.unary("sin", fraction * math.pi)
    left = math.log(math.pi) - (build.unary("log", sine) + right)
    whole = build.pointwise("where", is_left, left, right)
    # Next to 0, where π x may be subnormal.
    size = abs(x)
    at_zero = -build.unary("log", size)
    whole = build.pointwise("where", size < 1e-20, at_zero, whole)
    is_root = build.equal(x, 1.0) | build.equal(x, 2.0)
    whole = build.pointwise("where", is_root, 0.0, whole)
    is_pole = is_left & build.equal(x, nearest)
    is_infinite = is_pole | build.unary("isinf", x)
    return build.pointwise("where", is_infinite, math.inf, whole)


def _digamma(x: Node) -> Node:
    """Γ′/Γ, by reflection below 0; ∓∞ at ±0 and NaN at the other poles, as torch has it."""
    is_left = x < 0.0
    z = build.pointwise("where", is_left, 1.0 - x, x)
    total: Node | None = None
    for _ in range(ASYMPTOTIC):
        is_small = z < float(ASYMPTOTIC)
        part = build.pointwise("where", is_small, build.unary("reciprocal", z), 0.0)
        total = part if total is None else total + part
        z = build.pointwise("where", is_small, z + 1.0, z)
    square = build.unary("reciprocal", z * z)
    series: Node | float = BERNOULLI[0]
    for coefficient in BERNOULLI[1:]:
        series = square * series + coefficient
    end = 0.5 / z + square * series
    right = build.unary("log", z) - end - total
    fraction = x - build.unary("trunc", x)
    turn = math.pi / build.unary("tan", fraction * math.pi)
    is_pole = build.equal(x, build.unary("trunc", x))
    left = build.pointwise("where", is_pole, math.nan, right - turn)
    whole = build.pointwise("where", is_left, left, right)
    # 1 / x is infinite with the sign of a zero.
    at_zero = -build.unary("reciprocal", x)
    return build.pointwise("where", build.equal(x, 0.0), at_zero, whole)


def _in_f64(formula: Callable[[Node], Node]) -> Row:
    def row(call: Call, data: Node) -> Node:
        return build.cast(call.fill(formula(build.cast(data, "f64"))), call.dtype)

    return row


ROWS: Rows = {
    "lgamma": _in_f64(_log_gamma),
    "digamma": _in_f64(_digamma),
    "special_gammaln": _in_f64(_log_gamma),
    "special_digamma": _in_f64(_digamma),
}
