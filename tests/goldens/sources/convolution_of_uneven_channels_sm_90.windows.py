# in0: *fp32
# in1: *fp32
# in2: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    y = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    steps: tl.constexpr = (40 + BK - 1) // BK
    x_mask = x < 132
    y_mask = y < 24
    xa = tl.minimum(x, 131)
    rows = in0 + (xa*40 - 960)
    edge0 = xa // 11 - 2
    inside0 = ((edge0 >= 0).to(tl.int32) << 0) | ((edge0 < 8).to(tl.int32) << 2) | 2
    edge1 = xa % 11 - 2
    inside1 = ((edge1 >= 0).to(tl.int32) << 0) | ((edge1 < 7).to(tl.int32) << 2) | 2
    v0 = tl.load(in2 + y, mask=y_mask)
    for step in range(9 * steps):
        kernel_offset = step // steps
        ca = step % steps * BK + tl.arange(0, BK)[None, :]
        a = tl.load(rows + ((kernel_offset // 3)*880 + (kernel_offset % 3)*80 + ca), mask=((inside0 >> (kernel_offset // 3)) & (inside1 >> (kernel_offset % 3)) & 1 != 0) & (ca < 40), other=0.0)
        cb = step % steps * BK + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + y*360 + kernel_offset*40 + cb, mask=(cb < 40) & y_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3", out_dtype=tl.float32)
    v1 = acc + v0
    v2 = tl.where(v1 < 0, 0, v1)
    tl.store(out0 + x*24 + y, v2, mask=x_mask & y_mask)
