"""Arrays of ours in device memory, for callers whose library has no way to make one.

A consumer takes the memory over by DLPack, once, or reads it through `__cuda_array_interface__`
while the array lives. The deleter of an exported array calls back into Python to free device
memory; at the interpreter's end that is no longer possible, so then it frees the host part only and
leaves the rest to the end of the process.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import sys

from ...arrays.dlpack import (
    CUDA_DEVICE,
    DELETER,
    FREE_ADDRESS,
    DLManagedTensor,
    DLManagedTensorVersioned,
    allocate_block,
    describe,
    export_capsule,
    free_block,
    header_bytes,
)
from ...arrays.dtypes import DTYPES
from ...errors import DriverFault
from .streams import LEGACY, LEGACY_NAME, NO_ORDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .device import Device

INTERFACE_VERSION = 3
ORDINAL_ATTRIBUTE = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


def device_name(ordinal: int | None) -> str:
    """A device as torch names it."""
    return f"cuda:{ordinal}"


class DeviceMemory:
    """Memory of one device for arrays that may outlive their program; freed with the last of them.

    `order(later, earlier)` makes the stream `later` wait for what `earlier` holds now.
    """

    __slots__ = ("_device", "_event", "_lock", "ordinal")

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self._lock = _thread.allocate_lock()
        self._device: Any = None
        self._event: Any = None

    def _open(self) -> Device:
        """The device, retained at its first use."""
        found: Device | None = self._device
        if found is None:
            from .device import Device

            found = self._device = Device(self.ordinal)
        return found

    def allocate(self, nbytes: int) -> int:
        """Device address of `nbytes` bytes; raises `DeviceMemoryFull`."""
        with self._lock:
            return self._open().allocate(nbytes, "an output")

    def free(self, address: int) -> None:
        """Give memory of `allocate` back; waits for work of the device that may still use it."""
        self._device.free(address)

    def order(self, later: int, earlier: int) -> None:
        """Have work that is added to `later` from now on wait for the work in `earlier`."""
        if later == earlier:
            return
        with self._lock:
            device = self._open()
            if self._event is None:
                self._event = device.event(is_timed=False)
            self._event.record(earlier)
            with device.current():
                device.call("cuStreamWaitEvent", later, self._event.handle, 0)

    def ordinal_of(self, address: int) -> int | None:
        """The number of the device that memory lies on; None where CUDA does not know it."""
        with self._lock:
            device = self._open()
        try:
            with device.current():
                return device.number("cuPointerGetAttribute", ORDINAL_ATTRIBUTE, address)
        except DriverFault:
            return None

    def __del__(self) -> None:
        if self._device is not None and not sys.is_finalizing():
            self._device.close()


class DeviceArray:
    """An array in device memory: dtype (a key of DTYPES), shape, device address.

    stream: the CUstream handle on which it is written; consumers are made to wait for it. strides:
    in elements, without gaps; None where it is contiguous.
    """

    __slots__ = ("_memory", "address", "dtype", "shape", "stream", "strides")

    address: int
    dtype: str
    shape: tuple[int, ...]
    stream: int

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        memory: DeviceMemory,
        stream: int,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        """Allocate without initializing; raises `DeviceMemoryFull`."""
        self._memory: DeviceMemory | None = None
        nbytes = DTYPES[dtype].itemsize_bytes
        for extent in shape:
            nbytes *= extent
        self.address = memory.allocate(nbytes)
        self._memory = memory
        self.dtype = dtype
        self.shape = tuple(shape)
        self.strides = strides
        self.stream = stream

    @property
    def ordinal(self) -> int:
        """The number of its device."""
        return self._owner().ordinal

    def _owner(self) -> DeviceMemory:
        if self._memory is None:
            raise BufferError("the array was handed over before")
        return self._memory

    def __dlpack_device__(self) -> tuple[int, int]:
        """CUDA, and the number of the device."""
        return CUDA_DEVICE, self.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The capsule that carries the array away; raises `BufferError` the second time.

        stream: the consumer's, which is made to wait for the array's numbers; None is the legacy
        default stream, -1 asks for no order.
        """
        memory = self._owner()
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("the array is handed over as it is, on its device")
        if stream == 0:
            raise BufferError("stream 0 means two things in DLPack: use 1 or 2")
        if stream != NO_ORDER:
            memory.order(LEGACY if stream in (None, LEGACY_NAME) else stream, self.stream)
        versioned = max_version is not None and max_version[0] >= 1
        block = allocate_block(header_bytes(self.shape))
        device = self.__dlpack_device__()
        parts = (self.dtype, self.shape, self.address, device, self.strides)
        managed = describe(block, versioned, *parts)
        managed.deleter = DELETE_ADDRESS
        _exported[block] = (memory, self.address, versioned)
        self._memory = None
        return export_capsule(block, versioned)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; bf16, which numpy has no type for, has none."""
        self._owner()
        if self.dtype == "bf16":
            raise AttributeError("bf16 has no `__cuda_array_interface__`, expected DLPack")
        row, strides = DTYPES[self.dtype], self.strides
        if strides is not None:
            strides = tuple([row.itemsize_bytes * each for each in strides])
        return {
            "shape": self.shape,
            "typestr": row.numpy,
            "data": (self.address, False),
            "strides": strides,
            "version": INTERFACE_VERSION,
            "stream": self.stream or LEGACY_NAME,
        }

    def __repr__(self) -> str:
        where = "handed over" if self._memory is None else device_name(self.ordinal)
        return f"<aotc array {self.dtype}{list(self.shape)}, {where}>"

    def __del__(self) -> None:
        if self._memory is not None and not sys.is_finalizing():
            self._memory.free(self.address)
            self._memory = None


_exported: dict[int, tuple[DeviceMemory, int, bool]] = {}  # block → memory, address, versioned


def _delete(block: int) -> None:
    """Free an exported array, as its consumer asks for."""
    memory, address, _ = _exported.pop(block)
    try:
        memory.free(address)
    finally:
        free_block(block)


_delete_callback = DELETER(_delete)
DELETE_ADDRESS = ctypes.cast(_delete_callback, ctypes.c_void_p).value


def _at_exit() -> None:
    """From here on consumers free the host part without Python."""
    for block, (_, _, versioned) in _exported.items():
        kind: Any = DLManagedTensorVersioned if versioned else DLManagedTensor
        kind.from_address(block).deleter = FREE_ADDRESS


atexit.register(_at_exit)
