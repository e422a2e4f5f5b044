# in0: *fp32
# out0: *fp32
# part0: *fp32
# arrived: *i32
# scratch part0: any
# scratch arrived: zeroed

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, part0, arrived, RBLOCK: tl.constexpr, VECTOR: tl.constexpr, PARTS: tl.constexpr,
    QBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    begun = tl.atomic_add(arrived, 1)
    row = begun // PARTS
    part = begun % PARTS
    x = row
    others = tl.arange(0, QBLOCK)
    lane0 = tl.full((RBLOCK // VECTOR,), float("-inf"), tl.float32)
    for start in tl.range(part * RBLOCK, 20011, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 20011
        v0 = tl.load(in0 + x*20011 + r, mask=r_mask, eviction_policy="evict_last")
        v1 = tl.where(r_mask, v0, float("-inf"))
        lane0 = tl.maximum(lane0, tl.max(v1, axis=1))
    v2 = tl.max(lane0, axis=0)
    tl.store(part0 + row * PARTS + part, v2)
    tl.debug_barrier()
    seen = tl.atomic_add(arrived + 2 + row, 1) + 1
    while seen < PARTS * 1:
        seen = tl.atomic_add(arrived + 2 + row, 0)
    v3 = tl.load(part0 + row * PARTS + others, mask=others < PARTS, other=float("-inf"), volatile=True)
    v4 = tl.max(v3, axis=0)
    for start in tl.range(part * RBLOCK, 20011, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 20011
        v5 = tl.load(in0 + x*20011 + r, mask=r_mask, eviction_policy="evict_first")
        v6 = tl.math.div_rn(v5, v4)
        tl.store(out0 + x*20011 + r, v6, mask=r_mask)
    if tl.atomic_add(arrived + 2 + row, 1) == PARTS * 2 - 1:
        tl.store(arrived + 2 + row, 0)
        if tl.atomic_add(arrived + 1, 1) == 2:
            tl.store(arrived, 0)
            tl.store(arrived + 1, 0)
