"""Matrix product with constant weights packed in panels of BN columns.

B is [ceil(N / BN), K, BN], zero-padded, so that a program streams its panel front to back. Holes as
in matmul.py. As it stands A is a contiguous [M, K]; the grid is (M tiles, panels, 1), so that
neighbouring programs read the same panel.
"""

import triton
import triton.language as tl


@triton.jit
def load_a(in0, x, k, M, K):
    return tl.load(in0 + tl.minimum(x, M - 1) * K + k, mask=k < K, other=0.0)


@triton.jit
def load_b(in1, panel, k, n, K, BN: tl.constexpr):
    return tl.load(in1 + (panel * K + k) * BN + n, mask=k < K, other=0.0)


@triton.jit
def store(out0, acc, x, y, M, N):
    tl.store(out0 + x * N + y, acc, mask=(x < M) & (y < N))


@triton.jit
def matmul_packed(
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
    panel = tl.program_id(1)
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    for start in range(0, K, BK):
        a = load_a(in0, x, start + tl.arange(0, BK)[None, :], M, K)
        b = load_b(in1, panel, start + tl.arange(0, BK)[:, None], n, K, BN)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=ACCUMULATOR)
    store(out0, acc, x, y, M, N)
