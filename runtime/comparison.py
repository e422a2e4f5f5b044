"""How far a program's numbers are from those of the exported model: the one definition of that.

`aotc verify`, `aotc run`, the build's validation and the tests' servers all compare here.
"""

from __future__ import annotations

import struct
import sys

from .arrays.dtypes import DTYPES
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .bundle.manifest import TensorSpec

READ_STEP_BYTES = 4 << 20
INFINITY = float("inf")


class Comparison(Record):
    """How far one output is from the expected one; difference and tolerance relative to its scale,
    the largest absolute value expected."""

    name: str
    difference: float
    tolerance: float

    @property
    def is_ok(self) -> bool:
        """Whether it is within the tolerance; a NaN is not."""
        return self.difference <= self.tolerance

    def as_map(self) -> dict[str, Any]:
        """The comparison as plain data, for `--json`."""
        return {
            "name": self.name,
            "difference": self.difference,
            "tolerance": self.tolerance,
            "ok": self.is_ok,
        }


def compare(spec: TensorSpec, found: bytes, expected: bytes, tolerance: float) -> Comparison:
    """One output, both arrays as contiguous little-endian bytes of the spec's dtype."""
    return Comparison(spec.name, relative_difference(spec.dtype, found, expected), tolerance)


def relative_difference(dtype: str, found: bytes, expected: bytes) -> float:
    """Largest absolute difference by the largest finite absolute value expected.

    NaN against NaN and equal infinities differ by 0; a NaN or infinity against anything else by
    infinity. Where everything expected is 0, the difference is absolute. A million elements take a
    second, or milliseconds where the process has numpy; it is never imported for this.
    """
    if found == expected:
        return 0.0
    if len(found) != len(expected):
        return INFINITY
    numpy = sys.modules.get("numpy")
    if numpy is not None and dtype != "i64":  # whose values f64 would round
        largest, scale = _extremes_by_numpy(numpy, dtype, found, expected)
    else:
        largest, scale = _extremes(dtype, found, expected)
    return largest / scale if scale else largest


def _extremes(dtype: str, found: bytes, expected: bytes) -> tuple[float, float]:
    """Largest absolute difference and largest finite absolute value expected."""
    scale = largest = 0.0
    for left, right in zip(elements(dtype, found), elements(dtype, expected), strict=True):
        if left == right or (left != left and right != right):
            difference = 0.0
        else:
            difference = abs(left - right)
            if not difference < INFINITY:  # NaN or infinite
                return INFINITY, 0.0
        largest = max(largest, difference)
        if abs(right) < INFINITY:
            scale = max(scale, abs(right))
    return largest, scale


def _extremes_by_numpy(
    numpy: Any, dtype: str, found: bytes, expected: bytes
) -> tuple[float, float]:
    with numpy.errstate(invalid="ignore", over="ignore"):
        left, right = (as_f64(numpy, dtype, data) for data in (found, expected))
        differs = (left != right) & ~(numpy.isnan(left) & numpy.isnan(right))
        differences = numpy.abs(left[differs] - right[differs])
    largest = float(differences.max(initial=0.0))
    if not largest < INFINITY:
        return INFINITY, 0.0
    return largest, float(numpy.abs(right[numpy.isfinite(right)]).max(initial=0.0))


def as_f64(numpy: Any, dtype: str, data: bytes) -> Any:
    """The numbers of contiguous little-endian bytes as a flat array of f64."""
    array = numpy.frombuffer(data, DTYPES[dtype].numpy)
    if dtype == "bf16":
        array = (array.astype("<u4") << 16).view("<f4")
    return array.astype("<f8")


def elements(dtype: str, data: bytes) -> Iterator[Any]:
    """The numbers of contiguous little-endian bytes; bf16 by widening its bits to f32."""
    row = DTYPES[dtype]
    letter, size = row.buffer, row.itemsize_bytes
    for begin in range(0, len(data), READ_STEP_BYTES):
        part = data[begin : begin + READ_STEP_BYTES]
        if dtype == "bf16":
            wide = bytearray(2 * len(part))
            wide[2::4], wide[3::4] = part[0::2], part[1::2]
            part, letter, size = bytes(wide), "f", 4
        for (number,) in struct.iter_unpack(f"<{letter}", part[: len(part) // size * size]):
            yield number
