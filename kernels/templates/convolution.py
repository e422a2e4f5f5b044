"""Convolution of channels-last images as a matrix product over kernel offsets, for GPUs.

Row x of A is the window at one position: RUN channels for each of KERNEL_SIZE kernel offsets, where
a kernel offset outside the image reads zeros. What a row needs (its offset, and which kernel
offsets are inside, one bit each) is computed once before the loop; a step of the loop adds a scalar
and tests a bit. BK divides RUN, or covers it.

Holes: `load_a`, `load_b` (one step's blocks of the operands) and `store` (the epilogue). As it
stands it multiplies windows of SIDE × SIDE kernel offsets of contiguous [N, H, W, C], stride 1 and
padded to keep the size, by [KERNEL_SIZE · RUN, N]; RUN is C. The grid is (M tiles, N tiles, Z).
"""

import triton
import triton.language as tl


@triton.jit
def load_a(
    in0, z, x, kernel_offset, c, M, RUN, H: tl.constexpr, W: tl.constexpr, SIDE: tl.constexpr
):
    row = (
        tl.minimum(x, M - 1)
        + (z + kernel_offset // SIDE - SIDE // 2) * W
        + kernel_offset % SIDE
        - SIDE // 2
    )
    high, wide = (
        x // W % H + kernel_offset // SIDE - SIDE // 2,
        x % W + kernel_offset % SIDE - SIDE // 2,
    )
    inside = (high >= 0) & (high < H) & (wide >= 0) & (wide < W) & (c < RUN)
    return tl.load(in0 + row * RUN + c, mask=inside, other=0.0)


@triton.jit
def load_b(in1, z, kernel_offset, c, y, RUN, N):
    return tl.load(in1 + (kernel_offset * RUN + c) * N + y, mask=(c < RUN) & (y < N), other=0.0)


@triton.jit
def store(out0, acc, z, x, y, M, N):
    tl.store(out0 + (z * M + x) * N + y, acc, mask=(x < M) & (y < N))


@triton.jit
def convolution(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, KERNEL_SIZE: tl.constexpr, RUN: tl.constexpr,
    ACCUMULATOR: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(2)
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    y = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    steps: tl.constexpr = (RUN + BK - 1) // BK
    for step in range(KERNEL_SIZE * steps):
        kernel_offset = step // steps
        a = load_a(
            in0, z, x, kernel_offset, step % steps * BK + tl.arange(0, BK)[None, :], M, RUN, 8, 8, 3
        )
        b = load_b(in1, z, kernel_offset, step % steps * BK + tl.arange(0, BK)[:, None], y, RUN, N)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    store(out0, acc, z, x, y, M, N)


@triton.jit
def convolution_packed(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, KERNEL_SIZE: tl.constexpr, RUN: tl.constexpr,
    PACK: tl.constexpr, ACCUMULATOR: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    # Kernel offsets of few channels: BK holds several of them, each in PACK columns.
    z = tl.program_id(2)
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    y = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    for start in range(0, KERNEL_SIZE * PACK, BK):
        ka = start + tl.arange(0, BK)[None, :]
        kb = start + tl.arange(0, BK)[:, None]
        a = load_a(in0, z, x, ka // PACK, ka % PACK, M, RUN, 8, 8, 3)
        b = load_b(in1, z, kb // PACK, kb % PACK, y, RUN, N)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    store(out0, acc, z, x, y, M, N)


@triton.jit
def convolution_split(
    in0, in1, out0, partials, counters,
    M: tl.constexpr, N: tl.constexpr, KERNEL_SIZE: tl.constexpr, RUN: tl.constexpr,
    ACCUMULATOR: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    # Each tile's loop is shared by SPLIT programs; the last one adds up what all of them stored,
    # always in the same order. Counters are zero again when it is done.
    z = tl.program_id(2) // SPLIT
    part = tl.program_id(2) % SPLIT
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    y = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), ACCUMULATOR)
    steps: tl.constexpr = (RUN + BK - 1) // BK
    first = part * KERNEL_SIZE * steps // SPLIT
    last = (part + 1) * KERNEL_SIZE * steps // SPLIT
    for step in range(first, last):
        kernel_offset = step // steps
        a = load_a(
            in0, z, x, kernel_offset, step % steps * BK + tl.arange(0, BK)[None, :], M, RUN, 8, 8, 3
        )
        b = load_b(in1, z, kernel_offset, step % steps * BK + tl.arange(0, BK)[:, None], y, RUN, N)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    tile = (z * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    own = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(partials + (tile * SPLIT + part) * (BM * BN) + own, acc, cache_modifier=".cg")
    tl.debug_barrier()  # all of the tile is written before the count says so
    arrived = tl.atomic_add(counters + tile, 1, sem="acq_rel")
    if arrived == SPLIT - 1:
        tl.store(counters + tile, 0)
        acc = tl.zeros((BM, BN), ACCUMULATOR)
        for other in range(SPLIT):
            place = partials + (tile * SPLIT + other) * (BM * BN) + own
            acc += tl.load(place, cache_modifier=".cg")
        store(out0, acc, z, x, y, M, N)
