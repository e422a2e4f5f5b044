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
    x = tl.minimum(tl.program_id(0) * BM, size_n - BM) + tl.arange(0, BM)[:, None]
    n = tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, 48, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 48
        a = tl.load(in0 + x*48 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 48
        b = tl.load(in1 + kb*64 + n, mask=kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    tl.store(out0 + x*64 + n, acc)
