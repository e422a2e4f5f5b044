# in0: *fp32
# out0: *i64
# part0: *fp32
# part1: *i32
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
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    x = row
    lane0 = tl.full((RBLOCK // VECTOR,), float("-inf"), tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 2147483647, tl.int32)
    for start in tl.range(part * RBLOCK, 30001, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 30001
        v0 = tl.load(in0 + x*30001 + r, mask=r_mask)
        v1 = tl.where(r_mask, v0, float("-inf"))
        v2 = tl.max(v1, axis=1)
        v3 = tl.min(tl.where(v1 == v2[:, None], r, 2147483647), axis=1)
        v4 = (v2 > lane0) | (lane1 == 2147483647)
        v5 = tl.where(v4, v2, lane0)
        v6 = tl.where(v4, v3, lane1)
        lane0 = v5
        lane1 = v6
    v7 = tl.max(lane0, axis=0)
    v8 = tl.min(tl.where(lane0 == v7, lane1, 2147483647), axis=0)
    tl.store(part0 + row * PARTS + part, v7)
    tl.store(part1 + row * PARTS + part, v8)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)
        v9 = tl.load(part0 + row * PARTS + others, mask=others < PARTS, other=float("-inf"), volatile=True)
        v10 = tl.load(part1 + row * PARTS + others, mask=others < PARTS, other=2147483647, volatile=True)
        v11 = tl.max(v9, axis=0)
        v12 = tl.min(tl.where(v9 == v11, v10, 2147483647), axis=0)
        v13 = tl.minimum(v12, 30000).to(tl.int64)
        tl.store(out0 + x, v13)
        tl.store(arrived + row, 0)
