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
    z = tl.program_id(2)
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    panel = 0
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    x_mask = x < 37
    y_mask = y < 21
    xa = tl.minimum(x, 36)
    for start in range(0, 45, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 45
        a = tl.load(in0 + z*1665 + xa*45 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 45
        b = tl.load(in1 + (z % 3)*945 + kb*21 + n, mask=y_mask & kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=0, out_dtype=tl.float32)
    v0 = tl.load(in2 + n, mask=y_mask)
    v1 = acc + v0
    v2 = tl.where(v1 < 0, 0, v1)
    tl.store(out0 + z*777 + x*21 + n, v2, mask=x_mask & y_mask)
