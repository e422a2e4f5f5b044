"""Errors of arguments of a program on a device, beside those of `errors.py`."""

from __future__ import annotations

from .errors import InputError


class InputStrided(InputError):
    """An array on a device has gaps, and its library has no way to close them."""

    code = "input-strided"
    template = "{role} `{name}` is not contiguous, expected elements row by row without gaps"
    hint = "make it contiguous with its own library first"


class InputMisaligned(InputError):
    """An array on a device starts where kernels cannot read it."""

    code = "input-misaligned"
    template = "{role} `{name}` starts at {found}, expected a multiple of {expected} bytes"
    hint = "copy it: an allocation of its own is aligned, a part of another one need not be"


class StreamUnreadable(InputError):
    """`stream=` is no stream."""

    code = "stream-unreadable"
    template = "`stream` is {found}, expected a CUDA stream"
    hint = "pass torch's or cupy's stream object, or its handle as a whole number"
