"""Arithmetic of complex numbers as pairs of real nodes; an imaginary part may be known as zero."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.storage import Array

Part = Node | None  # None is zero
Pair = tuple[Node, Part]  # real and imaginary part


def plus(left: Part, right: Part) -> Part:
    """left + right."""
    if left is None or right is None:
        return right if left is None else left
    return left + right


def minus(left: Part, right: Part) -> Part:
    """left - right."""
    if right is None:
        return left
    return -right if left is None else left - right


def times(left: Part, right: Part) -> Part:
    """left · right."""
    return None if left is None or right is None else left * right


def multiplied(left: Pair, right: Pair) -> Pair:
    """(a + bi)(c + di) = ac - bd + (ad + bc)i."""
    (a, b), (c, d) = left, right
    re = a * c
    if b is not None and d is not None:
        re = re - b * d
    return re, plus(times(a, d), times(b, c))


def divided(left: Pair, right: Pair) -> Pair:
    """(a + bi) / (c + di) by the ratio of the divisor's smaller part to the larger; by 0 each part
    by 0. No square overflows.

    Smith, "Algorithm 116: Complex division", 1962, in the form of torch's and numpy's kernels.
    """
    (a, b), (c, d) = left, right
    if d is None:
        return a / c, None if b is None else b / c
    b = build.scalar(0.0, a.dtype) if b is None else b
    is_first = abs(c) >= abs(d)
    larger, smaller = build.where(is_first, c, d), build.where(is_first, d, c)
    ratio = smaller / larger
    scale = build.unary("reciprocal", larger + smaller * ratio)
    re = build.where(is_first, a + b * ratio, a * ratio + b) * scale
    im = build.where(is_first, b - a * ratio, b * ratio - a) * scale
    is_zero = make("logical_and", (build.equal(c, 0.0), build.equal(d, 0.0)))
    return build.where(is_zero, a * math.inf, re), build.where(is_zero, b * math.inf, im)


def reciprocal(re: Node, im: Part) -> Pair:
    """1 / z."""
    if im is None:
        return build.unary("reciprocal", re), None
    return divided((build.scalar(1.0, re.dtype), None), (re, im))


def absolute(re: Node, im: Node) -> Node:
    """sqrt(re² + im²) by the ratio of the smaller part to the larger, so that none overflows;
    infinite where a part is, whatever the other is."""
    first, second = abs(re), abs(im)
    larger = build.maximum(first, second)
    smaller = build.minimum(first, second)
    is_plain = make("logical_and", (larger > 0.0, larger < math.inf))
    ratio = smaller / build.where(is_plain, larger, 1.0)
    long = larger * build.unary("sqrt", ratio * ratio + 1.0)
    return build.where(_either(_is_infinite, re, im), math.inf, build.where(is_plain, long, larger))


def _is_infinite(value: Node) -> Node:
    return build.equal(abs(value), math.inf)


def _either(ask: Callable[[Node], Node], *parts: Node) -> Node:
    first, second = map(ask, parts)
    return make("logical_or", (first, second))


def _both(*conditions: Node) -> Node:
    return make("logical_and", conditions)


def _is_unbounded(re: Node, im: Node) -> Node:
    """Whether the angle of e^(im i) is none, beside an infinite re."""
    return _both(_is_infinite(re), ~(abs(im) < math.inf))


def from_polar(length: Node, angle: Node) -> tuple[Node, Node]:
    """length · e^(angle i)."""
    return (length * build.unary("cos", angle), length * build.unary("sin", angle))


def _largest_exponent(dtype: str) -> float:
    """A whole number whose power of e is a number of the type, and four times it too."""
    return 708.0 if dtype == "f64" else 86.0


def exponential(re: Node, im: Part) -> Pair:
    """e^a (cos b + i sin b), of real numbers real, and 0 for a of -∞ whatever b is.

    e^a may be larger than any number where its product with a small sine is not.
    """
    if im is None:
        return build.unary("exp", re), None
    limit = _largest_exponent(re.dtype)
    length = build.unary("exp", build.minimum(re, limit))
    growth = build.unary("exp", build.maximum(re - limit, 0.0))
    is_unbounded = _is_unbounded(re, im)
    cosine_, sine_ = build.unary("cos", im), build.unary("sin", im)
    first = build.where(is_unbounded, 1.0, cosine_) * length * growth
    second = build.where(_both(is_unbounded, re < 0.0), 0.0, sine_) * length * growth
    return first, build.where(build.equal(im, 0.0), im, second)


def _shrunk(re: Node, im: Node) -> tuple[Node, Node, Node]:
    """z / 16 where |z| may be larger than any number, else z; and whether it was divided."""
    is_large = build.maximum(abs(re), abs(im)) > (1e300 if re.dtype == "f64" else 1e37)
    factor = build.where(is_large, 0.0625, build.scalar(1.0, re.dtype))
    return re * factor, im * factor, is_large


def logarithm(re: Node, im: Part) -> tuple[Node, Node]:
    """log |z| + i · angle of z."""
    im = build.scalar(0.0, re.dtype) if im is None else im
    im = build.expand(im, re.shape)
    angle = build.pointwise("atan2", im, re)
    small_re, small_im, is_large = _shrunk(re, im)
    length = build.unary("log", absolute(small_re, small_im))
    return length + build.where(is_large, math.log(16), build.scalar(0.0, re.dtype)), angle


def square_root(re: Node, im: Node) -> tuple[Node, Node]:
    """The root r with r.re >= 0: |r.re| = sqrt((|z| + re) / 2), and the sign of im, of which -0 is
    below 0 here as 1 / -0 is. Of an infinite im both parts are infinite."""
    is_right, is_endless = re >= 0.0, _is_infinite(im)
    is_down = make("logical_or", (im < 0.0, build.unary("reciprocal", im) < 0.0))
    re, im, is_large = _shrunk(re, im)
    root = build.unary("sqrt", (absolute(re, im) + abs(re)) * 0.5)
    is_zero = build.equal(root, 0.0)
    other = abs(im) * 0.5 / build.where(is_zero, 1.0, root)
    factor = build.where(is_large, 4.0, build.scalar(1.0, re.dtype))
    root, other = (build.where(is_endless, math.inf, each * factor) for each in (root, other))
    up = build.where(is_right, other, root)
    return build.where(is_right, root, other), build.where(is_down, -up, up)


def whole_power(base: Pair, exponent: int) -> Pair:
    """z^n by products of squares; of 1 / z^-n for a negative n."""
    count, square = abs(exponent), base
    result: Pair = build.scalar(1.0, base[0].dtype), None
    while count:
        if count % 2:
            result = multiplied(result, square)
        count //= 2
        square = multiplied(square, square) if count else square
    return reciprocal(*result) if exponent < 0 else result


def sine(re: Node, im: Node) -> tuple[Node, Node]:
    """sin(z) = -i sinh(iz), which is sinh(b + ai) with its parts exchanged."""
    first, second = hyperbolic_sine(im, re)
    return second, first


def cosine(re: Node, im: Node) -> tuple[Node, Node]:
    """cos(z) = cosh(iz)."""
    return hyperbolic_cosine(-im, re)


def _hyperbolic(name: str, value: Node) -> Node:
    """sinh or cosh of a number up to the largest whose result is a number of its type."""
    limit = _largest_exponent(value.dtype)
    return build.unary(name, build.maximum(build.minimum(value, limit), -limit))


def _growth(value: Node) -> Node:
    """What is missing of sinh and cosh of a larger number."""
    return build.unary("exp", build.maximum(abs(value) - _largest_exponent(value.dtype), 0.0))


def hyperbolic_sine(re: Node, im: Node) -> tuple[Node, Node]:
    """sinh(a)cos(b) + cosh(a)sin(b)i; a part of z that is 0 makes one of the result 0."""
    growth, is_unbounded = _growth(re), _is_unbounded(re, im)
    has_no_angle = _both(build.equal(re, 0.0), ~(abs(im) < math.inf))
    first = _hyperbolic("sinh", re) * build.unary("cos", im) * growth
    first = build.where(is_unbounded, math.inf, first)
    second = _hyperbolic("cosh", re) * build.unary("sin", im) * growth
    return (
        build.where(has_no_angle, re, first),
        build.where(build.equal(im, 0.0), im, second),
    )


def hyperbolic_cosine(re: Node, im: Node) -> tuple[Node, Node]:
    """cosh(a)cos(b) + sinh(a)sin(b)i; a part of z that is 0 makes the imaginary part 0."""
    growth, is_unbounded = _growth(re), _is_unbounded(re, im)
    first = _hyperbolic("cosh", re) * build.unary("cos", im) * growth
    second = _hyperbolic("sinh", re) * build.unary("sin", im) * growth
    is_real = build.equal(im, 0.0)
    sign = build.where(re < 0.0, -1.0, build.scalar(1.0, re.dtype))
    second = build.where(_both(is_real, ~build.equal(re, 0.0)), im * sign, second)
    has_no_angle = _both(build.equal(re, 0.0), ~(abs(im) < math.inf))
    return (
        build.where(is_unbounded, math.inf, first),
        build.where(has_no_angle, 0.0, second),
    )


def hyperbolic_tangent(re: Node, im: Node) -> tuple[Node, Node]:
    """(t + q sin(b)cos(b)i) / (t² + q cos²(b)) with t = tanh(a) and q = 1 / cosh²(a), which no sum
    of squares passes the largest number for."""
    power = build.unary("exp", abs(re) * -2.0)
    share = power * 4.0 / ((power + 1.0) * (power + 1.0))
    tangent, sine_, cosine_ = (
        build.unary("tanh", re),
        build.unary("sin", im),
        build.unary("cos", im),
    )
    divisor = tangent * tangent + share * cosine_ * cosine_
    first, second = tangent / divisor, share * sine_ * cosine_ / divisor
    is_unbounded = _is_unbounded(re, im)
    return (
        build.where(is_unbounded, tangent, build.where(build.equal(re, 0.0), re, first)),
        build.where(build.equal(im, 0.0), im, build.where(is_unbounded, 0.0, second)),
    )


def tangent(re: Node, im: Node) -> tuple[Node, Node]:
    """tan(z) = -i tanh(iz)."""
    first, second = hyperbolic_tangent(-im, re)
    return second, -first


def less_one(re: Node, im: Node) -> tuple[Node, Node]:
    """e^z - 1, of which the real part is e^a cos(b) - 1 = (e^a - 1)cos(b) - 2 sin²(b / 2)."""
    half = build.unary("sin", im * 0.5)
    first = build.unary("expm1", re) * build.unary("cos", im) - half * half * 2.0
    return first, build.unary("exp", re) * build.unary("sin", im)


def roots(sign: int, exponents: Array, order: int) -> tuple[Array, Array]:
    """Cosine and sine of sign · 2 π e / order, exactly 0, 1 and -1 at quarters of a turn.

    Whole quarters are taken off as integers, and the rest is measured from the nearer quarter.
    """
    quarters, rest = numpy.divmod(4 * (exponents % order), order)
    is_late = 2 * rest > order
    angle = numpy.where(is_late, order - rest, rest) * (math.pi / 2 / order)
    near, far = numpy.cos(angle), numpy.sin(angle)
    cosine, sine = numpy.where(is_late, far, near), numpy.where(is_late, near, far)
    choices = [cosine, -sine, -cosine, sine], [sine, cosine, -sine, -cosine]
    found = [numpy.choose(quarters, choice) for choice in choices]
    return found[0] + 0.0, sign * found[1] + 0.0


def transformed(data: Pair, turns: Node, keep: int, sign: int, is_real: bool) -> Pair:
    """The op `fourier` along the last axis: both parts of its first `keep` results, or the real
    one alone; `turns` are the `roots` of its length."""
    re, im = data
    operands = (turns, re) if im is None else (turns, re, im)
    how = {"sign": sign, "keep": keep, "is_real": is_real}
    first, *second = (
        make("fourier", operands, {**how, "result": at}) for at in range(1 if is_real else 2)
    )
    return first, second[0] if second else None
