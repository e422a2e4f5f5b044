"""Triton's `@triton.jit` on CPU tensors: our CPU target as Triton's active driver, on request.

    from aotc import kernels
    kernels.use_cpu()            # every launch with CPU tensors now runs as native code
    add_kernel[grid](x, y, out, n, BLOCK=1024)

Or with `AOTC_TRITON_CPU=1` in the environment, where Triton finds no GPU: `triton_backend` is what
Triton's entry point imports. A driver called "cpu" would make torch believe that it has Triton.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from triton.backends import Backend, backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import ASTSource
from triton.compiler.compiler import compile as compile_kernel
from triton.runtime import driver as active_driver
from triton.runtime.jit import JITFunction, create_function_from_signature

from aotc.aot.errors import KernelFailed
from aotc.aot.targets import toolchain
from aotc.aot.targets.binary import OPTIMIZED
from aotc.aot.targets.cpu.compile import LoadableKernel, compile_library
from aotc.aot.targets.cpu.isa import isa as find_isa
from aotc.aot.targets.digest import compiler_digest, triton_version
from aotc.aot.tasks.task import Request
from aotc.aot.tasks.workers import Workers
from aotc.kernels.arguments import packer
from aotc.kernels.present_files import in_present_files
from aotc.kernels.reports import Reports
from aotc.kernels.triton_backend import NAME
from aotc.runtime.drivers.cpu.driver import best_isa, features
from aotc.runtime.drivers.cpu.launch import Launcher
from aotc.runtime.drivers.cpu.library import Library
from aotc.runtime.drivers.cpu.pool import default_threads
from aotc.runtime.errors import DriverFault

_FRONT_END_CAPABILITY = 90
"""CUDA's front end is used as it is; it wants a compute capability for its options."""

MEMORY = "memory"
"""`debug="memory"`: assertions, and each access is checked against the tensors of the call."""
RACES = "races"
"""`debug="races"`: as `MEMORY`, and what each program accesses against what the others do."""
_ALL_FP8 = ("fp8e4b8", "fp8e4nv", "fp8e5", "fp8e5b16")


class CpuBackend(CUDABackend):  # type: ignore[misc]
    """Triton's compiler stages for the CPU: TTIR as usual, then our code generation."""

    binary_ext = "so"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return bool(target.backend == NAME)

    def __init__(self, target: GPUTarget) -> None:
        super().__init__(target)
        self.binary_ext = "so"

    def parse_options(self, opts: dict[str, Any]) -> Any:
        """CUDA's, with every 8-bit float that code is generated for."""
        # Nothing is fused but what a kernel says; named, as Triton 3.9 warns where it is not.
        own = {"supported_fp8_dtypes": _ALL_FP8, "enable_fp_fusion": True}
        return super().parse_options({**own, **opts})

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        found = dict(super().get_codegen_implementation(options))
        found["min_dot_size"] = lambda lhs, rhs: (1, 1, 1)
        return found

    def get_module_map(self) -> dict[str, ModuleType]:
        found: dict[str, ModuleType] = super().get_module_map()
        return found

    def add_stages(self, stages: dict[str, Any], options: Any, language: Any = None) -> None:
        made: list[bytes] = []

        def generate(module: Any, metadata: dict[str, Any]) -> str:
            library, texts = self._compiled(module, metadata, options.debug)
            made.append(library)
            metadata["optimized"] = texts[OPTIMIZED]
            return texts["ll"]

        stages["ttir"] = _optimize
        stages["llir"] = generate
        stages[OPTIMIZED] = lambda _, metadata: metadata.pop("optimized")
        stages["so"] = lambda *_: made.pop()

    def _compiled(
        self, module: Any, metadata: dict[str, Any], debug: bool | str
    ) -> tuple[bytes, dict[str, str]]:
        text = toolchain.generic_form(module, metadata["name"], is_located=True)
        made = _library(metadata["name"], text, debug)
        metadata.update(
            shared=max(1, made.scratch_bytes), symbol=made.symbol, sites=made.sites,
            scratch_bytes=made.scratch_bytes, global_scratch_size=0,
        )  # fmt: skip
        return made.library, made.texts

    def pack_metadata(self, metadata: Any) -> tuple[int, ...]:
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def hash(self) -> str:
        return f"{triton_version()}-{compiler_digest('cpu')}-{_isa()}"


