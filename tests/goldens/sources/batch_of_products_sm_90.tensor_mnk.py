# in0: *fp16
# in1: *fp16
# out0: *fp16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    z = tl.program_id(1)
    width = GROUP * tl.cdiv(72, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(136, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    a_rows = tl.make_tensor_descriptor(in0 + z * 136000, [136, 1000], [1000, 1], [BM, BK])
    b_rows = tl.make_tensor_descriptor(in1 + z * 72000, [1000, 72], [72, 1], [BK, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, 1000, BK):
        a = a_rows.load([xs, start])
        b = b_rows.load([start, ys])
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    x_mask = x < 136
    y_mask = y < 72
    ev0 = acc * 0.5
    tl.store(out0 + z*9792 + x*72 + y, ev0, mask=x_mask & y_mask)
