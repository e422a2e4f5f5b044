"""Products of few rows with weights in narrow codes: B streams through once as it is stored.

A program has BN columns and BM rows. Its tiles have the chunks of a row of B first, so that threads
that run together read chunks that lie together, and the codes of one chunk last, so that a thread
has a whole chunk: it widens the codes, adds up their products, and then multiplies by the factor of
their group. Of A it loads what belongs to its chunk in pieces of 16 bytes, whose elements lie along
the last axis: so nothing goes from one thread to another before the sums of the chunks.

Holes: `load_b` loads the chunks' codes and factors, `load_a` the pieces of A, `multiply` gives `p`,
the products' sums [chunks, BM, BN, 1]; `ahead` and `next_b` as in gemv.py. As they stand, they
multiply contiguous [Z, M, K] by the transposed [Z, N, K] of whole numbers in i8, in chunks of
LENGTH and one piece of WIDTH = LENGTH.
"""

import triton
import triton.language as tl


@triton.jit
def load_a(in0, z, x, k, M, K):
    return tl.load(in0 + (z * M + tl.minimum(x, M - 1)) * K + k, mask=k < K, other=0.0)


@triton.jit
def load_b(in1, z, k, y, K, N):
    return tl.load(in1 + (z * N + tl.minimum(y, N - 1)) * K + k, mask=k < K, other=0)


@triton.jit
def multiply(a, b):
    return tl.sum(a.to(tl.float32) * b.to(tl.float32), axis=3, keep_dims=True)


@triton.jit
def ahead():
    pass


@triton.jit
def next_b(b):
    return b


@triton.jit
def store(out0, acc, z, x, y, M, N):
    tl.store(out0 + (z * M + x) * N + y, acc, mask=(x < M) & (y < N))


# The grid is (column blocks, Z, row blocks).
@triton.jit
def decoding(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr,
    LENGTH: tl.constexpr, WIDTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(1)
    ys = tl.program_id(0) * BN
    xs = tl.program_id(2) * BM
    x = xs + tl.arange(0, BM)[None, :, None, None]
    y = ys + tl.arange(0, BN)[None, None, :, None]
    x2 = xs + tl.arange(0, BM)[:, None]
    y2 = ys + tl.arange(0, BN)[None, :]
    chunk = tl.arange(0, BK // LENGTH)[:, None, None, None]
    element = tl.arange(0, WIDTH)[None, None, None, :]
    products = tl.zeros((BK // LENGTH, BM, BN, 1), ACCUMULATOR)
    ahead()
    for place in tl.range(0, K, BK, num_stages=STAGES):
        start = place
        b = load_b(in1, z, start + chunk * LENGTH + element, y, K, N)
        a = load_a(in0, z, x, start + chunk * LENGTH + element, M, K)
        p = multiply(a, b)
        products += p
        b = next_b(b)
    acc = tl.sum(tl.sum(products, axis=3), axis=0)
    store(out0, acc, z, x2, y2, M, N)
