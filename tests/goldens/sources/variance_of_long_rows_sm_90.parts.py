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
    in0, out0, part0, part1, part2, arrived, RBLOCK: tl.constexpr, VECTOR: tl.constexpr,
    PARTS: tl.constexpr, QBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    x = row
    lane0 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    lane2 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    for start in tl.range(part * RBLOCK, 30001, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 30001
        v0 = tl.load(in0 + x*30001 + r, mask=r_mask)
        v1 = tl.where(r_mask, v0, 0.0)
        v2 = tl.where(r_mask, v1 - lane1[:, None], 0.0)
        v3 = lane0 + tl.sum(r_mask.to(tl.float32), axis=1)
        v4 = lane1 + tl.sum(v2, axis=1) / tl.maximum(v3, 1.0)
        v5 = v3
        v6 = v4
        v7 = lane2 + tl.sum(tl.where(r_mask, v2 * (v1 - v4[:, None]), 0.0), axis=1)
        lane0 = v5
        lane1 = v6
        lane2 = v7
    v8 = tl.sum(lane0, axis=0)
    v9 = tl.sum(lane1 * lane0, axis=0) / v8
    v10 = lane1 - v9
    v11 = tl.sum(lane2 + lane0 * v10 * v10, axis=0)
    tl.store(part0 + row * PARTS + part, v8)
    tl.store(part1 + row * PARTS + part, v9)
    tl.store(part2 + row * PARTS + part, v11)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)
        v12 = tl.load(part0 + row * PARTS + others, mask=others < PARTS, other=0.0, volatile=True)
        v13 = tl.load(part1 + row * PARTS + others, mask=others < PARTS, other=0.0, volatile=True)
        v14 = tl.load(part2 + row * PARTS + others, mask=others < PARTS, other=0.0, volatile=True)
        v15 = tl.sum(v12, axis=0)
        v16 = tl.sum(v13 * v12, axis=0) / v15
        v17 = v13 - v16
        v18 = tl.sum(v14 + v12 * v17 * v17, axis=0)
        v19 = v16 * 30001.0
        v20 = v18 * 3.333222048240714e-05
        tl.store(out0 + x, v20)
        tl.store(arrived + row, 0)
