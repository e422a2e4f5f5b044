"""What launches cost the host: as a CUDA graph, one after the other from Python, from native code.

    python -m benchmarks.gpu.launches [--counts 1,8,32,200]

A chain of launches of one small kernel (64 Ki additions) is issued in each way, and the host's
microseconds until the call returns are taken, the device being idle before; medians. The ways:

- graph: launched as it was before; patched: after all of its nodes were given their parameters;
- made: nodes given their parameters, the graph instantiated and launched, as at new sizes;
- list: `cuLaunchKernelEx` by one loop of `map`, as `runtime/drivers/cuda/launch_list.py` has it;
- native: the same calls by a loop of machine code, which `aot/targets/toolchain.py` compiles.

Each with launches that wait for the one before them to end, and with programmatic ones.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.targets.toolchain import Export, compile_module, link
from aotc.runtime.drivers.cpu.library import load_bytes
from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.libcuda import KernelNode, LaunchAttribute, LaunchConfig
from benchmarks.gpu.launching import compile_source
from benchmarks.gpu.machine import facts

ELEMENTS, BLOCK = 1 << 16, 256
ROUNDS, MADE_ROUNDS = 40, 8
PARAMETERS = 5  # of the kernel, with Triton's own two
LAUNCH, SET = "cuGraphLaunch", "cuGraphExecKernelNodeSetParams_v2"
KERNEL = """
import triton, triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

