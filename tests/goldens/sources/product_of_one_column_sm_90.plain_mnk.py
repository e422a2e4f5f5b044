# in0: *fp32
# in1: *fp32
# in2: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(1, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(96, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    xa = tl.minimum(x, 95)
    for start in range(0, 300, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 300
        a = tl.load(in0 + xa*300 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 300
        v0 = tl.load(in1 + kb, mask=kb_mask, other=0.0)
        b = tl.broadcast_to(v0, BK, BN)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    single1 = tl.sum(tl.where(y == 0, acc, 0.0), axis=1, keep_dims=True)
    x_mask = x < 96
    ev0 = tl.load(in2)
    ev1 = single1 + ev0
    ev2 = tl.where(ev1 < 0, 0, ev1)
    tl.store(out0 + x, ev2, mask=x_mask)
