# in0: *bf16
# out0: *bf16
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
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    x = row
    lane0 = tl.full((RBLOCK // VECTOR,), -3.4028234663852886e+38, tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    for start in tl.range(part * RBLOCK, 30001, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 30001
        v0 = tl.load(in0 + x*30001 + r, mask=r_mask).to(tl.float32)
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
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)
        v7 = tl.load(part0 + row * PARTS + others, mask=others < PARTS, other=-3.4028234663852886e+38, volatile=True)
        v8 = tl.load(part1 + row * PARTS + others, mask=others < PARTS, other=0.0, volatile=True)
        v9 = tl.max(v7, axis=0)
        v10 = tl.sum(v8 * tl.exp(v7 - v9), axis=0)
        v11 = tl.where(v10 == 0, float("-inf"), v9)
        v12 = tl.log(v10)
        v13 = v12 + v11
        tl.store(out0 + x, v13)
        tl.store(arrived + row, 0)
