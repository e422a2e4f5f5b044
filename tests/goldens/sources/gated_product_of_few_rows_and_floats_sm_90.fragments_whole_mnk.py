# in0: *bf16
# in1: *u8
# in2: *fp32
# out0: *bf16

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


# As in the template: widened_e4m3, wait_for_kernels.


@gluon.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    WARPS: tl.constexpr
):
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    A: gl.constexpr = gl.DotOperandLayout(0, SUMS, 16)
    B: gl.constexpr = gl.DotOperandLayout(1, SUMS, 16)
    STORED: gl.constexpr = gl.BlockedLayout(
        [2, 1], [16 // 2, 2 * 2], [1, WARPS], [0, 1]
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
    xa = xa // 60 * 60 + xa % 2 * 30 + xa // 2 % 30
    xf = xf // 60 * 60 + xf % 2 * 30 + xf // 2 % 30
    x2 = x2 // 60 * 60 + x2 % 2 * 30 + x2 // 2 % 30
    xa = tl.minimum(xa, 59)
    xf = tl.minimum(xf, 59)
    start = 0
    pa_mask = (start + pa * 64) < 320
    byte = (start + pa * 64) + ka
    codes = tl.load(in1 + xa*320 + byte, mask=pa_mask, other=0)
    cb = (start + pf * 64) // 16
    pf_mask = (start + pf * 64) < 320
    v0 = tl.load(in2 + xf*5 + cb // 4, mask=pf_mask)
    x2_mask = x2 < 60
    y2_mask = y2 < 5
    part0 = x2
    part0_mask = (x2 < 30) & x2_mask
    wait_for_kernels()
    for place in range(0, 320, BK):
        start = place
        pb_mask = (start + pb * 64) < 320
        b = tl.load(in0 + yb * 320 + (start + pb * 64) + kb, mask=pb_mask & (yb < 5), other=0)
        a = widened_e4m3(codes).to(tl.bfloat16)
        sums = mma_v2(a, b, gl.zeros((BK // 64, BM, BN), tl.float32, layout=SUMS))
        acc += tl.where(pf_mask, sums * v0, 0.0)
    acc = gl.convert_layout(gl.sum(acc, 0), STORED)
    even, odd = tl.split(tl.permute(tl.reshape(acc, (BM // 2, 2, BN)), (0, 2, 1)))
    others = gl.convert_layout(tl.reshape(tl.permute(tl.join(odd, even), (0, 2, 1)), (BM, BN)), STORED)
    ev0 = acc.to(tl.bfloat16).to(tl.float32)
    ev1 = ev0 * tl.sigmoid(ev0)
    ev2 = others.to(tl.bfloat16).to(tl.float32)
    ev3 = ev1 * ev2
    tl.store(out0 + y2*30 + part0, ev3, mask=y2_mask & part0_mask)
