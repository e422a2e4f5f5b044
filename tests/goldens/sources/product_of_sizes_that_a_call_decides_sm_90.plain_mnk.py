# in0: *fp16
# in1: *fp16
# out0: *fp16
# size_m: i32
# size_n: i32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, size_m, size_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    z = tl.program_id(1)
    width = GROUP * tl.cdiv(size_m, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(size_n, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    xa = tl.minimum(x, (size_n - 1))
    yb = tl.minimum(y, (size_m - 1))
    for start in range(0, 30, BK):
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 30
        a = tl.load(in0 + z*(30*size_n) + xa*30 + ka, mask=ka_mask, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 30
        b = tl.load(in1 + z*(30*size_m) + yb*30 + kb, mask=kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    x_mask = x < size_n
    y_mask = y < size_m
    tl.store(out0 + z*(size_m*size_n) + x*size_m + y, acc, mask=x_mask & y_mask)
