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
    in0, out0, part0, part1, arrived, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr,
    PARTS: tl.constexpr, QBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    z = row // tl.cdiv(40, YBLOCK)
    y = row % tl.cdiv(40, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    lane0 = tl.full((RBLOCK, YBLOCK), -3.4028234663852886e+38, tl.float32)
    lane1 = tl.full((RBLOCK, YBLOCK), 0.0, tl.float32)
    for start in tl.range(part * RBLOCK, 3000, PARTS * RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 3000
        v0 = tl.load(in0 + z*120000 + r*40 + y, mask=y_mask & r_mask)
        v1 = tl.where(r_mask, v0, float("-inf"))
        v2 = v1 - lane0
        v3 = tl.exp(-tl.abs(v2))
        v4 = tl.maximum(lane0, v1)
        v5 = tl.where(v2 > 0, lane1 * v3 + 1.0, lane1 + v3)
        lane0 = v4
        lane1 = v5
    v6 = tl.max(lane0, axis=0, keep_dims=True)
    v7 = tl.sum(lane1 * tl.exp(lane0 - v6), axis=0, keep_dims=True)
    tl.store(part0 + (row * PARTS + part) * YBLOCK + tl.arange(0, YBLOCK)[None, :], v6)
    tl.store(part1 + (row * PARTS + part) * YBLOCK + tl.arange(0, YBLOCK)[None, :], v7)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)[:, None]
        v8 = tl.load(part0 + (row * PARTS + others) * YBLOCK + tl.arange(0, YBLOCK)[None, :], mask=others < PARTS, other=-3.4028234663852886e+38, volatile=True)
        v9 = tl.load(part1 + (row * PARTS + others) * YBLOCK + tl.arange(0, YBLOCK)[None, :], mask=others < PARTS, other=0.0, volatile=True)
        v10 = tl.max(v8, axis=0, keep_dims=True)
        v11 = tl.sum(v9 * tl.exp(v8 - v10), axis=0, keep_dims=True)
        v12 = tl.where(v11 == 0, float("-inf"), v10)
        v13 = tl.log(v11)
        v14 = v13 + v12
        tl.store(out0 + z*40 + y, v14, mask=y_mask)
        tl.store(arrived + row, 0)
