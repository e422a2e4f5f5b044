# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, 70, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 70
        a = tl.load(in0 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 70
        b = tl.load(in1 + kb, mask=kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=0, out_dtype=tl.float32)
    tl.store(out0 + tl.zeros((1, 1), tl.int32), acc)
