"""Import rows of modified Bessel functions of the first kind.

Near zero the power series, all of whose terms have one sign; far from it the asymptotic series,
which at `FAR` has terms below the precision of f64 (Abramowitz and Stegun, 9.6.10 and 9.7.1).
"""

from __future__ import annotations

import math
from functools import reduce

from aotc.aot.capture.imports.call import Call, Row, Rows, wide
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node

FAR = 20.0
NEAR_TERMS, FAR_TERMS = 45, 20


def _near(order: int, size: Node) -> Node:
    """I(x) = (x/2)^n sum (x²/4)^k / (k! (k+n)!), from the last term on; for x ≤ FAR."""
    inside = build.minimum(size, FAR)
    quarter = inside * inside * 0.25

    def step(total: Node | float, k: int) -> Node:
        return quarter * (1.0 / (k * (k + order))) * total + 1.0

    terms = range(NEAR_TERMS, 0, -1)
    total = reduce(step, terms, 1.0)  # type: ignore[arg-type]
    assert isinstance(total, Node)
    return total if order == 0 else inside * 0.5 * total


def _far(order: int, size: Node) -> Node:
    """I(x) e^-x sqrt(2πx) = sum of c_k with c_k = -c_(k-1) (4n² - (2k-1)²) / (8kx); for x ≥ FAR."""
    inverse = 1.0 / build.maximum(size, FAR)
    total: Node | float = 1.0
    for k in range(FAR_TERMS, 0, -1):
        factor = ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k)
        total = inverse * factor * total + 1.0
    assert isinstance(total, Node)
    return total * build.unary("sqrt", inverse * (1 / (2 * math.pi)))


def _bessel(order: int, is_scaled: bool) -> Row:
    """I(x), or with `is_scaled` I(x) e^-|x|."""

    def row(call: Call, data: Node) -> Node:
        x = wide(call.operand(data, call.dtype))
        size = abs(x)
        near, far = _near(order, size), _far(order, size)
        if is_scaled:
            near = near * build.unary("exp", -size)
        else:
            half = build.unary("exp", size * 0.5)  # e^x may overflow before I(x)
            far = far * half * half
        found = build.where(size > FAR, far, near)
        if order == 1:
            is_below = x < 0.0
            found = build.where(is_below, -found, found)
        return build.cast(call.fill(found), call.dtype)

    return row


ROWS: Rows = {
    "i0": _bessel(0, False),
    "special_i0e": _bessel(0, True),
    "special_i1": _bessel(1, False),
    "special_i1e": _bessel(1, True),
}
