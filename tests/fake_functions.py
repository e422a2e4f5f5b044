"""What each function of the fake driver does; the books are kept by `fake_cuda.FakeCuda`.

Pointers arrive as whole numbers (0 arrives as None), handles too. A method returns nothing for
success, or raises `Fault`.
"""

import ctypes

from fake_books import Block, Event, LaunchRow, Stream
from fake_cubin import read_image

from aotc.runtime.drivers.cuda import libcuda
from aotc.runtime.drivers.cuda.device import ATTRIBUTES
from aotc.runtime.drivers.cuda.libcuda import LaunchAttribute, LaunchConfig

INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_IMAGE = 1, 2, 101, 200
NO_BINARY, INVALID_HANDLE, NOT_FOUND = 209, 400, 500
PEER_ACCESS_UNSUPPORTED, PEER_ACCESS_ENABLED = 217, 704
NAMES = {
    217: "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
    704: "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    100: "CUDA_ERROR_NO_DEVICE",
    200: "CUDA_ERROR_INVALID_IMAGE",
    201: "CUDA_ERROR_INVALID_CONTEXT",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    400: "CUDA_ERROR_INVALID_HANDLE",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    999: "CUDA_ERROR_UNKNOWN",
}
SHARED_LIMIT_BYTES = 227 << 10
SHARED_WITHOUT_ASKING_BYTES = 48 << 10


