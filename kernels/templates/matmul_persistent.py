"""Matrix product for many tiles: as many programs as multiprocessors, each walks over its tiles.

Operands come by tensor descriptors, made once a program. Holes as in matmul_plain.py. As it stands
it multiplies a contiguous [M, K] by [K, N], whose rows must begin at multiples of 16 bytes; the
grid is (PROGRAMS, 1, 1).
"""

import triton
import triton.language as tl


@triton.jit
def describe(in0, in1, M, N, K):
    pass


@triton.jit
def load_a(in0, xs, start, M, K, BM: tl.constexpr, BK: tl.constexpr):
    return tl.make_tensor_descriptor(in0, [M, K], [K, 1], [BM, BK]).load([xs, start])


@triton.jit
def load_b(in1, start, ys, K, N, BK: tl.constexpr, BN: tl.constexpr):
    return tl.make_tensor_descriptor(in1, [K, N], [N, 1], [BK, BN]).load([start, ys])


@triton.jit
def store(out0, acc, x, y, M, N):
    tl.store(out0 + x * N + y, acc, mask=(x < M) & (y < N))


@triton.jit
def matmul_persistent(
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
    PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr,
):
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
        for start in range(0, K, BK):
            a = load_a(in0, xs, start, M, K, BM, BK)
            b = load_b(in1, start, ys, K, N, BK, BN)
            acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACCUMULATOR)
        store(out0, acc, x, y, M, N)
