"""CUDA streams as callers give them, and the one that is current where they give none.

A stream is a CUstream handle as an int; 0 is the legacy default stream.
"""

from __future__ import annotations

import sys

from ...errors import StreamUnreadable
from .errors import StreamForeign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LEGACY = 0
LEGACY_NAME = 1  # in DLPack and `__cuda_array_interface__`, where 0 is not allowed
NO_ORDER = -1  # in DLPack: the caller orders its streams itself

_later: list[Callable[[], None]] = []  # what waits for the end of a recording
_torch_current: list[Callable[[int], int]] = []  # torch's own, once torch runs CUDA in this process


def current(ordinal: int) -> int | None:
    """torch's current stream of the device; None where torch does not run CUDA here."""
    if _torch_current or _find_torch():
        return _torch_current[0](ordinal)
    return None


def is_recording() -> bool:
    """Whether torch records its current stream as a CUDA graph: a wait for the device would end
    that, as Python's collector may ask for anywhere."""
    if not (_torch_current or _find_torch()):
        return False
    inner = getattr(sys.modules.get("torch"), "_C", None)
    ask = getattr(inner, "_cuda_isCurrentStreamCapturing", None)
    try:
        return ask is not None and bool(ask())
    except RuntimeError:  # a torch without CUDA has a function that only raises
        return False


def put_off(action: Callable[[], None]) -> bool:
    """Have an action be done at the next one of these behind a recording, where there is one now;
    whether it was put off. Else what was put off before is done."""
    if is_recording():
        _later.append(action)
        return True
    waiting, _later[:] = _later[:], []  # each of them asks again
    for each in waiting:
        each()
    return False


def _find_torch() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)  # absent while torch is being imported
    if is_initialized is None or not is_initialized():
        return False
    _torch_current.append(sys.modules["torch"]._C._cuda_getCurrentRawStream)
    return True


def handle_of(stream: Any, ordinal: int) -> int:
    """The handle of a stream: given as it is, as torch's, as cupy's or by `__cuda_stream__`.

    Raises `StreamUnreadable` for anything else and `StreamForeign` for one of another device.
    """
    if type(stream) is int and stream >= 0:
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", None))
    if type(handle) is not int:
        raise StreamUnreadable(found=f"a `{type(stream).__name__}`")
    found = getattr(stream, "device_index", getattr(stream, "device_id", ordinal))
    if found not in (ordinal, -1):
        detail = f"belongs to device {found}"
        raise StreamForeign(found=hex(handle), detail=detail, ordinal=ordinal)
    return handle
