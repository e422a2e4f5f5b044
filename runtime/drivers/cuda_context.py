"""Which CUDA context is current in a thread, and what a fork does to all of them."""

from __future__ import annotations

import _thread
import ctypes
import os

from .cuda_errors import CUDA_SUCCESS, DeviceForked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cuda_device import Device


class Current:
    """Makes a device's context current in this thread, and what was current before again."""

    __slots__ = ("_device", "_is_closing", "_is_pushed")

    def __init__(self, device: Device, is_closing: bool = False) -> None:
        self._device = device
        self._is_closing = is_closing
        self._is_pushed = False

    def __enter__(self) -> None:
        device = self._device
        if not self._is_closing and not device.is_usable:
            device.refuse()
        found = ctypes.c_void_p()
        result = device.functions["cuCtxGetCurrent"](ctypes.byref(found))
        if result == CUDA_SUCCESS and found.value == device.context:
            return
        if self._is_closing:  # a lost context may refuse even this, and is closed all the same
            result = device.functions["cuCtxPushCurrent_v2"](device.context)
            self._is_pushed = result == CUDA_SUCCESS
            return
        device.call("cuCtxPushCurrent_v2", device.context)
        self._is_pushed = True

    def __exit__(self, *_: object) -> None:
        if self._is_pushed:
            popped = ctypes.c_void_p()
            self._device.functions["cuCtxPopCurrent_v2"](ctypes.byref(popped))


def adopt(device: Device) -> bool:
    """Leave the context current in a thread that has none; True if it is current now.

    Only device 0, which a thread without a context means anyway when it comes to use CUDA's
    runtime. `leave` undoes it.
    """
    found = ctypes.c_void_p()
    device.call("cuCtxGetCurrent", ctypes.byref(found))
    if found.value is None and device.ordinal == 0:
        device.call("cuCtxSetCurrent", device.context)
        _adopted.setdefault(id(device), set()).add(_thread.get_ident())
        return True
    return bool(found.value == device.context)


def leave(device: Device) -> None:
    """Before the context is released: take it from this thread where `adopt` left it there."""
    if _thread.get_ident() not in _adopted.pop(id(device), ()):
        return
    found = ctypes.c_void_p()
    result = device.functions["cuCtxGetCurrent"](ctypes.byref(found))
    if result == CUDA_SUCCESS and found.value == device.context:
        device.functions["cuCtxSetCurrent"](None)


_adopted: dict[int, set[int]] = {}  # id of a device → threads that were left with its context
_devices: dict[int, Device] = {}
_hooks: list[str] = []


def remember(device: Device) -> None:
    """Have a fork end this device in the child."""
    if not _hooks:
        _hooks.append("fork")
        os.register_at_fork(after_in_child=_after_fork)
    _devices[id(device)] = device


def forget(device: Device) -> None:
    """A closed device needs no telling."""
    _devices.pop(id(device), None)


def _after_fork() -> None:
    for device in list(_devices.values()):
        device.lost = DeviceForked()
