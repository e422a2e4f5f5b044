"""Sums of products as adapters are added, rounded as written: once a step."""

import numpy


def product(left, right):
    """left · right in f32: products added one after the other, each sum rounded once."""
    total = numpy.zeros((left.shape[0], right.shape[1]), numpy.float32)
    for number in range(left.shape[1]):
        total = multiply_add(left[:, number, None], right[number], total)
    return total


def multiply_add(left, right, addend):
    """left · right + addend of f32 numbers, rounded once.

    The product is exact in f64. Their sum there is rounded to odd, so that rounding it to f32
    rounds what is exact.
    """
    one, other = left.astype(numpy.float64) * right, addend.astype(numpy.float64)
    near = one + other
    part = near - other
    error = (other - (near - part)) + (one - part)
    bits = near.view(numpy.int64)
    away = numpy.where((error > 0) == (near > 0), 1, -1)
    odd = numpy.where((error != 0) & (bits & 1 == 0), bits + away, bits)
    return odd.view(numpy.float64).astype(numpy.float32)
