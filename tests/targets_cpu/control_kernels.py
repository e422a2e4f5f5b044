"""Kernels whose functions are graphs of blocks: returns within branches."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from kernel_table import case, normal


@triton.jit
def early_return_kernel(out_ptr, x_ptr, n, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid == n:
        tl.store(out_ptr + pid, -1.0)
        return
    x = tl.load(x_ptr + pid * B + tl.arange(0, B))
    if pid == 1:
        value = tl.sum(x)
        if value > 1e9:
            tl.store(out_ptr + pid, value)
            return
        value = value - 1
    else:
        value = tl.max(x, 0)
    tl.store(out_ptr + pid, value * 2)


@case
def returns_with_bodies():
    x, out = normal(5, 16), torch.zeros(5)
    early_return_kernel[(5,)](out, x, 3, B=16)
    expected = 2 * x.amax(1)
    expected[1], expected[3] = 2 * (x[1].sum() - 1), -1
    return out, expected


@triton.jit
def tensors_of_blocks_kernel(out_ptr, x_ptr, n, B: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * B + tl.arange(0, B)
    x = tl.load(x_ptr + at)
    if pid == n:
        tl.store(out_ptr + at, x + 1)
        return
    if pid == 2:
        x = x * 2
        if n == 7:
            return
    else:
        x = x * 3
    tl.store(out_ptr + at, x)


@case
def tensors_that_blocks_are_given():
    x, out = normal(5, 16), torch.zeros(5, 16)
    tensors_of_blocks_kernel[(5,)](out, x, 3, B=16)
    expected = 3 * x
    expected[2], expected[3] = 2 * x[2], x[3] + 1
    return out, expected
