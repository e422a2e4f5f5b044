"""Two kernels of one signature."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, n, B: tl.constexpr):
    """y = x + 1"""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) + 1, i < n)


@triton.jit
def other_add(x, y, n, B: tl.constexpr):
    """y = x - 1"""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) - 1, i < n)
