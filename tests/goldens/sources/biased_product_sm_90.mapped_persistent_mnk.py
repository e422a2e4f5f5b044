# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16
# a_rows: tensordesc<bf16[64, 256]>
# b_rows: tensordesc<bf16[64, 256]>
# map a_rows of parameter 0 at 0: [200, 1000] [1000, 1]
# map b_rows of parameter 1 at 0: [328, 1000] [1000, 1]

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, a_rows, b_rows, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr, FLATTEN: tl.constexpr
):
    width = GROUP * tl.cdiv(328, BN)
    tiles = tl.cdiv(200, BM) * tl.cdiv(328, BN)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN):
        first = tile // width * GROUP
        height = tl.minimum(tl.cdiv(200, BM) - first, GROUP)
        xs = (first + tile % width % height) * BM
        ys = tile % width // height * BN
        x = xs + tl.arange(0, BM)[:, None]
        y = ys + tl.arange(0, BN)[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        if FLATTEN == 0:
            y_mask = y < 328
            ev0 = tl.load(in2 + y, mask=y_mask).to(tl.float32)
        for start in range(0, 1000, BK):
            a = a_rows.load([xs, start])
            b = b_rows.load([ys, start]).T
            acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
        if not (FLATTEN == 0):
            y_mask = y < 328
            ev0 = tl.load(in2 + y, mask=y_mask).to(tl.float32)
        x_mask = x < 200
        ev1 = acc + ev0
        ev2 = tl.where(ev1 < 0, 0, ev1)
        tl.store(out0 + x*328 + y, ev2, mask=x_mask & y_mask)
