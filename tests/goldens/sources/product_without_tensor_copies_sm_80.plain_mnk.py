# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(328, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(200, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    y_mask = y < 328
    ev0 = tl.load(in2 + y, mask=y_mask).to(tl.float32)
    xa = tl.minimum(x, 199)
    yb = tl.minimum(y, 327)
    for start in range(0, 1000, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 1000
        a = tl.load(in0 + xa*1000 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 1000
        b = tl.load(in1 + yb*1000 + kb, mask=kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    x_mask = x < 200
    ev1 = acc + ev0
    ev2 = tl.where(ev1 < 0, 0, ev1)
    tl.store(out0 + x*328 + y, ev2, mask=x_mask & y_mask)
