# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    v0 = tl.full((1, YBLOCK), float("-inf"), tl.float32)
    for start in range(0, 70001, RBLOCK):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 70001
        v1 = tl.load(in0 + r*40 + y, mask=y_mask & r_mask)
        v2 = tl.where(r_mask, v1, float("-inf"))
        v3 = tl.max(v2, axis=0, keep_dims=True)
        v0 = tl.maximum(v0, v3)
    v4 = tl.full((1, YBLOCK), 0.0, tl.float32)
    for start in range(0, 70001, RBLOCK):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 70001
        v5 = tl.load(in0 + r*40 + y, mask=y_mask & r_mask)
        v6 = v5 - v0
        v7 = tl.exp(v6)
        v8 = tl.where(r_mask, v7, 0.0)
        v9 = tl.sum(v8, axis=0, keep_dims=True)
        v4 = v4 + v9
    for start in range(0, 70001, RBLOCK):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 70001
        v10 = tl.load(in0 + r*40 + y, mask=y_mask & r_mask)
        v11 = v10 - v0
        v12 = tl.exp(v11)
        v13 = v12 / v4
        tl.store(out0 + r*40 + y, v13, mask=y_mask & r_mask)