class Fault(Exception):
    """A result other than success, inside the double."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


def put(address, value, kind=ctypes.c_uint64):
    """Write through a pointer that the caller gave."""
    kind.from_address(address).value = value


def find(table, handle):
    """A row of a table of handles; another handle is refused."""
    if handle not in table:
        raise Fault(INVALID_HANDLE)
    return table[handle]


class Functions:
    """The functions, by name with an underscore before it."""

    # Words and devices: no context is needed.

    def _cuGetErrorName(self, number, to):
        self._put_text(to, NAMES.get(number, f"CUDA_ERROR_{number}"))

    def _cuGetErrorString(self, number, to):
        self._put_text(to, f"what {number} means")

    def _put_text(self, to, text):
        buffer = self._texts.setdefault(text, ctypes.create_string_buffer(text.encode()))
        put(to, ctypes.addressof(buffer))

    def _cuInit(self, flags):
        pass

    def _cuDriverGetVersion(self, to):
        put(to, self.driver_version, ctypes.c_int)

    def _cuDeviceGetCount(self, to):
        put(to, len(self.devices), ctypes.c_int)

    def _cuDeviceGet(self, to, ordinal):
        self._ordinal(ordinal)
        put(to, ordinal, ctypes.c_int)

    def _ordinal(self, ordinal):
        if not 0 <= ordinal < len(self.devices):
            raise Fault(INVALID_DEVICE)
        return self.devices[ordinal]

    def _cuDeviceGetName(self, to, length, ordinal):
        self._ordinal(ordinal)
        ctypes.memmove(to, b"Fake H200\0", 10)

    def _cuDeviceTotalMem_v2(self, to, ordinal):
        self._ordinal(ordinal)
        put(to, self.total_bytes)

    def _cuDeviceGetAttribute(self, to, attribute, ordinal):
        self._ordinal(ordinal)
        known = {
            "capability_major": self.capability[0],
            "capability_minor": self.capability[1],
            "multiprocessors": 132,
            "shared_bytes": SHARED_LIMIT_BYTES,
            "l2_bytes": 50 << 20,
            "warp_threads": 32,
            "multiprocessor_threads": 2048,
            "multiprocessor_programs": 32,
            "multiprocessor_registers": 65536,
            "multiprocessor_shared_bytes": 228 << 10,
            "reserved_shared_bytes": 1 << 10,
        }
        name = {number: name for name, number in ATTRIBUTES.items()}[attribute]
        put(to, known.get(name, 1), ctypes.c_int)

    def _cuDevicePrimaryCtxRetain(self, to, ordinal):
        device = self._ordinal(ordinal)
        if device.sticky:
            raise Fault(device.sticky)
        device.retained += 1
        put(to, device.context)

    def _cuDevicePrimaryCtxRelease_v2(self, ordinal):
        device = self._ordinal(ordinal)
        if not device.retained:
            self.hazards.append("a context was released that nobody retains")
        device.retained -= 1

    # Contexts of threads.

    def _cuCtxGetCurrent(self, to):
        put(to, self._stack()[-1])

    def _cuCtxSetCurrent(self, context):
        self._stack()[-1] = context or 0

    def _cuCtxPushCurrent_v2(self, context):
        device = self._device_of(context)
        if device is None or not device.retained:
            raise Fault(201)
        self._stack().append(context)

    def _cuCtxPopCurrent_v2(self, to):
        stack = self._stack()
        if len(stack) == 1 and not stack[0]:
            raise Fault(201)
        put(to, stack[-1])
        stack[-1:] = [] if len(stack) > 1 else [0]

    def _cuDeviceCanAccessPeer(self, to, ordinal, other):
        self._ordinal(ordinal), self._ordinal(other)
        put(to, (ordinal, other) not in self.unreachable, ctypes.c_int)

    def _cuCtxEnablePeerAccess(self, context, flags):
        pair = self._context().ordinal, self._device_of(context).ordinal
        if pair in self.unreachable:
            raise Fault(PEER_ACCESS_UNSUPPORTED)
        if pair in self.peers:
            raise Fault(PEER_ACCESS_ENABLED)
        self.peers.add(pair)

    def _cuCtxSynchronize(self):
        self._context()
        self.settle()
        self._context()

    # Code.

    def _cuModuleLoadData(self, to, address):
        self._context()
        image = read_image(address)
        if image is None:
            raise Fault(INVALID_IMAGE)
        major, minor = self.capability
        exact = image.capability == 10 * major + minor
        older = major == 8 and 80 <= image.capability <= 80 + minor
        if not exact and not older:
            raise Fault(NO_BINARY)
        handle = next(self._numbers)
        self.modules[handle] = image
        put(to, handle)

    def _cuModuleUnload(self, handle):
        find(self.modules, handle)
        self.settle()
        del self.modules[handle]
        self.functions = {f: row for f, row in self.functions.items() if row[0] != handle}

    def _cuModuleGetFunction(self, to, handle, symbol):
        self._context()
        entry = find(self.modules, handle).entries.get(ctypes.string_at(symbol).decode())
        if entry is None:
            raise Fault(NOT_FOUND)
        function = next(self._numbers)
        self.functions[function] = (handle, entry)
        put(to, function)

    def _cuFuncGetAttribute(self, to, attribute, function):
        find(self.functions, function)
        put(to, {4: 32, 0: 1024}.get(attribute, 0), ctypes.c_int)

    def _cuFuncSetAttribute(self, function, attribute, value):
        find(self.functions, function)
        if attribute != 8 or value > SHARED_LIMIT_BYTES:
            raise Fault(INVALID_VALUE)
        self.limits[function] = value

    def _cuFuncSetCacheConfig(self, function, config):
        find(self.functions, function)

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, to, function, threads, shared_bytes):
        find(self.functions, function)
        put(to, 2048 // threads, ctypes.c_int)

    def _launch(self, function, grid, block, shared_bytes, arguments, stream):
        """The work of a launch: its parameters are read now."""
        _, entry = find(self.functions, function)
        limit = self.limits.get(function, SHARED_WITHOUT_ASKING_BYTES)
        wrong_threads = entry.threads and block[0] != entry.threads
        if 0 in grid or 0 in block or shared_bytes > limit or wrong_threads:
            raise Fault(INVALID_VALUE)
        slots = [
            ctypes.c_uint64.from_address(arguments + 8 * at).value for at in range(len(entry.sizes))
        ]
        values = tuple(
            int.from_bytes(ctypes.string_at(slot, size), "little", signed=True)
            for slot, size in zip(slots, entry.sizes, strict=True)
        )

        def work():
            row = LaunchRow(entry.symbol, grid, block[0], shared_bytes, values, stream)
            self.launches.append(row)
            kernel = self.kernels.get(entry.symbol)
            if kernel is not None:
                kernel(self.memory, grid, values)

        return work

    def _cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared_bytes, stream, args, extra):
        target = self._stream(stream)
        grid, block = (gx, gy, gz), (bx, by, bz)
        self._add(target, self._launch(function, grid, block, shared_bytes, args, target.handle))

    def _cuLaunchKernelEx(self, config, function, arguments, extra):
        row = LaunchConfig.from_address(config)
        target = self._stream(row.stream or 0)
        if row.attribute_count:
            attribute = LaunchAttribute.from_address(row.attributes)
            assert (row.attribute_count, attribute.id, attribute.value) == (1, 6, 1)
            self.early += 1
        grid = row.grid_x, row.grid_y, row.grid_z
        block = row.threads_x, row.threads_y, row.threads_z
        work = self._launch(function, grid, block, row.shared_bytes, arguments, target.handle)
        self._add(target, work)

    # Memory.

    def _cuMemAlloc_v2(self, to, nbytes):
        self._context()
        if not nbytes:
            raise Fault(INVALID_VALUE)
        if self.used_bytes + nbytes > self.total_bytes:
            raise Fault(OUT_OF_MEMORY)
        put(to, self._new_block(nbytes, is_pinned=False))

    def _cuMemFree_v2(self, address):
        self._drop_block(address, is_pinned=False)

    def _cuMemGetInfo_v2(self, to_free, to_total):
        self._context()
        put(to_free, self.total_bytes - self.used_bytes)
        put(to_total, self.total_bytes)

    def _cuMemHostAlloc(self, to, nbytes, flags):
        self._context()
        address = self._new_block(nbytes, is_pinned=True)
        self.blocks[address].is_mapped = bool(flags & 2)
        put(to, address)

    def _cuMemFreeHost(self, address):
        self._drop_block(address, is_pinned=True)

    def _cuMemcpyHtoD_v2(self, to, source, nbytes):
        self._context()
        self._device_range(to, nbytes)
        self._wait(self._stream(0))
        ctypes.memmove(to, source, nbytes)

    def _cuMemcpyDtoH_v2(self, to, source, nbytes):
        self._context()
        self._device_range(source, nbytes)
        self._wait(self._stream(0))
        ctypes.memmove(to, source, nbytes)

    def _cuMemcpyHtoDAsync_v2(self, to, source, nbytes, stream):
        self._device_range(to, nbytes)
        self._later_copy(to, source, nbytes, stream, pinned=source)

    def _cuMemcpyDtoHAsync_v2(self, to, source, nbytes, stream):
        self._device_range(source, nbytes)
        self._later_copy(to, source, nbytes, stream, pinned=to)

    def _cuMemcpyDtoDAsync_v2(self, to, source, nbytes, stream):
        self._device_range(to, nbytes)
        self._device_range(source, nbytes)
        self._add(self._stream(stream), lambda: ctypes.memmove(to, source, nbytes))

    def _cuMemcpy2DAsync_v2(self, copy, stream):
        row = libcuda.RowsCopy.from_address(copy)
        assert (row.source_type, row.type) == (1, 2)
        assert row.width_bytes <= row.source_pitch_bytes
        assert row.width_bytes <= row.pitch_bytes
        for number in range(row.height):
            to = row.device + number * row.pitch_bytes
            source = row.source_host + number * row.source_pitch_bytes
            self._device_range(to, row.width_bytes)
            self._later_copy(to, source, row.width_bytes, stream, pinned=source)

    def _later_copy(self, to, source, nbytes, stream, pinned):
        block, target = self._block(pinned, nbytes), self._stream(stream)
        if block is None or not block.is_pinned:
            self.hazards.append("an asynchronous copy of memory that is not pinned")
            block = Block(0, 0, None)

        def work():
            block.copies -= 1
            ctypes.memmove(to, source, nbytes)

        block.copies += 1
        self._add(target, work)

    def _cuMemsetD8Async(self, address, value, nbytes, stream):
        self._device_range(address, nbytes)
        self._add(self._stream(stream), lambda: ctypes.memset(address, value, nbytes))

    def _cuPointerGetAttribute(self, to, attribute, address):
        block = self._block(address, 1)
        if block is None:
            raise Fault(INVALID_VALUE)
        device = self.devices[block.ordinal]
        values = {1: device.context, 2: 1 if block.is_pinned else 2, 9: device.ordinal}
        put(to, values[attribute], ctypes.c_uint64 if attribute == 1 else ctypes.c_int)

    # Streams and events.

    def _cuStreamCreate(self, to, flags):
        handle = next(self._numbers)
        self.streams[handle] = Stream(handle, self._context().context)
        put(to, handle)

    def _cuStreamDestroy_v2(self, handle):
        self._finish(find(self.streams, handle))
        del self.streams[handle]

    def _cuStreamSynchronize(self, handle):
        self._wait(self._stream(handle))

    def _cuStreamWaitEvent(self, handle, event, flags):
        stream, event = self._stream(handle), find(self.events, event)
        if event.stream is not None:
            self._add(stream, self._after(event.stream, event.position))

    def _cuStreamGetCtx(self, handle, to):
        self._context()
        put(to, find(self.streams, handle).context)

    def _cuEventCreate(self, to, flags):
        self._context()
        handle = next(self._numbers)
        self.events[handle] = Event()
        put(to, handle)

    def _cuEventDestroy_v2(self, handle):
        find(self.events, handle)
        del self.events[handle]

    def _cuEventRecord(self, handle, stream):
        event, stream = find(self.events, handle), self._stream(stream)
        event.stream, event.position = stream, stream.added

    def _cuEventSynchronize(self, handle):
        event = find(self.events, handle)
        self._context()
        if event.stream is not None:
            self._finish(event.stream, event.position)
        self._context()

    def _cuEventElapsedTime(self, to, begin, end):
        if find(self.events, begin).stream is None or find(self.events, end).stream is None:
            raise Fault(INVALID_HANDLE)
        put(to, 0.5, ctypes.c_float)
