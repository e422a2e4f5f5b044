# in0: *fp32
# out0: *fp32
# part0: *fp32
# part1: *fp32
# arrived: *i32
# scratch part0: any
# scratch part1: any
# scratch arrived: zeroed

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, part0, part1, arrived, RBLOCK: tl.constexpr, VECTOR: tl.constexpr,
    PARTS: tl.constexpr, QBLOCK: tl.constexpr
):
    begun = tl.atomic_add(arrived, 1)
    row = begun // PARTS
    part = begun % PARTS
    x = row
    r = part * RBLOCK + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    r_mask = r < 20011
    others = tl.arange(0, QBLOCK)
    v0 = tl.load(in0 + x*20011 + r, mask=r_mask)
    v1 = tl.where(r_mask, v0, float("-inf"))
    v2 = tl.maximum(tl.max(v1, axis=None), -3.4028234663852886e+38)
    v3 = tl.sum(tl.exp(v1 - v2), axis=None)
    tl.store(part0 + row * PARTS + part, v2)
    tl.store(part1 + row * PARTS + part, v3)
    tl.debug_barrier()
    seen = tl.atomic_add(arrived + 2 + row, 1) + 1
    while seen < PARTS * 1:
        seen = tl.atomic_add(arrived + 2 + row, 0)
    v4 = tl.load(part0 + row * PARTS + others, mask=others < PARTS, other=-3.4028234663852886e+38, volatile=True)
    v5 = tl.load(part1 + row * PARTS + others, mask=others < PARTS, other=0.0, volatile=True)
    v6 = tl.max(v4, axis=0)
    v7 = tl.sum(v5 * tl.exp(v4 - v6), axis=0)
    v8 = tl.where(v7 == 0, float("-inf"), v6)
    v9 = v0 - v8
    v10 = tl.exp(v9)
    v11 = tl.math.div_rn(v10, v7)
    tl.store(out0 + x*20011 + r, v11, mask=r_mask)
    if tl.atomic_add(arrived + 2 + row, 1) == PARTS * 2 - 1:
        tl.store(arrived + 2 + row, 0)
        if tl.atomic_add(arrived + 1, 1) == 2:
            tl.store(arrived, 0)
            tl.store(arrived + 1, 0)
