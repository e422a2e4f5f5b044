"""libcuda.so.1 by ctypes: one table of the functions that aotc calls, with fixed argument types.

`FUNCTIONS` maps the exported symbol, version suffix included, to its argument types; every one
returns a CUresult. A test compares the table with NVIDIA's own bindings. Nothing is loaded before
`library()`; a machine without the driver gets `LibraryAbsent`, which says what was found.

`Library.call` turns a result other than 0 into a typed error. Hot paths take the plain functions
from `Library.functions` and look at the result themselves.
"""

from __future__ import annotations

import ctypes
import os

from .errors import CUDA_SUCCESS, DeviceForked, cuda_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIBRARY_NAME = "libcuda.so.1"
PEER_ACCESS_ENABLED = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
OLDEST_DRIVER = 12000  # CUDA 12.0: the first with the graph functions of this table

_int, _uint, _size = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_address = ctypes.c_uint64  # CUdeviceptr
_handle = ctypes.c_void_p  # CUcontext, CUstream, CUevent, CUmodule, CUfunction, CUgraph…
_pointer = ctypes.c_void_p  # host memory of any type, and `void **`
_to_int = ctypes.POINTER(ctypes.c_int)
_to_size = ctypes.POINTER(ctypes.c_size_t)
_to_float = ctypes.POINTER(ctypes.c_float)
_to_address = ctypes.POINTER(ctypes.c_uint64)
_to_handle = ctypes.POINTER(ctypes.c_void_p)
_to_text = ctypes.POINTER(ctypes.c_char_p)


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS of version 2: one launch as a node of a graph."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("threads_x", ctypes.c_uint),
        ("threads_y", ctypes.c_uint),
        ("threads_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),  # void **: one pointer a parameter
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute, of those whose value is one number."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("value", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 7),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig: how one launch is made on a stream."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("threads_x", ctypes.c_uint),
        ("threads_y", ctypes.c_uint),
        ("threads_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS: fill memory as a node of a graph; width in elements."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("pitch_bytes", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element_bytes", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class RowsCopy(ctypes.Structure):
    """CUDA_MEMCPY2D: rows of bytes, in memory of type 1 (host) or 2 (device)."""

    _fields_ = (
        ("source_x_bytes", ctypes.c_size_t),
        ("source_y", ctypes.c_size_t),
        ("source_type", ctypes.c_uint),
        ("source_host", ctypes.c_void_p),
        ("source_device", ctypes.c_uint64),
        ("source_array", ctypes.c_void_p),
        ("source_pitch_bytes", ctypes.c_size_t),
        ("x_bytes", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("type", ctypes.c_uint),
        ("host", ctypes.c_void_p),
        ("device", ctypes.c_uint64),
        ("array", ctypes.c_void_p),
        ("pitch_bytes", ctypes.c_size_t),
        ("width_bytes", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class Edge(ctypes.Structure):
    """CUgraphEdgeData: what a node waits for in the node before it."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


_to_edge = ctypes.POINTER(Edge)
_to_sizes = ctypes.POINTER(ctypes.c_uint64)  # arrays of a tensor map
_to_extents = ctypes.POINTER(_uint)
_to_kernel_node = ctypes.POINTER(KernelNode)
_to_memset_node = ctypes.POINTER(MemsetNode)
_to_rows_copy = ctypes.POINTER(RowsCopy)
_graph_node = (_to_handle, _handle, _to_handle, _size)  # node out, graph, dependencies, their count

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuGetErrorName": (_int, _to_text),
    "cuGetErrorString": (_int, _to_text),
    "cuInit": (_uint,),
    "cuDriverGetVersion": (_to_int,),
    "cuDeviceGetCount": (_to_int,),
    "cuDeviceGet": (_to_int, _int),
    "cuDeviceGetName": (ctypes.c_char_p, _int, _int),
    "cuDeviceTotalMem_v2": (_to_size, _int),
    "cuDeviceGetAttribute": (_to_int, _int, _int),
    "cuDevicePrimaryCtxRetain": (_to_handle, _int),
    "cuDevicePrimaryCtxRelease_v2": (_int,),
    "cuCtxGetCurrent": (_to_handle,),
    "cuCtxSetCurrent": (_handle,),
    "cuCtxPushCurrent_v2": (_handle,),
    "cuCtxPopCurrent_v2": (_to_handle,),
    "cuCtxSynchronize": (),
    "cuCtxEnablePeerAccess": (_handle, _uint),
    "cuDeviceCanAccessPeer": (_to_int, _int, _int),
    "cuModuleLoadData": (_to_handle, _pointer),
    "cuModuleUnload": (_handle,),
    "cuModuleGetFunction": (_to_handle, _handle, ctypes.c_char_p),
    "cuFuncGetAttribute": (_to_int, _int, _handle),
    "cuFuncSetAttribute": (_handle, _int, _int),
    "cuFuncSetCacheConfig": (_handle, _int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_to_int, _handle, _int, _size),
    "cuLaunchKernel": (_handle, *[_uint] * 7, _handle, _pointer, _pointer),
    "cuLaunchKernelEx": (_pointer, _handle, _pointer, _pointer),
    "cuMemAlloc_v2": (_to_address, _size),
    "cuMemFree_v2": (_address,),
    "cuMemGetInfo_v2": (_to_size, _to_size),
    "cuMemHostAlloc": (_to_handle, _size, _uint),
    "cuMemFreeHost": (_pointer,),
    "cuMemcpyHtoD_v2": (_address, _pointer, _size),
    "cuMemcpyDtoH_v2": (_pointer, _address, _size),
    "cuMemcpyHtoDAsync_v2": (_address, _pointer, _size, _handle),
    "cuMemcpyDtoHAsync_v2": (_pointer, _address, _size, _handle),
    "cuMemcpyDtoDAsync_v2": (_address, _address, _size, _handle),
    "cuMemcpy2DAsync_v2": (_to_rows_copy, _handle),
    "cuMemsetD8Async": (_address, ctypes.c_ubyte, _size, _handle),
    "cuPointerGetAttribute": (_pointer, _int, _address),
    "cuStreamCreate": (_to_handle, _uint),
    "cuStreamDestroy_v2": (_handle,),
    "cuStreamSynchronize": (_handle,),
    "cuStreamWaitEvent": (_handle, _handle, _uint),
    "cuStreamGetCtx": (_handle, _to_handle),
    "cuEventCreate": (_to_handle, _uint),
    "cuEventDestroy_v2": (_handle,),
    "cuEventRecord": (_handle, _handle),
    "cuEventSynchronize": (_handle,),
    "cuEventElapsedTime": (_to_float, _handle, _handle),
    "cuGraphCreate": (_to_handle, _uint),
    "cuGraphDestroy": (_handle,),
    "cuGraphAddKernelNode_v2": (*_graph_node, _to_kernel_node),
    "cuGraphAddMemsetNode": (*_graph_node, _to_memset_node, _handle),
    "cuGraphAddEventRecordNode": (*_graph_node, _handle),
    "cuGraphKernelNodeSetParams_v2": (_handle, _to_kernel_node),
    "cuGraphInstantiateWithFlags": (_to_handle, _handle, ctypes.c_ulonglong),
    "cuGraphExecDestroy": (_handle,),
    "cuGraphExecKernelNodeSetParams_v2": (_handle, _handle, _to_kernel_node),
    "cuTensorMapEncodeTiled": (
        _pointer,
        _int,
        _uint,
        _pointer,
        _to_sizes,
        _to_sizes,
        _to_extents,
        _to_extents,
        *[_int] * 4,
    ),
    "cuGraphUpload": (_handle, _handle),
    "cuGraphLaunch": (_handle, _handle),
}
# Newer than OLDEST_DRIVER, and done without where they are missing.
OPTIONAL: dict[str, tuple[Any, ...]] = {
    "cuGraphAddDependencies_v2": (_handle, _to_handle, _to_handle, _to_edge, _size),  # CUDA 12.3
}


class LibraryAbsent(Exception):
    """No usable driver: `str()` is what was found, in the words of a message.

    code: `driver-absent`, `driver-too-old`, `driver-fails`, `device-absent` or `device-forked`, as
    `check` reports it.
    """

    def __init__(self, found: str, code: str = "driver-absent") -> None:
        super().__init__(found)
        self.code = code


class Library:
    """The driver's functions, typed; `call` raises for a result other than success."""

    __slots__ = ("functions",)

    def __init__(self, handle: Any) -> None:
        """Look every function of the table up; raises `LibraryAbsent` for a missing one."""
        self.functions: dict[str, Callable[..., int]] = {}
        for name, arguments in (*FUNCTIONS.items(), *OPTIONAL.items()):
            try:
                function = getattr(handle, name)
            except AttributeError:
                if name in OPTIONAL:
                    continue
                detail = f"the NVIDIA driver's {LIBRARY_NAME} has no `{name}`: it is too old"
                raise LibraryAbsent(detail, "driver-too-old") from None
            function.argtypes, function.restype = arguments, ctypes.c_int
            self.functions[name] = function

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises the `CudaError` of its result."""
        result = self.functions[name](*arguments)
        if result != CUDA_SUCCESS:
            raise self.error(name, result)

    def error(self, name: str, result: int) -> Exception:
        """The typed error of a result, in CUDA's own words."""
        return cuda_error(name, result, *self.describe(result))

    def describe(self, result: int) -> tuple[str, str]:
        """CUDA's name of a result and its description."""
        words = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            self.functions[function](result, ctypes.byref(text))
            words.append((text.value or b"unknown").decode("ascii", "replace"))
        return words[0], words[1]

    def number(self, name: str, *arguments: Any) -> int:
        """The int that a function writes through its first argument."""
        found = ctypes.c_int()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value

    def handle(self, name: str, *arguments: Any) -> int:
        """The handle or host pointer that a function writes through its first argument."""
        found = ctypes.c_void_p()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value or 0


_process: dict[str, tuple[Library, int]] = {}  # and the number of the process that initialised it


def library() -> Library:
    """The initialised driver of this process; raises `LibraryAbsent` where there is none.

    A failure is not remembered: a driver that comes up later is found. A child of a process that
    used the driver is refused, since the driver answers it with errors or with no devices.
    """
    found = _process.get("library")
    if found is None:
        fresh = _initialised(Library(open_library())), os.getpid()
        found = _process.setdefault("library", fresh)
    cuda, number = found
    if number != os.getpid():
        raise LibraryAbsent(DeviceForked.template, DeviceForked.code)
    return cuda


def open_library() -> Any:
    """The handle of libcuda; raises `LibraryAbsent`."""
    try:
        return ctypes.CDLL(LIBRARY_NAME)
    except OSError as error:
        raise LibraryAbsent(f"no NVIDIA driver: {error}") from None


def _initialised(found: Library) -> Library:
    result = found.functions["cuInit"](0)
    if result != CUDA_SUCCESS:
        name, description = found.describe(result)
        found_text = f"the NVIDIA driver does not start: {name} ({result}): {description}"
        raise LibraryAbsent(found_text, "device-absent" if result == NO_DEVICE else "driver-fails")
    version = driver_version(found)
    if version < OLDEST_DRIVER:
        raise LibraryAbsent(
            f"the NVIDIA driver is for CUDA {version_text(version)}, "
            f"expected {version_text(OLDEST_DRIVER)} or later",
            "driver-too-old",
        )
    return found


def device_count(cuda: Library) -> int:
    """How many devices the driver shows to this process; 0 where it says that there is none."""
    count = ctypes.c_int()
    result = cuda.functions["cuDeviceGetCount"](ctypes.byref(count))
    return count.value if result == CUDA_SUCCESS else 0


def driver_version(cuda: Library) -> int:
    """The latest CUDA version that the driver can serve, such as 12080; 0 where it does not say."""
    version = ctypes.c_int()
    result = cuda.functions["cuDriverGetVersion"](ctypes.byref(version))
    return version.value if result == CUDA_SUCCESS else 0


def version_text(version: int) -> str:
    """12080 → `12.8`."""
    return f"{version // 1000}.{version % 1000 // 10}"
