"""Stores along another dimension than loads, and reductions of several vectors of columns, for any
sizes of tile and mask, on each instruction set."""

from __future__ import annotations

import random

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.kernels import driver
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.float64]


@pytest.fixture(params=["x86-64-v3", "x86-64-v4"])
def isa(request, monkeypatch):
    if not ISA_FEATURES[request.param] <= features():
        pytest.skip(f"this processor is not {request.param}")
    monkeypatch.setattr(driver, "_isa", lambda: request.param)
    with kernels.on_cpu():
        yield request.param
    for kernel in (transposed, in_runs, out_of_runs, slanted_runs, product_in_runs, columns):
        kernel.device_caches.clear()


@triton.jit
def transposed(
    out_ptr, x_ptr, rows, columns, stride, IS_SHIFTED: tl.constexpr, IS_MASKED: tl.constexpr,
    XBLOCK: tl.constexpr, YBLOCK: tl.constexpr,
):  # fmt: skip
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    if IS_MASKED:
        mask = (x < rows) & (y < columns)
        if IS_SHIFTED:
            mask = mask & (x >= 2)
        found = tl.load(x_ptr + y * stride + x, mask=mask)
        tl.store(out_ptr + x * columns + y, found + found, mask=mask)
    else:
        found = tl.load(x_ptr + y * stride + x)
        tl.store(out_ptr + x * columns + y, found + found)


