"""Element types of a bundle's tensors, in every notation the runtime meets.

The names are those of the compiler's table; a test holds the two together.
"""

from __future__ import annotations

from ..record import Record


class DType(Record):
    """One element type: its name here, size, and its spelling in other notations."""

    __slots__ = ("buffer", "dlpack", "itemsize_bytes", "name", "numpy", "safetensors")
    name: str
    itemsize_bytes: int
    buffer: str  # format of the buffer protocol; bf16 has none, its bits are unsigned 16-bit
    dlpack: tuple[int, int]  # type code and bits
    numpy: str  # `__array_interface__` typestr, little-endian
    safetensors: str

    def __init__(
        self,
        name: str,
        itemsize_bytes: int,
        buffer: str,
        dlpack_code: int,
        numpy: str,
        safetensors: str,
    ) -> None:
        self._set(
            name=name,
            itemsize_bytes=itemsize_bytes,
            buffer=buffer,
            dlpack=(dlpack_code, 8 * itemsize_bytes),
            numpy=numpy,
            safetensors=safetensors,
        )


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        DType("f64", 8, "d", 2, "<f8", "F64"),
        DType("f32", 4, "f", 2, "<f4", "F32"),
        DType("f16", 2, "e", 2, "<f2", "F16"),
        DType("bf16", 2, "H", 4, "<u2", "BF16"),
        DType("i64", 8, "q", 0, "<i8", "I64"),
        DType("i32", 4, "i", 0, "<i4", "I32"),
        DType("i16", 2, "h", 0, "<i2", "I16"),
        DType("i8", 1, "b", 0, "|i1", "I8"),
        DType("u8", 1, "B", 1, "|u1", "U8"),
        DType("bool", 1, "?", 6, "|b1", "BOOL"),
    )
}
BY_SAFETENSORS: dict[str, DType] = {row.safetensors: row for row in DTYPES.values()}
BY_DLPACK: dict[tuple[int, int], DType] = {row.dlpack: row for row in DTYPES.values()}
