# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16

import triton
import triton.language as tl


# As in the template: held.


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(64, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(34, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    x_mask = x < 34
    if BM * BN <= 8192:
        ev0_held = tl.load(in2 + x*64 + y, mask=x_mask).to(tl.float32)
    xa = tl.minimum(x, 33)
    for start in range(0, 64, BK):
        ka = start + tl.arange(0, BK)[None, :]
        a = tl.load(in0 + xa*64 + ka)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + y*64 + kb)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    if BM * BN <= 8192:
        ev0 = held(ev0_held)
    if not (BM * BN <= 8192):
        ev0 = tl.load(in2 + x*64 + y, mask=x_mask).to(tl.float32)
    ev1 = acc + ev0
    tl.store(out0 + (x // 17)*1088 + (y // 16)*272 + (x % 17)*16 + y % 16, ev1, mask=x_mask)
