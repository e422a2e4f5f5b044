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
        ka = start + tl.arange(0, BK)[None, :]
        a = tl.load(in0 + x*1536 + ka)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + y*1536 + kb)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    ev1 = acc + ev0
    ev2 = tl.where(ev1 < 0, 0, ev1)
    tl.store(out0 + x*512 + y, ev2)
