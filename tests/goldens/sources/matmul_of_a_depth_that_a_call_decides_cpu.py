# in0: *fp32
# in1: *fp32
# out0: *fp32
# size_n: i32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, size_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    panel = 0
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    x_mask = x < 18
    y_mask = y < 24
    xa = tl.minimum(x, 17)
    for start in range(0, size_n, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < size_n
        a = tl.load(in0 + xa*size_n + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < size_n
        b = tl.load(in1 + kb*24 + n, mask=y_mask & kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=0, out_dtype=tl.float32)
    tl.store(out0 + x*24 + n, acc, mask=x_mask & y_mask)
