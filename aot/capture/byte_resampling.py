"""Weighted resizing of u8 images in whole numbers, as torch's CPU kernels compute it.

Weights are rounded to i16 with the most fractional bits that fit; an axis is a sum of products in
i32, half a unit is added, the fraction is shifted out, and the result is clamped to a byte. The
last axis comes first, and what lies between two axes is bytes. ATen, UpSampleKernel.cpp, 2.13.
(There torch gives wrong numbers for more than four channels whose rows have one element.)
"""

from __future__ import annotations

import numpy

from aotc.aot.capture.importing import Call
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.storage import Array

MOST_FRACTION_BITS = 22
MOST_WEIGHT = 1 << 15


def resized_bytes(call: Call, data: Node, axis: int, places: Array, weights: Array) -> Node:
    """u8, one axis resized: `places` i64 and `weights` f64, both [taps, n]."""
    whole, bits = _whole_weights(_merged(places, weights))
    total = build.scalar(1 << (bits - 1), "i32")
    for at, weight in zip(places, whole, strict=True):
        column = [1] * data.type.rank
        column[axis] = len(weight)
        found = make("take", (data, call.table(at, "i64")), {"axis": axis})
        factor = build.reshape(call.table(weight, "i32"), column)
        total = build.add(build.mul(build.cast(found, "i32"), factor), total)
    shifted = build.pointwise("shift_right", total, bits)
    inside = build.pointwise("minimum", build.pointwise("maximum", shifted, 0), 255)
    return build.cast(inside, "u8")


def _merged(places: Array, weights: Array) -> Array:
    """Weights with those of one place summed at its first tap: beyond an edge is the edge."""
    merged = numpy.array(weights)
    for later in range(1, len(places)):
        for first in range(later):
            is_same = places[first] == places[later]
            merged[first] += numpy.where(is_same, merged[later], 0)
            merged[later] = numpy.where(is_same, 0, merged[later])
    return merged


def _whole_weights(weights: Array) -> tuple[Array, int]:
    """Weights in units of 2^-bits, rounded half away from 0, and bits."""
    largest, bits = float(weights.max()), 0
    while bits < MOST_FRACTION_BITS and int(0.5 + largest * (1 << (bits + 1))) < MOST_WEIGHT:
        bits += 1
    scaled = weights * (1 << bits)
    return numpy.trunc(scaled + numpy.copysign(0.5, scaled)).astype(numpy.int32), bits
