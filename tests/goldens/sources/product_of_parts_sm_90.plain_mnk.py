# in0: *bf16
# in1: *bf16
# out0: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(50, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(40, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    xa = tl.minimum(x, 39)
    y_mask = y < 50
    for start in range(0, 104, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 104
        a = tl.load(in0 + xa*136 + ka + 32, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 104
        v0 = tl.load(in1 + kb*50 + y, mask=y_mask & kb_mask).to(tl.float32)
        v1 = tl.exp(v0)
        b = tl.where(kb_mask, v1, 0.0).to(tl.bfloat16)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    x_mask = x < 40
    y_mask = y < 50
    tl.store(out0 + x*50 + y, acc, mask=x_mask & y_mask)
