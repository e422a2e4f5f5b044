"""The numbers of a measurement: what kernels are measured on, and when two results agree.

Operands are normal numbers, and whole numbers that are always in range. Zeros would raise a GPU's
clocks: matrix units on zeros draw less power than on a model's numbers.
"""

from __future__ import annotations

import functools

import numpy
from numpy.typing import NDArray

# A prime, so that rows of a tensor never start at the same element of the pattern.
PATTERN_ELEMENTS = 1_048_573
FLOATS = {"fp64": "<f8", "fp32": "<f4", "fp16": "<f2"}
WIDTHS = {"bf16": 2, "i1": 1, "i8": 1, "u8": 1, "i16": 2, "i32": 4, "i64": 8}
# Parameter type → how far a number may be off, relative to the largest one. Sums in another order
# differ by about this; a wrong index or a missed tile differs by far more.
TOLERANCES = {"fp64": 1e-6, "fp32": 2e-3, "fp16": 1e-2, "bf16": 3e-2}
# Whole numbers must be equal but for a few: the place of a maximum, where two are almost equal.
WHOLE_SHARE = 1e-3


@functools.cache
def pattern(kind: str, deviation: float = 1.0) -> bytes:
    """The pattern of a parameter type without its star, `bf16`: repeated, it fills a buffer.

    Floats are normal with mean 0 and this deviation, truth values are 0 or 1 by the toss of a coin,
    whole numbers are 0, which is an index into anything.
    """
    generator = numpy.random.default_rng(1)
    if kind in FLOATS:
        normal = generator.standard_normal(PATTERN_ELEMENTS) * deviation
        return normal.astype(FLOATS[kind]).tobytes()
    if kind == "bf16":
        rounded = generator.standard_normal(PATTERN_ELEMENTS, numpy.float32)
        rounded *= numpy.float32(deviation)
        return (rounded.view("<u4") >> 16).astype("<u2").tobytes()
    if kind == "i1":
        return generator.integers(0, 2, PATTERN_ELEMENTS, numpy.uint8).tobytes()
    return bytes(PATTERN_ELEMENTS * WIDTHS[kind])


def agree(kind: str, found: bytes, expected: bytes) -> bool:
    """Whether two arrays of a parameter type without its star agree; NaN agrees with NaN."""
    if found == expected:
        return True
    if kind not in TOLERANCES:
        ours, theirs = (numpy.frombuffer(data, numpy.uint8) for data in (found, expected))
        return float((ours != theirs).mean()) <= WHOLE_SHARE
    left, right = (_numbers(kind, data) for data in (found, expected))
    finite = numpy.isfinite(right)
    with numpy.errstate(invalid="ignore", over="ignore"):
        differs = (left != right) & ~(numpy.isnan(left) & numpy.isnan(right))
        if bool((differs & ~finite).any()):
            return False
        scale = float(numpy.abs(right[finite]).max(initial=0.0))
        largest = float(numpy.abs(left[differs] - right[differs]).max(initial=0.0))
    return largest <= TOLERANCES[kind] * max(scale, 1e-30)  # a NaN is not


def _numbers(kind: str, data: bytes) -> NDArray[numpy.float64]:
    if kind == "bf16":
        wide = numpy.frombuffer(data, "<u2").astype("<u4") << 16
        return wide.view("<f4").astype("<f8")
    return numpy.frombuffer(data, FLOATS[kind]).astype("<f8")
