# in0: *fp32
# out0: *fp32
# part0: *fp32
# arrived: *i32
# scratch part0: any
# scratch arrived: zeroed

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, part0, arrived, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr, PARTS: tl.constexpr,
    QBLOCK: tl.constexpr
):
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    r = part * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    r_mask = r < 70001
    v0 = tl.load(in0 + r*40 + y, mask=y_mask & r_mask)
    v1 = tl.where(r_mask, v0, float("-inf"))
    v2 = tl.max(v1, axis=0, keep_dims=True)
    tl.store(part0 + (row * PARTS + part) * YBLOCK + tl.arange(0, YBLOCK)[None, :], v2)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == PARTS - 1:
        others = tl.arange(0, QBLOCK)[:, None]
        v3 = tl.load(part0 + (row * PARTS + others) * YBLOCK + tl.arange(0, YBLOCK)[None, :], mask=others < PARTS, other=float("-inf"), volatile=True)
        v4 = tl.max(v3, axis=0, keep_dims=True)
        tl.store(out0 + y, v4, mask=y_mask)
        tl.store(arrived + row, 0)
