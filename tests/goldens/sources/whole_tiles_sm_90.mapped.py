# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16
# a_rows: tensordesc<bf16[64, 256]>
# b_rows: tensordesc<bf16[64, 256]>
# map a_rows of parameter 0 at 0: [256, 1536] [1536, 1]
# map b_rows of parameter 1 at 0: [512, 1536] [1536, 1]

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, a_rows, b_rows, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(512, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(256, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    ev0 = tl.load(in2 + y).to(tl.float32)
    for start in range(0, 1536, BK):
        a = a_rows.load([xs, start])
        b = b_rows.load([ys, start]).T
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    ev1 = acc + ev0
    ev2 = tl.where(ev1 < 0, 0, ev1)
    tl.store(out0 + x*512 + y, ev2)
