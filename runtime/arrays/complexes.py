"""Complex arrays at the ends of a call: a program has both parts of a number along a last dim.

They are views of the same memory, of torch's tensors and of numpy's arrays, neither of which is
imported for it; what is conjugated by a mark of torch's is copied.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def apart(value: Any) -> Any:
    """A complex array as its parts; any other value, such as an array of parts, as it is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind == "c":
        return value[..., None].view(value.real.dtype)
    return value


def joined(value: Any) -> Any:
    """An array of parts as a complex one, where it is torch's or numpy's."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return torch.view_as_complex(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return value.view(f"c{2 * value.itemsize}")[..., 0]
    return value
