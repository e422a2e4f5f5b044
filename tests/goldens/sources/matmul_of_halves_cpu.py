# in0: *bf16
# in1: *bf16
# out0: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    z = tl.program_id(2)
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    panel = 0
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    x_mask = x < 9
    y_mask = y < 17
    xa = tl.minimum(x, 8)
    for start in range(0, 33, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 33
        v0 = tl.load(in0 + z*297 + xa*33 + ka, mask=ka_mask, other=0.0).to(tl.float32)
        a = v0.to(tl.bfloat16)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 33
        v1 = tl.load(in1 + z*561 + kb*17 + n, mask=y_mask & kb_mask, other=0.0).to(tl.float32)
        b = v1.to(tl.bfloat16)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=0, out_dtype=tl.float32)
    tl.store(out0 + z*153 + x*17 + n, acc, mask=x_mask & y_mask)
