# in0: *fp32
# out0: *fp32
# out1: *fp32
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
    in0, out0, out1, part0, part1, arrived, RBLOCK: tl.constexpr, VECTOR: tl.constexpr,
    PARTS: tl.constexpr, QBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    x = row
    lane0 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), float("-inf"), tl.float32)
    for start in tl.range(part * RBLOCK, 30001, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 30001
        v0 = tl.load(in0 + x*30001 + r, mask=r_mask)
        v1 = tl.where(r_mask, v0, 0.0)
        lane0 = lane0 + tl.sum(v1, axis=1)
        v2 = tl.where(r_mask, v0, float("-inf"))
        lane1 = tl.maximum(lane1, tl.max(v2, axis=1))
    v3 = tl.sum(lane0, axis=0)
    v4 = tl.max(lane1, axis=0)
    tl.store(part0 + row * PARTS + part, v3)
    tl.store(part1 + row * PARTS + part, v4)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)
        v5 = tl.load(part0 + row * PARTS + others, mask=others < PARTS, other=0.0, volatile=True)
        v6 = tl.sum(v5, axis=0)
        v7 = tl.load(part1 + row * PARTS + others, mask=others < PARTS, other=float("-inf"), volatile=True)
        v8 = tl.max(v7, axis=0)
        tl.store(out0 + x, v6)
        tl.store(out1 + x, v8)
        tl.store(arrived + row, 0)