def _optimize(module: Any, metadata: dict[str, Any]) -> Any:
    metadata["name"] = module.get_entry_func_name()
    return toolchain.optimize_ttir(module)


def _library(name: str, ttir: str, debug: bool | str) -> LoadableKernel:
    """The kernel for this processor; where LLVM fails for it, for the smaller one that it holds."""

    def compiled(isa: str) -> LoadableKernel:
        request = Request(
            name,
            f"{compile_library.__module__}:{compile_library.__name__}",
            (ttir, isa, False, True, debug in (MEMORY, RACES), debug == RACES),
        )
        with _COMPILING:
            (outcome,) = _workers().map([request])
        return LoadableKernel(*outcome.unwrap())

    try:
        return compiled(_isa())
    except KernelFailed:
        smaller = find_isa(_isa()).smaller
        if not smaller:
            raise
    made = compiled(smaller)
    text = f"kernel `{name}` is compiled for {smaller}: LLVM fails for {_isa()}"
    warnings.warn(text, stacklevel=2)
    return made


_COMPILING = threading.Lock()
"""One batch at a time; a program's threads may all be at a kernel that is new."""


@functools.cache
def _workers() -> Workers:
    """One process that generates code, since LLVM ends the process that gives it bad IR."""
    workers = Workers(1)
    atexit.register(workers.close)
    return workers


@functools.cache
def _isa() -> str:
    found = best_isa(features())
    if found is None:
        raise DriverFault(
            driver="cpu", detail="this processor has no AVX2, which the cpu target needs"
        )
    return found


def best_target() -> str:
    """The instruction set that kernels are compiled for here: `x86-64-v4`; raises DriverFault."""
    return _isa()


class _Utils:
    """What Triton asks of a device before it loads a kernel."""

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        return {
            "max_shared_mem": 1 << 30, "max_num_regs": 1 << 16,
            "multiprocessor_count": default_threads(),
            "warpSize": 32, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0,
        }  # fmt: skip

    @staticmethod
    def load_binary(
        name: str, data: bytes, shared: int, device: int
    ) -> tuple[Any, Any, int, int, int]:
        library = Library(data)
        return library, library, find_isa(_isa()).registers, 0, 1 << 20


class _KernelLauncher:
    """Called by Triton at each launch: packs the run-time arguments and runs the grid."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.packer = packer(source.signature, source.constants)
        self.pack, self.metadata = self.packer.pack, metadata
        self.reports: Reports | None = None
        if metadata.sites is not None:
            sites = in_present_files(metadata.sites, source.fn)
            self.reports = Reports(metadata.name, sites, self.packer)
        self.launcher: Launcher | None = None
        self.lock = threading.RLock()
        """A launcher has one place for its arguments, and a hook may launch the kernel again."""

    def __call__(
        self, x: int, y: int, z: int, stream: int, library: Library, packed: Any, launch: Any,
        enter: Callable[..., None] | None, leave: Callable[..., None] | None, *arguments: Any,
    ) -> None:  # fmt: skip
        if enter is not None:
            enter(launch)
        reports = self.reports
        with self.lock:
            launcher = self.launcher or self._loaded(library)
            self.pack(launcher.arguments, arguments)
            if reports is not None:
                launcher.arguments[-8:] = reports.begin(arguments)
            launcher.run((x, y, z))
            if leave is not None:
                leave(launch)
            if reports is not None:
                reports.end()

    def _loaded(self, library: Library) -> Launcher:
        count = len(self.packer.slots) + (self.reports is not None)
        metadata = self.metadata
        self.launcher = Launcher(library, metadata.symbol, metadata.scratch_bytes, count)
        return self.launcher


class _Event:
    """A moment, as `torch.cuda.Event` records one; kernels have ended when their launch returns."""

    def __init__(self, **_: Any) -> None:
        self.time_ns = 0

    def record(self, stream: Any = None) -> None:
        self.time_ns = time.perf_counter_ns()

    def elapsed_time(self, other: _Event) -> float:
        """Milliseconds from this moment to `other`, never 0: Triton divides by them."""
        return max(1, other.time_ns - self.time_ns) / 1e6

    def synchronize(self) -> None:
        """Nothing is under way."""

    wait = query = synchronize


class _DeviceInterface:
    """What Triton's benchmarks ask of `torch.cuda`; everything else is `torch.cpu`'s."""

    Event = _Event

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.cpu, name)


class CpuDriver(DriverBase):  # type: ignore[misc]
    """Triton's view of this machine's processor."""

    utils = _Utils()
    launcher_cls = _KernelLauncher

    @classmethod
    def is_active(cls) -> bool:
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget(NAME, _FRONT_END_CAPABILITY, 32)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return _DeviceInterface()

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one processor."""

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        return _benchmark

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(1 << 25, dtype=torch.int8)

    def clear_cache(self, cache: Any) -> None:
        cache.zero_()


