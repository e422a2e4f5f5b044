# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    inside0 = x < 5
    inside1 = n < 20
    for start in range(0, 32, BK):
        ka = start + tl.arange(0, BK)[None, :]
        inside2 = (ka - 1 >= 0) & (ka - 1 < 30)
        a = tl.load(in0 + x*30 + ka - 1, mask=inside0 & inside2, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + kb*20 + n, mask=inside1, other=0.0)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=0, out_dtype=tl.float32)
    tl.store(out0 + x*32 + n, acc)
