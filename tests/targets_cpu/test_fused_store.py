"""Products that are stored from registers: which ones are, and that all give the right numbers."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu import fused_store, usage
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import Lowering
from aotc.aot.targets.cpu.ttir import parse
from aotc.aot.targets.digest import compiler_digest
from aotc.aot.tasks.task import Request
from aotc.kernels import driver
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

pytestmark = [pytest.mark.torch, pytest.mark.triton]
TOLERANCES = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-14}
BLOCKS = {"BM": 32, "BN": 64, "BK": 16}
ACCUMULATORS_BYTES = 4 * BLOCKS["BM"] * BLOCKS["BN"]


@triton.jit
def plain(a, b, out, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    y = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + x * K + k[None, :], mask=(x < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + y, mask=(k[:, None] < K) & (y < N), other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee", out_dtype=tl.float32)
    tl.store(out + x * N + y, acc, mask=(x < M) & (y < N))


@triton.jit
def fused(
    a, b, bias, other, out, positive, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    x, y = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + x * K + k[None, :])
        acc = tl.dot(left, tl.load(b + k[:, None] * BN + y), acc, input_precision="ieee")
    scale = tl.load(other) * 2.0
    found = acc * scale + tl.load(bias + y)
    tl.store(out + x * BN + y, found)
    tl.store(positive + x * BN + y, found > 0.0)


@triton.jit
def over_itself(a, b, out, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Stores the product where its right operand was."""
    x, y = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + x * K + k[None, :])
        acc = tl.dot(left, tl.load(b + k[:, None] * BN + y), acc, input_precision="ieee")
    tl.store(b + x * BN + y, acc)
    tl.store(out + x * BN + y, 1.0 + 0.0 * acc)


@triton.jit
def summed(a, b, out, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A reduction reads the product beside the store."""
    x, y, k = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, K)
    left, right = tl.load(a + x * K + k[None, :]), tl.load(b + k[:, None] * BN + y)
    acc = tl.dot(left, right, input_precision="ieee")
    tl.store(out + x * BN + y, acc - tl.sum(acc, 1)[:, None])


@triton.jit
def turned(a, b, out, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Stores along columns."""
    x, y, k = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, K)
    left, right = tl.load(a + x * K + k[None, :]), tl.load(b + k[:, None] * BN + y)
    tl.store(out + y * BM + x, tl.dot(left, right, input_precision="ieee"))


