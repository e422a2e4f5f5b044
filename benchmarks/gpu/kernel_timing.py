"""Kernels launched by the driver's own calls beside torch, timed in a CUDA graph of many launches.

For sweeps of configs: nothing of the runtime is between a kernel and its time.
"""

from __future__ import annotations

import ctypes
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LAUNCHES = 20  # of one graph
REPLAYS = 7
SHARED_LIMIT = 48 * 1024  # beyond which a kernel must ask
STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel and what its launch needs."""

    image: bytes
    symbol: str
    threads: int
    shared_bytes: int
    scratch_bytes: int


def compile_one(source: str, function: str, params: list[tuple[str, str]], config: Any) -> Binary:
    """In a worker process: Triton source → cubin for sm_90."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from aotc.aot.targets.toolchain import load_kernel

    constexprs, options = config
    signature = dict(params) | dict.fromkeys(constexprs, "constexpr")
    attrs = {(at,): [["tt.divisibility", 16]] for at in range(len(params))}
    kernel = load_kernel(source, function)
    asked = ASTSource(kernel, signature, constexprs=constexprs, attrs=attrs)
    found = triton.compile(asked, target=GPUTarget("cuda", 90, 32), options=options)
    threads = re.search(r"\.reqntid (\d+)", found.asm["ptx"])
    return Binary(
        found.asm["cubin"],
        found.metadata.name,
        int(threads[1]) if threads else options["num_warps"] * 32,
        found.metadata.shared,
        getattr(found.metadata, "global_scratch_size", 0) or 0,
    )


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


class Device:
    """Buffers of torch, kernels by the driver's own calls on torch's current stream."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.keep: list[Any] = []

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.driver, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def function(self, binary: Binary) -> ctypes.c_void_p:
        module, found = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), binary.image)
        self.call("cuModuleGetFunction", ctypes.byref(found), module, binary.symbol.encode())
        if binary.shared_bytes > SHARED_LIMIT:
            limit = ctypes.c_int(binary.shared_bytes)
            self.call("cuFuncSetAttribute", found, MAX_DYNAMIC_SHARED, limit)
        return found

    def launch(
        self, function: Any, binary: Binary, grid: Any, addresses: list[int], overlaps: bool
    ) -> None:
        values = [ctypes.c_uint64(address) for address in addresses]
        array = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        attribute = Attribute(STREAM_SERIALIZATION, 0, (ctypes.c_int * 16)(1))
        sizes = (*grid, binary.threads, 1, 1, binary.shared_bytes)
        config = LaunchConfig(*sizes, stream, ctypes.pointer(attribute), int(overlaps))
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, array, None)

    def time_us(self, body: Callable[[int], None]) -> float:
        """Median time of one call of the body among LAUNCHES in a graph."""
        torch = self.torch
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(LAUNCHES):
                body(number)
        graph.replay()
        found = []
        for _ in range(REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) * 1000 / LAUNCHES)
        return statistics.median(found)
