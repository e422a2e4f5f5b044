"""Batched matrix product, one tile of the result a program.

Holes: `load_a`, `load_b` (the prologue: whatever computes an operand's elements) and `store` (the
epilogue). As it stands it multiplies contiguous [Z, M, K] by [Z, K, N]; the grid is
(M tiles, N tiles, Z), so that neighbouring programs read the same columns of B.
"""

import triton
import triton.language as tl


@triton.jit
def load_a(in0, z, x, k, M, K):
    return tl.load(in0 + (z * M + tl.minimum(x, M - 1)) * K + k, mask=k < K, other=0.0)


@triton.jit
def load_b(in1, z, k, y, K, N):
    return tl.load(in1 + (z * K + k) * N + y, mask=(k < K) & (y < N), other=0.0)


@triton.jit
def store(out0, acc, z, x, y, M, N):
    tl.store(out0 + (z * M + x) * N + y, acc, mask=(x < M) & (y < N))


@triton.jit
def matmul(
    in0,
    in1,
    out0,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    z = tl.program_id(2)
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    panel = tl.program_id(1)
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    for start in range(0, K, BK):
        a = load_a(in0, z, x, start + tl.arange(0, BK)[None, :], M, K)
        b = load_b(in1, z, start + tl.arange(0, BK)[:, None], y, K, N)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=ACCUMULATOR)
    store(out0, acc, z, x, y, M, N)
