"""A bundle with real native code: y[i] = 15 · x[i] over 192 i64 numbers, in four launches."""

from __future__ import annotations

import array
import functools
import sys
from pathlib import Path

from one_entry import one_entry

from aotc.aot.pack import BundleContents, Golden, TargetContents, TensorData, pack
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import Buffer, Kernel, Launch, LaunchPlan, Plan

sys.path.insert(0, str(Path(__file__).parents[1] / "targets_cpu"))

COUNT = 192
INPUT = array.array("q", range(COUNT))
OUTPUT = array.array("q", [15 * number for number in INPUT])


@functools.cache
def contents() -> BundleContents:
    """Compiles the kernels once."""
    import native

    symbols = list(native.KERNELS)
    first = (("input", 0), ("arena", 0), ("int", 5))
    second = (("arena", 0), ("output", 0), ("int", 3))
    launches = (
        ("k_clear", (3, 1, 1), first),
        ("k_multiply", (4, 6, 8), first),
        ("k_clear", (3, 1, 1), second),
        ("k_multiply", (COUNT, 1, 1), second),
    )
    plan = LaunchPlan(
        arena_bytes=8 * COUNT,
        scratch_bytes=64,
        buffers=(Buffer("five times", 0, 8 * COUNT),),
        kernels=tuple(Kernel(symbol, symbol) for symbol in symbols),
        steps=tuple(Launch(symbols.index(name), grid, args) for name, grid, args in launches),
    )
    target = TargetContents(
        "cpu-x86-64-v2", "cpu", ("sse4_2",), Plan.of(plan), native.library_bytes()
    )
    return one_entry(
        inputs=(TensorSpec("x", "i64", (COUNT,)),),
        outputs=(TensorSpec("y", "i64", (COUNT,)),),
        targets=(target,),
        golden=Golden(
            (TensorData("i64", (COUNT,), INPUT.tobytes()),),
            (TensorData("i64", (COUNT,), OUTPUT.tobytes()),),
            (0.0,),
        ),
    )


def write(path: Path) -> Path:
    """Pack it at `path`."""
    pack(contents(), path)
    return path
