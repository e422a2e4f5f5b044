"""Products whose operands have masks along the inner dimension: read up to there, without masks."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import lower

pytestmark = [pytest.mark.torch, pytest.mark.triton]

SOURCE = """import triton
import triton.language as tl


@triton.jit
def kernel(a, b, out, K):
    x, y = tl.arange(0, 8)[:, None], tl.arange(0, 32)[None, :]
    acc = tl.zeros((8, 32), tl.float32)
    for start in range(0, K, 16):
        k = start + tl.arange(0, 16)
        left = tl.load(a + x * 64 + k[None, :], mask=k[None, :] < K, other={other})
        right = tl.load(b + k[:, None] * 32 + y, mask=k[:, None] < K, other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    tl.store(out + x * 32 + y, acc)
"""


@triton.jit
def multiply(
    a, b, out, K, ROW: tl.constexpr, OTHER: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    x, y = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), OUT)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + x * ROW + k[None, :], mask=k[None, :] < K, other=OTHER)
        right = tl.load(b + k[:, None] * BN + y, mask=k[:, None] < K, other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee", out_dtype=OUT)
    tl.store(out + x * BN + y, acc)


@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("other", "is_masked"), [("0.0", False), ("1.0", True)])
def test_operands_are_read_without_masks_where_zeros_follow(row, other, is_masked):
    kernel = toolchain.load_kernel(SOURCE.format(other=other), "kernel")
    pointers = [(name, "*fp32") for name in ("a", "b", "out")]
    ttir = toolchain.ttir_text(kernel, [*pointers, ("K", "i32")], {})
    made = lower(ttir, ISAS[row], no_alias=True)
    has_masks = "@llvm.masked.load" in made.llvm_ir or ".maskload." in made.llvm_ir
    assert has_masks == is_masked
    assert (made.scratch_bytes > 8 * 32 * 4) == is_masked  # more than the sums: copies


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("depth", [0, 1, 2, 15, 16, 17, 33, 40])
@pytest.mark.parametrize("rows", [1, 8, 32])
@pytest.mark.parametrize("other", [0.0, 1.0])
def test_what_lies_beyond_the_depth_does_not_count(dtype, depth, rows, other):
    drawn = torch.Generator().manual_seed(depth + rows)
    a = torch.randn(rows, 48, generator=drawn, dtype=torch.float64).to(dtype)
    b = torch.randn(48, 32, generator=drawn, dtype=torch.float64).to(dtype)
    a[:, depth:], b[depth:] = torch.inf, torch.nan
    out = torch.empty(rows, 32, dtype=dtype)
    kind = tl.float64 if dtype == torch.float64 else tl.float32
    with kernels.on_cpu():
        multiply[(1,)](a, b, out, depth, 48, other, rows, 32, 16, kind)
    left, right = a[:, :depth].double(), b[:depth].double()
    bound = depth * torch.finfo(dtype).eps * (left.abs() @ right.abs())
    assert ((out.double() - left @ right).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("depth", [0, 1, 255, 256, 257, 511, 700])
@pytest.mark.parametrize("rows", [8, 16, 32])
def test_blocks_of_a_deep_product_are_summed_up_to_the_end_of_the_mask(dtype, depth, rows):
    """Of right operands that stand as panels, with the loop over the depth inside each block."""
    drawn = torch.Generator().manual_seed(depth + rows)
    a = torch.randn(rows, 768, generator=drawn, dtype=torch.float64).to(dtype)
    b = torch.randn(768, 64, generator=drawn, dtype=torch.float64).to(dtype)
    a[:, depth:], b[depth:] = torch.inf, torch.nan
    out = torch.empty(rows, 64, dtype=dtype)
    kind = tl.float64 if dtype == torch.float64 else tl.float32
    with kernels.on_cpu():
        multiply[(1,)](a, b, out, depth, 768, 0.0, rows, 64, 256, kind)
    left, right = a[:, :depth].double(), b[:depth].double()
    bound = depth * torch.finfo(dtype).eps * (left.abs() @ right.abs())
    assert ((out.double() - left @ right).abs() <= bound).all()
