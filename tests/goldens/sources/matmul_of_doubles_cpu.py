# in0: *fp64
# in1: *fp64
# out0: *fp64

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    panel = 0
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float64)
    y_mask = y < 5
    for start in range(0, 33, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 33
        a = tl.load(in0 + x*33 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 33
        b = tl.load(in1 + kb*5 + n, mask=y_mask & kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=0, out_dtype=tl.float64)
    tl.store(out0 + x*5 + n, acc, mask=y_mask)
