"""fmod of f32 and f64 as LLVM IR text: exact for every quotient."""

from __future__ import annotations

from aotc.aot.targets.cpu.math.vector_ir import Value

# Bits of a significand; a power of two that brings the largest quotient below the largest number
# in two steps, and is below every quotient that is infinite.
LIMITS = {"float": (24, 2.0**100), "double": (53, 2.0**1000)}


def fmod(x: Value, y: Value) -> Value:
    """x - trunc(x / y) · y, signed as x; of quotients beyond the significand's bits in a loop."""
    (bits, _), a, b = LIMITS[x.element], x.abs(), y.abs()
    quotient = a / b
    near = _trunc(quotient).fma(-b, a)
    rest = x.text.rarely_repeated(quotient > 2.0 ** (bits - 1), near, a, lambda r: _step(r, b))
    rest = (rest < 0).select(rest + b, rest)  # where a quotient was rounded up
    return (a < b).select(a, rest).copysign(x)


def _trunc(x: Value) -> Value:
    return x.text.intrinsic("trunc", x)


def _step(rest: Value, b: Value) -> tuple[Value, Value]:
    """rest - trunc(rest / b · 2⁻ᵏ) · b · 2ᵏ, and whether it is not below b yet.

    Exact: of a rounded quotient what is left is a number, and it has fewer bits by a significand's.
    """
    _, step = LIMITS[rest.element]
    divisor = b
    for _ in range(2):  # k > 0 where the quotient is not finite
        is_far = (rest / divisor).abs().equals(float("inf"))
        divisor = is_far.select(divisor * step, divisor)
    left = _trunc(rest / divisor).fma(-divisor, rest)
    return left, left.text.emit("i1", f"fcmp oge {left.abs()}, {b.name}")
