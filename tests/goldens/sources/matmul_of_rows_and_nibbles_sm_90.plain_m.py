# in0: *bf16
# in1: *u8
# in2: *fp32
# out0: *bf16

import triton
import triton.language as tl


# As in the template: number_at, numbers_of_nibbles.


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(64, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(24, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    xa = tl.minimum(x, 23)
    column = ys + tl.arange(0, BN)[:, None, None]
    for start in range(0, 256, BK):
        ka = start + tl.arange(0, BK)[None, :]
        a = tl.load(in0 + xa*256 + ka)
        cb = start // 32 + tl.arange(0, BK // 32)[None, :, None]
        codes = tl.load(in1.to(tl.pointer_type(tl.int32), bitcast=True) + column*32 + cb*4 + tl.arange(0, 4)[None, None, :])
        numbers = numbers_of_nibbles(codes, 0, 8)
        v0 = tl.load(in2 + column*4 + cb // 2)
        numbers = (numbers * v0).to(tl.bfloat16)
        b = tl.reshape(numbers, (BN, BK)).T
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    x_mask = x < 24
    tl.store(out0 + x*64 + y, acc, mask=x_mask)