def _benchmark(
    call: Callable[[], Any], *, quantiles: Sequence[float] = (0.5,), **_: Any
) -> list[float]:
    """Milliseconds of a call at each quantile, over some 30 ms; for `@triton.autotune`."""
    call()
    times: list[float] = []
    end = time.perf_counter() + 0.03
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 1000):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return [times[min(len(times) - 1, int(q * len(times)))] for q in quantiles]


class _CpuKernel:
    """A `@triton.jit` function on CPU tensors, whatever Triton's active driver is."""

    def __init__(self, function: JITFunction) -> None:
        _register()
        self.function = function
        self.target = GPUTarget(NAME, _FRONT_END_CAPABILITY, 32)
        self.backend = CpuBackend(self.target)
        self.bind = create_function_from_signature(
            function.signature, function.params, self.backend
        )
        self.known: dict[Any, tuple[_KernelLauncher, Library]] = {}

    def __call__(
        self, grid: tuple[int, int, int], arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> None:
        bound, kinds, rest = self.bind(*arguments, **options)
        key = (*kinds, *rest.items())
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._compiled(bound, kinds, rest)
        launcher, library = found
        launcher(*grid, 0, library, None, None, None, None, *bound.values())

    def _compiled(
        self, bound: Mapping[str, Any], kinds: Sequence[Any], rest: Mapping[str, Any]
    ) -> tuple[_KernelLauncher, Library]:
        """Code for these types of arguments, from Triton's cache where that has it."""
        options, signature, constants, attributes = self.function._pack_args(
            self.backend, dict(rest), bound, kinds, rest
        )
        source = ASTSource(self.function, signature, constants, attributes)
        compiled = compile_kernel(source, target=self.target, options=options.__dict__)
        launcher = _KernelLauncher(source, compiled.metadata)
        return launcher, Library(compiled.kernel)


_cpu_kernel = functools.cache(_CpuKernel)


def run_on_cpu(
    kernel: JITFunction,
    grid: tuple[int, int, int],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> None:
    """Run a kernel's programs on CPU tensors; Triton's active driver stays what it is.

    grid: three numbers. options: `tl.constexpr` parameters and Triton's own options.
    Raises DriverFault without AVX2.
    """
    _cpu_kernel(kernel)(grid, arguments, options)


def _register() -> None:
    """Have Triton know the CPU as a target; raises DriverFault without AVX2."""
    _isa()
    backends.setdefault(NAME, Backend(compiler=CpuBackend, driver=CpuDriver))
    toolchain.unload_without_driver(Library)
    toolchain.make_assembly_when_asked(OPTIMIZED)


def use_cpu() -> None:
    """Makes the CPU Triton's active device in this process; raises DriverFault without AVX2."""
    _register()
    active_driver.set_active(CpuDriver())


@contextmanager
def on_cpu() -> Iterator[None]:
    """`use_cpu` for the length of a `with` block; then the driver is what it was."""
    before = active_driver._active
    use_cpu()
    try:
        yield
    finally:
        active_driver._active = before
