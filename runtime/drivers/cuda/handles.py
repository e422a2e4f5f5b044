"""What a `Device` makes: modules, functions, streams, events, pinned memory, and the arguments of a
launch with its tensor maps."""

from __future__ import annotations

import ctypes

from ...bundle.plan_parts import MAP_ITEMSIZES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...bundle.plan import Map
    from .context import DeviceContext

MAP_BYTES = 128
MAP_ALIGNMENT_BYTES, ADDRESS_ALIGNMENT_BYTES, WORD_BYTES = 64, 16, 8
KINDS = {"f16": 6, "f32": 7, "bf16": 9}  # CUtensorMapDataType
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # bytes → CUtensorMapSwizzle
NO_INTERLEAVE, PROMOTION_OF_128_BYTES, ZEROS_OUTSIDE = 0, 2, 0


class TensorMap:
    """One CUtensorMap in host memory, which `aim` writes for the memory at an address.

    The driver writes the first two of a shape. Where these have their address in the first word and
    are equal behind it, `aim` writes that word. (CUDA does not say how a map is laid out.)

    address: of its 128 bytes; parameters: itself, then its shape and strides in elements, as
    Triton's kernels take them.
    """

    __slots__ = ("_device", "_fixed", "_has_address_first", "_last", "_memory", "_row",
                 "_start_bytes", "_word", "address", "parameters")  # fmt: skip

    def __init__(self, device: DeviceContext, row: Map, is_described: bool = True) -> None:
        """is_described: the row has shape and strides, which `describe` gives elsewhere."""
        self._device = device
        self._memory = _MEMORY()
        base = ctypes.addressof(self._memory)
        self.address = base + -base % MAP_ALIGNMENT_BYTES
        self._word = ctypes.c_uint64.from_address(self.address)
        self._row = row
        self._start_bytes = row.start * MAP_ITEMSIZES[row.dtype]
        if is_described:
            self.describe(row.shape, row.strides)

    def describe(self, shape: Sequence[int], strides: Sequence[int]) -> None:
        """Have later maps be of these shape and strides, in elements."""
        self.parameters: tuple[Any, ...] = (self, *shape, *strides)
        self._fixed = _encoding(self._row, shape, strides)
        self._last, self._has_address_first = 0, False

    def aim(self, address: int) -> None:
        """Write the map of the memory at a device address; raises `CudaError`."""
        place = address + self._start_bytes
        if self._has_address_first and place and not place % ADDRESS_ALIGNMENT_BYTES:
            self._word.value = place
            return
        with self._device.current():  # the driver asks for a context, whatever the memory
            self.write(address)

    def write(self, address: int) -> None:
        """The same by the driver, where the context is current already."""
        before, behind = self._fixed
        place, last = address + self._start_bytes, self._last
        rest, is_second = self._rest(), last not in (0, place) and self._word.value == last
        self._last, self._has_address_first = 0, False  # until the driver has written all of it
        self._device.call("cuTensorMapEncodeTiled", self.address, *before, place, *behind)
        self._last = place
        self._has_address_first = is_second and self._word.value == place and self._rest() == rest

    def _rest(self) -> bytes:
        """What is behind the first word."""
        return ctypes.string_at(self.address + WORD_BYTES, MAP_BYTES - WORD_BYTES)


_MEMORY = ctypes.c_uint8 * (MAP_BYTES + MAP_ALIGNMENT_BYTES)


