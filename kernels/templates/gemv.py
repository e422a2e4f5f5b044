"""Matrix products of very few rows: B streams through once, no tensor cores.

A program has BN columns and BM rows; the products of each column are added up along a third axis
and reduced once at the end. Holes as in matmul.py. Where B is constant, `ahead` loads its first
tile while the kernels before still run, waits for them, and loads what is read behind the loop;
`next_b` loads the tile of the next step, and `load_b` none. `load_early` loads what the epilogue
reads. As they stand, they multiply contiguous [Z, M, K] by the transposed [Z, N, K].
"""

import triton
import triton.language as tl


@triton.jit
def load_a(in0, z, x, k, M, K):
    return tl.load(in0 + (z * M + tl.minimum(x, M - 1)) * K + k, mask=k < K, other=0.0)


@triton.jit
def load_b(in1, z, k, y, K, N):
    return tl.load(in1 + (z * N + tl.minimum(y, N - 1)) * K + k, mask=k < K, other=0.0)


@triton.jit
def ahead():
    pass


@triton.jit
def next_b(b):
    return b


@triton.jit
def load_early():
    pass


@triton.jit
def store(out0, acc, z, x, y, M, N):
    tl.store(out0 + (z * M + x) * N + y, acc, mask=(x < M) & (y < N))


# The grid is (column blocks, Z, 1).
@triton.jit
def gemv(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(1)
    ys = tl.program_id(0) * BN
    x = tl.arange(0, BM)[:, None, None]
    y = ys + tl.arange(0, BN)[None, :, None]
    x2 = tl.arange(0, BM)[:, None]
    y2 = ys + tl.arange(0, BN)[None, :]
    products = tl.zeros((BM, BN, BK), ACCUMULATOR)
    ahead()
    for place in tl.range(0, K, BK, num_stages=STAGES):
        start = place
        a = load_a(in0, z, x, start + tl.arange(0, BK)[None, None, :], M, K)
        b = load_b(in1, z, start + tl.arange(0, BK)[None, None, :], y, K, N)
        products += a.to(ACCUMULATOR) * b.to(ACCUMULATOR)
        b = next_b(b)
    acc = tl.sum(products, axis=2)
    store(out0, acc, z, x2, y2, M, N)


# Few rows of a dynamic number: BM is as many as calls typically have; more of them read B again.
# The grid is (column blocks, Z, row blocks).
@triton.jit
def gemv_rows(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(1)
    ys = tl.program_id(0) * BN
    xs = tl.program_id(2) * BM
    x = xs + tl.arange(0, BM)[:, None, None]
    y = ys + tl.arange(0, BN)[None, :, None]
    x2 = xs + tl.arange(0, BM)[:, None]
    y2 = ys + tl.arange(0, BN)[None, :]
    products = tl.zeros((BM, BN, BK), ACCUMULATOR)
    for start in tl.range(0, K, BK, num_stages=STAGES):
        a = load_a(in0, z, x, start + tl.arange(0, BK)[None, None, :], M, K)
        b = load_b(in1, z, start + tl.arange(0, BK)[None, None, :], y, K, N)
        products += a.to(ACCUMULATOR) * b.to(ACCUMULATOR)
    acc = tl.sum(products, axis=2)
    store(out0, acc, z, x2, y2, M, N)


# For constant B, Z = 1: as many programs as the device holds at once, each walks over its blocks of
# columns. It has its rows of A, which may be normed, once, and its next columns of B on the way
# while it adds up the last ones. BK covers K. The grid is (PROGRAMS, 1, 1).
@triton.jit
def gemv_walk(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    z = 0
    x = tl.arange(0, BM)[:, None, None]
    x2 = tl.arange(0, BM)[:, None]
    y = tl.program_id(0) * BN + tl.arange(0, BN)[None, :, None]
    b = load_b(in1, z, tl.arange(0, BK)[None, None, :], y, K, N)
    ahead()
    a = load_a(in0, z, x, tl.arange(0, BK)[None, None, :], M, K)
    for block in range(tl.program_id(0), tl.cdiv(N, BN), PROGRAMS):
        ys = block * BN
        y2 = ys + tl.arange(0, BN)[None, :]
        load_early()
        products = a.to(ACCUMULATOR) * b.to(ACCUMULATOR)
        following = tl.minimum(block + PROGRAMS, tl.cdiv(N, BN) - 1) * BN
        y = following + tl.arange(0, BN)[None, :, None]
        b = load_b(in1, z, tl.arange(0, BK)[None, None, :], y, K, N)
        acc = tl.sum(products, axis=2)
        store(out0, acc, z, x2, y2, M, N)
