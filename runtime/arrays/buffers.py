"""The buffer protocol by ctypes: addresses of any buffer, read-only ones included."""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PYBUF_STRIDES_FORMAT = 0x0018 | 0x0004  # PyBUF_STRIDES | PyBUF_FORMAT, read-only accepted


class PyBuffer(ctypes.Structure):
    """CPython's `Py_buffer`; its layout is part of the stable ABI since 3.11."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int)
_get_buffer.restype = ctypes.c_int
_to_contiguous = ctypes.pythonapi.PyBuffer_ToContiguous
_to_contiguous.argtypes = (
    ctypes.c_void_p,
    ctypes.POINTER(PyBuffer),
    ctypes.c_ssize_t,
    ctypes.c_char,
)
_to_contiguous.restype = ctypes.c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = (ctypes.POINTER(PyBuffer),)
_release.restype = None


def buffer_address(value: Any) -> int:
    """Address of the first element of `value`'s buffer; 0 where it is empty.

    The address stays valid as long as the caller keeps `value` alive and unresized. Raises
    `BufferError` or `TypeError` where there is no buffer.
    """
    raw = PyBuffer()
    _get_buffer(value, raw, PYBUF_STRIDES_FORMAT)
    address = raw.buf or 0
    _release(raw)
    return address


def writable_address(value: Any, _export: Any = ctypes.c_char.from_buffer) -> int:
    """Address of writable contiguous memory, for a third of the cost of `buffer_address`.

    Raises `TypeError` or `ValueError` for what is read-only, has gaps or is empty.
    """
    return ctypes.addressof(_export(value))


def copy_strided(
    to: int, source: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """Copy a strided array into contiguous memory by CPython's own code; strides in bytes."""
    rank = len(shape)
    extents, steps = (ctypes.c_ssize_t * rank)(*shape), (ctypes.c_ssize_t * rank)(*strides)
    nbytes = itemsize
    for extent in shape:
        nbytes *= extent
    view = PyBuffer(
        buf=source, len=nbytes, itemsize=itemsize, readonly=1, ndim=rank, shape=extents,
        strides=steps,
    )  # fmt: skip
    _to_contiguous(to, view, nbytes, b"C")
