# in0: *bf16
# in1: *i8
# in2: *fp32
# out0: *bf16

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


@gluon.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    WARPS: tl.constexpr
):
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    A: gl.constexpr = gl.DotOperandLayout(0, SUMS, 16)
    B: gl.constexpr = gl.DotOperandLayout(1, SUMS, 16)
    STORED: gl.constexpr = gl.BlockedLayout(
        [1, 1], [16 // 1, 2 * 1], [1, WARPS], [0, 1]
    )
    xs = tl.program_id(0) * BM
    ys = tl.program_id(2) * BN
    pa = gl.arange(0, BK // 64, gl.SliceLayout(1, gl.SliceLayout(2, A)))[:, None, None]
    xa = xs + gl.arange(0, BM, gl.SliceLayout(0, gl.SliceLayout(2, A)))[None, :, None]
    ka = gl.arange(0, 64, gl.SliceLayout(0, gl.SliceLayout(1, A)))[None, None, :]
    pb = gl.arange(0, BK // 64, gl.SliceLayout(1, gl.SliceLayout(2, B)))[:, None, None]
    yb = ys + gl.arange(0, BN, gl.SliceLayout(0, gl.SliceLayout(1, B)))[None, None, :]
    kb = gl.arange(0, 64, gl.SliceLayout(0, gl.SliceLayout(2, B)))[None, :, None]
    pf = gl.arange(0, BK // 64, gl.SliceLayout(1, gl.SliceLayout(2, SUMS)))[:, None, None]
    xf = xs + gl.arange(0, BM, gl.SliceLayout(0, gl.SliceLayout(2, SUMS)))[None, :, None]
    x2 = xs + gl.arange(0, BM)[:, None]
    y2 = ys + gl.arange(0, BN)[None, :]
    acc = gl.zeros((BK // 64, BM, BN), tl.float32, layout=SUMS)
    for place in range(0, 4096, BK):
        start = place
        byte = (start + pa * 64) + ka
        codes = tl.load(in1 + xa*4096 + byte)
        cb = (start + pf * 64) // 16
        v0 = tl.load(in2 + xf*64 + cb // 4)
        b = tl.load(in0 + yb * 4096 + (start + pb * 64) + kb)
        a = codes.to(tl.int8, bitcast=True).to(tl.bfloat16)
        sums = mma_v2(a, b, gl.zeros((BK // 64, BM, BN), tl.float32, layout=SUMS))
        acc += sums * v0
    acc = gl.convert_layout(gl.sum(acc, 0), STORED)
    tl.store(out0 + y2*64 + x2, acc)
