"""Reads and writes with a mask are no wider than LLVM handles without splitting them."""

from __future__ import annotations

import re

import pytest

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import lower

pytestmark = pytest.mark.triton

SOURCE = """import triton
import triton.language as tl


@triton.jit
def kernel(a, out, n):
    x = tl.arange(0, 32)
    tl.store(out + x, tl.load(a + x, mask=x < 5, other=1), mask=x < n)
"""
BITS = {"f32": 32, "f64": 64, "i32": 32, "i64": 64, "i8": 8, "i16": 16, "f16": 16}
ACCESS = re.compile(r"@llvm\.masked\.(load|store)\.v(\d+)(\w+)\.p0")


@pytest.mark.parametrize("pointer", ["*fp32", "*fp64", "*i32", "*i64"])
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_masked_accesses_have_legal_widths(row, pointer):
    kernel = toolchain.load_kernel(SOURCE, "kernel")
    ttir = toolchain.ttir_text(kernel, [("a", pointer), ("out", pointer), ("n", "i32")], {})
    text = lower(ttir, ISAS[row], no_alias=True).llvm_ir
    calls = [line for line in text.splitlines() if " call " in line]
    found = [match.groups() for match in map(ACCESS.search, calls) if match]
    assert {kind for kind, _, _ in found} == {"load", "store"}
    widest = max(int(count) * BITS[element] for _, count, element in found)
    assert widest <= ISAS[row].widest_masked_bits
    if (row, pointer) == ("x86-64-v3", "*fp64"):
        assert {(kind, count) for kind, count, _ in found} == {("load", "4"), ("store", "4")}


BLOCKS = """import triton
import triton.language as tl


@triton.jit
def kernel(a, out, n):
    x = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(out + x, tl.load(a + x, mask=x < n), mask=x < n)
"""


@pytest.mark.parametrize(("row", "is_cut"), [("x86-64-v3", True), ("x86-64-v4", False)])
def test_whole_vectors_need_no_mask_where_masks_are_slow(row, is_cut):
    kernel = toolchain.load_kernel(BLOCKS, "kernel")
    ttir = toolchain.ttir_text(kernel, [("a", "*fp32"), ("out", "*fp32"), ("n", "i32")], {})
    text = lower(ttir, ISAS[row], no_alias=True).llvm_ir
    lines = [line.strip() for line in text.splitlines()]
    stores = [line for line in lines if line.startswith("store <")]
    assert len(stores) == is_cut
    assert sum("@llvm.masked.store" in line for line in lines) == 1