@pytest.fixture(params=["x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "x86-64-amx"])
def isa(request, monkeypatch):
    if not ISA_FEATURES[request.param] <= features():
        pytest.skip(f"this processor is not {request.param}")
    monkeypatch.setattr(driver, "_isa", lambda: request.param)
    # As kernels of our own are compiled: the memory behind different pointers does not overlap.
    apart = lambda name, function, values: Request(name, function, (*values[:2], True))  # noqa: E731
    monkeypatch.setattr(driver, "Request", apart)
    monkeypatch.setattr(
        driver.CpuBackend, "hash", lambda self: f"apart-{compiler_digest('cpu')}-{request.param}"
    )
    with kernels.on_cpu():
        yield request.param
    for kernel in (plain, fused, over_itself, summed, turned):
        kernel.device_caches.clear()


def lowering(kernel, depth, types, no_alias=True):
    """The lowering of a kernel whose other parameters are pointers of these types."""
    config = {"K": depth, **BLOCKS}
    sizes = [(name, "i32") for name in ("M", "N") if name in kernel.arg_names]
    pointers = [name for name in kernel.arg_names if name not in (*config, "M", "N")]
    kinds = [*zip(pointers, types, strict=True), *sizes, *((name, "constexpr") for name in config)]
    order = {name: place for place, name in enumerate(kernel.arg_names)}
    text = toolchain.ttir_text(kernel, sorted(kinds, key=lambda row: order[row[0]]), config)
    return Lowering(parse(text), ISAS["x86-64-v4"], no_alias=no_alias)


F32 = "*fp32"


@pytest.mark.parametrize("depth", [16, 48, 40])
def test_a_product_of_one_block_has_no_accumulators_in_memory(depth):
    found = lowering(plain, depth, [F32] * 3)
    assert found.fused_stores
    operands_bytes = 4 * 16 * (BLOCKS["BM"] + BLOCKS["BN"]) + 256
    limit = operands_bytes + (ACCUMULATORS_BYTES if depth > BLOCKS["BK"] else 0)
    assert found.run().scratch_bytes <= limit


def test_all_that_follows_a_product_element_by_element_closes_it():
    stores = list(lowering(fused, 32, [F32] * 5 + ["*i1"]).fused_stores)
    assert [each.name for each in stores] == ["scf.for", "tt.store", "tt.store"]


@pytest.mark.parametrize("kernel", [over_itself, summed])
def test_a_product_that_others_read_or_whose_operands_are_written_is_not_closed(kernel):
    assert not lowering(kernel, 64, [F32] * 3).fused_stores


def test_pointers_that_may_overlap_close_nothing():
    assert not lowering(plain, 32, [F32] * 3, no_alias=False).fused_stores


def test_a_long_expression_is_not_written_for_each_accumulator():
    found = lowering(plain, 32, [F32] * 3)
    block = found.function.blocks[0].operations
    store = next(each for each in block if each.name == "tt.store")
    assert fused_store._instructions(store.operands[1], {}) <= fused_store.MOST_INSTRUCTIONS
    kept = {store.operands[1]: usage.Keep.AT_ONCE}
    assert not fused_store.fused_stores(found.function, found.runs, kept, lambda _: False)


@triton.jit
def in_groups(
    a, b, ends, out, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x = tl.arange(0, BM)[:, None]
    y = tl.arange(0, BN)[None, :]
    group = tl.program_id(0)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.load(ends + group), tl.load(ends + group + 1), BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + x * K + k[None, :])
        acc = tl.dot(left, tl.load(b + k[:, None] * BN + y), acc, input_precision="ieee")
    tl.store(out + group * BM * BN + x * BN + y, acc + 1.0)


def test_a_loop_without_turns_stores_what_it_starts_with():
    with kernels.on_cpu():
        a, b = normal(32, 48), normal(48, 64)
        ends = torch.tensor([0, 16, 16, 48], dtype=torch.int32)
        out = torch.full((3, 32, 64), 7.0)
        in_groups[(3,)](a, b, ends, out, 48, **BLOCKS)
    expected = [a[:, s:e] @ b[s:e] + 1 for s, e in ((0, 16), (16, 16), (16, 48))]
    torch.testing.assert_close(out, torch.stack(expected), rtol=1e-4, atol=1e-4)


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def distance(found, wanted):
    """Largest difference, as a part of the largest element."""
    return float((found.double() - wanted).abs().max() / wanted.abs().max())


@pytest.mark.in_turn("isa")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 5), (32, 64), (33, 65), (45, 130)])
@pytest.mark.parametrize("depth", [1, 16, 33, 64])
def test_sizes_that_no_tile_divides(rows, columns, depth, dtype, isa):
    a, b = normal(rows, depth, dtype=dtype), normal(depth, columns, dtype=dtype)
    out = torch.full((rows + 1, columns), 7.0, dtype=dtype)
    grid = (triton.cdiv(rows, BLOCKS["BM"]), triton.cdiv(columns, BLOCKS["BN"]))
    plain[grid](a, b, out, rows, columns, depth, **BLOCKS)
    assert distance(out[:rows], a.double() @ b.double()) <= TOLERANCES[dtype]
    assert (out[rows:] == 7).all()


@pytest.mark.parametrize("depth", [16, 64])
def test_two_stores_and_other_operands(depth, isa):
    a, b = normal(32, depth), normal(depth, 64)
    bias, other = normal(64), torch.tensor([1.5])
    out, positive = torch.empty(32, 64), torch.empty(32, 64, dtype=torch.bool)
    fused[(1,)](a, b, bias, other, out, positive, depth, **BLOCKS)
    wanted = a.double() @ b.double() * 3 + bias.double()
    assert distance(out, wanted) <= TOLERANCES[torch.float32]
    assert torch.equal(positive, out > 0)


@pytest.mark.parametrize("depth", [32, 64])
def test_a_product_over_its_own_operand(depth, isa):
    a, b, out = normal(32, depth), normal(depth, 64), torch.empty(32, 64)
    wanted, rest = a.double() @ b.double(), b[32:].clone()
    over_itself[(1,)](a, b, out, depth, **BLOCKS)
    assert distance(b[:32], wanted) <= TOLERANCES[torch.float32]
    assert torch.equal(b[32:], rest)
    assert (out == 1).all()


def test_a_reduction_of_a_product_that_is_stored(isa):
    a, b, out = normal(32, 16), normal(16, 64), torch.empty(32, 64)
    summed[(1,)](a, b, out, 16, **BLOCKS)
    wanted = a.double() @ b.double()
    assert distance(out, wanted - wanted.sum(1, keepdim=True)) <= TOLERANCES[torch.float32]


def test_a_store_along_columns(isa):
    a, b, out = normal(32, 16), normal(16, 64), torch.empty(64, 32)
    turned[(1,)](a, b, out, 16, **BLOCKS)
    assert distance(out.t(), a.double() @ b.double()) <= TOLERANCES[torch.float32]
