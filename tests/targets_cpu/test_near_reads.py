"""Elements at known distances from one lane to the next: right, and none beyond them is touched."""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import lower
from aotc.kernels import driver
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

pytestmark = [pytest.mark.torch, pytest.mark.triton]
BLOCK, PROGRAMS = 64, 3
DTYPES = [torch.float32, torch.float64, torch.int8, torch.int64, torch.bfloat16]


@triton.jit
def picked(
    a, out, n, FIRST: tl.constexpr, DIVISOR: tl.constexpr, BY_QUOTIENT: tl.constexpr,
    BY_REMAINDER: tl.constexpr, BY_PLACE: tl.constexpr, PERIOD: tl.constexpr, LEAST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    y = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = FIRST + (y // DIVISOR) * BY_QUOTIENT + (y % DIVISOR) * BY_REMAINDER + y * BY_PLACE
    is_taken = (y < n) & (y % PERIOD >= LEAST)
    found = tl.load(a + place, mask=is_taken, other=3)
    tl.store(out + y, found, mask=y < n)


@contextmanager
def beside_closed_pages(values: torch.Tensor, at_end: bool) -> Iterator[torch.Tensor]:
    """The tensor where the page before its first element, or behind its last, cannot be read."""
    page, nbytes = mmap.PAGESIZE, values.numel() * values.itemsize
    count = -(-nbytes // page)
    memory = mmap.mmap(-1, (count + 2) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    closed = start, start + (count + 1) * page
    for place in closed:
        assert protect(ctypes.c_void_p(place), page, 0) == 0
    first = page + (count * page - nbytes if at_end else 0)
    data = torch.frombuffer(memory, dtype=values.dtype, count=values.numel(), offset=first)
    try:
        yield data.copy_(values)
    finally:
        for place in closed:
            protect(ctypes.c_void_p(place), page, mmap.PROT_READ | mmap.PROT_WRITE)


def places_of(y, divisor, by_quotient, by_remainder, by_place):
    return (y // divisor) * by_quotient + (y % divisor) * by_remainder + y * by_place


def drawn(generator):
    divisor, period = generator.choice((1, 2, 3, 4, 8, 16, 32)), generator.choice((1, 2, 4, 5))
    factors = [generator.choice((0, 0, 1, 2, 3, 4, -1, -2, 7, 32)) for _ in range(3)]
    return divisor, *factors, period, generator.randrange(period)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_drawn_places(row, seed, monkeypatch):
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor has no {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    picked.device_caches.clear()
    generator = random.Random(seed)
    for _ in range(4):
        divisor, by_quotient, by_remainder, by_place, period, least = drawn(generator)
        dtype, count = generator.choice(DTYPES), generator.choice((192, 191, 130, 64, 40, 7, 1))
        y = torch.arange(count)
        places = places_of(y, divisor, by_quotient, by_remainder, by_place)
        is_taken = y % period >= least
        if not is_taken.any():
            continue
        low, high = int(places[is_taken].min()), int(places[is_taken].max())
        values = torch.randint(-100, 100, (high - low + 1,)).to(dtype)
        expected = torch.where(is_taken, values[(places - low).clamp(0, high - low)], 3).to(dtype)
        # Pages that cannot be read lie before the first element that is taken, or behind the last.
        for at_end in (False, True):
            with beside_closed_pages(values, at_end) as data:
                out = torch.zeros(count, dtype=dtype)
                with kernels.on_cpu():
                    picked[(PROGRAMS,)](
                        data, out, count, -low, divisor, by_quotient, by_remainder, by_place,
                        period, least, BLOCK,
                    )  # fmt: skip
            assert torch.equal(out, expected), (divisor, by_quotient, by_remainder, by_place)
    picked.device_caches.clear()


@pytest.mark.parametrize(
    ("divisor", "by_quotient", "by_remainder", "by_place", "loads"),
    [
        (1, 0, 0, 2, 2), (1, 0, 0, 3, 3), (1, 0, 0, 4, 4),
        (2, 1, 0, 0, 1), (2, 2, 0, 0, 2), (4, 0, 3, 0, 2),
    ],
)  # fmt: skip
def test_such_elements_are_not_looked_up(divisor, by_quotient, by_remainder, by_place, loads):
    names = ("FIRST", "DIVISOR", "BY_QUOTIENT", "BY_REMAINDER", "BY_PLACE", "PERIOD", "LEAST")
    values = (0, divisor, by_quotient, by_remainder, by_place, 1, 0)
    constants = {**dict(zip(names, values, strict=True)), "BLOCK": BLOCK}
    parameters = [("a", "*fp32"), ("out", "*fp32"), ("n", "i32")]
    parameters += [(name, "constexpr") for name in constants]
    ttir = toolchain.ttir_text(picked, parameters, constants)
    text = lower(ttir, ISAS["x86-64-v4"], no_alias=True).llvm_ir
    found = [line for line in text.splitlines() if " = load <" in line]
    assert len(found) == loads
    # What is left over at the end of the block has a mask, and is looked up.
    assert text.count("call <16 x float> @llvm.masked.gather") == 1
