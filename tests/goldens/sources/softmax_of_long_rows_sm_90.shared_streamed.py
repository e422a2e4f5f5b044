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
    PARTS: tl.constexpr, QBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    begun = tl.atomic_add(arrived, 1)
    row = begun // PARTS
    part = begun % PARTS
    x = row
    others = tl.arange(0, QBLOCK)
    lane0 = tl.full((RBLOCK // VECTOR,), -3.4028234663852886e+38, tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    for start in tl.range(part * RBLOCK, 20011, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 20011
        v0 = tl.load(in0 + x*20011 + r, mask=r_mask, eviction_policy="evict_last")
        v1 = tl.where(r_mask, v0, float("-inf"))
        v2 = tl.maximum(lane0, tl.max(v1, axis=1))
        v3 = v2
        v4 = lane1 * tl.exp(lane0 - v2) + tl.sum(tl.exp(v1 - v2[:, None]), axis=1)
        lane0 = v3
        lane1 = v4
    v5 = tl.max(lane0, axis=0)
    v6 = tl.sum(lane1 * tl.exp(lane0 - v5), axis=0)
    tl.store(part0 + row * PARTS + part, v5)
    tl.store(part1 + row * PARTS + part, v6)
    tl.debug_barrier()
    seen = tl.atomic_add(arrived + 2 + row, 1) + 1
    while seen < PARTS * 1:
        seen = tl.atomic_add(arrived + 2 + row, 0)
    v7 = tl.load(part0 + row * PARTS + others, mask=others < PARTS, other=-3.4028234663852886e+38, volatile=True)
    v8 = tl.load(part1 + row * PARTS + others, mask=others < PARTS, other=0.0, volatile=True)
    v9 = tl.max(v7, axis=0)
    v10 = tl.sum(v8 * tl.exp(v7 - v9), axis=0)
    v11 = tl.where(v10 == 0, float("-inf"), v9)
    for start in tl.range(part * RBLOCK, 20011, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 20011
        v12 = tl.load(in0 + x*20011 + r, mask=r_mask, eviction_policy="evict_first")
        v13 = v12 - v11
        v14 = tl.exp(v13)
        v15 = tl.math.div_rn(v14, v10)
        tl.store(out0 + x*20011 + r, v15, mask=r_mask)
    if tl.atomic_add(arrived + 2 + row, 1) == PARTS * 2 - 1:
        tl.store(arrived + 2 + row, 0)
        if tl.atomic_add(arrived + 1, 1) == 2:
            tl.store(arrived, 0)
            tl.store(arrived + 1, 0)
