"""Products of few rows with weights in narrow codes, on tensor cores (Gluon).

The weights are the rows here, the few rows of the other operand the columns. Codes come from memory
into the registers from which a tensor core takes its operand, and become numbers there: nothing
goes through shared memory, and no warp waits for another one before the end.

The first axis of all tiles are pieces of the depth, PIECE elements each, which have one factor.
Warp `w` has every WARPS-th of them from `w` on, so that all warps together read a row front to
back; its sums of each piece are multiplied by their factor, and the pieces of all warps are added
up at the end. A thread has VECTOR bytes of codes that lie together.

Holes: `load_a` loads the codes of a step of the depth, BK elements, `load_b` what they are
multiplied by, `multiply` adds the products to `acc`. `ahead` loads the codes of the only step
before it waits for other kernels, where no kernel writes them. As they stand, they multiply [M, K]
in i8 by the transposed bf16 [N, K]; those of codes read their factors at `pf` and `xf`.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


@gluon.jit
def ahead():
    pass


@gluon.jit
def load_a(in0, xa, k, M, K):
    return tl.load(in0 + tl.minimum(xa, M - 1) * K + k, mask=k < K, other=0)


@gluon.jit
def load_b(in1, yb, k, N, K):
    return tl.load(in1 + tl.minimum(yb, N - 1) * K + k, mask=k < K, other=0.0)


@gluon.jit
def multiply(a, b, acc, pf, xf):
    return mma_v2(a.to(tl.bfloat16), b, acc)


@gluon.jit
def store(out0, acc, x2, y2, M, N):
    tl.store(out0 + y2 * M + x2, acc, mask=(x2 < M) & (y2 < N))


# The grid is (row blocks, 1, column blocks).
@gluon.jit
def fragments(
    in0, in1, out0,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PIECE: tl.constexpr, CODES: tl.constexpr,
    VECTOR: tl.constexpr, TOGETHER: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    A: gl.constexpr = gl.DotOperandLayout(0, SUMS, VECTOR)
    B: gl.constexpr = gl.DotOperandLayout(1, SUMS, VECTOR)
    STORED: gl.constexpr = gl.BlockedLayout(
        [TOGETHER, 1], [16 // TOGETHER, 2 * TOGETHER], [1, WARPS], [0, 1]
    )
    xs = tl.program_id(0) * BM
    ys = tl.program_id(2) * BN
    pa = gl.arange(0, BK // PIECE, gl.SliceLayout(1, gl.SliceLayout(2, A)))[:, None, None]
    xa = xs + gl.arange(0, BM, gl.SliceLayout(0, gl.SliceLayout(2, A)))[None, :, None]
    ka = gl.arange(0, CODES, gl.SliceLayout(0, gl.SliceLayout(1, A)))[None, None, :]
    pb = gl.arange(0, BK // PIECE, gl.SliceLayout(1, gl.SliceLayout(2, B)))[:, None, None]
    yb = ys + gl.arange(0, BN, gl.SliceLayout(0, gl.SliceLayout(1, B)))[None, None, :]
    kb = gl.arange(0, CODES, gl.SliceLayout(0, gl.SliceLayout(2, B)))[None, :, None]
    pf = gl.arange(0, BK // PIECE, gl.SliceLayout(1, gl.SliceLayout(2, SUMS)))[:, None, None]
    xf = xs + gl.arange(0, BM, gl.SliceLayout(0, gl.SliceLayout(2, SUMS)))[None, :, None]
    x2 = xs + gl.arange(0, BM)[:, None]
    y2 = ys + gl.arange(0, BN)[None, :]
    acc = gl.zeros((BK // PIECE, BM, BN), tl.float32, layout=SUMS)
    ahead()
    for place in range(0, K, BK):
        start = place
        a = load_a(in0, xa, start + pa * PIECE + ka, M, K)
        b = load_b(in1, yb, start + pb * PIECE + kb, N, K)
        acc = multiply(a, b, acc, pf, xf)
    acc = gl.convert_layout(gl.sum(acc, 0), STORED)
    store(out0, acc, x2, y2, M, N)
