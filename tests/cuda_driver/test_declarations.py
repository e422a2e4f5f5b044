"""The table of `libcuda.py` against NVIDIA's own bindings, read as text: no driver is needed."""

import ctypes
import importlib.util
import re
from pathlib import Path

import pytest

from aotc.runtime.drivers.cuda import libcuda

SCALARS = {
    "CUmemorytype": ctypes.c_uint,
    "int": ctypes.c_int,
    "CUresult": ctypes.c_int,
    "CUdevice": ctypes.c_int,
    "CUdevice_attribute": ctypes.c_int,
    "CUfunction_attribute": ctypes.c_int,
    "CUpointer_attribute": ctypes.c_int,
    "CUfunc_cache": ctypes.c_int,
    "CUtensorMapDataType": ctypes.c_int,
    "CUtensorMapInterleave": ctypes.c_int,
    "CUtensorMapSwizzle": ctypes.c_int,
    "CUtensorMapL2promotion": ctypes.c_int,
    "CUtensorMapFloatOOBfill": ctypes.c_int,
    "cuuint32_t": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "unsigned char": ctypes.c_ubyte,
    "unsigned long long": ctypes.c_ulonglong,
    "size_t": ctypes.c_size_t,
    "CUdeviceptr": ctypes.c_uint64,
}
HANDLES = {
    "CUarray",
    "CUcontext", "CUmodule", "CUfunction", "CUstream", "CUevent", "CUgraph", "CUgraphNode",
    "CUgraphExec", "CUkernel",
}  # fmt: skip
POINTED = {
    "int": ctypes.POINTER(ctypes.c_int),
    "CUdevice": ctypes.POINTER(ctypes.c_int),
    "size_t": ctypes.POINTER(ctypes.c_size_t),
    "float": ctypes.POINTER(ctypes.c_float),
    "CUdeviceptr": ctypes.POINTER(ctypes.c_uint64),
    "cuuint32_t": ctypes.POINTER(ctypes.c_uint),
    "cuuint64_t": ctypes.POINTER(ctypes.c_uint64),
    "CUtensorMap": ctypes.c_void_p,
    "char": ctypes.c_char_p,
    "void": ctypes.c_void_p,
    "CUlaunchConfig": ctypes.c_void_p,
    "CUlaunchAttribute": ctypes.c_void_p,
    "CUDA_KERNEL_NODE_PARAMS": ctypes.POINTER(libcuda.KernelNode),
    "CUgraphEdgeData": ctypes.POINTER(libcuda.Edge),
    "CUDA_MEMSET_NODE_PARAMS": ctypes.POINTER(libcuda.MemsetNode),
    "CUDA_MEMCPY2D": ctypes.POINTER(libcuda.RowsCopy),
}
# Pointers that the table declares more narrowly than C does.
TEXTS = {"const char**": ctypes.POINTER(ctypes.c_char_p)}
HOST_POINTERS = {"cuMemHostAlloc"}  # `void **` that is written, unlike a launch's parameters
TABLE = {**libcuda.FUNCTIONS, **libcuda.OPTIONAL}
STRUCTURES = {
    "CUgraphEdgeData_st": libcuda.Edge,
    "CUDA_KERNEL_NODE_PARAMS_v2_st": libcuda.KernelNode,
    "CUDA_MEMSET_NODE_PARAMS_st": libcuda.MemsetNode,
    "CUDA_MEMCPY2D_st": libcuda.RowsCopy,
    "CUlaunchConfig_st": libcuda.LaunchConfig,
}


def bindings():
    """The folder of the bindings; the test is skipped where they are not installed."""
    try:
        found = importlib.util.find_spec("cuda.bindings")
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip("cuda-bindings is not installed")
    return Path(found.submodule_search_locations[0])


