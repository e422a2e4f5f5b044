# in0: *fp32
# out0: *i64
# out1: *i64
# part0: *fp32
# part1: *i32
# part2: *fp32
# part3: *i32
# arrived: *i32
# scratch part0: any
# scratch part1: any
# scratch part2: any
# scratch part3: any
# scratch arrived: zeroed

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, out1, part0, part1, part2, part3, arrived, RBLOCK: tl.constexpr,
    VECTOR: tl.constexpr, PARTS: tl.constexpr, QBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    x = row
    lane0 = tl.full((RBLOCK // VECTOR,), float("-inf"), tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 2147483647, tl.int32)
    lane2 = tl.full((RBLOCK // VECTOR,), float("inf"), tl.float32)
    lane3 = tl.full((RBLOCK // VECTOR,), 2147483647, tl.int32)
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
        v7 = tl.where(r_mask, v0, float("inf"))
        v8 = tl.min(v7, axis=1)
        v9 = tl.min(tl.where(v7 == v8[:, None], r, 2147483647), axis=1)
        v10 = (v8 < lane2) | (lane3 == 2147483647)
        v11 = tl.where(v10, v8, lane2)
        v12 = tl.where(v10, v9, lane3)
        lane2 = v11
        lane3 = v12
    v13 = tl.max(lane0, axis=0)
    v14 = tl.min(tl.where(lane0 == v13, lane1, 2147483647), axis=0)
    v15 = tl.min(lane2, axis=0)
    v16 = tl.min(tl.where(lane2 == v15, lane3, 2147483647), axis=0)
    tl.store(part0 + row * PARTS + part, v13)
    tl.store(part1 + row * PARTS + part, v14)
    tl.store(part2 + row * PARTS + part, v15)
    tl.store(part3 + row * PARTS + part, v16)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)
        v17 = tl.load(part0 + row * PARTS + others, mask=others < PARTS, other=float("-inf"), volatile=True)
        v18 = tl.load(part1 + row * PARTS + others, mask=others < PARTS, other=2147483647, volatile=True)
        v19 = tl.max(v17, axis=0)
        v20 = tl.min(tl.where(v17 == v19, v18, 2147483647), axis=0)
        v21 = tl.load(part2 + row * PARTS + others, mask=others < PARTS, other=float("inf"), volatile=True)
        v22 = tl.load(part3 + row * PARTS + others, mask=others < PARTS, other=2147483647, volatile=True)
        v23 = tl.min(v21, axis=0)
        v24 = tl.min(tl.where(v21 == v23, v22, 2147483647), axis=0)
        v25 = tl.minimum(v20, 30000).to(tl.int64)
        v26 = tl.minimum(v24, 30000).to(tl.int64)
        tl.store(out0 + x, v25)
        tl.store(out1 + x, v26)
        tl.store(arrived + row, 0)
