"""Activations: sigmoid, SiLU and both forms of GELU recognised from their arithmetic.

Literals are second operands here, since algebra's rules run in the same table. The argument of
`erf` or `tanh` is read as a polynomial with literal coefficients, so that the way in which it is
written and the order of its factors do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node
from aotc.aot.ir.match import Either, Pattern, any_node, both_orders, call, either
from aotc.aot.ir.rules import Rule, inexact

x, inner = any_node("x"), any_node("inner")

# How far the literals of model code are from what they stand for: 1.41421 for √2.
TOLERANCE = 1e-5
_FACTOR = math.sqrt(2 / math.pi)
_OF_ERF: Polynomial = {1: math.sqrt(0.5)}
_OF_ERFC: Polynomial = {1: -math.sqrt(0.5)}
_OF_TANH: Polynomial = {1: _FACTOR, 3: _FACTOR * 0.044715}
_OF_SIGMOID: Polynomial = {degree: 2 * value for degree, value in _OF_TANH.items()}

_fading = call("exp", -x) + 1.0
_half_angle = call("tanh", x * 0.5)


def _phi(function: str) -> tuple[Pattern, Pattern]:
    """(1 + f(u), ½ + ½ f(u)) for a function f and its operand u."""
    of_inner = call(function, inner)
    return of_inner + 1.0, either((of_inner + 1.0) * 0.5, of_inner * 0.5 + 0.5)


def _half_product(function: str) -> Either:
    """x · ½(1 + f(u)), the half taken at any place, or the product written out."""
    two_phi, phi = _phi(function)
    of_inner, half = call(function, inner), x * 0.5
    return either(
        both_orders((x * 0.5) * two_phi),
        both_orders(x * phi),
        call("mul", both_orders(x * two_phi), 0.5),
        both_orders(half + both_orders(half * of_inner)),
        both_orders(half + call("mul", both_orders(x * of_inner), 0.5)),
        call("mul", both_orders(x + both_orders(x * of_inner)), 0.5),
    )


_complement = call("erfc", inner)


def _is(expected: Polynomial) -> Callable[[Node, Node], bool]:
    def guard(x: Node, inner: Node) -> bool:
        return is_close(polynomial(inner, x), expected, TOLERANCE)

    return guard


RULES: tuple[Rule, ...] = (
    # 1 / (1 + e^-x) → sigmoid(x)
    inexact("sigmoid", call("reciprocal", _fading), lambda x: build.unary("sigmoid", x)),
    # ½(1 + tanh(x/2)) → sigmoid(x)
    inexact(
        "sigmoid-tanh",
        either((_half_angle + 1.0) * 0.5, _half_angle * 0.5 + 0.5),
        lambda x: build.unary("sigmoid", x),
    ),
    # x · sigmoid(x) → silu(x)
    inexact("silu", both_orders(x * call("sigmoid", x)), lambda x: build.unary("silu", x)),
    # x / (1 + e^-x) → silu(x)
    inexact("silu-quotient", x / _fading, lambda x: build.unary("silu", x)),
    # x · (1 + tanh(x/2)) · ½ → silu(x)
    inexact(
        "silu-tanh",
        either(
            call("mul", both_orders(x * (_half_angle + 1.0)), 0.5),
            both_orders((x * 0.5) * (_half_angle + 1.0)),
        ),
        lambda x: build.unary("silu", x),
    ),
    # x · ½(1 + erf(x/√2)) → gelu(x)
    inexact("gelu", _half_product("erf"), lambda x: build.unary("gelu", x), _is(_OF_ERF)),
    # x · ½ erfc(-x/√2) → gelu(x)
    inexact(
        "gelu-complement",
        either(
            both_orders((x * 0.5) * _complement),
            both_orders(x * (_complement * 0.5)),
            call("mul", both_orders(x * _complement), 0.5),
        ),
        lambda x: build.unary("gelu", x),
        _is(_OF_ERFC),
    ),
    # x · ½(1 + tanh(√(2/π)(x + 0.044715 x³))) → gelu_tanh(x)
    inexact(
        "gelu-tanh", _half_product("tanh"), lambda x: build.unary("gelu_tanh", x), _is(_OF_TANH)
    ),
    # x · sigmoid(2√(2/π)(x + 0.044715 x³)) → gelu_tanh(x)
    inexact(
        "gelu-tanh-sigmoid",
        both_orders(x * call("sigmoid", inner)),
        lambda x: build.unary("gelu_tanh", x),
        _is(_OF_SIGMOID),
    ),
)


# -- polynomials -----------------------------------------------------------------------------------


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
