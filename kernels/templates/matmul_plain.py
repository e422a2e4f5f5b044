"""Batched matrix product for GPUs, one tile of the result a program.

Programs go over the tiles in groups of GROUP rows of tiles, so that those which run together share
operands in the cache. Holes: `describe` (tensor descriptors of the operands, if the loads use any),
`load_a`, `load_b` (the prologue) and `store` (the epilogue). As it stands it multiplies contiguous
[Z, M, K] by [Z, K, N]; the grid is (tiles, Z, 1).
"""

import triton
import triton.language as tl


@triton.jit
def describe(in0, in1, M, N, K):
    pass


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
def matmul_plain(
    in0,
    in1,
    out0,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    tile = tl.program_id(0)
    z = tl.program_id(1)
    width = GROUP * tl.cdiv(N, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    describe(in0, in1, M, N, K)
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    for start in range(0, K, BK):
        a = load_a(in0, z, x, start + tl.arange(0, BK)[None, :], M, K)
        b = load_b(in1, z, start + tl.arange(0, BK)[:, None], y, K, N)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    store(out0, acc, z, x, y, M, N)
