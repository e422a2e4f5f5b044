"""A device's primary context: calls and their errors, what was made in it, and who has it current.

It is the context that torch and CUDA's runtime use too. After a fork the child's are lost.
"""

from __future__ import annotations

import _thread
import ctypes
import os

from . import libcuda
from .errors import (
    CUDA_SUCCESS,
    IMAGE_REFUSALS,
    OUT_OF_MEMORY,
    CudaError,
    DeviceAbsent,
    DeviceClosed,
    DeviceForked,
    DeviceLost,
    DeviceMemoryFull,
    ImageRefused,
    PinnedMemoryFull,
    StreamForeign,
    cuda_error,
    sizes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...errors import AotcError

ATTRIBUTES = {  # CUdevice_attribute
    "threads_limit": 1,
    "warp_threads": 10,
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "multiprocessor_threads": 39,
    "capability_major": 75,
    "capability_minor": 76,
    "multiprocessor_shared_bytes": 81,
    "multiprocessor_registers": 82,
    "shared_bytes": 97,  # of one program, after it asked for more than 48 KiB
    "multiprocessor_programs": 106,
    "reserved_shared_bytes": 111,  # of each program, beside its own
}
UNKNOWN_NEED = "more bytes than are free"  # of what the driver allocates for itself
SPECIAL_STREAMS = (0, 1, 2)  # the default streams of whatever context is current


class DeviceContext:
    """The context of a device of this process, retained until `close`; safe between threads.

    ordinal: the device's number; context: the CUcontext; lost: the error that ended it, or None.
    Streams are CUstream handles as ints (0 is the legacy default stream). Every method raises the
    errors of `errors.py`; after a sticky error each call raises `DeviceLost`.
    """

    __slots__ = ("_closed", "_cuda", "_owned", "context", "functions", "lost", "ordinal")

    def __init__(self, ordinal: int = 0) -> None:
        """Retain the primary context; raises `DeviceAbsent` without driver or device."""
        try:
            self._cuda = libcuda.library()
        except libcuda.LibraryAbsent as error:
            raise DeviceAbsent(ordinal=ordinal, detail=str(error)) from None
        self.functions = self._cuda.functions
        self.ordinal = ordinal
        self.lost: AotcError | None = None
        self.context = 0
        self._closed = False
        self._owned: dict[tuple[str, int], int] = {}  # (how to destroy, handle) → bytes or 0
        count = libcuda.device_count(self._cuda)
        if not 0 <= ordinal < count:
            detail = f"the driver shows {count} devices"
            raise DeviceAbsent(ordinal=ordinal, detail=detail)
        self.context = self.handle("cuDevicePrimaryCtxRetain", ordinal, purpose="a CUDA context")
        remember(self)

    # Calls and errors.

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of libcuda; raises the typed error of its result."""
        if self.lost is not None or self._closed:
            self.refuse()
        result = self.functions[name](*arguments)
        if result != CUDA_SUCCESS:
            self.fail(name, result)

    def fail(
        self, name: str, result: int, purpose: str = "", needed: int | str = UNKNOWN_NEED
    ) -> None:
        """Raise the error of a result; a sticky one makes the device lost."""
        if self.lost is not None:
            self.refuse()
        words = self._cuda.describe(result)
        error = cuda_error(name, result, *words)
        fields: dict[str, Any] = error.fields
        if isinstance(error, DeviceLost):
            self.lost = error
        elif result == OUT_OF_MEMORY and name == "cuMemHostAlloc":
            error = PinnedMemoryFull(**fields, **sizes(needed=needed), purpose=purpose)
        elif result == OUT_OF_MEMORY:
            free, total = self._memory_left()
            room = sizes(needed=needed, free=free, total=total)
            where = {"ordinal": self.ordinal, "purpose": purpose or f"`{name}`"}
            error = DeviceMemoryFull(**fields, **room, **where)
        elif result in IMAGE_REFUSALS:
            where = {"ordinal": self.ordinal, "device": self.name}
            major, minor = self.capability
            error = ImageRefused(**fields, **where, capability=f"{major}{minor}")
        raise error

    def refuse(self) -> None:
        """Raise the error of a device that is lost or closed."""
        if self.lost is not None:
            raise type(self.lost)(**self.lost.fields)
        raise DeviceClosed(what="CUDA device")

    def handle(
        self, name: str, *arguments: Any, purpose: str = "", needed: int | str = UNKNOWN_NEED
    ) -> int:
        """Call a function that writes a handle or an address; returns it."""
        if self.lost is not None or self._closed:
            self.refuse()
        found = ctypes.c_uint64() if name == "cuMemAlloc_v2" else ctypes.c_void_p()
        result = self.functions[name](ctypes.byref(found), *arguments)
        if result == OUT_OF_MEMORY and self.make_room():
            result = self.functions[name](ctypes.byref(found), *arguments)
        if result != CUDA_SUCCESS:
            self.fail(name, result, purpose, needed)
        return found.value or 0

    def make_room(self) -> bool:
        """Give what is kept unused to the driver; whether there was anything."""
        return False

    def number(self, name: str, *arguments: Any) -> int:
        """Call a function that writes an int; returns it."""
        found = ctypes.c_int()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value

    def _memory_left(self) -> tuple[int | str, int | str]:
        try:
            return self.memory()
        except CudaError:
            return "unknown", "unknown"

    def describe(self, result: int) -> tuple[str, str]:
        """The driver's name of a result, and what it says of it."""
        name, text = self._cuda.describe(result)
        return name, text

    # The context.

    def current(self) -> Current:
        """`with device.current():` the context is current in this thread."""
        return Current(self)

    def check_stream(self, stream: int) -> None:
        """Raise `StreamForeign` unless the driver knows the stream as one of this context."""
        if stream in SPECIAL_STREAMS:
            return
        found, detail = ctypes.c_void_p(), "belongs to another context"
        with self.current():
            try:
                self.call("cuStreamGetCtx", stream, ctypes.byref(found))
            except DeviceLost:
                raise
            except CudaError as error:
                detail = f"is not known to the driver ({error.name})"
        if found.value != self.context:
            raise StreamForeign(found=hex(stream), detail=detail, ordinal=self.ordinal)

    def synchronize(self) -> None:
        """Wait for all work of the context; raises what went wrong in it."""
        with self.current():
            self.call("cuCtxSynchronize")

    def settle(self) -> None:
        """Wait for all work before its memory is used for something else.

        Of a lost device nothing runs any more. Raises `CudaError` where the wait fails: the memory
        then has to stay.
        """
        try:
            if self.is_usable:
                self.synchronize()
        except DeviceLost:
            pass

    # What it is.

    @property
    def name(self) -> str:
        """NVIDIA's name of the device."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), self.ordinal)
        return text.value.decode("utf-8", "replace")

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, for example (9, 0)."""
        return self.attribute("capability_major"), self.attribute("capability_minor")

    def attribute(self, name: str) -> int:
        """A row of `ATTRIBUTES`."""
        return self.number("cuDeviceGetAttribute", ATTRIBUTES[name], self.ordinal)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of device memory, over all processes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    # Ownership.

    def own(self, how: str, handle: int, nbytes: int = 0) -> None:
        """Have `close` call the function `how` on this handle, of so much memory."""
        self._owned[how, handle] = nbytes

    def size_of(self, how: str, handle: int) -> int | None:
        """Bytes of what is still this object's, by the function that gives it back."""
        return self._owned.get((how, handle))

    def destroy(self, how: str, handle: int) -> None:
        """Give one thing back now; does nothing when it is not owned (any more)."""
        if self._owned.pop((how, handle), None) is None or isinstance(self.lost, DeviceForked):
            return
        with Current(self, is_closing=True):
            result = self.functions[how](handle)
        if result != CUDA_SUCCESS and self.lost is None:
            self.fail(how, result)

    @property
    def owned(self) -> list[str]:
        """How each thing that is still owned will be given back; empty after `close`."""
        return [how for how, _ in self._owned]

    def close(self) -> None:
        """Give everything back, the last made first, and release the context; idempotent.

        Goes on after an error and raises the first one at the end; a lost device raises nothing.
        """
        if self._closed:
            return
        first = self._finish_work()
        with Current(self, is_closing=True):
            for how, handle in reversed(list(self._owned)):
                try:
                    self.destroy(how, handle)
                except CudaError as error:
                    first = first or error
        self._closed = True
        forget(self)
        if not isinstance(self.lost, DeviceForked):
            leave(self)
            result = self.functions["cuDevicePrimaryCtxRelease_v2"](self.ordinal)
            if result != CUDA_SUCCESS and self.lost is None and first is None:
                self.fail("cuDevicePrimaryCtxRelease_v2", result)
        if first is not None and not isinstance(first, DeviceLost):
            raise first

    @property
    def is_usable(self) -> bool:
        """Whether it is neither lost nor closed."""
        return self.lost is None and not self._closed

    def _finish_work(self) -> AotcError | None:
        """Wait for everything, so that nothing is freed under a running kernel."""
        if self.lost is None:
            try:
                self.synchronize()
            except CudaError as error:
                return error
        return None


class Current:
    """Makes a device's context current in this thread, and what was current before again."""

    __slots__ = ("_device", "_is_closing", "_is_pushed")

    def __init__(self, device: DeviceContext, is_closing: bool = False) -> None:
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


def adopt(device: DeviceContext) -> bool:
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


def leave(device: DeviceContext) -> None:
    """Before the context is released: take it from this thread where `adopt` left it there."""
    if _thread.get_ident() not in _adopted.pop(id(device), ()):
        return
    found = ctypes.c_void_p()
    result = device.functions["cuCtxGetCurrent"](ctypes.byref(found))
    if result == CUDA_SUCCESS and found.value == device.context:
        device.functions["cuCtxSetCurrent"](None)


_adopted: dict[int, set[int]] = {}  # id of a device → threads that were left with its context
_devices: dict[int, DeviceContext] = {}
_hooks: list[str] = []


def remember(device: DeviceContext) -> None:
    """Have a fork end this device in the child."""
    if not _hooks:
        _hooks.append("fork")
        os.register_at_fork(after_in_child=_after_fork)
    _devices[id(device)] = device


def forget(device: DeviceContext) -> None:
    """A closed device needs no telling."""
    _devices.pop(id(device), None)


def _after_fork() -> None:
    for device in list(_devices.values()):
        device.lost = DeviceForked()
