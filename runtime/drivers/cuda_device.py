"""One CUDA device through its primary context, the one that torch and CUDA's runtime use too.

A `Device` owns everything that was made through it and gives it back in `close`. Its methods make
its context current for their own time; another context that the calling thread uses is restored.
"""

from __future__ import annotations

import ctypes

from ..arrays.buffers import buffer_address
from . import libcuda
from .cuda_context import Current, forget, leave, remember
from .cuda_errors import (
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
from .cuda_handles import Event, Function, Module, Pinned, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..errors import AotcError
    from .cuda_graph import LaunchGraph
    from .cuda_handles import Arguments

ATTRIBUTES = {  # CUdevice_attribute
    "threads_limit": 1,
    "warp_threads": 10,
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "capability_major": 75,
    "capability_minor": 76,
    "multiprocessor_shared_bytes": 81,
    "multiprocessor_registers": 82,
    "shared_bytes": 97,  # of one program, after it asked for more than 48 KiB
}
UNKNOWN_NEED = "more bytes than are free"  # of what the driver allocates for itself
SPECIAL_STREAMS = (0, 1, 2)  # the default streams of whatever context is current
PINNED_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE


class Device:
    """A CUDA device of this process, its context retained until `close`; safe between threads.

    ordinal: its number; context: the CUcontext; lost: the error that ended it, or None. Addresses
    are device addresses as ints, streams are CUstream handles as ints (0 is the legacy default
    stream). Every method raises the errors of `cuda_errors.py`; after a sticky error each call
    raises `DeviceLost`.
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
        if result != CUDA_SUCCESS:
            self.fail(name, result, purpose, needed)
        return found.value or 0

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

    # Memory.

    def allocate(self, nbytes: int, purpose: str = "a buffer") -> int:
        """Device memory, aligned to 256 bytes; raises `DeviceMemoryFull` with needed and free."""
        with self.current():
            address = self.handle("cuMemAlloc_v2", max(nbytes, 1), purpose=purpose, needed=nbytes)
        self._owned["cuMemFree_v2", address] = nbytes
        return address

    def free(self, address: int) -> None:
        """Give device memory back; an address that is not this device's is left alone."""
        self.destroy("cuMemFree_v2", address)

    def pinned(self, nbytes: int, purpose: str = "staging") -> Pinned:
        """Host memory that the device copies without the driver's own staging."""
        with self.current():
            address = self.handle(
                "cuMemHostAlloc", max(nbytes, 1), PINNED_PORTABLE, purpose=purpose, needed=nbytes
            )
        self._owned["cuMemFreeHost", address] = nbytes
        return Pinned(self, address, nbytes)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of device memory, over all processes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    @property
    def allocated_bytes(self) -> int:
        """Device memory that was allocated through this object and not yet freed."""
        return sum(
            nbytes for (how, _), nbytes in list(self._owned.items()) if how == "cuMemFree_v2"
        )

    def copy_to_device(
        self, address: int, host_address: int, nbytes: int, stream: int | None = None
    ) -> None:
        """Copy host memory to the device and wait; given a stream, pinned memory in its order."""
        with self.current():
            if stream is None:
                self.call("cuMemcpyHtoD_v2", address, host_address, nbytes)
            else:
                self.call("cuMemcpyHtoDAsync_v2", address, host_address, nbytes, stream)

    def copy_to_host(
        self, host_address: int, address: int, nbytes: int, stream: int | None = None
    ) -> None:
        """Copy device memory to the host and wait (for this copy, not for other streams).

        Given a stream, to pinned memory in its order, without waiting.
        """
        with self.current():
            if stream is None:
                self.call("cuMemcpyDtoH_v2", host_address, address, nbytes)
            else:
                self.call("cuMemcpyDtoHAsync_v2", host_address, address, nbytes, stream)

    def copy(self, to: int, source: int, nbytes: int, stream: int = 0) -> None:
        """Copy within the device in the order of the stream."""
        with self.current():
            self.call("cuMemcpyDtoDAsync_v2", to, source, nbytes, stream)

    def fill(self, address: int, value: int, nbytes: int, stream: int = 0) -> None:
        """Set every byte of device memory to `value` (0 … 255), in the order of the stream."""
        with self.current():
            self.call("cuMemsetD8Async", address, value, nbytes, stream)

    # Code.

    def load(self, image: bytes | memoryview) -> Module:
        """Load a cubin; raises `ImageRefused` for one of another device."""
        address = buffer_address(image)
        if address % 16:  # an image inside a library need not be aligned as the driver reads it
            image = bytes(image)
            address = buffer_address(image)
        with self.current():
            handle = self.handle("cuModuleLoadData", address, purpose="a kernel's code")
        self._owned["cuModuleUnload", handle] = 0
        return Module(self, handle, image)

    def function(self, module: Module, symbol: str, shared_bytes: int = 0) -> Function:
        """A kernel of a module, allowed to use this much dynamic shared memory."""
        with self.current():
            handle = self.handle("cuModuleGetFunction", module.handle, symbol.encode())
            function = Function(self, handle, symbol, shared_bytes)
            function.allow_shared()
        return function

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Arguments,
        stream: int = 0,
    ) -> None:
        """Launch programs of `threads` threads each; asynchronous.

        Its dynamic shared memory is what the function was made with.
        """
        with self.current():
            self.call(
                "cuLaunchKernel", function.handle, *grid, threads, 1, 1, function.shared_bytes,
                stream, arguments.address, None,
            )  # fmt: skip

    def graph(self) -> LaunchGraph:
        """An empty graph, to which launches are added; see `cuda_graph.py`."""
        from .cuda_graph import LaunchGraph

        return LaunchGraph(self)

    # Streams and events.

    def stream(self) -> Stream:
        """A stream that does not wait for the legacy default stream."""
        with self.current():
            handle = self.handle("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        self._owned["cuStreamDestroy_v2", handle] = 0
        return Stream(self, handle)

    def event(self, is_timed: bool = True) -> Event:
        """An event; without timing it is cheaper."""
        with self.current():
            handle = self.handle("cuEventCreate", 0 if is_timed else 2)  # DISABLE_TIMING
        self._owned["cuEventDestroy_v2", handle] = 0
        return Event(self, handle)

    def elapsed_ms(self, begin: Event, end: Event) -> float:
        """Milliseconds between two recorded events; waits for the second."""
        end.synchronize()
        found = ctypes.c_float()
        with self.current():
            self.call("cuEventElapsedTime", ctypes.byref(found), begin.handle, end.handle)
        return found.value

    # Ownership.

    def own(self, how: str, handle: int) -> None:
        """Have `close` call the function `how` on this handle."""
        self._owned[how, handle] = 0

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
