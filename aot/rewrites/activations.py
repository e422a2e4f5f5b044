"""Activations: sigmoid, SiLU and both forms of GELU recognised from their arithmetic.

A literal stands second here, since algebra's rules run in the same table.
"""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.match import Either, Pattern, any_node, both_orders, call, either
from aotc.aot.ir.rules import Rule

x = any_node("x")

_fading = call("exp", -x) + 1.0

# 1 + erf(x / √2)
_scaled = either(x * math.sqrt(0.5), x / math.sqrt(2.0))
_erf = call("erf", _scaled)
_two_phi = _erf + 1.0
_phi = either(_two_phi * 0.5, _erf * 0.5 + 0.5)

# 1 + tanh(√(2/π) · (x + 0.044715 · x³)), the cube in each spelling
_square = x * x
_cube = either(_square * x, x * _square)
_COEFFICIENT, _FACTOR = 0.044715, math.sqrt(2 / math.pi)
_scaled_cube = either(
    _cube * _COEFFICIENT,
    both_orders((x * _COEFFICIENT) * _square),
    both_orders((_square * _COEFFICIENT) * x),
)
_bent = both_orders(x + _scaled_cube)
_factored = _square * _COEFFICIENT + 1.0
_inner = either(
    _bent * _FACTOR,
    both_orders((x * _FACTOR) * _factored),
    call("mul", both_orders(x * _factored), _FACTOR),
    both_orders(x * (_factored * _FACTOR)),
)
_tanh = call("tanh", _inner)
_two_phi_tanh = _tanh + 1.0
_phi_tanh = either(_two_phi_tanh * 0.5, _tanh * 0.5 + 0.5)


def _half_product(two_phi: Pattern, phi: Pattern) -> Either:
    """x · φ(x), the half taken at any place."""
    return either(
        both_orders((x * 0.5) * two_phi),
        both_orders(x * phi),
        call("mul", both_orders(x * two_phi), 0.5),
    )


RULES: tuple[Rule, ...] = (
    # 1 / (1 + e^-x) → sigmoid(x)
    Rule(
        "sigmoid",
        call("reciprocal", _fading),
        lambda x: build.unary("sigmoid", x),
        is_exact=False,
    ),
    # x · sigmoid(x) → silu(x)
    Rule(
        "silu",
        both_orders(x * call("sigmoid", x)),
        lambda x: build.unary("silu", x),
        is_exact=False,
    ),
    # x / (1 + e^-x) → silu(x)
    Rule("silu-quotient", x / _fading, lambda x: build.unary("silu", x), is_exact=False),
    # x · ½(1 + erf(x/√2)) → gelu(x)
    Rule(
        "gelu",
        _half_product(_two_phi, _phi),
        lambda x: build.unary("gelu", x),
        is_exact=False,
    ),
    # x · ½(1 + tanh(√(2/π)(x + 0.044715 x³))) → gelu_tanh(x)
    Rule(
        "gelu-tanh",
        _half_product(_two_phi_tanh, _phi_tanh),
        lambda x: build.unary("gelu_tanh", x),
        is_exact=False,
    ),
)
