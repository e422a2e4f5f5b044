# in0: *bf16
# in1: *bf16
# in2: *bf16
# in3: *bf16
# out0: *bf16
# out1: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, in3, out0, out1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(96, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(9, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    y = y // 32 * 32 + y % 2 * 16 + y // 2 % 16
    xa = tl.minimum(x, 8)
    yb = tl.minimum(y, 95)
    for start in range(0, 64, BK):
        ka = start + tl.arange(0, BK)[None, :]
        a = tl.load(in0 + xa*64 + ka)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + yb*64 + kb)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    even, odd = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
    others = tl.reshape(tl.join(odd, even), (BM, BN))
    x_mask = x < 9
    y_mask = y < 96
    part0 = y - 64
    part0_mask = (y >= 64) & y_mask
    part1 = y
    part1_mask = (y < 64) & y_mask
    v0 = tl.load(in2 + part0 + 64, mask=part0_mask).to(tl.float32)
    v1 = acc + v0
    v2 = v1.to(tl.bfloat16).to(tl.float32)
    v3 = v2 * v2
    v4 = v3 * v2
    tl.store(out0 + x*32 + part0, v4, mask=x_mask & part0_mask)
    v5 = tl.load(in2 + part1, mask=part1_mask).to(tl.float32)
    v6 = acc + v5
    v7 = v6.to(tl.bfloat16).to(tl.float32)
    v8 = tl.load(in3 + x*32 + part1 % 32, mask=x_mask & part1_mask).to(tl.float32)
    v9 = tl.cos(v8)
    v10 = v7 * v9
    inside0 = part1 % 32 >= 16
    v11 = tl.load(in2 + part1 - 16, mask=part1_mask & inside0).to(tl.float32)
    v12 = others + v11
    v13 = v12.to(tl.bfloat16).to(tl.float32)
    inside1 = part1 % 32 < 16
    v14 = tl.load(in2 + part1 + 16, mask=part1_mask & inside1).to(tl.float32)
    v15 = others + v14
    v16 = v15.to(tl.bfloat16).to(tl.float32)
    v17 = v16 * -1.0
    v18 = tl.where(inside1, v17, v13)
    v19 = tl.sin(v8)
    v20 = v18 * v19
    v21 = v10 + v20
    tl.store(out1 + x*64 + part1, v21, mask=x_mask & part1_mask)
