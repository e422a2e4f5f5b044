"""Element types and tensor types of the graph."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Literal

from aotc.aot.errors import TypeRuleError
from aotc.aot.ir.size import Extent

Kind = Literal["float", "int", "bool"]
Scalar = bool | int | float


@dataclass(frozen=True, slots=True)
class DType:
    """One element type."""

    name: str
    itemsize_bytes: int
    kind: Kind
    triton: str  # suffix of Triton's pointer types: `*fp32`
    triton_language: str  # in a kernel: `tl.float32`
    numpy: str  # storage in numpy; bf16 is stored as its bits
    significand_bits: int  # integers up to 2**significand_bits are exact (0 for bool)


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        DType("f64", 8, "float", "fp64", "tl.float64", "float64", 53),
        DType("f32", 4, "float", "fp32", "tl.float32", "float32", 24),
        DType("f16", 2, "float", "fp16", "tl.float16", "float16", 11),
        DType("bf16", 2, "float", "bf16", "tl.bfloat16", "uint16", 8),
        DType("i64", 8, "int", "i64", "tl.int64", "int64", 63),
        DType("i32", 4, "int", "i32", "tl.int32", "int32", 31),
        DType("i16", 2, "int", "i16", "tl.int16", "int16", 15),
        DType("i8", 1, "int", "i8", "tl.int8", "int8", 7),
        DType("u8", 1, "int", "u8", "tl.uint8", "uint8", 8),
        DType("bool", 1, "bool", "i1", "tl.int1", "bool", 0),
    )
}

SHORT_FLOATS = ("f16", "bf16")  # kernels compute them in f32
FLOATS_TO_F32 = (*SHORT_FLOATS, "f32")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape; rank 0 is a scalar. Prints as `f32[4, 128]`, `f32[batch, 128]`."""

    dtype: str
    shape: tuple[Extent, ...]

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def numel(self) -> Extent:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> Extent:
        """Size of the contiguous storage in bytes."""
        return self.numel * DTYPES[self.dtype].itemsize_bytes

    @property
    def kind(self) -> Kind:
        """Kind of the element type: float, int or bool."""
        return DTYPES[self.dtype].kind

    def with_shape(self, shape: tuple[Extent, ...]) -> TensorType:
        """Same elements, another shape."""
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: str) -> TensorType:
        """Same shape, other elements."""
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def holds_exactly(narrow: str, wide: str) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    inner, outer = DTYPES[narrow], DTYPES[wide]
    if inner.kind == "bool" or narrow == wide:
        return True
    if (narrow, wide) in (("bf16", "f16"), ("f16", "bf16")) or inner.kind == "float" != outer.kind:
        return False
    if inner.kind == "int" == outer.kind and (narrow == "u8" or wide == "u8"):
        return narrow == "u8" and outer.itemsize_bytes > 1
    return inner.significand_bits <= outer.significand_bits


def round_scalar(value: Scalar, dtype: str) -> Scalar:
    """`value` as an element of `dtype`: rounded to nearest even, out of range becomes infinite.

    Raises `TypeRuleError` when an integer does not fit.
    """
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return bool(value)
    if kind == "int":
        if not math.isfinite(value):
            raise TypeRuleError(f"{value} does not fit `{dtype}`")
        return _fit_integer(int(value), dtype)
    if dtype == "f64" or math.isinf(value) or math.isnan(value):
        return float(value)
    if dtype == "bf16":
        return _round_bfloat16(float(value))
    code = {"f32": "<f", "f16": "<e"}[dtype]
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _fit_integer(value: int, dtype: str) -> int:
    bits = DTYPES[dtype].itemsize_bytes * 8
    low, high = (0, 2**bits - 1) if dtype == "u8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not low <= value <= high:
        raise TypeRuleError(f"{value} does not fit `{dtype}`")
    return value


def _round_bfloat16(value: float) -> float:
    # Through f32 as torch does: two roundings.
    single = float(round_scalar(value, "f32"))
    if math.isinf(single):
        return single
    bits = struct.unpack("<I", struct.pack("<f", single))[0]
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])
