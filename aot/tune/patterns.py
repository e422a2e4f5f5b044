"""Bytes that a kernel is measured on: normal numbers, and whole numbers that are always in range.

Zeros would raise a GPU's clocks: matrix units on zeros draw less power than on a model's numbers.
"""

from __future__ import annotations

import functools

import numpy

# A prime, so that rows of a tensor never start at the same element of the pattern.
PATTERN_ELEMENTS = 1_048_573
FLOATS = {"fp64": "<f8", "fp32": "<f4", "fp16": "<f2"}
WIDTHS = {"bf16": 2, "i1": 1, "i8": 1, "u8": 1, "i16": 2, "i32": 4, "i64": 8}


@functools.cache
def pattern(kind: str) -> bytes:
    """The pattern of a parameter type without its star, `bf16`: repeated, it fills a buffer.

    Floats are normal with mean 0 and deviation 1, truth values are 0 or 1 by the toss of a coin,
    whole numbers are 0, which is an index into anything.
    """
    generator = numpy.random.default_rng(1)
    if kind in FLOATS:
        return generator.standard_normal(PATTERN_ELEMENTS).astype(FLOATS[kind]).tobytes()
    if kind == "bf16":
        wide = generator.standard_normal(PATTERN_ELEMENTS, numpy.float32).view("<u4")
        return (wide >> 16).astype("<u2").tobytes()
    if kind == "i1":
        return generator.integers(0, 2, PATTERN_ELEMENTS, numpy.uint8).tobytes()
    return bytes(PATTERN_ELEMENTS * WIDTHS[kind])
