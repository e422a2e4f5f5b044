"""Matrix product for few tiles and long rows: SPLIT programs a tile, each a part of the depth.

Each program writes its partial tile; the last to arrive adds all of them in their order, so that
the same input gives the same bits whoever is last, and runs the epilogue. It leaves its counter
zero for the next launch. SPLIT divides the number of steps over K. Holes as in matmul_plain.py; as
it stands it multiplies contiguous [Z, M, K] by [Z, K, N]; the grid is (tiles, SPLIT, Z).
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
def matmul_split(
    in0,
    in1,
    out0,
    partials,
    counters,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SPLIT: tl.constexpr,
):
    tile = tl.program_id(0)
    part = tl.program_id(1)
    z = tl.program_id(2)
    width = GROUP * tl.cdiv(N, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    describe(in0, in1, M, N, K)
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    for step in range(0, tl.cdiv(K, BK * SPLIT) * BK, BK):
        start = part * (tl.cdiv(K, BK * SPLIT) * BK) + step
        a = load_a(in0, z, x, start + tl.arange(0, BK)[None, :], M, K)
        b = load_b(in1, z, start + tl.arange(0, BK)[:, None], y, K, N)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    slot = z * tl.num_programs(0) + tile
    own = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(partials + (slot * SPLIT + part) * (BM * BN) + own, acc)
    tl.debug_barrier()  # all of the tile is written before the count says so
    arrived = tl.atomic_add(counters + slot, 1, sem="acq_rel")
    if arrived == SPLIT - 1:
        tl.store(counters + slot, 0)
        total = tl.zeros((BM, BN), ACCUMULATOR)
        for other in range(SPLIT):
            if other == part:
                total += acc
            if other != part:
                place = partials + (slot * SPLIT + other) * (BM * BN) + own
                total += tl.load(place, cache_modifier=".cg")
        acc = total
        store(out0, acc, z, x, y, M, N)
