"""f32 matmul with packed weights, as a share of the FMA peak that is measured beside it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from aotc.aot.cli.contest import Contender, take_turns
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import isa
from aotc.runtime.drivers.cpu.driver import best_isa, features
from aotc.runtime.drivers.cpu.pool import default_threads

CHAINS = {8: 12, 16: 24}  # by the lanes of a register: AVX2 has 16 registers, AVX-512 32
TURNS = 4_000_000
SIZES = (512, 1024, 2048)
SECONDS_A_TURN = 0.25

_SPEC = """
import torch
model = torch.nn.Linear({size}, {size}, bias=False)
example_inputs = (torch.randn({size}, {size}),)
"""


@dataclass(frozen=True, slots=True)
class MatmulFigures:
    """GFLOP/s of a size³ product, ours and torch's, and the largest peak of the whole run: what a
    shared machine gives varies by the second."""

    size: int
    aotc: float
    torch: float
    peak: float


def _peak_text(lanes: int, chains: int) -> str:
    """LLVM IR of a loop of independent fused multiply-adds."""
    kind = f"<{lanes} x float>"
    phis = [f"  %c{i} = phi {kind} [ %a, %entry ], [ %d{i}, %loop ]" for i in range(chains)]
    steps = [
        f"  %d{i} = call {kind} @llvm.fma.v{lanes}f32({kind} %a, {kind} %a, {kind} %c{i})"
        for i in range(chains)
    ]
    stores = [
        line
        for i in range(chains)
        for line in (
            f"  %p{i} = getelementptr i8, ptr %scratch, i64 {64 * i}",
            f"  store {kind} %d{i}, ptr %p{i}, align 4",
        )
    ]
    return "\n".join([
        "define void @body(ptr %args, i32 %x, i32 %y, i32 %z, ptr %grid, ptr %scratch) #0 {",
        "entry:", f"  %a = load {kind}, ptr %args, align 4", "  br label %loop", "loop:",
        "  %i = phi i32 [ 0, %entry ], [ %n, %loop ]", *phis, *steps, "  %n = add i32 %i, 1",
        f"  %more = icmp slt i32 %n, {TURNS}", "  br i1 %more, label %loop, label %done", "done:",
        *stores, "  ret void", "}",
        'attributes #0 = { nounwind noinline "min-legal-vector-width"="512"',
        '  "prefer-vector-width"="512" }',
        "",
    ])  # fmt: skip


def peak_measure() -> Callable[[], float]:
    """A function that measures the FMA peak of all threads together, in GFLOP/s."""
    name = best_isa(features())
    assert name is not None
    row = isa(name)
    chains = CHAINS[row.lanes]
    made = toolchain.compile_object(_peak_text(row.lanes, chains), "peak", row.cpu)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "peak.so")
        path.write_bytes(toolchain.link({"peak": made.data}))
        library = ctypes.CDLL(str(path))
    run, threads = library.peak, default_threads()
    run.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    ones = (ctypes.c_float * 64)(*([1.0] * 64))
    scratch = [(ctypes.c_char * (64 * chains))() for _ in range(threads)]

    def measure() -> float:
        workers = [
            threading.Thread(
                target=run, args=(ctypes.addressof(ones), 0, 0, 0, None, ctypes.addressof(block))
            )
            for block in scratch
        ]
        start = time.perf_counter()
        for each in workers:
            each.start()
        for each in workers:
            each.join()
        return 2 * row.lanes * chains * TURNS * threads / (time.perf_counter() - start) / 1e9

    return measure


def measure(rounds: int) -> list[MatmulFigures]:
    """The best of `rounds` turns of each: peak, aotc and torch take turns."""
    peak = peak_measure()
    # Also before there are contenders, whose threads wait actively for a while after a turn.
    alone = max(peak() for _ in range(rounds))
    found = [_measure_size(size, rounds, peak) for size in SIZES]
    largest = max(alone, *(each.peak for each in found))
    return [replace(each, peak=largest) for each in found]


def _measure_size(size: int, rounds: int, peak: Callable[[], float]) -> MatmulFigures:
    with tempfile.TemporaryDirectory(prefix="aotc-bench-") as name:
        spec = Path(name, "matmul.py")
        spec.write_text(_SPEC.format(size=size))
        bundle = Path(name, "bundle")
        command = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", str(bundle)]
        subprocess.run(command, check=True, capture_output=True)
        contenders = [Contender(kind, str(spec), bundle) for kind in ("aotc", "eager")]
        peaks = []
        for _ in range(rounds):
            peaks.append(peak())
            take_turns(contenders, 1, SECONDS_A_TURN)
        ours, theirs = (min(each.times_us) / 1e6 for each in contenders)
        for each in contenders:
            each.close()
    operations = 2 * size**3 / 1e9
    return MatmulFigures(size, operations / ours, operations / theirs, max(peaks))