def _encoding(
    row: Map, shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What the driver takes before and behind the address."""
    itemsize, rank = MAP_ITEMSIZES[row.dtype], len(shape)
    # CUDA counts dims from the innermost one, whose stride is not given.
    extents = (ctypes.c_uint64 * rank)(*reversed(shape))
    steps = (ctypes.c_uint64 * rank)(*(each * itemsize for each in strides[-2::-1]))
    box, ones = (ctypes.c_uint * rank)(*reversed(row.box)), (ctypes.c_uint * rank)(*[1] * rank)
    swizzle = SWIZZLES[row.swizzle_bytes]
    modes = (NO_INTERLEAVE, swizzle, PROMOTION_OF_128_BYTES, ZEROS_OUTSIDE)
    return (KINDS[row.dtype], rank), (extents, steps, box, ones, *modes)


def parameters(device: DeviceContext, rows: Sequence[Map], addresses: Sequence[int]) -> list[Any]:
    """The parameters of all maps of a launch whose other arguments are `addresses`."""
    found: list[Any] = []
    for row in rows:
        tensor_map = TensorMap(device, row)
        tensor_map.aim(addresses[row.argument])
        found += tensor_map.parameters
    return found


FUNCTION_ATTRIBUTES = {  # CUfunction_attribute
    "threads_limit": 0,
    "static_shared_bytes": 1,
    "local_bytes": 3,
    "registers": 4,
}
DYNAMIC_SHARED_LIMIT = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
SHARED_WITHOUT_ASKING_BYTES = 48 << 10
PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED


class Arguments:
    """The parameters of a launch: 8-byte slots, and the array of pointers that CUDA takes.

    slots: ctypes c_int64 array, which may be written between launches. A parameter of four bytes
    takes the low half, the slot of a tensor map is not used. address: of the array of pointers.
    """

    __slots__ = ("_maps", "_pointers", "address", "slots")

    def __init__(self, values: Sequence[int | TensorMap]) -> None:
        """Pointers, whole numbers and tensor maps, in the order of the kernel's signature."""
        self._maps = [(at, each) for at, each in enumerate(values) if isinstance(each, TensorMap)]
        numbers: list[Any] = list(values)
        for at, _ in self._maps:
            numbers[at] = 0
        array = ctypes.c_int64 * max(len(numbers), 1)
        self.slots = array(*numbers)
        base = ctypes.addressof(self.slots)
        self._pointers = array(*range(base, base + 8 * len(numbers), 8))
        for at, tensor_map in self._maps:
            self._pointers[at] = tensor_map.address
        self.address = ctypes.addressof(self._pointers)


class _Owned:
    """A handle that its device destroys."""

    __slots__ = ("_device", "handle")
    how = ""

    def __init__(self, device: DeviceContext, handle: int) -> None:
        self._device = device
        self.handle = handle

    def close(self) -> None:
        """Give it back; idempotent."""
        self._device.destroy(self.how, self.handle)


class Module(_Owned):
    """Loaded code; its functions may not be used after `close`."""

    __slots__ = ("_image",)
    how = "cuModuleUnload"

    def __init__(self, device: DeviceContext, handle: int, image: Any) -> None:
        super().__init__(device, handle)
        self._image = image  # the driver may read it when a function is first used


class Stream(_Owned):
    """A stream of the device."""

    __slots__ = ()
    how = "cuStreamDestroy_v2"

    def synchronize(self) -> None:
        """Wait for its work; raises what went wrong in it."""
        with self._device.current():
            self._device.call("cuStreamSynchronize", self.handle)

    def wait(self, event: Event) -> None:
        """Work that is added from now on waits for the event."""
        with self._device.current():
            self._device.call("cuStreamWaitEvent", self.handle, event.handle, 0)


class Event(_Owned):
    """A point in the order of a stream."""

    __slots__ = ()
    how = "cuEventDestroy_v2"

    def record(self, stream: int = 0) -> None:
        """Mark the present end of a stream (a CUstream handle)."""
        with self._device.current():
            self._device.call("cuEventRecord", self.handle, stream)

    def synchronize(self) -> None:
        """Wait until it was reached."""
        with self._device.current():
            self._device.call("cuEventSynchronize", self.handle)


class Pinned(_Owned):
    """Page-locked host memory; address is a host address."""

    __slots__ = ("nbytes",)
    how = "cuMemFreeHost"

    def __init__(self, device: DeviceContext, handle: int, nbytes: int) -> None:
        super().__init__(device, handle)
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        """Host address of its first byte."""
        return self.handle


class Function:
    """A kernel; shared_bytes: the dynamic shared memory of one of its programs."""

    __slots__ = ("_device", "handle", "shared_bytes", "symbol")

    def __init__(self, device: DeviceContext, handle: int, symbol: str, shared_bytes: int) -> None:
        self._device = device
        self.handle = handle
        self.symbol = symbol
        self.shared_bytes = shared_bytes

    def allow_shared(self) -> None:
        """Ask for dynamic shared memory beyond what every kernel has."""
        if self.shared_bytes > SHARED_WITHOUT_ASKING_BYTES:
            device, handle = self._device, self.handle
            device.call("cuFuncSetCacheConfig", handle, PREFER_SHARED)
            device.call("cuFuncSetAttribute", handle, DYNAMIC_SHARED_LIMIT, self.shared_bytes)

    def attribute(self, name: str) -> int:
        """A row of `FUNCTION_ATTRIBUTES`."""
        with self._device.current():
            return self._device.number("cuFuncGetAttribute", FUNCTION_ATTRIBUTES[name], self.handle)

    @property
    def registers(self) -> int:
        """Registers of one thread."""
        return self.attribute("registers")

    @property
    def local_bytes(self) -> int:
        """Local memory of one thread: spilled registers and arrays."""
        return self.attribute("local_bytes")

    def resident_programs(self, threads: int) -> int:
        """How many programs of this many threads one multiprocessor holds at once."""
        with self._device.current():
            return self._device.number(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", self.handle, threads,
                self.shared_bytes,
            )  # fmt: skip
