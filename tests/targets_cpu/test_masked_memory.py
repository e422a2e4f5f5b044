"""Reads and writes with a mask: their widths, and that they touch no lane which it leaves out."""

from __future__ import annotations

import re

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


@pytest.fixture
def launched_as(monkeypatch):
    """Has a kernel compiled for a row of the table of processors; skips where this one lacks it."""
    used = []

    def call(row, kernel):
        if not ISA_FEATURES[row] <= features():
            pytest.skip(f"this processor has no {row}")
        monkeypatch.setattr(driver, "_isa", lambda: row)
        used.append(kernel)
        kernel.device_caches.clear()

    yield call
    for kernel in used:
        kernel.device_caches.clear()


SOURCE = """import triton
import triton.language as tl


@triton.jit
def kernel(a, out, n):
    x = tl.arange(0, 32)
    tl.store(out + x, tl.load(a + x, mask=x < 5, other=1), mask=x < n)
"""
BITS = {"f32": 32, "f64": 64, "i32": 32, "i64": 64, "i8": 8, "i16": 16, "f16": 16}
ACCESS = re.compile(r"@llvm\.masked\.(load|store)\.v(\d+)(\w+)\.p0")
BY_SIGN = re.compile(r"@llvm\.x86\.avx2?\.mask(load|store)\.\w+(\.256)?\(")


@pytest.mark.in_turn("row")
@pytest.mark.parametrize("pointer", ["*fp32", "*fp64", "*i32", "*i64"])
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_masked_accesses_have_legal_widths(row, pointer):
    kernel = toolchain.load_kernel(SOURCE, "kernel")
    ttir = toolchain.ttir_text(kernel, [("a", pointer), ("out", pointer), ("n", "i32")], {})
    text = lower(ttir, ISAS[row], no_alias=True).llvm_ir
    calls = [line for line in text.splitlines() if " call " in line]
    if ISAS[row].masks_by_sign:
        found = [match.groups() for match in map(BY_SIGN.search, calls) if match]
        assert set(found) == {("load", ".256"), ("store", ".256")}
        return
    found = [match.groups() for match in map(ACCESS.search, calls) if match]
    assert {kind for kind, _, _ in found} == {"load", "store"}
    widest = max(int(count) * BITS[element] for _, count, element in found)
    assert widest <= ISAS[row].widest_masked_bits


@triton.jit
def within(a, out, ROW: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, SIZE: tl.constexpr):
    row = tl.program_id(0) * 4 + tl.arange(0, 4)[:, None]
    x = tl.arange(0, SIZE)[None, :]
    inside = (row - ROW >= 0) & (row - ROW < 1) & (x - LOW >= 0) & (x - HIGH < 0)
    found = tl.load(a + row * SIZE + x, mask=inside, other=tl.full((), 7, a.dtype.element_ty))
    tl.store(out + row * SIZE + x, found * 2, mask=x >= 0)
    tl.store(out + (4 + row) * SIZE + x, found + 1, mask=inside)


WINDOWS = [(2, 4), (0, 1), (5, 16), (8, 12), (3, 3), (15, 16), (0, 8), (0, 16)]


@pytest.mark.in_turn("row")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_lanes_that_a_mask_leaves_out_are_neither_read_nor_written(row, dtype, size, launched_as):
    """Masks of which LLVM knows a part: parts of them are all false, or all alike."""
    launched_as(row, within)
    a = torch.arange(100, 100 + 4 * size).view(4, size).to(dtype)
    x, rows = torch.arange(size), torch.arange(4).unsqueeze(1)
    for place, (low, high) in enumerate(WINDOWS):
        out = torch.full((8, size), -1, dtype=dtype)
        with kernels.on_cpu():
            within[(1,)](a, out, place % 4, low, high, size)
        inside = (rows == place % 4) & (x >= low) & (x < high)
        assert torch.equal(out[:4], torch.where(inside, a, 7) * 2), (low, high)
        assert torch.equal(out[4:], torch.where(inside, a + 1, -1)), (low, high)


BLOCKS = """import triton
import triton.language as tl


@triton.jit
def kernel(a, out, n):
    x = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(out + x, tl.load(a + x, mask=x < n), mask=x < n)
"""


@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_whole_vectors_need_no_mask(row):
    kernel = toolchain.load_kernel(BLOCKS, "kernel")
    ttir = toolchain.ttir_text(kernel, [("a", "*fp32"), ("out", "*fp32"), ("n", "i32")], {})
    text = lower(ttir, ISAS[row], no_alias=True).llvm_ir
    lines = [line.strip() for line in text.splitlines()]
    stores = [line for line in lines if line.startswith("store <")]
    assert len(stores) == 1
    assert sum("@llvm.masked.store" in line or ".maskstore." in line for line in lines) == 1


TURNED = """import triton
import triton.language as tl


@triton.jit
def kernel(a, out, n):
    x = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(out + x, tl.load(a + (n - 1 - x), mask=x < n), mask=x < n)
"""


@pytest.mark.in_turn("row")
@pytest.mark.parametrize("pointer", ["*fp32", "*fp64", "*i8", "*i64"])
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_elements_from_the_last_on_are_read_together(row, pointer):
    kernel = toolchain.load_kernel(TURNED, "kernel")
    ttir = toolchain.ttir_text(kernel, [("a", pointer), ("out", pointer), ("n", "i32")], {})
    text = lower(ttir, ISAS[row], no_alias=True).llvm_ir
    calls = [line for line in text.splitlines() if " call " in line or " load " in line]
    assert not any("gather" in line for line in calls)
    assert any("load <" in line or "masked.load" in line or ".maskload" in line for line in calls)


@triton.jit
def turned(a, other, out, last, LOW: tl.constexpr, HIGH: tl.constexpr, SIZE: tl.constexpr):
    x = tl.arange(0, SIZE)
    inside = (x >= LOW) & (x < HIGH)
    tl.store(out + x, tl.load(a + last - x, mask=inside, other=tl.load(other + x)))
    tl.store(out + SIZE + x, tl.load(a + last - x))


@pytest.mark.in_turn("row")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8, torch.int64])
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("size", [4, 16, 64])
def test_elements_from_the_last_on_have_their_own_masks(row, dtype, size, launched_as):
    launched_as(row, turned)
    a, other = torch.arange(size).to(dtype), torch.arange(size).neg().to(dtype)
    x = torch.arange(size)
    for low, high in [(0, size), (0, 1), (size - 1, size), (size // 2 - 1, size // 2 + 1), (3, 3)]:
        out = torch.full((2 * size,), -99, dtype=dtype)
        with kernels.on_cpu():
            turned[(1,)](a, other, out, size - 1, low, high, size)
        expected = torch.where((x >= low) & (x < high), a.flip(0), other)
        assert torch.equal(out[:size], expected), (low, high)
        assert torch.equal(out[size:], a.flip(0)), (low, high)
