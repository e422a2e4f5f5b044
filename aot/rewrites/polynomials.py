"""Polynomials with literal coefficients, read off a graph however they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from aotc.aot.ir.graph import Node

Polynomial = Mapping[int, float]  # degree → coefficient
HIGHEST_DEGREE = 3


def polynomial(node: Node, x: Node) -> Polynomial | None:
    """`node` as a polynomial in `x` of at most the third degree; None where it is none."""
    return _read(node, x, {})


def _read(node: Node, x: Node, known: dict[Node, Polynomial | None]) -> Polynomial | None:
    if node is x:
        return {1: 1.0}
    if node.op == "scalar":
        return {0: float(node.attr("value"))}
    if node not in known:
        known[node] = None
        form = _FORMS.get(node.op)
        operands = [] if form is None else [_read(operand, x, known) for operand in node.inputs]
        if form is not None and all(operand is not None for operand in operands):
            known[node] = form(*operands)
    return known[node]


def is_close(found: Polynomial | None, expected: Polynomial, tolerance: float) -> bool:
    """Whether two polynomials have the same degrees, their coefficients up to `tolerance`."""
    if found is None:
        return False
    kept = {degree: value for degree, value in found.items() if value}
    return set(kept) == set(expected) and all(
        math.isclose(kept[degree], value, rel_tol=tolerance) for degree, value in expected.items()
    )


def _sum(left: Polynomial, right: Polynomial, sign: float = 1.0) -> Polynomial:
    degrees = sorted({*left, *right})
    return {degree: left.get(degree, 0.0) + sign * right.get(degree, 0.0) for degree in degrees}


def _product(left: Polynomial, right: Polynomial) -> Polynomial | None:
    found: dict[int, float] = {}
    for first, factor in left.items():
        for second, other in right.items():
            found[first + second] = found.get(first + second, 0.0) + factor * other
    return found if max(found) <= HIGHEST_DEGREE else None


def _quotient(left: Polynomial, right: Polynomial) -> Polynomial | None:
    if set(right) != {0} or not right[0]:
        return None
    return _product(left, {0: 1.0 / right[0]})


_FORMS: Mapping[str, Callable[..., Polynomial | None]] = {
    "add": _sum,
    "sub": lambda left, right: _sum(left, right, -1.0),
    "mul": _product,
    "div": _quotient,
    "neg": lambda data: _product(data, {0: -1.0}),
}
