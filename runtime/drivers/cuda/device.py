"""One CUDA device: memory, code, launches, streams and events, made in its primary context.

A `Device` owns everything that was made through it and gives it back in `close`. Its methods make
its context current for their own time; another context that the calling thread uses is restored.
"""

from __future__ import annotations

import ctypes

from ...arrays.buffers import buffer_address
from .context import ATTRIBUTES as ATTRIBUTES
from .context import DeviceContext
from .graph import LaunchGraph
from .handles import Event, Function, Module, Pinned, Stream
from .libcuda import RowsCopy
from .pool import MAPPED, ON_DEVICE, ON_HOST, MemoryPool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .handles import Arguments

FROM_HOST, TO_DEVICE = 1, 2  # CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE


class Device(DeviceContext):
    """A CUDA device of this process, its context retained until `close`; safe between threads.

    Addresses are device addresses as ints; for the rest see `DeviceContext`.
    """

    __slots__ = ("pool",)

    def __init__(self, ordinal: int = 0) -> None:
        """Retain the primary context; raises `DeviceAbsent` without driver or device."""
        self.pool = MemoryPool(self)
        super().__init__(ordinal)

    def close(self) -> None:
        """Give everything back; see `DeviceContext.close`."""
        try:
            super().close()
        finally:  # a session that is closed meanwhile may still give memory to the pool
            self.pool.forget()

    def make_room(self) -> bool:
        """Have the driver take what the pools of this device keep; whether there was anything."""
        return self.pool.trim_all()

    # Memory.

    def allocate(self, nbytes: int, purpose: str = "a buffer") -> int:
        """Device memory, aligned to 256 bytes; raises `DeviceMemoryFull` with needed and free."""
        return self.pool.fresh(ON_DEVICE, nbytes, purpose, nbytes)

    def free(self, address: int) -> None:
        """Give device memory back; an address that is not this device's is left alone."""
        self.destroy("cuMemFree_v2", address)

    def hand_over(self, address: int, other: Device) -> None:
        """Have another object for the same device own memory that this one has allocated."""
        other._owned["cuMemFree_v2", address] = self._owned.pop(("cuMemFree_v2", address))

    def pinned(self, nbytes: int, purpose: str = "staging", is_mapped: bool = False) -> Pinned:
        """Host memory that the device copies without the driver's own staging.

        is_mapped: kernels write to it, at the same address as on the host.
        """
        kind = MAPPED if is_mapped else ON_HOST
        return Pinned(self, self.pool.fresh(kind, nbytes, purpose, nbytes), nbytes)

    @property
    def allocated_bytes(self) -> int:
        """Device memory that was allocated through this object and not yet freed, what its pool
        keeps for the next sessions included."""
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
                # Of memory that is not pinned the call may return before the device has it.
                self.call("cuStreamSynchronize", 0)
            else:
                self.call("cuMemcpyHtoDAsync_v2", address, host_address, nbytes, stream)

    def copy_rows_to_device(
        self, address: int, pitch_bytes: int, host_address: int, width_bytes: int, rows: int,
        stream: int,
    ) -> None:  # fmt: skip
        """Copy rows of pinned memory that lie one after the other to the device, where they begin
        at multiples of the pitch, in the order of the stream."""
        row = RowsCopy(
            source_type=FROM_HOST, source_host=host_address, source_pitch_bytes=width_bytes,
            type=TO_DEVICE, device=address, pitch_bytes=pitch_bytes, width_bytes=width_bytes,
            height=rows,
        )  # fmt: skip
        with self.current():
            self.call("cuMemcpy2DAsync_v2", ctypes.byref(row), stream)

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
        """An empty graph, to which launches are added; see `graph.py`."""
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
