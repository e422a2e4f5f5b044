# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    z = tl.program_id(1)
    y = tl.arange(0, YBLOCK)[None, :]
    r = tl.arange(0, RBLOCK)[:, None]
    r_mask = r < 100
    v0 = tl.load(in0 + (z // 2)*6400 + (r // 10)*640 + (z % 2)*320 + (r % 10)*32 + y, mask=r_mask)
    v1 = tl.where(r_mask, v0, 0.0)
    v2 = tl.sum(v1, axis=0, keep_dims=True)
    tl.store(out0 + z*32 + y, v2)
