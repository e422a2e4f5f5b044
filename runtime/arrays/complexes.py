"""Complex arrays at the inputs and outputs of a program, which has real and imaginary parts as a
last dim of 2.

The parts are views of the same memory, of torch's tensors and of numpy's arrays, neither of which
is imported for it; a tensor with torch's conjugate bit is copied.
"""

from __future__ import annotations

import sys

from ..errors import OutputUnusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def apart(value: Any) -> Any:
    """The parts of a complex array; any other value, such as an array of parts, unchanged."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if not value.is_complex():
            return value
        parts = torch.view_as_real(value.resolve_conj())
        if value.is_conj():
            parts.is_aotc_copy = True
        return parts
    numpy = sys.modules.get("numpy")
    kinds = () if numpy is None else (numpy.ndarray, numpy.generic)
    if isinstance(value, kinds) and value.dtype.kind == "c":
        plain = numpy.asarray(value)  # type: ignore[union-attr]
        parts = plain[..., None].view(plain.real.dtype)
        if isinstance(value, numpy.generic):  # type: ignore[union-attr]
            parts.flags.writeable = False  # it is a copy of the one number
        return parts
    return value


def is_copy(parts: Any) -> bool:
    """Whether `apart` had to copy, so that later changes of one array are not seen in the other."""
    return getattr(parts, "is_aotc_copy", False)


def apart_in_place(value: Any, name: str) -> Any:
    """The parts of an array to write to, the output `name`; raises `OutputUnusable`."""
    parts = apart(value)
    if is_copy(parts):
        found, expected = "conjugated by a mark of torch's", "contiguous, writable memory"
        raise OutputUnusable(role="output", name=name, found=found, expected=expected)
    return parts


def joined(value: Any) -> Any:
    """An array of parts as a complex array, where it is torch's or numpy's."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if not value.numel():  # its strides may be any
            value = value.new_empty(value.shape)
        return torch.view_as_complex(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return value.view(f"c{2 * value.itemsize}")[..., 0]
    return value