@triton.jit
def in_runs(
    out_ptr, x_ptr, rows, columns, RUN: tl.constexpr, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr,
):  # fmt: skip
    """Rows are places of several images, whose planes of a column each follow each other."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    mask = (x < rows) & (y < columns)
    found = tl.load(x_ptr + x * columns + y, mask=mask)
    tl.store(out_ptr + (x // RUN) * (columns * RUN) + y * RUN + x % RUN, found + found, mask=mask)


@triton.jit
def out_of_runs(
    out_ptr, x_ptr, rows, columns, RUN: tl.constexpr, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr,
):  # fmt: skip
    """The way back, with zeros for places of an image that are left out."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    mask = (x < rows) & (y < columns)
    place = (x // RUN) * (columns * RUN) + y * RUN + x % RUN
    found = tl.load(x_ptr + place, mask=mask & (x % RUN >= 2), other=0)
    tl.store(out_ptr + x * columns + y, found + found, mask=mask)


@triton.jit
def slanted_runs(
    out_ptr, x_ptr, rows, columns, RUN: tl.constexpr, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr,
):  # fmt: skip
    """Where a run ends depends on the column."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    mask = (x < rows) & (y < columns)
    found = tl.load(x_ptr + x * columns + y, mask=mask)
    place = y * rows * 2 + x + ((x + y) // RUN) % 2 * rows
    tl.store(out_ptr + place, found, mask=mask)


@triton.jit
def product_in_runs(
    out_ptr, a_ptr, b_ptr, rows, columns, DEPTH: tl.constexpr, RUN: tl.constexpr,
    XBLOCK: tl.constexpr, YBLOCK: tl.constexpr, ZBLOCK: tl.constexpr,
):  # fmt: skip
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    mask = (x < rows) & (y < columns)
    total = tl.zeros((XBLOCK, YBLOCK), tl.float32)
    for start in range(0, DEPTH, ZBLOCK):
        z = start + tl.arange(0, ZBLOCK)
        a = tl.load(a_ptr + x * DEPTH + z[None, :], mask=x < rows)
        b = tl.load(b_ptr + z[:, None] * columns + y, mask=y < columns)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(out_ptr + (x // RUN) * (columns * RUN) + y * RUN + x % RUN, total, mask=mask)


RUNS = (1, 3, 15, 16, 17, 31, 49, 64, 100, 131)


def drawn_runs(seed):
    """(images, the length of a run, columns, two blocks, an element type)"""
    chosen = random.Random(seed)
    blocks = [chosen.choice((16, 32, 64, 128)) for _ in range(2)]
    columns = chosen.choice((1, 8, 15, 16, 17, 40, 64, 80, 96))
    return chosen.choice((1, 2, 3)), RUNS[seed % len(RUNS)], columns, blocks, chosen.choice(DTYPES)


def in_planes(found, images, run, columns):
    """What stands at (image, place, column), as planes of a column of each image."""
    return found.view(images, run, columns).transpose(1, 2).contiguous().view(-1)


@pytest.mark.in_turn("isa")
@pytest.mark.parametrize("seed", range(20))
def test_stores_in_runs(isa, seed):
    images, run, columns, (xblock, yblock), dtype = drawn_runs(seed)
    rows = images * run
    data = (torch.randn(rows, columns) * 20).to(dtype)
    out = torch.full((rows * columns + 40,), 77, dtype=dtype)
    grid = (triton.cdiv(rows, xblock), triton.cdiv(columns, yblock))
    in_runs[grid](out, data, rows, columns, RUN=run, XBLOCK=xblock, YBLOCK=yblock)
    assert torch.equal(out[: rows * columns], in_planes(data + data, images, run, columns))
    assert (out[rows * columns :] == 77).all()


@pytest.mark.in_turn("isa")
@pytest.mark.parametrize("seed", range(20))
def test_loads_in_runs(isa, seed):
    images, run, columns, (xblock, yblock), dtype = drawn_runs(seed)
    rows = images * run
    data = (torch.randn(rows, columns) * 20).to(dtype)
    out = torch.full((rows + 1, columns), 77, dtype=dtype)
    grid = (triton.cdiv(rows, xblock), triton.cdiv(columns, yblock))
    planes = in_planes(data, images, run, columns)
    out_of_runs[grid](out, planes, rows, columns, RUN=run, XBLOCK=xblock, YBLOCK=yblock)
    is_kept = (torch.arange(rows) % run >= 2)[:, None]
    assert torch.equal(out[:rows], torch.where(is_kept, data + data, 0))
    assert (out[rows] == 77).all()


@pytest.mark.in_turn("isa")
@pytest.mark.parametrize("seed", range(10))
def test_runs_that_end_elsewhere_in_each_column(isa, seed):
    images, run, columns, (xblock, yblock), dtype = drawn_runs(seed)
    rows = images * run
    data = (torch.randn(rows, columns) * 20).to(dtype)
    out = torch.full((columns, 2, rows), 77, dtype=dtype)
    grid = (triton.cdiv(rows, xblock), triton.cdiv(columns, yblock))
    slanted_runs[grid](out, data, rows, columns, RUN=run, XBLOCK=xblock, YBLOCK=yblock)
    x, y = torch.arange(rows)[None, :], torch.arange(columns)[:, None]
    side = (x + y) // run % 2
    wanted = torch.full((columns, 2, rows), 77, dtype=dtype)
    wanted.scatter_(1, side[:, None, :], data.t()[:, None, :].contiguous())
    assert torch.equal(out, wanted)


@pytest.mark.in_turn("isa")
@pytest.mark.parametrize("seed", range(20))
def test_products_in_runs(isa, seed):
    images, run, columns, (xblock, yblock), _ = drawn_runs(seed)
    rows, depth = images * run, 32
    a, b = torch.randn(rows, depth), torch.randn(depth, columns)
    out = torch.full((rows * columns + 40,), 77.0)
    grid = (triton.cdiv(rows, xblock), triton.cdiv(columns, yblock))
    product_in_runs[grid](
        out, a, b, rows, columns, DEPTH=depth, RUN=run, XBLOCK=xblock, YBLOCK=yblock,
        ZBLOCK=random.Random(seed).choice((16, 32)),
    )  # fmt: skip
    wanted = in_planes(a.double() @ b.double(), images, run, columns)
    torch.testing.assert_close(out[: rows * columns].double(), wanted, rtol=1e-5, atol=1e-5)
    assert (out[rows * columns :] == 77).all()


@pytest.mark.in_turn("isa")
@pytest.mark.parametrize("seed", range(24))
def test_stores(isa, seed):
    chosen = random.Random(seed)
    blocks = [chosen.choice((4, 16, 32, 64, 128)) for _ in range(2)]
    counts = [chosen.choice((1, 5, 15, 16, 17, 40, 64, 100, 130)) for _ in range(2)]
    is_masked, is_shifted = chosen.random() < 0.7, chosen.random() < 0.3
    if not is_masked:
        counts = [-(-count // block) * block for count, block in zip(counts, blocks, strict=True)]
    rows, columns = counts
    dtype, more = chosen.choice(DTYPES), chosen.choice((0, 0, 3))
    data = (torch.randn(columns, rows + more, dtype=torch.float32) * 20).to(dtype)
    out = torch.full((rows, columns), 77, dtype=dtype)
    grid = tuple(-(-count // block) for count, block in zip(counts, blocks, strict=True))
    transposed[grid](out, data, rows, columns, rows + more, is_shifted, is_masked, *blocks)
    expected = (data[:, :rows] + data[:, :rows]).T.contiguous()
    if is_masked and is_shifted:
        expected[:2] = 77
    assert torch.equal(out, expected)


@triton.jit
def columns(
    sums_ptr, peaks_ptr, x_ptr, w_ptr, rows, columns, RBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    y = tl.program_id(0) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    r = tl.arange(0, RBLOCK)[:, None]
    inside = r < rows
    x = tl.load(x_ptr + r * columns + y, mask=(y < columns) & inside)
    w = tl.load(w_ptr + r, mask=inside)
    sums = tl.sum(tl.where(inside, x.to(tl.float32) * w, 0.0), axis=0, keep_dims=True)
    peaks = tl.max(tl.where(inside, tl.exp(x.to(tl.float32)), -1.0), axis=0, keep_dims=True)
    # Columns beyond the mask are zeros that others add up.
    total = tl.sum(sums)
    tl.store(sums_ptr + y, sums, mask=y < columns)
    tl.store(sums_ptr + columns + tl.program_id(0), total)
    tl.store(peaks_ptr + y, peaks, mask=y < columns)


@pytest.mark.in_turn("isa")
@pytest.mark.parametrize("seed", range(16))
def test_reductions(isa, seed):
    chosen = random.Random(seed)
    block = chosen.choice((8, 32, 64, 128, 256, 512))
    rows, count = chosen.choice((1, 3, 40, 100, 128)), chosen.choice((1, 7, 60, 128, 200, 500))
    dtype = chosen.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16))
    data, weights = torch.randn(rows, count).to(dtype), torch.randn(rows, 1)
    programs = -(-count // block)
    sums, peaks = torch.zeros(count + programs), torch.zeros(count)
    columns[(programs,)](sums, peaks, data, weights, rows, count, 128, block)
    expected = (data.double() * weights).sum(0)
    torch.testing.assert_close(sums[:count].double(), expected, rtol=1e-5, atol=1e-4)
    totals = torch.stack([each.sum() for each in expected.split(block)])
    torch.testing.assert_close(sums[count:].double(), totals, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(peaks.double(), data.double().exp().amax(0), rtol=1e-5, atol=1e-5)
