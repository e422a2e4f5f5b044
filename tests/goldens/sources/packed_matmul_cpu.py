# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    panel = tl.program_id(1)
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    x_mask = x < 33
    y_mask = y < 130
    xa = tl.minimum(x, 32)
    for start in range(0, 100, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 100
        a = tl.load(in0 + xa*100 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 100
        b = tl.load(in1 + panel*6400 + kb*64 + n, mask=kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    v0 = tl.sigmoid(acc)
    v1 = acc * v0
    tl.store(out0 + x*130 + panel*64 + n, v1, mask=x_mask & y_mask)
