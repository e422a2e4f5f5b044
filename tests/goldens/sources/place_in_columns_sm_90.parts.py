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
    in0, out0, part0, part1, arrived, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr,
    PARTS: tl.constexpr, QBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    z = row // tl.cdiv(40, YBLOCK)
    y = row % tl.cdiv(40, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    lane0 = tl.full((RBLOCK, YBLOCK), float("-inf"), tl.float32)
    lane1 = tl.full((RBLOCK, YBLOCK), 2147483647, tl.int32)
    for start in tl.range(part * RBLOCK, 3000, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 3000
        v0 = tl.load(in0 + z*120000 + r*40 + y, mask=y_mask & r_mask)
        v1 = tl.where(r_mask, v0, float("-inf"))
        v2 = (v1 > lane0) | (lane1 == 2147483647)
        v3 = tl.where(v2, v1, lane0)
        v4 = tl.where(v2, r, lane1)
        lane0 = v3
        lane1 = v4
    v5 = tl.max(lane0, axis=0, keep_dims=True)
    v6 = tl.min(tl.where(lane0 == v5, lane1, 2147483647), axis=0, keep_dims=True)
    tl.store(part0 + (row * PARTS + part) * YBLOCK + tl.arange(0, YBLOCK)[None, :], v5)
    tl.store(part1 + (row * PARTS + part) * YBLOCK + tl.arange(0, YBLOCK)[None, :], v6)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)[:, None]
        v7 = tl.load(part0 + (row * PARTS + others) * YBLOCK + tl.arange(0, YBLOCK)[None, :], mask=others < PARTS, other=float("-inf"), volatile=True)
        v8 = tl.load(part1 + (row * PARTS + others) * YBLOCK + tl.arange(0, YBLOCK)[None, :], mask=others < PARTS, other=2147483647, volatile=True)
        v9 = tl.max(v7, axis=0, keep_dims=True)
        v10 = tl.min(tl.where(v7 == v9, v8, 2147483647), axis=0, keep_dims=True)
        v11 = tl.minimum(v10, 2999).to(tl.int64)
        tl.store(out0 + z*40 + y, v11, mask=y_mask)
        tl.store(arrived + row, 0)
