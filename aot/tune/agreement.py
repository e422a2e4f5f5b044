"""Whether two candidates of one kernel give the same numbers, up to the order of their sums."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

# Parameter type → how far a number may be off, relative to the largest one. Sums in another order
# differ by about this; a wrong index or a missed tile differs by far more.
TOLERANCES = {"fp64": 1e-6, "fp32": 2e-3, "fp16": 1e-2, "bf16": 3e-2}
# Whole numbers must be equal but for a few: the place of a maximum, where two are almost equal.
WHOLE_SHARE = 1e-3


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
    return numpy.frombuffer(data, {"fp64": "<f8", "fp32": "<f4", "fp16": "<f2"}[kind]).astype("<f8")
