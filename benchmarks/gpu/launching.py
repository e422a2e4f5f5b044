"""Compiles kernel sources in worker processes and launches their cubins through the CUDA driver."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aotc.aot.lower.spec import TensorMap

REGISTERS, LOCAL_BYTES, SHARED_LIMIT = 4, 3, 8  # attributes of a function
ALIGNMENT = 128  # of descriptors in global scratch


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin and how it must be launched."""

    cubin: bytes
    symbol: str
    threads: int
    shared_bytes: int
    scratch_bytes: int  # global scratch of one program
    descriptors: tuple[tuple[int, int, int, tuple[int, ...]], ...] = ()  # swizzle, bytes, type, box


def compile_source(
    source: str,
    function: str,
    params: Sequence[tuple[str, str]],
    constexprs: Sequence[tuple[str, int]],
    options: dict[str, int],
    capability: int,
) -> Compiled:
    """Triton source → cubin, with no device; runs in a worker process."""
    import importlib.util

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"kernel_{digest}_{os.getpid()}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"kernel_{digest}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature = dict(params) | {name: "constexpr" for name, _ in constexprs}
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, (_, kind) in enumerate(params)
        if kind.startswith("*")
    }
    kernel = getattr(module, function)
    text = (GluonASTSource if kernel.is_gluon() else ASTSource)(
        kernel, signature, dict(constexprs), attributes
    )
    target = GPUTarget("cuda", capability, 32)
    found = triton.compile(text, target=target, options=dict(options))
    meta = found.metadata
    scratch = getattr(meta, "global_scratch_size", 0) or 0
    threads = meta.num_warps * 32
    descriptors = tuple(
        (row["swizzle"], row["elem_size"], row["elem_type"], tuple(row["block_size"]))
        for row in getattr(meta, "tensordesc_meta", None) or ()
    )
    return Compiled(found.asm["cubin"], meta.name, threads, meta.shared, scratch, descriptors)


@cache
def driver() -> ctypes.CDLL:
    """The CUDA driver's library."""
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: object) -> None:
    status = getattr(driver(), name)(*arguments)
    if status:
        raise RuntimeError(f"{name}: CUDA error {status}")


class Kernel:
    """A loaded cubin; launches go to torch's current stream."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(module), compiled.cubin)
        symbol = compiled.symbol.encode()
        _call("cuModuleGetFunction", ctypes.byref(self.function), module, symbol)
        shared = ctypes.c_int(compiled.shared_bytes)
        if compiled.shared_bytes > 48 << 10:
            _call("cuFuncSetAttribute", self.function, SHARED_LIMIT, shared)
        self.scratch = None

    @property
    def resources(self) -> dict[str, int]:
        """Registers and spilled bytes of a thread, shared memory of a program."""
        values = {}
        for name, attribute in (("registers", REGISTERS), ("spilled", LOCAL_BYTES)):
            value = ctypes.c_int()
            _call("cuFuncGetAttribute", ctypes.byref(value), attribute, self.function)
            values[name] = value.value
        return {**values, "shared": self.compiled.shared_bytes}

    def launch(
        self,
        grid: tuple[int, int, int],
        tensors: Sequence[object],
        maps: Sequence[TensorMap] = (),
    ) -> None:
        """Launch over `grid` with the tensors' addresses, then Triton's two scratch pointers."""
        import torch

        compiled = self.compiled
        programs = grid[0] * grid[1] * grid[2]
        if compiled.scratch_bytes and self.scratch is None:
            nbytes = compiled.scratch_bytes * programs + ALIGNMENT
            self.scratch = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        scratch = 0 if self.scratch is None else -(-self.scratch.data_ptr() // ALIGNMENT)
        values = [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors]  # type: ignore[attr-defined]
        for row, facts in zip(maps, compiled.descriptors, strict=True):
            values.append(encoded(tensors[row.param].data_ptr(), row, facts))  # type: ignore[attr-defined]
            values += [ctypes.c_uint32(extent) for extent in row.shape]
            values += [ctypes.c_uint64(stride) for stride in row.strides]
        values += [ctypes.c_uint64(scratch * ALIGNMENT), ctypes.c_uint64(0)]
        slots = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = (*grid, compiled.threads, 1, 1, compiled.shared_bytes)
        _call("cuLaunchKernel", self.function, *shape, stream, slots, None)


def encoded(address: int, row: TensorMap, facts: tuple[int, int, int, tuple[int, ...]]) -> object:
    """The tensor map of a parameter at `address`; sizes innermost first, as CUDA has them."""
    swizzle, size, kind, box = facts
    host_kind = {8: 10, 9: 8, 10: 9}.get(kind, kind)
    rank = len(row.shape)
    room = (ctypes.c_uint8 * 256)()
    offset = -ctypes.addressof(room) % 64
    found = (ctypes.c_uint8 * 128).from_buffer(room, offset)
    shape = (ctypes.c_uint64 * rank)(*row.shape[::-1])
    strides = (ctypes.c_uint64 * rank)(*(stride * size for stride in row.strides[-2::-1]))
    boxes = (ctypes.c_uint32 * rank)(*box[::-1])
    ones = (ctypes.c_uint32 * rank)(*[1] * rank)
    base = ctypes.c_void_p(address + row.start * size)
    facts_of_loads = (0, swizzle, 2, 0)  # no interleave; 128-byte promotion; zeros outside
    _call(
        "cuTensorMapEncodeTiled",
        found, host_kind, rank, base, shape, strides, boxes, ones, *facts_of_loads,
    )  # fmt: skip
    return found


def graph_of_launches(run: Callable[[], object]) -> object:
    """A CUDA graph of what `run` launches, replayed once."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    torch.cuda.synchronize()
    return graph