@triton.jit
def add(a, b, n, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(b + at, tl.load(a + at, at < n) + 1.0, at < n)
"""
LOOP = """
define i32 @issue(ptr %rows, ptr %functions, ptr %arguments, i64 %count, ptr %launch) {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %next ]
  %row = getelementptr [56 x i8], ptr %rows, i64 %n
  %function.at = getelementptr ptr, ptr %functions, i64 %n
  %function = load ptr, ptr %function.at
  %argument.at = getelementptr ptr, ptr %arguments, i64 %n
  %argument = load ptr, ptr %argument.at
  %result = call i32 %launch(ptr %row, ptr %function, ptr %argument, ptr null)
  %failed = icmp ne i32 %result, 0
  br i1 %failed, label %done, label %next
next:
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %loop, label %done
done:
  ret i32 %result
}
"""


def native_loop() -> Any:
    """The loop as a function of configs, functions, arguments, their count, `cuLaunchKernelEx`."""
    export = Export("aotc_issue", "issue", ("ptr", "ptr", "ptr", "i64", "ptr"), "i32")
    made = compile_module(LOOP, (export,), "x86-64-v2")
    function = load_bytes(link({"issue": made.data})).aotc_issue
    pointer = ctypes.c_void_p
    function.argtypes = [pointer, pointer, pointer, ctypes.c_int64, pointer]
    function.restype = ctypes.c_int
    return function


@dataclass(frozen=True)
class Kernel:
    """The loaded kernel and the addresses of what it reads and writes."""

    device: Device
    function: Any
    threads: int
    values: tuple[int, ...]
    is_programmatic: bool


class Chain:
    """`count` launches of a kernel on a stream, ready to be issued in every way."""

    def __init__(self, kernel: Kernel, count: int, stream: int, loop: Any) -> None:
        self.kernel, self.count, self.loop = kernel, count, loop
        self.slots = (ctypes.c_int64 * (PARAMETERS * count))(*kernel.values * count)
        base = ctypes.addressof(self.slots)
        self.pointers = (ctypes.c_uint64 * (PARAMETERS * count))(
            *range(base, base + 8 * PARAMETERS * count, 8)
        )
        first = ctypes.addressof(self.pointers)
        places = [first + 8 * PARAMETERS * each for each in range(count)]
        self.early = LaunchAttribute(id=6, value=1)
        grid = (-(-ELEMENTS // BLOCK), 1, 1, kernel.threads, 1, 1)
        handle, device = kernel.function.handle, kernel.device
        self.configs = (LaunchConfig * count)()
        for number, row in enumerate(self.configs):
            is_programmatic = kernel.is_programmatic and number > 0
            attributes = ctypes.addressof(self.early) if is_programmatic else None
            self.configs[number] = LaunchConfig(*grid, 0, stream, attributes, int(is_programmatic))
            assert ctypes.sizeof(row) == 56  # as the loop of machine code steps
        self.functions = (ctypes.c_void_p * count)(*[handle] * count)
        self.arguments = (ctypes.c_void_p * count)(*places)
        self.nodes = [
            KernelNode(handle, *grid, 0, place, None, None, device.context) for place in places
        ]
        self.references = [ctypes.byref(each) for each in self.nodes]
        self.graph = device.graph()
        with self.graph:
            self.handles = [
                self.graph.add_kernel(each, kernel.is_programmatic) for each in self.references
            ]
        self.graph.instantiate()
        self.execution, self.stream = ctypes.c_void_p(self.graph.execution), ctypes.c_void_p(stream)
        self.made: list[int] = []

    def ways(self) -> dict[str, Callable[[], object]]:
        """What issues the chain, by name."""
        device, functions = self.kernel.device, self.kernel.device.functions
        launch, set_node = functions[LAUNCH], functions[SET]
        issue = functions["cuLaunchKernelEx"]
        base, step = ctypes.addressof(self.configs), ctypes.sizeof(LaunchConfig)
        configs = [ctypes.c_void_p(base + step * each) for each in range(self.count)]
        rows = [ctypes.c_void_p(each) for each in self.arguments]
        handles = [ctypes.c_void_p(self.kernel.function.handle)] * self.count
        nothing = [None] * self.count
        native = (
            ctypes.c_void_p(base), self.functions, self.arguments, self.count,
            ctypes.cast(issue, ctypes.c_void_p),  # type: ignore[arg-type]
        )  # fmt: skip

        def graph() -> None:
            launch(self.execution, self.stream)

        def patched() -> None:
            for node, row in zip(self.handles, self.references, strict=True):
                set_node(self.execution, node, row)
            launch(self.execution, self.stream)

        def made() -> None:
            self.graph.update(self.handles, self.references)
            self.made.append(self.graph.instance())
            launch(ctypes.c_void_p(self.made[-1]), self.stream)

        def listed() -> None:
            for result in map(issue, configs, handles, rows, nothing):
                if result:
                    device.fail("cuLaunchKernelEx", result)

        def by_native() -> None:
            result = self.loop(*native)
            if result:
                device.fail("cuLaunchKernelEx", result)

        return {
            "graph": graph,
            "patched": patched,
            "made": made,
            "list": listed,
            "native": by_native,
        }

    def close(self) -> None:
        """Give the graphs back."""
        for each in self.made:
            self.kernel.device.destroy("cuGraphExecDestroy", each)
        self.graph.close()


def host_us(run: Callable[[], object], rounds: int) -> float:
    """Median microseconds until a call returns, with an idle device before it."""
    taken = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin_s = time.perf_counter()
        run()
        taken.append((time.perf_counter() - begin_s) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(taken[1:])


def main() -> None:
    """Print one row for each number of launches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", default="1,8,32,200", help="of launches, with commas")
    counts = [int(each) for each in parser.parse_args().counts.split(",")]
    x, y = (torch.zeros(ELEMENTS, device="cuda") for _ in range(2))
    stream, device, loop = torch.cuda.Stream(), Device(0), native_loop()
    print("; ".join(f"{key}: {value}" for key, value in facts().items()))
    print("| launches | programmatic | graph µs | patched µs | made µs | list µs | native µs |")
    print("|---|---|---|---|---|---|---|")
    for is_programmatic in (False, True):
        constants = [("EARLY", int(is_programmatic)), ("BLOCK", BLOCK)]
        options = {"num_warps": 4, **({"launch_pdl": True} if is_programmatic else {})}
        signature = [("a", "*fp32"), ("b", "*fp32"), ("n", "i32")]
        made = compile_source(KERNEL, "add", signature, constants, options, 90)
        function = device.function(device.load(made.cubin), made.symbol)
        values = (x.data_ptr(), y.data_ptr(), ELEMENTS, 0, 0)
        kernel = Kernel(device, function, made.threads, values, is_programmatic)
        for count in counts:
            chain = Chain(kernel, count, stream.cuda_stream, loop)
            taken = [
                host_us(run, MADE_ROUNDS if name == "made" else ROUNDS)
                for name, run in chain.ways().items()
            ]
            cells = " | ".join(f"{each:.1f}" for each in taken)
            print(f"| {count} | {'yes' if is_programmatic else 'no'} | {cells} |", flush=True)
            chain.close()


if __name__ == "__main__":
    main()
