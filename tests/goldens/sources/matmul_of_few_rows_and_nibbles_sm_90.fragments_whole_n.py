# in0: *bf16
# in1: *u8
# in2: *fp32
# out0: *bf16

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


# As in the template: raised_nibbles, wait_for_kernels.


@gluon.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    WARPS: tl.constexpr
):
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    A: gl.constexpr = gl.DotOperandLayout(0, SUMS, 8)
    B: gl.constexpr = gl.DotOperandLayout(1, SUMS, 8)
    STORED: gl.constexpr = gl.BlockedLayout(
        [1, 1], [16 // 1, 2 * 1], [1, WARPS], [0, 1]
    )
    xs = tl.program_id(0) * BM
    ys = tl.program_id(2) * BN
    pa = gl.arange(0, BK // 64, gl.SliceLayout(1, gl.SliceLayout(2, A)))[:, None, None]
    xa = xs + gl.arange(0, BM, gl.SliceLayout(0, gl.SliceLayout(2, A)))[None, :, None]
    ka = gl.arange(0, 32, gl.SliceLayout(0, gl.SliceLayout(1, A)))[None, None, :]
    pb = gl.arange(0, BK // 64, gl.SliceLayout(1, gl.SliceLayout(2, B)))[:, None, None]
    yb = ys + gl.arange(0, BN, gl.SliceLayout(0, gl.SliceLayout(1, B)))[None, None, :]
    kb = gl.arange(0, 32, gl.SliceLayout(0, gl.SliceLayout(2, B)))[None, :, None]
    pf = gl.arange(0, BK // 64, gl.SliceLayout(1, gl.SliceLayout(2, SUMS)))[:, None, None]
    xf = xs + gl.arange(0, BM, gl.SliceLayout(0, gl.SliceLayout(2, SUMS)))[None, :, None]
    x2 = xs + gl.arange(0, BM)[:, None]
    y2 = ys + gl.arange(0, BN)[None, :]
    acc = gl.zeros((BK // 64, BM, BN), tl.float32, layout=SUMS)
    start = 0
    byte = (start + pa * 64) // 2 + ka
    codes = tl.load(in1 + xa*128 + byte)
    cb = (start + pf * 64) // 32
    v0 = tl.load(in2 + xf*4 + cb // 2)
    y2_mask = y2 < 6
    wait_for_kernels()
    for place in range(0, 256, BK):
        start = place
        words = tl.load(in0.to(tl.pointer_type(tl.int32), bitcast=True) + yb * 128 + (start + pb * 64) // 2 + kb, mask=(yb < 6), other=0)
        b = (words & 0xFFFF).to(tl.int16).to(tl.bfloat16, bitcast=True)
        b1 = (words >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
        a, a1 = raised_nibbles(codes, "0x43004300", tl.bfloat16)
        a = (a - 136.0).to(tl.bfloat16)
        a1 = (a1 - 136.0).to(tl.bfloat16)
        sums = mma_v2(a, b, gl.zeros((BK // 64, BM, BN), tl.float32, layout=SUMS))
        sums = mma_v2(a1, b1, sums)
        acc += sums * v0
    acc = gl.convert_layout(gl.sum(acc, 0), STORED)
    tl.store(out0 + y2*64 + x2, acc, mask=y2_mask)
