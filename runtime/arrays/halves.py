"""Copies of 16-bit floats on the host, for which memoryview has no format.

numpy reads `__array_interface__`, which has float16 and no bf16: that comes as its bits, uint16.
What takes DLPack gets both as they are.
"""

from __future__ import annotations

import ctypes
from struct import iter_unpack

from .buffers import writable_address
from .dlpack import Array
from .dtypes import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HALVES = ("f16", "bf16")


class Halves:
    """An array of `f16` or `bf16` in memory of its own; shape in elements.

    `numpy.asarray`, `torch.from_dlpack`, `tolist` and `bytes` take it; `bits` is its memory as a
    memoryview of unsigned 16-bit numbers.
    """

    __slots__ = ("_block", "dtype", "nbytes", "shape")

    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        count = 1
        for extent in shape:
            count *= extent
        self.nbytes = 2 * count
        self._block = bytearray(self.nbytes or 2)  # numpy takes no array without an address
        self.dtype = dtype
        self.shape = shape

    @property
    def address(self) -> int:
        """Where its memory begins."""
        return writable_address(self._block)

    @property
    def bits(self) -> memoryview:
        """The memory itself, as unsigned 16-bit numbers; flat where an extent is 0."""
        view = memoryview(self._block)[: self.nbytes]
        return view.cast("H", list(self.shape)) if self.nbytes else view.cast("H")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": DTYPES[self.dtype].numpy,
            "data": (self.address, False),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Always the CPU."""
        return Array(self.dtype, ()).__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        """The capsule of a copy, so that it may be asked for again."""
        copied = Array(self.dtype, self.shape)
        ctypes.memmove(copied.address, self.address, self.nbytes)
        options.pop("copy", None)
        return copied.__dlpack__(**options)

    def tolist(self) -> Any:
        """The numbers, nested as the shape says; one number for an array without dims."""
        data, letter = bytes(self), "<e"
        if self.dtype == "bf16":  # the upper half of an f32
            wide = bytearray(2 * len(data))
            wide[2::4], wide[3::4] = data[0::2], data[1::2]
            data, letter = bytes(wide), "<f"
        return _nested([number for (number,) in iter_unpack(letter, data)], self.shape)

    def __bytes__(self) -> bytes:
        return bytes(self._block[: self.nbytes])

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dims has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<aotc array {self.dtype}{list(self.shape)}>"


def _nested(flat: list[float], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]
