# in0: *fp32
# out0: *fp32
# part0: *fp32
# part1: *fp32
# part2: *fp32
# arrived: *i32
# scratch part0: any
# scratch part1: any
# scratch part2: any
# scratch arrived: zeroed

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, part0, part1, part2, arrived, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr,
    PARTS: tl.constexpr, QBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    z = row // tl.cdiv(40, YBLOCK)
    y = row % tl.cdiv(40, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    lane0 = tl.full((RBLOCK, 1), 0.0, tl.float32)
    lane1 = tl.full((RBLOCK, YBLOCK), 0.0, tl.float32)
    lane2 = tl.full((RBLOCK, YBLOCK), 0.0, tl.float32)
    for start in tl.range(part * RBLOCK, 3000, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 3000
        v0 = tl.load(in0 + z*120000 + r*40 + y, mask=y_mask & r_mask)
        v1 = tl.where(r_mask, v0, 0.0)
        v2 = tl.where(r_mask, v1 - lane1, 0.0)
        v3 = lane0 + r_mask.to(tl.float32)
        v4 = 1.0 / tl.maximum(v3, 1.0)
        v5 = lane1 + v2 * v4
        v6 = v3
        v7 = v5
        v8 = lane2 + tl.where(r_mask, v2 * (v1 - v5), 0.0)
        lane0 = v6
        lane1 = v7
        lane2 = v8
    v9 = tl.sum(lane0, axis=0, keep_dims=True)
    v10 = tl.sum(lane1 * lane0, axis=0, keep_dims=True) / v9
    v11 = lane1 - v10
    v12 = tl.sum(lane2 + lane0 * v11 * v11, axis=0, keep_dims=True)
    tl.store(part0 + (row * PARTS + part) * YBLOCK + tl.arange(0, YBLOCK)[None, :], v9)
    tl.store(part1 + (row * PARTS + part) * YBLOCK + tl.arange(0, YBLOCK)[None, :], v10)
    tl.store(part2 + (row * PARTS + part) * YBLOCK + tl.arange(0, YBLOCK)[None, :], v12)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)[:, None]
        v13 = tl.load(part0 + (row * PARTS + others) * YBLOCK + tl.arange(0, YBLOCK)[None, :], mask=others < PARTS, other=0.0, volatile=True)
        v14 = tl.load(part1 + (row * PARTS + others) * YBLOCK + tl.arange(0, YBLOCK)[None, :], mask=others < PARTS, other=0.0, volatile=True)
        v15 = tl.load(part2 + (row * PARTS + others) * YBLOCK + tl.arange(0, YBLOCK)[None, :], mask=others < PARTS, other=0.0, volatile=True)
        v16 = tl.sum(v13, axis=0, keep_dims=True)
        v17 = tl.sum(v14 * v13, axis=0, keep_dims=True) / v16
        v18 = v14 - v17
        v19 = tl.sum(v15 + v13 * v18 * v18, axis=0, keep_dims=True)
        v20 = v17 * 3000.0
        v21 = v19 * 0.00033333332976326346
        tl.store(out0 + z*40 + y, v21, mask=y_mask)
        tl.store(arrived + row, 0)
