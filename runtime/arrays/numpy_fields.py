"""numpy's array object as its C ABI lays it out: address and flags of an array by two reads.

Every extension module compiled against numpy has these offsets in its code (`PyArray_DATA` and
`PyArray_FLAGS` are macros over them), so that numpy cannot change them. Python's own ways to an
address, the buffer protocol and `ctypes.data`, cost two and seven times as much.
"""

from __future__ import annotations

import ctypes
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Fields = tuple[Any, Any, Any]

CONTIGUOUS, WRITABLE = 0x0001, 0x0400  # NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE
FLAGS_OFFSET = 48  # behind data, nd, dimensions, strides, base and descr
FIELDS_BYTES = FLAGS_OFFSET + 8
ADDRESS_BITS = 47  # of a process
NONE = (None, None, None)


_found: list[Fields] = []  # of this process's numpy, once it was looked at


def numpy_fields() -> Fields:
    """(class, data, flags): `data[id(array) >> 3]` is the address of an array of that class,
    `flags[id(array) >> 3]` its flags. The class is None where there is no numpy, or where objects
    are not laid out as expected.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return NONE
    if not _found:
        _found.append(_read(numpy))
    return _found[0]


def _read(numpy: Any) -> Fields:
    header = object.__basicsize__
    is_known = sys.implementation.name == "cpython" and sys.maxsize >= 1 << 62 and header % 8 == 0
    if not is_known or numpy.ndarray.__basicsize__ < header + FIELDS_BYTES:
        return NONE
    data, flags = _words_from(header), _words_from(header + FLAGS_OFFSET)
    is_right = all(_is_right(array, data, flags) for array in _examples(numpy))
    return (numpy.ndarray, data, flags) if is_right else NONE


def _is_right(array: Any, data: Any, flags: Any) -> bool:
    place = id(array) >> 3
    return (
        id(array) & 7 == 0
        and data[place] == array.__array_interface__["data"][0]
        and bool(flags[place] & CONTIGUOUS) == array.flags.c_contiguous
        and bool(flags[place] & WRITABLE) == array.flags.writeable
    )


def _words_from(offset: int) -> Any:
    """The process's memory as words of 8 bytes, the first of them at `offset`; only to be read."""
    count = (1 << ADDRESS_BITS - 3) - (offset >> 3)
    block = (ctypes.c_int64 * count).from_address(offset)
    return memoryview(block).toreadonly().cast("B").cast("q")


def _examples(numpy: Any) -> tuple[Any, ...]:
    square = numpy.arange(12.0).reshape(3, 4)
    fixed = numpy.zeros(5, numpy.uint8)[1:]
    fixed.flags.writeable = False
    return square, square.T, square[:, ::2], square[1], numpy.zeros(()), fixed
