"""The order in which a dot adds its products up: by itself, or one by one to the accumulator."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels

pytestmark = [pytest.mark.torch, pytest.mark.triton]
DEPTH, BLOCK = 64, 16


@triton.jit
def multiply(
    a, b, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BLOCK: tl.constexpr,
    MOST: tl.constexpr,
):  # fmt: skip
    x, y = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, DEPTH, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + x * DEPTH + k[None, :])
        right = tl.load(b + k[:, None] * COLUMNS + y)
        total = tl.dot(left, right, total, "ieee", max_num_imprecise_acc=MOST)
    tl.store(out + x * COLUMNS + y, total)


@triton.jit
def multiply_batches(
    a, b, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BLOCK: tl.constexpr,
    MOST: tl.constexpr,
):  # fmt: skip
    x, y = tl.arange(0, ROWS)[None, :, None], tl.arange(0, COLUMNS)[None, None, :]
    z = tl.arange(0, 2)[:, None, None] * 0  # twice the same
    total = tl.zeros((2, ROWS, COLUMNS), tl.float32)
    for start in range(0, DEPTH, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + z + x * DEPTH + k[None, None, :])
        right = tl.load(b + z + k[None, :, None] * COLUMNS + y)
        total = tl.dot(left, right, total, "ieee", max_num_imprecise_acc=MOST)
    tl.store(out + z + x * COLUMNS + y, total)


def rounded_sum(total: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """total [rows, columns] f32 and terms [depth, rows, columns] f64, each sum rounded once."""
    for term in terms:
        total = (total.double() + term).float()
    return total


@pytest.mark.parametrize("kernel", [multiply, multiply_batches])
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (2, 8), (16, 32), (32, 64)])
@pytest.mark.parametrize("most", [0, 1])
def test_order(kernel, rows, columns, most):
    check_order(kernel, rows, columns, most, DEPTH, BLOCK)


@pytest.mark.parametrize("rows", [8, 32, 64])
@pytest.mark.parametrize("most", [0, 1])
def test_order_of_blocks_of_many(rows, most):
    check_order(multiply, rows, 64, most, 768, 256)


def check_order(kernel, rows, columns, most, depth, block):
    """Products are multiples of 2⁻¹² below 4, so that sums of f64 are exact; the first is 2¹⁴, so
    that those of f32 are not."""
    drawn = torch.Generator().manual_seed(rows)
    a, b = (torch.randint(-127, 128, shape, generator=drawn) / 64 for shape in
            ((rows, depth), (depth, columns)))  # fmt: skip
    a[:, 0], b[0] = 128, 128
    out = torch.empty(rows, columns)
    with kernels.on_cpu():
        kernel[(1,)](a, b, out, rows, columns, depth, block, most)
    terms = a.T.double()[:, :, None] * b.double()[:, None, :]
    expected = {0: torch.zeros(rows, columns), 1: rounded_sum(torch.zeros(rows, columns), terms)}
    for start in range(0, depth, block):
        part = rounded_sum(torch.zeros(rows, columns), terms[start : start + block])
        expected[0] += part
    assert not torch.equal(expected[0], expected[1])
    assert torch.equal(out, expected[most])
