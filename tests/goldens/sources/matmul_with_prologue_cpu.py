# in0: *fp32
# in1: *fp32
# in2: *fp32
# out0: *fp32

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    panel = tl.program_id(1)
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    x_mask = x < 50
    y_mask = y < 33
    xa = tl.minimum(x, 49)
    v0 = tl.load(in1 + xa)
    for start in range(0, 64, BK):
        ka = start + tl.arange(0, BK)[None, :]
        v1 = tl.load(in0 + xa*64 + ka)
        v2 = tl.exp(v1)
        a = v2 * v0
        kb = start + tl.arange(0, BK)[:, None]
        v3 = tl.load(in2 + panel*2048 + n*64 + kb, mask=y_mask)
        b = libdevice.tanh(v3)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=0, out_dtype=tl.float32)
    tl.store(out0 + x*33 + panel*32 + n, acc, mask=x_mask & y_mask)
