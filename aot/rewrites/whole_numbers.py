"""Scatter reductions of floats as integer reductions, so that a GPU may merge all values by
atomics.

The results of integer reductions do not depend on the order. For extremes, the bits of a float are
mapped to an integer of the same order.

A sum is one of integers in a unit of its own place. The unit is the greatest power of two of the
values at the place, 2^e, times 2^-UNIT_BITS: up to 2^20 values of less than 2^(e + 1) have a sum
below 2^63. Each value is rounded to a multiple of 2^(e - 41), where adding in f32 one after the
other rounds to 2^(e - 24) or more. (Order-independent sums: Demmel and Nguyen, "Fast Reproducible
Floating-Point Summation", 2013; one bin is enough here, since the extreme is known first.)
"""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.types import SHORT_FLOATS

UNIT_BITS = 41
COUNT_BITS = 20  # of how often a sum has ∞, above these -∞, above these NaN
MOST_ROWS = (1 << COUNT_BITS) - 1  # of one place: as many of each as its field has room for
BIAS, MANTISSA_BITS, NOT_FINITE = 127, 23, 255  # of f32
WIDE_BIAS, WIDE_MANTISSA_BITS = 1023, 52  # of f64
OF_FLOATS = frozenset({"f32", *SHORT_FLOATS})


def merged(node: Node) -> Node:
    """`scatter_rows` by sum, max or min of floats, by those of whole numbers."""
    return _sums(node) if node.attr("merge") == "sum" else _extremes(node)


def _extremes(node: Node) -> Node:
    """The float of the extreme of ordered bits"""
    data, index, source = node.inputs
    is_max = node.attr("merge") == "max"
    keys = [build.ordered_bits(each, is_max) for each in (data, source)]
    found = make("scatter_rows", (keys[0], index, keys[1]), node.attrs)
    most = build.scalar(2**31 - 1, "i32")
    bits = build.where(found < 0, make("bitwise_xor", (found, most)), found)
    floats = build.cast(make("bitcast", (bits,), {"dtype": "f32"}), data.dtype)
    # 0.0 and -0.0 have one number: data that nothing was merged with stays as it is.
    return build.where(build.equal(found, keys[0]), data, floats)


def _sums(node: Node) -> Node:
    """data + 2^(e - UNIT_BITS) · Σ round(source · 2^(UNIT_BITS - e)), e of the place"""
    data, index, source = node.inputs
    wide = build.cast(source, "f32")
    exponents = _bits(build.unary("abs", wide)) // (1 << MANTISSA_BITS)
    greatest = _at_places(node, "max", exponents)
    own = _looked_up(greatest, index, source, node.attr("axis"))
    scaled = build.cast(wide, "f64") * _power_of_two(UNIT_BITS + BIAS - own)
    whole = build.cast(build.unary("round", scaled), "i64")
    whole = build.where(build.equal(own, NOT_FINITE), _counted(wide), whole)
    total = _at_places(node, "sum", whole)
    found = build.cast(total, "f64") * _power_of_two(greatest - (UNIT_BITS + BIAS))
    found = build.cast(build.cast(data, "f64") + found, "f32")
    special = build.cast(data, "f32") + _special(total)
    found = build.where(build.equal(greatest, NOT_FINITE), special, found)
    return build.where(build.equal(total, 0), data, build.cast(found, data.dtype))


def _bits(data: Node) -> Node:
    return make("bitcast", (data,), {"dtype": "i32"})


def _at_places(node: Node, merge: str, source: Node) -> Node:
    """Whole numbers merged at the places of a node, beginning with 0."""
    zeros = build.expand(build.scalar(0, source.dtype), node.shape)
    attrs = {**dict(node.attrs), "merge": merge}
    return make("scatter_rows", (zeros, node.inputs[1], source), attrs)


def _looked_up(data: Node, index: Node, source: Node, axis: int) -> Node:
    """What stands at the place of each element of the rows; anything of one outside."""
    rows = source.shape[axis]
    index = build.minimum(build.maximum(index, 0), data.shape[axis] - 1)
    if index.type.numel == rows:
        return make("take", (data, build.reshape(index, (rows,))), {"axis": axis})
    return make("gather", (data, build.expand(index, source.shape)), {"axis": axis})


def _power_of_two(exponent: Node) -> Node:
    """2^exponent, f64, of i32."""
    biased = build.cast(exponent, "i64") + WIDE_BIAS
    return make("bitcast", (biased * (1 << WIDE_MANTISSA_BITS),), {"dtype": "f64"})


def _counted(data: Node) -> Node:
    """1 for ∞ in its field of bits, for -∞ and for NaN in theirs; of finite values 0."""
    found = build.scalar(0, "i64")
    found = build.where(build.equal(data, math.inf), 1, found)
    found = build.where(build.equal(data, -math.inf), 1 << COUNT_BITS, found)
    return build.where(build.unary("isnan", data), 1 << 2 * COUNT_BITS, found)


def _special(counts: Node) -> Node:
    """The sum, f32, of as many infinities and NaN."""
    field = 1 << COUNT_BITS
    has_nan = counts >= 1 << 2 * COUNT_BITS
    above = counts % field > 0
    below = counts // field % field > 0
    infinite = build.where(above, build.scalar(math.inf, "f32"), build.scalar(-math.inf, "f32"))
    return build.where(has_nan | (above & below), build.scalar(math.nan, "f32"), infinite)
