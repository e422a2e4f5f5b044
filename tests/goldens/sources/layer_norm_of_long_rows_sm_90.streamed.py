# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, RBLOCK: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr
):
    x = tl.program_id(0)
    lane0 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    lane2 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    for start in tl.range(0, 20011, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 20011
        v0 = tl.load(in0 + x*20011 + r, mask=r_mask, eviction_policy="evict_last")
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
    v12 = v9 * 20011.0
    v13 = v12 * 4.997251380700618e-05
    v14 = v11 * 4.997251380700618e-05
    v15 = v14 + 9.999999747378752e-06
    v16 = tl.rsqrt(v15)
    for start in tl.range(0, 20011, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 20011
        v17 = tl.load(in0 + x*20011 + r, mask=r_mask, eviction_policy="evict_first")
        v18 = v17 - v13
        v19 = v18 * v16
        v20 = tl.load(in1 + r, mask=r_mask, eviction_policy="evict_last")
        v21 = v19 * v20
        tl.store(out0 + x*20011 + r, v21, mask=r_mask)