def expected(name, words):
    """The ctypes type of a C parameter such as `const CUgraphNode* dependencies`."""
    kind = re.sub(r"\s*\w+$", "", words).strip()
    if kind in TEXTS:
        return TEXTS[kind]
    kind = kind.removeprefix("const ")
    if kind in SCALARS:
        return SCALARS[kind]
    if kind in HANDLES:
        return ctypes.c_void_p
    if kind == "void**":
        return ctypes.POINTER(ctypes.c_void_p) if name in HOST_POINTERS else ctypes.c_void_p
    base = kind.removesuffix("*")
    array = re.search(r"\[(\d+)\]$", words)
    if array:
        return SCALARS[re.sub(r"\s+\w+\[.*", "", words)] * int(array[1])
    return ctypes.POINTER(ctypes.c_void_p) if base in HANDLES else POINTED[base]


def declared():
    """Symbol → C parameters, from the bindings' own declarations of libcuda's symbols."""
    text = (bindings() / "_bindings" / "cydriver.pxd").read_text()
    rows = re.findall(r"cdef CUresult _(\w+)\((.*?)\) except", text)
    return {name: [each for each in words.split(", ") if each] for name, words in rows}


@pytest.mark.parametrize("name", TABLE)
def test_arguments(name):
    known = declared()
    # An older symbol of the same parameters, for older drivers.
    words = known[name if name in known else f"{name}_v2"]
    assert [expected(name, each) for each in words] == list(TABLE[name])


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures(name):
    text = (bindings() / "cydriver.pxd").read_text()
    block = re.search(rf"cdef struct {name}:\n((?:        .+\n)+)", text)[1]
    words = [line.strip() for line in block.splitlines()]
    fields = [kind for _, kind in STRUCTURES[name]._fields_]
    assert [expected("", each) for each in words] == fields


def test_numbers():
    """Attributes and error numbers by NVIDIA's own names."""
    from aotc.runtime.drivers.cuda import device as cuda_device
    from aotc.runtime.drivers.cuda import errors as cuda_errors
    from aotc.runtime.drivers.cuda import handles as cuda_handles

    text = (bindings() / "cydriver.pxd").read_text()
    number = dict(re.findall(r"(CU\w+) = (\d+)", text))
    device = {
        "threads_limit": "MAX_THREADS_PER_BLOCK",
        "warp_threads": "WARP_SIZE",
        "clock_khz": "CLOCK_RATE",
        "multiprocessors": "MULTIPROCESSOR_COUNT",
        "memory_clock_khz": "MEMORY_CLOCK_RATE",
        "memory_bus_bits": "GLOBAL_MEMORY_BUS_WIDTH",
        "l2_bytes": "L2_CACHE_SIZE",
        "multiprocessor_threads": "MAX_THREADS_PER_MULTIPROCESSOR",
        "capability_major": "COMPUTE_CAPABILITY_MAJOR",
        "capability_minor": "COMPUTE_CAPABILITY_MINOR",
        "multiprocessor_shared_bytes": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
        "multiprocessor_registers": "MAX_REGISTERS_PER_MULTIPROCESSOR",
        "shared_bytes": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
        "multiprocessor_programs": "MAX_BLOCKS_PER_MULTIPROCESSOR",
        "reserved_shared_bytes": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    }
    found = {ours: int(number[f"CU_DEVICE_ATTRIBUTE_{name}"]) for ours, name in device.items()}
    assert found == cuda_device.ATTRIBUTES
    function = {
        "threads_limit": "MAX_THREADS_PER_BLOCK",
        "static_shared_bytes": "SHARED_SIZE_BYTES",
        "local_bytes": "LOCAL_SIZE_BYTES",
        "registers": "NUM_REGS",
    }
    found = {ours: int(number[f"CU_FUNC_ATTRIBUTE_{name}"]) for ours, name in function.items()}
    assert found == cuda_handles.FUNCTION_ATTRIBUTES
    limit = number["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"]
    assert int(limit) == cuda_handles.DYNAMIC_SHARED_LIMIT
    sticky = Path(cuda_errors.__file__).read_text()
    for each, name in re.findall(r"^        (\d+),  # (\w+)$", sticky, re.MULTILINE):
        assert number[f"CUDA_ERROR_{name}"] == each
