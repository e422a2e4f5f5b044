"""Small native programs for tests of the executor, the pool and the driver."""

from __future__ import annotations

import functools

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu import executor
from aotc.runtime.bundle.plan import Kernel, Launch, LaunchPlan
from aotc.runtime.drivers.cpu.driver import Executable

CPU = "x86-64-v2"
HEAD = "define void @body(ptr %args, i32 %x, i32 %y, i32 %z, ptr %grid, ptr %scratch) noinline {\n"

# out[p] += in[p] · factor + scratch check for the program's own number p: its own tag is written to
# the scratch, a while passes, and whatever the scratch then holds counts instead of the tag.
MULTIPLY = (
    HEAD
    + """
entry:
  %in = load ptr, ptr %args
  %out.at = getelementptr i8, ptr %args, i64 8
  %out = load ptr, ptr %out.at
  %factor.at = getelementptr i8, ptr %args, i64 16
  %factor = load i64, ptr %factor.at
  %grid.y.at = getelementptr i8, ptr %grid, i64 4
  %grid.x = load i32, ptr %grid
  %grid.y = load i32, ptr %grid.y.at
  %zy = mul i32 %z, %grid.y
  %row = add i32 %zy, %y
  %rows = mul i32 %row, %grid.x
  %p32 = add i32 %rows, %x
  %p = zext i32 %p32 to i64
  store volatile i64 %p, ptr %scratch
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %n.next, %spin ]
  call void @llvm.x86.sse2.pause()
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, 4
  br i1 %more, label %spin, label %write
write:
  %mark = load volatile i64, ptr %scratch
  %wrong = sub i64 %mark, %p
  %in.p = getelementptr i64, ptr %in, i64 %p
  %value = load i64, ptr %in.p
  %product = mul i64 %value, %factor
  %sum = add i64 %product, %wrong
  %out.p = getelementptr i64, ptr %out, i64 %p
  %old = load i64, ptr %out.p
  %new = add i64 %old, %sum
  store i64 %new, ptr %out.p
  ret void
}
"""
)
# out[p] = 0 for 64 numbers a program, so that MULTIPLY's sum shows a program that ran twice.
CLEAR = (
    HEAD
    + """
entry:
  %out.at = getelementptr i8, ptr %args, i64 8
  %out = load ptr, ptr %out.at
  %p = zext i32 %x to i64
  %start = mul i64 %p, 512
  %to = getelementptr i8, ptr %out, i64 %start
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 512, i1 false)
  ret void
}
"""
)
NOTHING = HEAD + "  ret void\n}\n"
KERNELS = {"k_multiply": MULTIPLY, "k_clear": CLEAR, "k_nothing": NOTHING}


@functools.cache
def library_bytes() -> bytes:
    """A library with the executor and the kernels above."""
    objects = {
        symbol: toolchain.compile_object(text, symbol, CPU).data for symbol, text in KERNELS.items()
    }
    return toolchain.link({"executor": executor.executor_object().data, **objects})


def plan(launches: list[tuple[str, tuple[int, int, int], list]], arena_bytes: int) -> LaunchPlan:
    """A plan over KERNELS; launches are (symbol, grid, arguments)."""
    symbols = list(KERNELS)
    return LaunchPlan(
        arena_bytes=arena_bytes,
        scratch_bytes=64,
        buffers=(),
        kernels=tuple(Kernel(symbol, symbol) for symbol in symbols),
        steps=tuple(
            Launch(symbols.index(symbol), grid, tuple(map(tuple, args)))
            for symbol, grid, args in launches
        ),
    )


PROGRAMS = 192


# The argument slot of `weight` holds an address; MULTIPLY takes it as a number.
WEIGHTS = {"three": (3, 8)}


def multiply_executable(threads: int = 1) -> Executable:
    """output[i] = 3 · (5 · input[i]) for 192 i64 numbers, by way of the arena."""
    first = [("input", 0), ("arena", 0), ("int", 5)]
    second = [("arena", 0), ("output", 0), ("weight", "three")]
    launches = [
        ("k_clear", (3, 1, 1), first),
        ("k_multiply", (4, 6, 8), first),
        ("k_clear", (3, 1, 1), second),
        ("k_multiply", (PROGRAMS, 1, 1), second),
    ]
    rest = (WEIGHTS, (8,), (8,), 0, threads)
    return Executable(library_bytes(), plan(launches, 8 * PROGRAMS), *rest)
