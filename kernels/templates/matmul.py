"""Batched matrix products, a template a function; a program has a tile of the result.

Holes: `load_a`, `load_b` (the prologue: whatever computes an operand's elements), `store` (the
epilogue), on a CPU `tile_rows`, and on a GPU `describe` (tensor descriptors of the operands, if the
loads use any), `multiply` (of a tile of each) and `load_early` (what the epilogue reads, whose way
from memory is then over when the loop is).

As they stand, they multiply contiguous [Z, M, K] by [Z, K, N].
"""

import triton
import triton.language as tl


@triton.jit
def describe(in0, in1, M, N, K):
    pass


@triton.jit
def tile_rows(BM: tl.constexpr):
    return tl.program_id(0) * BM + tl.arange(0, BM)[:, None]


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
def load_early():
    pass


@triton.jit
def multiply(a, b, acc, PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr):
    return tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACCUMULATOR)


# For CPUs. The grid is (M tiles, N tiles, Z): neighbouring programs read the same columns of B.
# APART is how many products may be added up before they go to the accumulator; 0: those of a tile.
@triton.jit
def matmul(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, APART: tl.constexpr = 0,
):  # fmt: skip
    z = tl.program_id(2)
    x = tile_rows(BM)
    panel = tl.program_id(1)
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    for start in range(0, K, BK):
        a = load_a(in0, z, x, start + tl.arange(0, BK)[None, :], M, K)
        b = load_b(in1, z, start + tl.arange(0, BK)[:, None], y, K, N)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=APART, out_dtype=ACCUMULATOR)
    store(out0, acc, z, x, y, M, N)


# For CPUs, with constant weights in panels of BN columns: B is [ceil(N / BN), K, BN], zero-padded,
# so that a program streams its panel front to back. The grid is (M tiles, panels, 1), or (panels,
# M tiles, 1) where PANELS, the axis of the panels, is 0.
@triton.jit
def matmul_packed(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, PANELS: tl.constexpr = 1,
):  # fmt: skip
    panel = tl.program_id(PANELS)
    x = tile_rows(BM)
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    for start in range(0, K, BK):
        a = load_a(in0, 0, x, start + tl.arange(0, BK)[None, :], M, K)
        b = load_b(in1, panel, start + tl.arange(0, BK)[:, None], n, K, BN)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=ACCUMULATOR)
    store(out0, acc, 0, x, y, M, N)


# For GPUs. Programs go over the tiles in groups of GROUP rows of tiles, so that those which run
# together share operands in the cache. The grid is (tiles, Z, 1).
@triton.jit
def matmul_plain(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
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
    load_early()
    for start in range(0, K, BK):
        a = load_a(in0, z, x, start + tl.arange(0, BK)[None, :], M, K)
        b = load_b(in1, z, start + tl.arange(0, BK)[:, None], y, K, N)
        acc = multiply(a, b, acc, PRECISION, ACCUMULATOR)
    store(out0, acc, z, x, y, M, N)


# For few tiles and long rows: SPLIT programs a tile, each a part of the depth.
#
# Each program writes its partial tile; the last to arrive adds all of them in their order, so that
# the same input gives the same bits whoever is last, and runs the epilogue. It leaves its counter
# zero for the next launch. The grid is (tiles, SPLIT, Z).
@triton.jit
def matmul_split(
    in0, in1, out0, partials, counters,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
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
    load_early()
    for step in range(0, tl.cdiv(K, BK * SPLIT) * BK, BK):
        start = part * (tl.cdiv(K, BK * SPLIT) * BK) + step
        a = load_a(in0, z, x, start + tl.arange(0, BK)[None, :], M, K)
        b = load_b(in1, z, start + tl.arange(0, BK)[:, None], y, K, N)
        acc = multiply(a, b, acc, PRECISION, ACCUMULATOR)
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


# For many tiles, Z = 1: as many programs as multiprocessors, each walks over its tiles. Operands
# come by tensor descriptors, made once a program. The grid is (PROGRAMS, 1, 1).
@triton.jit
def matmul_persistent(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    describe(in0, in1, M, N, K)
    width = GROUP * tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN):
        first = tile // width * GROUP
        height = tl.minimum(tl.cdiv(M, BM) - first, GROUP)
        xs = (first + tile % width % height) * BM
        ys = tile % width // height * BN
        x = xs + tl.arange(0, BM)[:, None]
        y = ys + tl.arange(0, BN)[None, :]
        acc = tl.zeros((BM, BN), ACCUMULATOR)
        load_early()
        for start in range(0, K, BK):
            a = load_a(in0, 0, x, start + tl.arange(0, BK)[None, :], M, K)
            b = load_b(in1, 0, start + tl.arange(0, BK)[:, None], y, K, N)
            acc = multiply(a, b, acc, PRECISION, ACCUMULATOR)
        store(out0, acc, 0, x, y, M, N)
