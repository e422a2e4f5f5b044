"""Element types of a bundle's tensors, in every notation the runtime meets.

The names are those of the compiler's table; a test holds the two together.
"""

from __future__ import annotations

from ..record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class DType(Record):
    """One element type: its name here, size, and its name in other notations."""

    name: str
    itemsize_bytes: int
    buffer: str  # format of the buffer protocol; bf16 has none, its bits are unsigned 16-bit
    dlpack: tuple[int, int]  # type code and bits
    numpy: str  # `__array_interface__` typestr, little-endian
    safetensors: str


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        DType("f64", 8, "d", (2, 64), "<f8", "F64"),
        DType("f32", 4, "f", (2, 32), "<f4", "F32"),
        DType("f16", 2, "e", (2, 16), "<f2", "F16"),
        DType("bf16", 2, "H", (4, 16), "<u2", "BF16"),
        DType("i64", 8, "q", (0, 64), "<i8", "I64"),
        DType("i32", 4, "i", (0, 32), "<i4", "I32"),
        DType("i16", 2, "h", (0, 16), "<i2", "I16"),
        DType("i8", 1, "b", (0, 8), "|i1", "I8"),
        DType("u8", 1, "B", (1, 8), "|u1", "U8"),
        DType("bool", 1, "?", (6, 8), "|b1", "BOOL"),
    )
}
BY_SAFETENSORS: dict[str, DType] = {row.safetensors: row for row in DTYPES.values()}
BY_DLPACK: dict[tuple[int, int], DType] = {row.dlpack: row for row in DTYPES.values()}


def bytes_of(dtype: str, shape: Iterable[int]) -> int:
    """Size in bytes of a contiguous array."""
    nbytes = DTYPES[dtype].itemsize_bytes
    for extent in shape:
        nbytes *= extent
    return nbytes
