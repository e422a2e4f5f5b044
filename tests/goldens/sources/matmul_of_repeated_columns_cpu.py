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
    panel = 0
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    y_mask = y < 7
    v0 = tl.load(in1 + n, mask=y_mask, other=0.0)
    for start in range(0, 37, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 37
        a = tl.load(in0 + x*37 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 37
        b = tl.broadcast_to(tl.where(kb_mask, v0, 0.0), BK, BN)
        acc = tl.dot(a, b, acc, "ieee", max_num_imprecise_acc=0, out_dtype=tl.float32)
    tl.store(out0 + x*7 + n, acc, mask=y_mask)
