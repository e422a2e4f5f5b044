"""Arithmetic of complex numbers as pairs of real nodes; an imaginary part may be known as zero."""

from __future__ import annotations

import math

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


def reciprocal(re: Node, im: Part) -> Pair:
    """1 / (c + di) = (c' - d'i) / (c c' + d d'), where c' and d' are divided by the larger part.

    Smith, "Algorithm 116: Complex division", 1962: no square overflows.
    """
    if im is None:
        return build.unary("reciprocal", re), None
    larger = build.maximum(abs(re), abs(im))
    c, d = re / larger, im / larger
    norm = re * c + im * d
    return c / norm, -(d / norm)


def absolute(re: Node, im: Node) -> Node:
    """sqrt(re² + im²) by the ratio of the smaller part to the larger, so that none overflows."""
    first, second = abs(re), abs(im)
    larger = build.maximum(first, second)
    smaller = build.minimum(first, second)
    is_plain = make("logical_and", (larger > 0.0, larger < math.inf))
    ratio = smaller / build.where(is_plain, larger, 1.0)
    long = larger * build.unary("sqrt", ratio * ratio + 1.0)
    return build.where(is_plain, long, larger)


def from_polar(length: Node, angle: Node) -> tuple[Node, Node]:
    """length · e^(angle i)."""
    return (length * build.unary("cos", angle), length * build.unary("sin", angle))


def exponential(re: Node, im: Part) -> Pair:
    """e^a (cos b + i sin b)."""
    length = build.unary("exp", re)
    return (length, None) if im is None else from_polar(length, im)


def logarithm(re: Node, im: Part) -> tuple[Node, Node]:
    """log |z| + i · angle of z."""
    im = build.scalar(0.0, re.dtype) if im is None else im
    angle = build.pointwise("atan2", *(build.expand(each, re.shape) for each in (im, re)))
    return build.unary("log", absolute(re, im)), angle


def square_root(re: Node, im: Node) -> tuple[Node, Node]:
    """The root r with r.re >= 0: |r.re| = sqrt((|z| + re) / 2), and the sign of im, of which -0 is
    below 0 here as 1 / -0 is."""
    length = absolute(re, im)
    half = (length + abs(re)) * 0.5
    root = build.unary("sqrt", half)
    is_zero = build.equal(root, 0.0)
    other = abs(im) * 0.5 / build.where(is_zero, 1.0, root)
    is_right = re >= 0.0
    up = build.where(is_right, other, root)
    is_down = make("logical_or", (im < 0.0, build.unary("reciprocal", im) < 0.0))
    down = build.where(is_down, -up, up)
    return build.where(is_right, root, other), down


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
    """sin(a)cosh(b) + cos(a)sinh(b)i."""
    return (
        build.unary("sin", re) * build.unary("cosh", im),
        build.unary("cos", re) * build.unary("sinh", im),
    )


def cosine(re: Node, im: Node) -> tuple[Node, Node]:
    """cos(a)cosh(b) - sin(a)sinh(b)i."""
    product = build.unary("sin", re) * build.unary("sinh", im)
    return build.unary("cos", re) * build.unary("cosh", im), -product


def hyperbolic_sine(re: Node, im: Node) -> tuple[Node, Node]:
    """sinh(a)cos(b) + cosh(a)sin(b)i."""
    return (
        build.unary("sinh", re) * build.unary("cos", im),
        build.unary("cosh", re) * build.unary("sin", im),
    )


def hyperbolic_cosine(re: Node, im: Node) -> tuple[Node, Node]:
    """cosh(a)cos(b) + sinh(a)sin(b)i."""
    return cosine(-im, re)


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
    return tangent / divisor, share * sine_ * cosine_ / divisor


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
