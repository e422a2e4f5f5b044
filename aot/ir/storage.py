"""Arrays as they are stored and as they are computed with: f16 and bf16 widen to f32."""

from __future__ import annotations

from typing import Any

import numpy

from aotc.aot.ir.types import DTYPES

Array = numpy.ndarray[Any, Any]


def widen(array: Array, dtype: str) -> Array:
    """Stored elements of `dtype` → elements to compute with (exact)."""
    if dtype == "bf16":
        return (array.astype(numpy.uint32) << 16).view(numpy.float32)
    return array.astype(numpy.float32) if dtype == "f16" else array


def narrow(array: Array, dtype: str) -> Array:
    """Computed elements → stored elements of `dtype`, rounded to nearest even."""
    if dtype != "bf16":
        with numpy.errstate(over="ignore", invalid="ignore"):
            return numpy.asarray(array).astype(DTYPES[dtype].numpy)
    single = numpy.asarray(array).astype(numpy.float32)
    bits = numpy.atleast_1d(single).view(numpy.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    quiet = numpy.where(numpy.isnan(numpy.atleast_1d(single)), 0x7FC0, rounded)
    return quiet.astype(numpy.uint16).reshape(single.shape)
