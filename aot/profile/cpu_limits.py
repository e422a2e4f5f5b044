"""A processor's own limits, measured: bytes copied and f32 multiply-adds a second of all threads
that a call may use.

The multiply-adds are a loop of machine code, which needs no compiler on the serving machine; a test
compares it with what an assembler makes of `assembly`.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from aotc.aot.profile.report import Limits
from aotc.runtime.drivers.cpu.pool import default_threads

COPY_TOTAL_BYTES = 1 << 26  # of all threads, from and to as many: beyond most caches
TURNS = 200_000
ROUNDS, ROUNDS_S = 5, 0.15  # at least so many, and so long
ACCUMULATORS = 12  # chains of sums: more than latency × rate of any processor
# Instruction set → (name of its registers, numbers in one), the widest first.
VECTORS = {"avx512f": ("zmm", 16), "fma": ("ymm", 8)}


def measure_limits(needs: Collection[str], threads: int = 0) -> Limits | None:
    """The best of short rounds, in a fraction of a second.

    needs: the instruction sets that the bundle's code uses; threads: those of a call, 0: as many as
    this process may keep busy. None where there are no vectors of multiply-adds among them, and
    where no memory may be executed.
    """
    vectors = next((VECTORS[name] for name in VECTORS if name in needs), None)
    if vectors is None:
        return None
    registers, lanes = vectors
    try:
        memory = mmap.mmap(
            -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
    except OSError:
        return None
    memory.write(machine_code(registers))
    first = ctypes.c_char.from_buffer(memory)
    function = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(ctypes.addressof(first))
    threads = threads or default_threads()
    with ThreadPoolExecutor(threads) as pool:
        operations = 2.0 * lanes * ACCUMULATORS * TURNS * threads
        reached = _rate(pool, threads, lambda _: function(TURNS), operations)
        copies = _copies(threads)
        copied = _rate(pool, threads, lambda at: copies[at](), 2.0 * COPY_TOTAL_BYTES)
    return Limits(copied, reached, "f32 products")


def _rate(
    pool: ThreadPoolExecutor, threads: int, work: Callable[[int], object], amount: float
) -> float:
    """So much in a second, all threads at work, where nothing else slowed them; the first round is
    not counted."""
    rates: list[float] = []
    end_s = time.perf_counter() + ROUNDS_S
    while len(rates) <= ROUNDS or time.perf_counter() < end_s:
        began_s = time.perf_counter()
        list(pool.map(work, range(threads)))
        rates.append(amount / (time.perf_counter() - began_s))
    return max(rates[1:])


def _copies(threads: int) -> list[Callable[[], object]]:
    """For each thread a copy of its share of the memory, which ctypes runs without the lock."""
    nbytes = COPY_TOTAL_BYTES // threads
    found: list[Callable[[], object]] = []
    for _ in range(threads):
        source, to = ctypes.create_string_buffer(nbytes), ctypes.create_string_buffer(nbytes)
        ctypes.memset(source, 1, nbytes)  # else all of it is one page of zeros
        found.append(partial(ctypes.memmove, to, source, nbytes))
    return found


def assembly(registers: str) -> str:
    """The loop as an assembler reads it: the number of turns is in rdi."""
    lines = [f"vxorps %xmm{at}, %xmm{at}, %xmm{at}" for at in range(ACCUMULATORS + 1)]
    lines.append("1:")
    factor = f"%{registers}{ACCUMULATORS}"
    lines += [f"vfmadd231ps {factor}, {factor}, %{registers}{at}" for at in range(ACCUMULATORS)]
    return "\n".join([*lines, "dec %rdi", "jnz 1b", "vzeroupper", "ret", ""])


def machine_code(registers: str) -> bytes:
    """The loop's bytes."""
    zeros = b"".join(map(_zero, range(ACCUMULATORS + 1)))
    products = b"".join(_product(registers, at) for at in range(ACCUMULATORS))
    decrement = bytes.fromhex("48 ff cf")
    back = -(len(products) + len(decrement) + 2) & 0xFF
    return zeros + products + decrement + bytes([0x75, back]) + bytes.fromhex("c5 f8 77 c3")


def _zero(at: int) -> bytes:
    """`vxorps` of a register with itself."""
    if at < 8:
        return bytes([0xC5, 0xF8 - 8 * at, 0x57, 0xC0 + 9 * at])
    return bytes([0xC4, 0x41, 0x38 - 8 * (at - 8), 0x57, 0xC0 + 9 * (at - 8)])


def _product(registers: str, at: int) -> bytes:
    """`vfmadd231ps` of register 12 with itself to another one."""
    place = 0xC4 + 8 * (at % 8)
    if registers == "ymm":
        return bytes([0xC4, 0xC2 if at < 8 else 0x42, 0x1D, 0xB8, place])
    return bytes([0x62, 0xD2 if at < 8 else 0x52, 0x1D, 0x48, 0xB8, place])
